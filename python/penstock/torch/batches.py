"""The microbatches of a batch: nested tensors, divided along dimension 0."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.utils import _pytree as pytree

from penstock import Error


@dataclasses.dataclass(frozen=True)
class Structure:
    """Nested containers of tensors and constants, without the tensors.

    ``constants`` has an entry per leaf: None for a tensor, else a tuple of the constant.
    """

    spec: pytree.TreeSpec
    constants: tuple[tuple[Any] | None, ...]

    @staticmethod
    def of(value: Any) -> tuple[Structure, list[torch.Tensor]]:
        """Returns the structure of a value and its tensors."""
        if isinstance(value, torch.Tensor):
            return _TENSOR, [value]
        leaves, spec = pytree.tree_flatten(value)
        is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        constants = tuple(
            None if tensor else (leaf,) for leaf, tensor in zip(leaves, is_tensor, strict=True)
        )
        return Structure(spec, constants), [
            leaf for leaf in leaves if isinstance(leaf, torch.Tensor)
        ]

    def fill(self, tensors: list[torch.Tensor]) -> Any:
        """Returns the value with these tensors."""
        left = iter(tensors)
        leaves = [next(left) if constant is None else constant[0] for constant in self.constants]
        return pytree.tree_unflatten(leaves, self.spec)


_TENSOR = Structure(pytree.tree_flatten(0)[1], (None,))


@dataclasses.dataclass(frozen=True)
class Layout:
    """What is the same in every step: structures, and the length that slices divide."""

    inputs: Structure
    targets: Structure | None
    tokens: int = dataclasses.field(default=0, compare=False)

    @property
    def is_plain(self) -> bool:
        """Whether the inputs are one tensor, and the targets one or none."""
        return self.inputs is _TENSOR and self.targets in (None, _TENSOR)

    def slice_lengths(self, slices: int) -> list[int]:
        return [self.tokens // slices] * slices if slices > 1 else []


def check(
    inputs: Any, targets: Any, microbatches: int, slices: int
) -> tuple[Layout, list[torch.Tensor], list[torch.Tensor]]:
    """Returns the tensors of a batch, which divide into microbatches and slices.

    A tensor without dimensions belongs to every microbatch.
    """
    input_structure, input_tensors = Structure.of(inputs)
    target_structure, target_tensors = Structure.of(targets)
    for name, structure in (("inputs", input_structure), ("targets", target_structure)):
        for constant in structure.constants:
            if constant is not None and hasattr(constant[0], "__array__"):
                kind = type(constant[0])
                raise Error(
                    f"step: {name} contain a {kind.__module__}.{kind.__name__}: pass a tensor "
                    "(torch.from_numpy)"
                )
    if not input_tensors:
        raise Error("step: the inputs contain no tensor")
    tokens = next((t.shape[1] for t in input_tensors if t.dim() > 1), 0)
    layout = Layout(input_structure, None if targets is None else target_structure, tokens)
    return (
        layout,
        [_checked(each, "inputs", microbatches, slices) for each in input_tensors],
        [_checked(each, "targets", microbatches, slices) for each in target_tensors],
    )


def first_parts(tensors: list[torch.Tensor], microbatches: int, slices: int) -> list[torch.Tensor]:
    """Returns the first slice of the first microbatch."""
    parts = []
    for tensor in tensors:
        if tensor.dim() > 0:
            tensor = tensor[: tensor.shape[0] // microbatches]
            tensor = tensor if slices == 1 else tensor[:, : tensor.shape[1] // slices]
        parts.append(tensor)
    return parts


def _checked(tensor: torch.Tensor, name: str, microbatches: int, slices: int) -> torch.Tensor:
    # Autograd cannot save tensors that were made under torch.inference_mode.
    tensor = tensor.clone() if tensor.is_inference() else tensor.detach()
    if tensor.device.type != "cpu":
        raise Error(
            f"step: {name} are on {tensor.device}, but the engine trains on CPUs: "
            "use .cpu(), or penstock.torch.runtime for GPUs"
        )
    if tensor.layout != torch.strided:
        raise Error(f"step: {name} are {tensor.layout}, but the engine takes strided tensors")
    if tensor.dim() == 0:
        return tensor
    if tensor.shape[0] == 0 or tensor.shape[0] % microbatches != 0:
        raise Error(
            f"step: {name} have {tensor.shape[0]} samples, which {microbatches} microbatches do "
            "not divide: change the batch size or the microbatches"
        )
    if slices > 1 and (tensor.dim() < 2 or tensor.shape[1] % slices != 0):
        raise Error(
            f"step: {name} of shape {tuple(tensor.shape)} do not divide into {slices} "
            "slices along dimension 1"
        )
    return tensor
