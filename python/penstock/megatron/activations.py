"""What a forward keeps for its backward: moved to the host in between (OFFLOAD, RELOAD), or computed again (RECOMPUTE)."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from penstock.megatron import contracts

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
        self._left: Any = None  # events of the streams that copy
        self._returned: Any = None

    def saving(self) -> Any:
        """Returns the context in which the forward runs."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)

    def offload(self) -> None:
        """Starts to move the storages to the host."""
        for storage in self._storages.values():
            self._left = storage.offload() or self._left

    def reload(self) -> None:
        """Starts to move the storages back."""
        for storage in self._storages.values():
            self._returned = storage.reload(self._left) or self._returned
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

    def offload(self) -> Any:
        """Returns the event after the copy, if this is a GPU."""
        if self.data is None or not self.data.nbytes():  # emptied by Megatron, which fills it again in the backward
            return None
        bytes_ = _bytes(self.data)
        self._host = torch.empty(bytes_.shape, dtype=torch.uint8, pin_memory=bytes_.is_cuda)
        self.data = None
        with _beside(self._device, "out") as stream:
            self._host.copy_(bytes_, non_blocking=True)
            if stream is None:
                return None
            bytes_.record_stream(stream)
            return stream.record_event()

    def reload(self, left: Any) -> Any:
        """Returns the event after the copy, if this is a GPU. ``left`` is the event after the offload."""
        if self._host is None:
            return None
        bytes_ = torch.empty(self._host.shape, dtype=torch.uint8, device=self._device)
        self.data = bytes_.untyped_storage()
        with _beside(self._device, "in") as stream:
            if stream is not None:
                stream.wait_event(left)
            bytes_.copy_(self._host, non_blocking=True)
            self._host = None
            return stream and stream.record_event()


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
def _stream(device: torch.device, direction: str) -> Any:
    del direction  # each has its own stream
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _beside(device: torch.device, direction: str) -> Iterator[Any]:
    """Runs the block on a stream of its own, after what the current one has begun. Yields the stream, None for a CPU."""
    if device.type != "cuda":
        yield None
        return
    stream = _stream(device, direction)
    stream.wait_stream(torch.cuda.current_stream(device))
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
    """Returns Megatron's checkpoints in the graph of an output, those of the first layers first."""
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
        outputs = tuple(each.detach() if torch.is_tensor(each) else each for each in recomputation.outputs)
        ctx.mark_non_differentiable(
            *(new for new, old in zip(outputs, recomputation.outputs, strict=True) if torch.is_tensor(old) and not old.requires_grad)
        )
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
        return None, *(each.grad if torch.is_tensor(each) else None for each in recomputation.inputs)
