"""A Trainer of several processes, which all run its loop on the same batches. Each trains the weights of its own stages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import DistributedType
from torch import nn
from transformers.utils import ModelOutput

import penstock.torch
from penstock import Error


class Processes:
    """The processes of a run. Methods are called on all of them."""

    def __init__(self, args: Any) -> None:
        self.number, self.count = penstock.torch.place()
        self._device = args.device
        self._owners: dict[int, int] = {}  # by id of a parameter or buffer

    @property
    def are_several(self) -> bool:
        return self.count > 1

    def share_batches(self, *states: Any) -> None:
        """Has accelerate's states treat this process as the only one, so that it divides no batch and copies no gradient."""
        for state in states if self.are_several else ():
            state.num_processes, state.distributed_type = 1, DistributedType.NO

    def own(self, model: nn.Module, local: Iterable[nn.Module]) -> None:
        """Finds the process that each tensor is taken from: the first one that trains it in one of its ``local`` stages."""
        tensors = _tensors(model)
        numbers = {id(each): at for at, each in enumerate(tensors)}
        owners = torch.full((len(tensors),), self.count - 1, device=self._device)
        if self.number < self.count - 1:
            trained = [numbers[id(each)] for stage in local for each in _tensors(stage) if id(each) in numbers]
            owners[trained] = self.number
        dist.all_reduce(owners, dist.ReduceOp.MIN)
        self._owners = {id(each): owner for each, owner in zip(tensors, owners.tolist(), strict=True)}

    def gradient_norm(self, parameters: Iterable[nn.Parameter]) -> torch.Tensor:
        """Returns the norm of all gradients, each of which counts once."""
        own = [each.grad for each in parameters if each.grad is not None and self._owners[id(each)] == self.number]
        squares = torch.nn.utils.get_total_norm(own).to(self._device, torch.float64).square()
        dist.all_reduce(squares)
        return squares.sqrt()

    def share_weights(self, model: nn.Module) -> None:
        """Gives every process the weights and buffers that others have trained."""
        for tensor in _tensors(model):
            if id(tensor) in self._owners:
                self._broadcast(tensor.data, self._owners[id(tensor)])

    def share_optimizer(self, optimizer: Any) -> None:
        """Gives every process the states that others have of their weights."""
        weights = [each for group in optimizer.param_groups for each in group["params"]]
        for owner in range(self.count):
            own = {at: optimizer.state[each] for at, each in enumerate(weights) if self._owners[id(each)] == owner and each in optimizer.state}
            for at, state in self._send(own, owner).items():
                optimizer.state[weights[int(at)]] = state

    def output(self, output: Any) -> Any:
        """Returns the output of the model that one process has; None on others."""
        sender = torch.tensor(-1 if output is None else self.number, device=self._device)
        dist.all_reduce(sender, dist.ReduceOp.MAX)
        named = output if isinstance(output, Mapping) or output is None else {str(at): each for at, each in enumerate(output)}
        found = self._send(named, int(sender))
        return output if self.number == sender else ModelOutput(**found)

    def _send(self, value: Any, sender: int) -> Any:
        """Returns the sender's dicts and lists of tensors and numbers. No object is unpickled: a text says what follows."""
        tensors: list[torch.Tensor] = []
        text = b""
        if self.number == sender:
            try:
                text = json.dumps(value, default=lambda each: _entry(each, tensors)).encode()
            except TypeError as error:
                text = json.dumps({"refused": f"process {sender}: {error}"}).encode()
        size = torch.tensor(len(text), device=self._device)
        dist.broadcast(size, sender)
        letters = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(self._device) if text else self._empty([int(size)], torch.uint8)
        dist.broadcast(letters, sender)
        content = json.loads(bytes(letters.tolist()))
        if "refused" in content:
            raise Error(content["refused"])
        received = iter(tensors)

        def filled(entry: Any) -> Any:
            if isinstance(entry, list):
                return [filled(each) for each in entry]
            if isinstance(entry, dict) and "dtype" in entry:
                tensor = next(received) if self.number == sender else self._empty(entry["shape"], getattr(torch, entry["dtype"]), entry["device"])
                self._broadcast(tensor, sender)
                return tensor
            return {key: filled(each) for key, each in entry.items()} if isinstance(entry, dict) else entry

        return filled(content)

    def _empty(self, shape: list[int], dtype: torch.dtype, device: str = "") -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device if device == "cpu" else self._device)

    def _broadcast(self, tensor: torch.Tensor, sender: int) -> None:
        moved = tensor.to(self._device).contiguous()
        dist.broadcast(moved, sender)
        if self.number != sender:
            tensor.copy_(moved)


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _entry(value: Any, tensors: list[torch.Tensor]) -> dict[str, Any]:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"a {type(value).__name__} cannot be sent to the other processes, but tensors and numbers")
    tensors.append(value.detach())
    return {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape), "device": value.device.type}
