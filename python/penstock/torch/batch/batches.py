"""The microbatches of a batch: nested tensors, divided along dimension 0."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from penstock import Error, Schedule
from penstock.torch.batch import objects, sample_lists, weighting
from penstock.torch.mesh.dtensors import Forms
from penstock.torch.plain_tensors import require_plain


@dataclasses.dataclass(frozen=True)
class Structure:
    """Nested containers of tensors and constants, without the tensors.

    ``constants`` has an entry per leaf: None for a tensor, else a tuple of the constant.
    ``lists`` are the leaves that are lists of a tensor per sample, and then one tensor.
    """

    spec: pytree.TreeSpec
    constants: tuple[tuple[Any] | None, ...]
    lists: tuple[int, ...] = ()
    forms: Forms = ()  # of what a stage returns: the DTensors whose parts the tensors are

    @staticmethod
    def of(value: Any, name: str = "", samples: int | None = None) -> tuple[Structure, list[torch.Tensor]]:
        """Returns the structure of a value and its tensors.

        Of a batch of so many samples, lists with a tensor per sample become one tensor.
        """
        if isinstance(value, torch.Tensor):
            return _TENSOR, [value]
        lists: tuple[int, ...] = ()
        if samples is None:
            leaves, spec = pytree.tree_flatten(value)
        else:
            leaves, spec = pytree.tree_flatten(value, is_leaf=lambda each: sample_lists.is_one(each, name, samples))
            lists = tuple(index for index, leaf in enumerate(leaves) if type(leaf) is list)
            for index in lists:
                leaves[index] = torch.stack(leaves[index])
        is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        constants = tuple(None if tensor else (leaf,) for leaf, tensor in zip(leaves, is_tensor, strict=True))
        return Structure(spec, constants, lists), [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def with_forms(self, forms: Forms) -> Structure:
        return dataclasses.replace(self, forms=forms) if forms else self

    def fill(self, tensors: list[torch.Tensor]) -> Any:
        """Returns the value with these tensors."""
        expected = self.constants.count(None)
        if len(tensors) != expected:
            raise Error(
                f"{len(tensors)} tensors are given, but the stages were made for {expected}: pass "
                "inputs with the same keys and elements"
            )
        left = iter(tensors)
        leaves = [next(left) if constant is None else constant[0] for constant in self.constants]
        for index in self.lists:
            leaves[index] = list(leaves[index].unbind(0))
        return pytree.tree_unflatten(leaves, self.spec)


class Arguments:
    """Positional and named arguments of a module."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs


pytree.register_pytree_node(Arguments, lambda each: ([each.args, each.kwargs], None), lambda children, _: Arguments(*children))


def call(module: Callable[..., Any], value: Any) -> Any:
    """Calls a stage with what the one before it returned, or with the inputs of a batch."""
    if type(value) is Arguments:
        return module(*value.args, **value.kwargs)
    if type(value) in (dict, collections.OrderedDict, collections.defaultdict):
        return module(**value)
    return module(*value) if isinstance(value, (tuple, list)) else module(value)


_TENSOR = Structure(pytree.tree_flatten(0)[1], (None,))


