"""Outputs and gradients between the ranks of a pipeline.

Ranks post sends and receives in the order of their lanes, which is the same on both sides of each pair, so that NCCL's streams
and transports that block complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from penstock import Error
from penstock.megatron.checks import contracts

_free = contracts.function(
    "deallocate_output_tensor", "megatron.core.pipeline_parallel.schedules", required="out deallocate_pipeline_outputs"
)

_DIMENSIONS = 3  # of outputs: sequence, batch, hidden


class _Sent(NamedTuple):
    handle: Any
    tensor: torch.Tensor  # kept alive until it has been sent
    output: torch.Tensor | None  # freed after it has been sent


class Messages:
    """The messages of one step.

    Args:
        group: the pipeline's process group.
        shape: of outputs, in elements, unless ``variable``.
        variable: whether microbatches have different shapes; each output is sent after its shape.
        frees: whether Megatron frees outputs after they are sent.
    """

    def __init__(
        self, group: Any, shape: Sequence[int], dtype: torch.dtype, device: torch.device, *, variable: bool, frees: bool
    ) -> None:
        self._group, self._shape, self._dtype, self._device = group, tuple(shape), dtype, device
        self._variable, self._frees = variable, frees
        self._pending: list[_Sent] = []

    def send_output(self, output: torch.Tensor, peer: int, *, free: bool) -> None:
        """Sends an output to a rank. With ``free``, frees its data afterwards: only its graph is needed."""
        if self._variable:
            if output.dim() != _DIMENSIONS:
                raise Error(f"an output has shape {tuple(output.shape)}; stages send {_DIMENSIONS} dimensions")
            shape = torch.tensor(output.shape, dtype=torch.int64, device=self._device)
            self._pending.append(_Sent(dist.isend(shape, peer, group=self._group), shape, None))
        elif output.shape != self._shape:
            raise Error(
                f"an output has shape {tuple(output.shape)} and the next stage expects {self._shape}; set seq_length and "
                "micro_batch_size of the step to those of the microbatches, or variable_seq_lengths"
            )
        self._send(output, peer, output if free and self._frees else None)

    def send_gradient(self, gradient: torch.Tensor | None, peer: int) -> None:
        """Sends the gradient of a stage's input."""
        if gradient is None:
            raise Error("a stage has no gradient for its input: its output does not depend on it")
        self._send(gradient, peer, None)

    def receive_output(self, peer: int, *, requires_grad: bool) -> tuple[Any, torch.Tensor]:
        """Starts to receive an output. Blocks for its shape if shapes vary."""
        shape = self._shape
        if self._variable:
            sizes = torch.empty(_DIMENSIONS, dtype=torch.int64, device=self._device)
            dist.recv(sizes, peer, group=self._group)
            shape = tuple(sizes.tolist())
        return self._receive(shape, peer, requires_grad)

    def receive_gradient(self, shape: Sequence[int], peer: int) -> tuple[Any, torch.Tensor]:
        """Starts to receive the gradient of an output with this shape."""
        return self._receive(shape, peer, False)

    def release(self, output: torch.Tensor) -> None:
        """Frees an output that was to be freed once sent, after it has been sent."""
        for position, sent in enumerate(self._pending):
            if sent.output is output:
                self._complete(self._pending.pop(position))
                return

    def finish(self) -> None:
        """Waits until everything has been sent."""
        while self._pending:
            self._complete(self._pending.pop())

    def _receive(self, shape: Sequence[int], peer: int, requires_grad: bool) -> tuple[Any, torch.Tensor]:
        tensor = torch.empty(shape, dtype=self._dtype, device=self._device)
        handle = dist.irecv(tensor, peer, group=self._group)
        return handle, tensor.requires_grad_(requires_grad)

    def _send(self, tensor: torch.Tensor, peer: int, output: torch.Tensor | None) -> None:
        if tensor.dtype != self._dtype:
            raise Error(f"a stage sends {tensor.dtype} and the next one expects {self._dtype}: set pipeline_dtype={tensor.dtype}")
        waiting = []
        for sent in self._pending:
            if sent.handle.is_completed():
                self._complete(sent)
            else:
                waiting.append(sent)
        whole = tensor.detach().contiguous()
        waiting.append(_Sent(dist.isend(whole, peer, group=self._group), whole, output))
        self._pending = waiting

    def _complete(self, sent: _Sent) -> None:
        sent.handle.wait()
        if sent.output is not None:
            _free(out=sent.output, deallocate_pipeline_outputs=True)
