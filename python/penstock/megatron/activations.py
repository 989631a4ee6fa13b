"""What a forward keeps for its backward: moved to the host in between (OFFLOAD, RELOAD), or computed again (RECOMPUTE)."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from penstock.megatron.checks import contracts

_Checkpoint: Any = contracts.attribute("CheckpointFunction", "megatron.core.tensor_parallel.random")

_SMALLEST = 1024  # bytes of a storage; a smaller one costs more time than memory


class SavedTensors:
    """The tensors that a forward saves for its backward, as storages that can leave the device.

    Storages stay where they are that are small, or that others keep alive: of parameters, buffers and the input. A storage is
    freed once nobody else reads it, so an output that is being sent stays until it has been sent.
    """

    def __init__(self, model: torch.nn.Module, given: torch.Tensor | None) -> None:
        kept: Iterable[torch.Tensor] = [*model.parameters(), *torch.nn.Module.buffers(model), *filter(torch.is_tensor, [given])]
        self._resident = {tensor.untyped_storage()._cdata for tensor in kept}
        self._storages: dict[int, _Storage] = {}  # empty after the reload, so that the backward frees them one by one
        self._left: Any = None  # the events after the copies, on a GPU
        self._returned: Any = None

    def saving(self) -> Any:
        """Returns the context in which the forward runs."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)

    def offload(self) -> None:
        """Starts to move the storages to the host."""
        with _beside("out") as stream:
            for storage in self._storages.values():
                storage.offload(stream)
            self._left = stream and stream.record_event()

    def reload(self) -> None:
        """Starts to move the storages back."""
        for storage in self._storages.values():
            storage.allocate()
        with _beside("in") as stream:
            if stream is not None:
                stream.wait_event(self._left)
            for storage in self._storages.values():
                storage.reload()
            self._returned = stream and stream.record_event()
        self._storages.clear()

    def wait(self) -> None:
        """Lets what follows on the current stream wait for the reload."""
        if self._returned is not None:
            torch.cuda.current_stream().wait_event(self._returned)

    def _pack(self, tensor: torch.Tensor) -> _Saved | torch.Tensor:
        # Without its graph: an output that its own graph keeps would never be freed.
        tensor = tensor.detach()
        if type(tensor) is not torch.Tensor:
            return tensor
        storage = tensor.untyped_storage()
        if storage.nbytes() < _SMALLEST or storage._cdata in self._resident:
            return tensor
        return _Saved(self._storages.setdefault(storage._cdata, _Storage(storage)), tensor)


class _Storage:
    """A storage on the device or on the host. Several saved tensors may be views of it."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.data: torch.UntypedStorage | None = storage
        self._host: torch.Tensor | None = None
        self._device = storage.device

    def offload(self, stream: Any) -> None:
        """Copies the storage to the host and frees it once the stream has done so."""
        if self.data is None or not self.data.nbytes():  # emptied by Megatron, which fills it again in the backward
            return
        data = _bytes(self.data)
        self._host = torch.empty(data.shape, dtype=torch.uint8, pin_memory=data.is_cuda)
        self._host.copy_(data, non_blocking=True)
        if data.is_cuda:
            data.record_stream(stream)
        self.data = None

    def allocate(self) -> None:
        """Allocates memory for ``reload``, on the stream that will read it."""
        if self._host is not None:
            self.data = torch.empty(self._host.shape, dtype=torch.uint8, device=self._device).untyped_storage()

    def reload(self) -> None:
        """Copies the storage back."""
        if self._host is not None and self.data is not None:
            _bytes(self.data).copy_(self._host, non_blocking=True)
            self._host = None


class _Saved:
    """A saved tensor: a view of a storage."""

    def __init__(self, storage: _Storage, tensor: torch.Tensor) -> None:
        self._storage, self._dtype = storage, tensor.dtype
        self._view = tensor.storage_offset(), tensor.size(), tensor.stride()

    def tensor(self) -> torch.Tensor:
        """Returns the tensor, whose storage is on the device."""
        data = self._storage.data
        assert data is not None  # schedules without a RELOAD before the backward are refused
        return torch.empty(0, dtype=self._dtype, device=data.device).set_(data, *self._view)


def _unpack(packed: _Saved | torch.Tensor) -> torch.Tensor:
    return packed.tensor() if isinstance(packed, _Saved) else packed


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


@functools.cache
def _stream(direction: str) -> Any:
    """Returns the stream of the copies in a direction, None without a GPU."""
    del direction
    return torch.cuda.Stream() if torch.cuda.is_available() else None  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _beside(direction: str) -> Iterator[Any]:
    """Runs the block on the stream of a direction, after what the current one has begun. Yields the stream."""
    stream = _stream(direction)
    if stream is None:
        yield None
        return
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield stream


def recompute(output: torch.Tensor) -> None:
    """Runs the forwards again that Megatron would run again in the backward of this output, and keeps what they save."""
    for node in _checkpoints(output):
        recomputation = _Recomputation(node)
        # Megatron's own backward restores the state of the random numbers and runs the forward.
        _Checkpoint.backward(recomputation, torch.zeros(()))
        node.run_function = functools.partial(_Recomputed.apply, recomputation)


def _checkpoints(output: torch.Tensor) -> list[Any]:
    """Returns Megatron's checkpoints in the graph of an output, the first layers first."""
    found, seen, waiting = [], set(), [output.grad_fn]
    while waiting:
        node: Any = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if getattr(type(node), "_forward_cls", None) is _Checkpoint:
            found.append(node)
        waiting += [each for each, _ in node.next_functions]
    return found[::-1]


class _Recomputation:
    """In place of a checkpoint's context: lets Megatron's backward run the forward, and nothing after it."""

    def __init__(self, node: Any) -> None:
        self._node, self.saved_tensors = node, node.saved_tensors
        self.inputs: tuple[Any, ...] = ()
        self.outputs: tuple[Any, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def run_function(self, *inputs: Any) -> torch.Tensor:
        """Runs the forward. Returns an output of its own, for the gradient that Megatron computes next."""
        outputs = self._node.run_function(*inputs)
        self.inputs, self.outputs = inputs, outputs if isinstance(outputs, tuple) else (outputs,)
        return torch.zeros((), requires_grad=True)


class _Recomputed(torch.autograd.Function):
    """Outputs that were computed before the backward, for the inputs with which Megatron would compute them in it."""

    @staticmethod
    def forward(ctx: Any, recomputation: _Recomputation, *inputs: Any) -> tuple[Any, ...]:
        del inputs
        ctx.recomputation = recomputation
        kept = recomputation.outputs
        outputs = tuple(each.detach() if torch.is_tensor(each) else each for each in kept)
        constant = (new for new, old in zip(outputs, kept, strict=True) if torch.is_tensor(old) and not old.requires_grad)
        ctx.mark_non_differentiable(*constant)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        recomputation = ctx.recomputation
        del ctx.recomputation
        pairs = [
            (output, gradient)
            for output, gradient in zip(recomputation.outputs, gradients, strict=True)
            if torch.is_tensor(output) and output.requires_grad
        ]
        torch.autograd.backward([output for output, _ in pairs], [gradient for _, gradient in pairs])
        computed = tuple(each.grad if torch.is_tensor(each) else None for each in recomputation.inputs)
        recomputation.inputs = recomputation.outputs = recomputation.saved_tensors = ()  # Megatron's context is kept for longer
        return None, *computed
