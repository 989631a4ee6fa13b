"""Whether stages train like the model that they were made of: checked on a random batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from penstock.torch.batch.batches import Structure, call
from penstock.torch.capture import checkpointing
from penstock.torch.capture.branches import leaves
from penstock.torch.devices import autocast_setting
from penstock.torch.preserve import copies, is_changed, preserved
from penstock.torch.splitting.modes import Mode, Modes

_SEED = 0
_Gradients = dict[int, torch.Tensor]  # by id of the parameter
_Results = tuple[list[torch.Tensor], _Gradients]  # the outputs, and gradients for random ones


def difference(
    model: nn.Module, stages: Sequence[nn.Module], inputs: Any, modes: Modes, *, runs_model: bool
) -> tuple[Mode, str] | None:
    """Returns in which mode training the stages differs from training the model, and how; None if it does not.

    A stage counts for the parameters that it has and for its inputs, as in a pipeline.

    Args:
        runs_model: whether the stages run the model's own code. Then each of them draws random
            numbers of its own, so that they are compared with the same numbers for every random op.
    """
    batch = _random(inputs)
    for mode in modes.known:
        with mode.of(model), checkpointing.without_reentrant():
            found = _difference(model, stages, batch, runs_model)
            if found and runs_model:
                with _SameNumbers():  # type: ignore[no-untyped-call]
                    found = _difference(model, stages, batch, runs_model)
        if found:
            return mode, found
    return None


class _SameNumbers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Has all random ops draw the same numbers, whatever precedes them."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in getattr(function, "tags", ()):
            torch.manual_seed(_SEED)
        return function(*args, **(kwargs or {}))


def _difference(model: nn.Module, stages: Sequence[nn.Module], batch: Any, runs_model: bool) -> str:
    reads = _reads_of_others(model, stages, batch) if runs_model else ""
    if reads:
        return reads
    with preserved(model):
        of_model = _run([model], batch)
    with preserved(model):
        of_stages = _run(stages, batch)
    found = _compare(model, of_model, of_stages)
    if not found:
        return ""
    with preserved(model):
        again = _run([model], batch)
    return _compare(model, of_model, of_stages, varies=not _is_same(of_model, again)) and found


def _compare(model: nn.Module, of_model: _Results, of_stages: _Results, *, varies: bool = False) -> str:
    """Returns which of the results differ; "" if none does."""
    one_outputs, one_gradients = of_model
    outputs, gradients = of_stages
    if len(one_outputs) != len(outputs):
        return f"the stages return {len(outputs)} tensors, and the model {len(one_outputs)}"
    for index, (a, b) in enumerate(zip(one_outputs, outputs, strict=True)):
        if not _is_close(a, b, varies=varies):
            return f"output {index} of the stages differs from the model's"
    for name, parameter in model.named_parameters():
        one, other = (each.get(id(parameter)) for each in (one_gradients, gradients))
        if one is None and other is None:
            continue
        if one is None or other is None or not _is_close(one, other, varies=varies):
            return f"the gradient of '{name}' in the stages differs from that in the model"
    return ""


def _is_same(one: _Results, other: _Results) -> bool:
    outputs = zip(one[0], other[0], strict=True)
    gradients = ((each, other[1].get(key)) for key, each in one[1].items())
    return all(b is not None and torch.equal(a, b) for a, b in (*outputs, *gradients))


def _reads_of_others(model: nn.Module, stages: Sequence[nn.Module], batch: Any) -> str:
    """Returns which stage reads or changes a tensor that only other stages have."""
    names = {id(tensor): name for name, tensor in model.named_parameters()}
    value = batch
    with preserved(model):
        for index, stage in enumerate(stages):
            own = {id(tensor) for tensor in (*stage.parameters(), *stage.buffers())}
            others = [each for each in copies(model) if id(each[1]) not in own]
            results, tensors = _call(stage, value, is_first=index == 0)
            own.update(map(id, tensors))
            for result in Structure.of(results)[1]:
                for leaf in leaves(result):
                    if id(leaf) not in own:
                        return f"stage {index} reads '{names.get(id(leaf), 'a tensor')}'"
            for name, buffer, content in others:
                if is_changed(buffer, content):
                    return f"stage {index} changes the buffer '{name}'"
            value = results
    with preserved(model):
        value = batch
        for index, stage in enumerate(stages):
            results, _ = _call(stage, value, is_first=index == 0)
            with _without_others(model, stage):
                again, _ = _call(stage, value, is_first=index == 0)
            pairs = zip(Structure.of(results)[1], Structure.of(again)[1], strict=True)
            if not all(_is_close(a, b) for a, b in pairs):
                return f"stage {index} reads parameters of other stages"
            value = results
    return ""


def _run(stages: Sequence[nn.Module], batch: Any) -> _Results:
    """Runs the stages one by one, and their backwards with random gradients of the outputs."""
    torch.manual_seed(_SEED)
    value, runs = batch, []
    for index, stage in enumerate(stages):
        value, tensors = _call(stage, value, is_first=index == 0)
        runs.append((stage, tensors, Structure.of(value)[1]))
    outputs = runs[-1][2]
    generator = torch.Generator().manual_seed(_SEED)
    below: list[torch.Tensor | None] = [
        torch.randn(each.shape, generator=generator).to(each) if each.requires_grad else None for each in outputs
    ]
    gradients: _Gradients = {}
    for stage, tensors, results in reversed(runs):
        pairs = [
            (result, gradient)
            for result, gradient in zip(results, below, strict=True)
            if gradient is not None and result.requires_grad
        ]
        trained = [each for each in stage.parameters() if each.requires_grad]
        wanted = [*trained, *(each for each in tensors if each.requires_grad)]
        found: Sequence[torch.Tensor | None] = [None] * len(wanted)
        if pairs and wanted:
            found = torch.autograd.grad(
                [result for result, _ in pairs], wanted, [gradient for _, gradient in pairs], allow_unused=True
            )
        for parameter, gradient in zip(trained, found[: len(trained)], strict=True):
            if gradient is not None:
                before = gradients.get(id(parameter))
                gradients[id(parameter)] = gradient if before is None else before + gradient
        of_inputs = iter(found[len(trained) :])
        below = [next(of_inputs) if each.requires_grad else None for each in tensors]
    return [each.detach() for each in outputs], gradients


def _call(stage: nn.Module, value: Any, *, is_first: bool) -> tuple[Any, list[torch.Tensor]]:
    """Returns a stage's results, and its inputs: leaves, as in a pipeline."""
    structure, tensors = Structure.of(value)
    tensors = [each.detach().requires_grad_(each.requires_grad and not is_first) for each in tensors]
    return call(stage, structure.fill(tensors)), tensors


