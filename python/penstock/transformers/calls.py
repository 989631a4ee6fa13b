"""What a Trainer's compute_loss calls the model with, and the same call with an output that a pipeline has computed."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from penstock import Error

#: Attributes of a Trainer that no loss depends on, or that stages have.
_WITHOUT_LOSS = {"accelerator", "args", "callback_handler", "eval_dataset", "model", "model_wrapped", "train_dataset"}


#: The relative difference of losses that are the same but for rounding, in bfloat16 too.
_SAME = 1e-2


class _Called(BaseException):
    """Ends compute_loss where it calls the model."""

    def __init__(self, named: dict[str, Any]) -> None:
        super().__init__("the model was called")
        self.named = named


@contextlib.contextmanager
def with_forward(model: nn.Module, forward: Callable[..., Any] | None) -> Iterator[None]:
    """Has calls of the model call another function in place of its forward; None: of its class's."""
    own = vars(model)
    before = own.get("forward")  # of accelerate, or of an outer call
    _set(own, forward)
    try:
        yield
    finally:
        _set(own, before)


def _set(own: dict[str, Any], forward: Callable[..., Any] | None) -> None:
    own.pop("forward", None)
    if forward is not None:
        own["forward"] = forward


def arguments(trainer: Any, inputs: dict[str, Any], items: torch.Tensor | None) -> dict[str, Any]:
    """Returns the keyword arguments that compute_loss calls the model with."""

    def record(*args: Any, **named: Any) -> None:
        if args:
            raise Error("compute_loss calls the model with positional arguments: use keywords")
        raise _Called(named)

    with with_forward(trainer.model, record):
        try:
            trainer.compute_loss(trainer.model, dict(inputs), num_items_in_batch=items)
        except _Called as called:
            return called.named
    raise Error("compute_loss does not call the model, whose stages the Pipeline runs: call it once")


class _Hidden:
    """Holds a Trainer. It has slots, so that a Pipeline does not search the Trainer for tensors to train."""

    __slots__ = ("trainer",)

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer


def loss_of(trainer: Any, seen: dict[str, Any]) -> Callable[[Any, dict[str, Any]], torch.Tensor]:
    """Returns the loss of a microbatch, by compute_loss of the Trainer.

    ``seen``: what compute_loss reads of the Trainer (`attributes_read`), which steps compare.
    """
    hidden = _Hidden(trainer)

    def loss(_: dict[str, Any], output: Any, targets: dict[str, Any]) -> torch.Tensor:
        trainer, found = hidden.trainer, loss_in(output)
        if found is not None:  # compute_loss may change it in place
            output = with_loss(output, found.clone())
        with with_forward(trainer.model, lambda **_: output):
            value: torch.Tensor = trainer.compute_loss(trainer.model, dict(targets["inputs"]), num_items_in_batch=targets.get("items"))
        return value / targets["divisor"] if "divisor" in targets else value

    return functools.partial(loss, seen)


def attributes_read(trainer: Any) -> dict[str, Any]:
    """Returns the attributes of a Trainer that compute_loss, or another method of a derived class, reads."""
    derived = itertools.takewhile(lambda kind: not kind.__module__.startswith("penstock."), type(trainer).__mro__)
    names = {"compute_loss_func", "label_smoother"}
    for function in (each for kind in derived for each in vars(kind).values()):
        if isinstance(function, types.FunctionType):
            names.update(_names(function.__code__))
    own = vars(trainer)
    return {name: own[name] for name in sorted((names & own.keys()) - _WITHOUT_LOSS)}


def _names(code: types.CodeType) -> set[str]:
    nested = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*map(_names, nested))


def loss_of_output(output: Any, targets: dict[str, Any]) -> torch.Tensor:
    """Returns the loss that a model has computed itself; 0 if it has not. For evaluation."""
    found = loss_in(output)
    return torch.zeros(()) if found is None else found


def loss_in(output: Any) -> torch.Tensor | None:
    """Returns the loss in what a model returns."""
    found = output.get("loss") if isinstance(output, dict) else output[0] if isinstance(output, tuple) else None
    return found if isinstance(found, torch.Tensor) and found.numel() == 1 else None


