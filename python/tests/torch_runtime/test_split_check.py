"""Split backwards that torch computes wrongly are refused by the first step, on all ranks; others train as without the check."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from gloo_ranks import run_ranks
from torch import nn

import penstock
import penstock.torch
from penstock.torch.torch_runtime import split_check

_WIDTH, _MICROBATCHES = 6, 4


class _Applied(nn.Module):
    """Whatever a function computes with a linear layer."""

    def __init__(self, function: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(_WIDTH, _WIDTH), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.linear, x)


class _Stateful(nn.Module):
    """Has running statistics, random numbers, a counter, and weights whose gradients cancel or do not exist."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.unused = nn.Linear(_WIDTH, _WIDTH), nn.BatchNorm1d(_WIDTH), nn.Linear(2, 2)
        self.frozen, self.calls = nn.Parameter(torch.ones(_WIDTH), requires_grad=False), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.frozen * nn.functional.dropout(torch.tanh(self.norm(self.linear(x))), 0.2, self.training)


def _nested(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(layer(torch.tanh(layer(x))))


def _parallel(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(torch.tanh(x)) + torch.tanh(layer(x))


def _residual(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = x + torch.tanh(layer(x))
    return x


def _once(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(layer(x))


#: Functions with the schedules and dtypes to try, and whether torch's split is always right: before 2.15, it counted a weight twice that
#: is used twice on a path.
_CASES: dict[str, tuple[Any, str, torch.dtype, bool]] = {
    "nested": (_nested, "zb-h1", torch.float32, False),
    "nested, V": (_nested, "zbv", torch.float32, False),
    "nested, bf16": (_nested, "zb-h1", torch.bfloat16, False),
    "residual": (_residual, "zb-h1", torch.float64, False),
    "parallel": (_parallel, "zb-h1", torch.float32, True),
    "once, bf16": (_once, "zb-h1", torch.bfloat16, True),
    "nested, whole backward": (_nested, "1f1b", torch.float32, True),
}
#: Schedules with the same stages and whole backwards.
_WHOLE = {"zb-h1": "1f1b", "zbv": "v-1f1b", "1f1b": "1f1b"}


def _step(runtime: Any, stages: dict[int, nn.Module], last: int, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(7)
    x, y = torch.randn(2, 4 * _MICROBATCHES, _WIDTH).to(dtype)
    losses: list[torch.Tensor] = []
    target = {"target": y, "losses": losses} if last in stages else {}
    runtime.step(*((x,) if 0 in stages else ()), **target)
    return [loss.detach() for loss in losses]


def _make(rank: int, name: str, build: Callable[[], nn.Module], dtype: torch.dtype) -> Any:
    schedule = penstock.schedule(name, ranks=2, microbatches=_MICROBATCHES)
    torch.manual_seed(rank)
    stages = {stage: build().to(dtype) for stage, of in enumerate(schedule.rank_of_stage) if of == rank}
    return penstock.torch.runtime(stages, schedule, nn.functional.mse_loss, split="torch"), stages, schedule.stages - 1


def _refusal_or_gradients(rank: int, case: str, name: str) -> Any:
    function, _, dtype, _ = _CASES[case]
    runtime, stages, last = _make(rank, name, lambda: _Applied(function), dtype)
    try:
        for _ in range(2):
            _step(runtime, stages, last, dtype)
    except penstock.Error as error:
        return str(error)
    return [parameter.grad for module in stages.values() for parameter in module.parameters()]


def _try_all(rank: int) -> dict[str, Any]:
    return {
        case: (_refusal_or_gradients(rank, case, name), _refusal_or_gradients(rank, case, _WHOLE[name])) for case, (_, name, *_) in _CASES.items()
    }


def _require_refused(message: str) -> None:
    assert message.startswith("stage 1: ") and "\n" not in message
    assert "'linear.weight'" in message or "'linear.bias'" in message
    assert "use a schedule without split backwards" in message


def test_refuses_what_torch_computes_wrongly() -> None:
    ranks = run_ranks(2, _try_all)
    for case, (_, _, dtype, is_right) in _CASES.items():
        messages = [by_case[case][0] for by_case in ranks if isinstance(by_case[case][0], str)]
        if messages:
            assert len(messages) == 2 and messages[0] == messages[1] and not is_right, case
            _require_refused(messages[0])
        else:
            tolerance = torch.finfo(dtype).eps ** 0.5
            for split, whole in (by_case[case] for by_case in ranks):
                torch.testing.assert_close(split, whole, rtol=tolerance, atol=tolerance)


def _break_the_split(rank: int) -> Any:
    """As _refusal_or_gradients, with a W that counts every weight twice."""
    right = split_check.stage_backward_weight

    def wrong(weights: Any, *arguments: Any, **named: Any) -> Any:
        weights = list(weights)
        result = right(iter(weights), *arguments, **named)
        for weight in weights:
            weight.grad *= 2
        return result

    split_check.stage_backward_weight = wrong
    warnings.simplefilter("error")  # of stages that are not compared
    return _refusal_or_gradients(rank, "once, bf16", "zb-h1")


def test_refuses_a_wrong_split_with_any_version() -> None:
    one, two = run_ranks(2, _break_the_split)
    assert one == two
    _require_refused(one)


def _train(rank: int, is_checked: bool) -> Any:
    runtime, stages, last = _make(rank, "zbv", _Stateful, torch.float32)
    if not is_checked:
        del runtime._step_microbatches
    for stage in stages.values():
        stage.linear.weight.grad = torch.ones(_WIDTH, _WIDTH)  # type: ignore[union-attr]
    losses = [_step(runtime, stages, last, torch.float32) for _ in range(2)]
    state = [(module.state_dict(), module.calls) for module in stages.values()]
    gradients = [parameter.grad for module in stages.values() for parameter in module.parameters()]
    return losses, state, gradients, torch.random.get_rng_state()


def _train_both(rank: int) -> list[Any]:
    warnings.simplefilter("error")  # of stages that are not compared
    return [_train(rank, is_checked) for is_checked in (True, False)]


def test_leaves_no_traces() -> None:
    for checked, unchecked in run_ranks(2, _train_both):
        torch.testing.assert_close(checked, unchecked, rtol=0, atol=0)
        assert {int(state["norm.num_batches_tracked"]) for state, _ in checked[1]} == {2 * _MICROBATCHES}