def _random(inputs: Any) -> Any:
    """Returns inputs with random numbers. Integers, which may be positions or masks, stay."""
    structure, tensors = Structure.of(inputs)
    generator = torch.Generator().manual_seed(_SEED)
    return structure.fill(
        [torch.randn(each.shape, generator=generator).to(each) if each.is_floating_point() else each for each in tensors]
    )


def _is_close(one: torch.Tensor, other: torch.Tensor, *, varies: bool = False) -> bool:
    """Returns whether two results are the same but for rounding.

    Args:
        varies: whether results of the same code vary, as where a GPU's kernels add in any order.
            Under autocast, they vary by the precision of its type, whatever type they have.
    """
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    finite = one.detach()[one.isfinite()]
    scale = float(finite.abs().max()) if len(finite) else 0.0
    epsilon = float(torch.finfo(one.dtype).eps)
    cast_to = autocast_setting(one.device)
    if varies and cast_to is not None:
        epsilon = max(epsilon, float(torch.finfo(cast_to).eps))
    # Stages that share a parameter sum its gradients in another order.
    return torch.allclose(one, other, rtol=0, atol=epsilon**0.5 * scale, equal_nan=True)


@contextlib.contextmanager
def _without_others(model: nn.Module, stage: nn.Module) -> Iterator[None]:
    """Makes the values of parameters that the stage does not have NaN."""
    own = {id(parameter) for parameter in stage.parameters()}
    others = [(each, each.data) for each in model.parameters() if id(each) not in own]
    try:
        for parameter, data in others:
            if data.is_floating_point():
                parameter.data = torch.full((), float("nan"), dtype=data.dtype).expand(data.shape)
        yield
    finally:
        for parameter, data in others:
            parameter.data = data