@dataclasses.dataclass(frozen=True)
class Layout:
    """What is the same in every step: structures, and the length that slices divide."""

    inputs: Structure
    targets: Structure | None
    tokens: int = dataclasses.field(default=0, compare=False)
    samples: int = dataclasses.field(default=0, compare=False)  # of the batch; 0 if undivided

    @property
    def is_plain(self) -> bool:
        """Whether the inputs are one tensor, and the targets one or none."""
        return self.inputs is _TENSOR and self.targets in (None, _TENSOR)

    def slice_lengths(self, slices: int) -> list[int]:
        return [self.tokens // slices] * slices if slices > 1 else []


def check(
    inputs: Any, targets: Any, microbatches: int, slices: int, devices: Sequence[torch.device]
) -> tuple[Layout, list[torch.Tensor], list[torch.Tensor]]:
    """Returns the tensors of a batch, which divide into microbatches and slices.

    A tensor without dimensions belongs to every microbatch. Tensors are on the CPU, from which the
    engine copies microbatches, or inputs on the device of the first stage and targets on the last
    one's. ``devices`` are the stages' devices.
    """
    inputs, targets = objects.in_containers(inputs, "step: inputs"), objects.in_containers(targets, "step: targets")
    samples = sample_lists.count(inputs, targets) if microbatches > 1 else None
    if samples is not None and sample_lists.is_one(inputs, "inputs", samples):
        inputs = (inputs,)  # one argument of the first stage
    input_structure, input_tensors = Structure.of(inputs, "inputs", samples)
    target_structure, target_tensors = Structure.of(targets, "targets", samples)
    for name, structure in (("inputs", input_structure), ("targets", target_structure)):
        for constant in structure.constants:
            if constant is not None and hasattr(constant[0], "__array__"):
                kind = type(constant[0])
                raise Error(f"step: {name} contain a {kind.__module__}.{kind.__name__}: pass a tensor (torch.from_numpy)")
    if not input_tensors:
        raise Error("step: the inputs contain no tensor")
    tokens = next((t.shape[1] for t in input_tensors if t.dim() > 1), 0)
    layout = Layout(input_structure, None if targets is None else target_structure, tokens, samples or 0)
    if samples is not None:
        _check_samples(samples, microbatches, slices)
    target_samples = samples
    if samples is not None and samples % microbatches == 0:
        if len(target_tensors) == 1 and _are_classes(target_tensors[0], samples):
            target_samples = target_tensors[0].shape[0]
    return (
        layout,
        [_checked(each, "inputs", samples, slices, devices[0]) for each in input_tensors],
        [_checked(each, "targets", target_samples, slices, devices[-1]) for each in target_tensors],
    )


def parts(structure: Structure, tensors: list[torch.Tensor], microbatches: int, slices: int = 1) -> list[Any]:
    """Returns the value of each microbatch, or of each slice of all microbatches in turn."""
    of_all: list[list[torch.Tensor]] = [[] for _ in range(microbatches * slices)]
    for tensor in tensors:
        rows = [tensor] * microbatches
        if tensor.dim() > 0:
            rows = list(torch.split(tensor, weighting.sizes(tensor.shape[0], microbatches)))
        for index, of_index in enumerate(of_all):
            row = rows[index // slices]
            has_slices = slices > 1 and row.dim() > 1
            of_index.append(row.chunk(slices, 1)[index % slices] if has_slices else row)
    return [structure.fill(of_index) for of_index in of_all]


@dataclasses.dataclass(frozen=True)
class Checked:
    """A batch whose tensors divide."""

    layout: Layout
    inputs: list[torch.Tensor]
    targets: list[torch.Tensor]
    factors: torch.Tensor | None  # of losses; None if all are 1


def factors(
    layout: Layout,
    inputs: list[torch.Tensor],
    targets: list[torch.Tensor],
    schedule: Schedule,
    loss_weight: weighting.LossWeight | None,
) -> torch.Tensor | None:
    """Returns the factors of the losses of microbatches; None if all are 1.

    Their shape is ``[microbatches]``, or with slices ``[microbatches, tokens]``.
    """
    microbatches, slices = schedule.microbatches, schedule.slices
    if loss_weight is None:
        if layout.samples % microbatches == 0:
            return None
        if schedule.weight_policy != "flush":
            raise Error(
                f"step: the inputs have {layout.samples} samples, which {microbatches} "
                "microbatches do not divide, but the schedule updates weights within a batch: "
                "change the batch size"
            )
        return weighting.factors(weighting.by_samples(layout.samples, microbatches))
    of = (layout.inputs, inputs) if layout.targets is None else (layout.targets, targets)
    weights = weighting.by_terms(loss_weight, parts(*of, microbatches, slices))
    all_factors = weighting.factors(weights)
    if slices == 1:
        return all_factors
    # By token, because that is how targets are divided into slices.
    return all_factors.reshape(microbatches, slices).repeat_interleave(layout.tokens // slices, 1)


def _check_samples(samples: int, microbatches: int, slices: int) -> None:
    if samples < microbatches:
        raise Error(
            f"step: the inputs have {samples} samples, fewer than the {microbatches} microbatches: "
            f"pass at least {microbatches}, or leave out this batch"
        )
    if slices > 1 and samples % microbatches != 0:
        raise Error(
            f"step: the inputs have {samples} samples, which {microbatches} microbatches do not "
            "divide, as slices require: change the batch size or the microbatches"
        )


def _are_classes(targets: torch.Tensor, samples: int) -> bool:
    """Whether targets are classes of several rows per sample, such as the tokens of sequences.

    Other targets of such a shape are refused, because a loss may broadcast them.
    """
    is_integer = not targets.is_floating_point() and not targets.is_complex()
    return targets.dim() == 1 and is_integer and targets.shape[0] % samples == 0


def _checked(tensor: torch.Tensor, name: str, samples: int | None, slices: int, device: torch.device) -> torch.Tensor:
    require_plain(f"step: a tensor of the {name}", tensor)
    if tensor.requires_grad:
        raise Error(
            f"step: {name} require a gradient, which step does not return: pass {name}.detach(), "
            "and put modules that compute them into the first stage"
        )
    # Autograd cannot save tensors that were made under torch.inference_mode.
    tensor = tensor.clone() if tensor.is_inference() else tensor.detach()
    if tensor.device.type != "cpu" and tensor.device != device:
        end = "first" if name == "inputs" else "last"
        raise Error(f"step: {name} are on {tensor.device}, but the {end} stage is on {device}: use .to('{device}')")
    if tensor.layout != torch.strided:
        raise Error(f"step: {name} are {tensor.layout}, but the engine takes strided tensors")
    if tensor.dim() == 0:
        return tensor
    if tensor.shape[0] == 0:
        raise Error(f"step: {name} have 0 samples: pass at least 1")
    if samples is not None and tensor.shape[0] != samples:
        raise Error(
            f"step: the inputs have {samples} samples, but {name} contain a tensor of shape "
            f"{tuple(tensor.shape)}: dimension 0 of each tensor is the batch"
        )
    if slices > 1 and (tensor.dim() < 2 or tensor.shape[1] % slices != 0):
        raise Error(f"step: {name} of shape {tuple(tensor.shape)} do not divide into {slices} slices along dimension 1")
    return tensor


def with_factors(batch: Checked, is_weighted: bool, schedule: Schedule) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Returns the inputs and targets of a step. If stages take factors of losses, with these."""
    if not is_weighted:
        return batch.inputs, batch.targets
    factors = batch.factors
    if factors is None:
        sizes = [schedule.microbatches] + [batch.layout.tokens] * (schedule.slices > 1)
        factors = torch.ones(sizes)
    return batch.inputs, [*batch.targets, factors]