def evaluated(model: Any, output: Any, is_loss_only: bool) -> Any:
    """Returns the part of an output that an evaluation reads."""
    loss = loss_in(output)
    if is_loss_only and loss is not None:
        return {"loss": loss}
    if not isinstance(output, dict):
        return output
    ignored = getattr(model.config, "keys_to_ignore_at_inference", ["past_key_values"])
    return type(output)(**{name: each for name, each in output.items() if name not in ignored})


def with_loss(output: Any, loss: torch.Tensor) -> Any:
    """Returns what a model has returned with another loss."""
    return (loss, *output[1:]) if isinstance(output, tuple) else type(output)(**{**output, "loss": loss})


def weighting(trainer: Any, inputs: dict[str, Any], items: torch.Tensor | None, *, shifts: bool) -> str:
    """Returns how losses of microbatches become the loss of their batch, by the losses of two samples together and alone.

    They are added ("sum") or averaged, weighted by their "labels" that are not -100, by those without the first label of
    each sample ("shifted labels"), or by their "samples". Call it in evaluation mode, without gradients.

    Args:
        shifts: whether averages of the model leave out the first label of each sample.

    Raises:
        Error: None of these is the loss of both samples, as with losses that compare samples.
    """
    known = "shifted labels" if shifts else "labels"
    default = known if items is None else "sum"

    def loss(sample: dict[str, Any], seed: int = 0) -> float:
        torch.manual_seed(seed)
        return float(trainer.compute_loss(trainer.model, dict(sample), num_items_in_batch=items))

    with_terms = (each for each in _rows(inputs) if math.isfinite(value := loss(each)) and value != 0)
    samples = list(itertools.islice(with_terms, 2))
    if len(samples) < 2:
        return default
    _with_unlike_labels(samples)
    both = {name: torch.cat([one, samples[1][name]]) if _is_batch(one) else one for name, one in samples[0].items()}
    whole, alone = loss(both), [loss(each) for each in samples]
    if not math.isclose(whole, loss(both, seed=1), rel_tol=1e-6):  # It draws numbers.
        return default
    found = {} if items is None else {"sum": sum(alone)}
    for name in (known, "labels", "shifted labels", "samples"):
        weights = [Terms(name)({"inputs": each}) for each in samples]
        found.setdefault(name, sum(weight * each for weight, each in zip(weights, alone, strict=True)) / max(sum(weights), 1))
    nearest = min(found, key=lambda name: abs(found[name] - whole))
    if not math.isclose(found[nearest], whole, rel_tol=_SAME):
        raise Error(
            f"compute_loss of two samples is {whole:.4g}, which is neither the sum nor a mean of the losses of each "
            f"({alone[0]:.4g}, {alone[1]:.4g}), as of losses that compare samples or balance experts: use transformers.Trainer, "
            "because microbatches would train another loss"
        )
    return nearest


def _is_batch(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _count(inputs: dict[str, Any]) -> int:
    return next(len(each) for each in inputs.values() if _is_batch(each))


def _rows(inputs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for row in range(_count(inputs)):
        yield {name: each[row : row + 1] if _is_batch(each) else each for name, each in inputs.items()}


def _with_unlike_labels(samples: list[dict[str, Any]]) -> None:
    """Has the first sample the second half of its labels of tokens, and the second one all, so that each weighting is another."""
    for number, sample in enumerate(samples):
        labels = sample.get("labels")
        if not isinstance(labels, torch.Tensor) or labels.is_floating_point() or labels.dim() < 2 or labels.shape[1] < 4:
            return
        filled = torch.where(labels == -100, labels.max(), labels)
        if number == 0:
            filled[:, : labels.shape[1] // 2] = -100
        samples[number] = {**sample, "labels": filled}


class Terms:
    """The weight of a microbatch's loss in that of the batch, by a `weighting`."""

    __slots__ = ("_weighting",)

    def __init__(self, weighting: str) -> None:
        self._weighting = weighting

    def __call__(self, targets: dict[str, Any]) -> int:
        inputs = targets["inputs"]
        labels = inputs.get("labels")
        if self._weighting == "sum":
            return 1
        if self._weighting == "samples" or not isinstance(labels, torch.Tensor) or labels.is_floating_point():
            return _count(inputs)
        counted = labels[..., 1:] if self._weighting == "shifted labels" and labels.dim() > 1 else labels
        return int((counted != -100).sum())
