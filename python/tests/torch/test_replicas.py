"""Replicas, shards of their states, and bfloat16 train like plain PyTorch on the whole batch."""

from __future__ import annotations

import copy
import dataclasses
import pathlib
import random
from typing import Any

import pytest
import torch
from forks import lines_of, run_all
from reference import chain, distance
from torch import nn

import penstock.torch as pt
from penstock import Error

_mse = nn.functional.mse_loss


def _adamw(parameters: list[Any]) -> torch.optim.Optimizer:
    return pt.AdamW(parameters, lr=0.01, eps=1e-3)  # so that rounding is not amplified


@dataclasses.dataclass(frozen=True)
class _Case:
    """A way to train, and what it trains."""

    schedule: str = "1f1b"
    data: int = 2
    zero: int = 0
    precision: torch.dtype | None = None
    gradient_dtype: torch.dtype = torch.float32
    recompute: dict[str, str] | None = None
    is_tied: bool = False
    clip: float = 0.0
    samples: int = 16
    microbatches: int = 4  # of each replica
    has_frozen: bool = False
    optimizer: Any = _adamw

    def modules(self) -> list[nn.Module]:
        torch.manual_seed(3)
        stages = {"interleaved": 4, "zbv": 4}.get(self.schedule, 2)
        made: list[nn.Module] = [
            nn.Sequential(nn.Linear(16, 21), nn.GELU(), nn.LayerNorm(21), nn.Linear(21, 16)) for _ in range(stages)
        ]
        if self.is_tied:
            made[-1][3].weight = made[0][3].weight  # type: ignore[index]
        if self.has_frozen:
            made[0][0].weight.requires_grad_(False)  # type: ignore[index]
        return made

    def pipeline(self, modules: list[nn.Module]) -> pt.Pipeline:
        return pt.Pipeline(
            modules,
            self.schedule,
            ranks=2,
            microbatches=self.microbatches * self.data,
            loss=_mse,
            optimizer=self.optimizer,
            data_parallel=self.data,
            zero=self.zero,
            precision=self.precision,
            gradient_dtype=self.gradient_dtype,
            recompute=self.recompute,
            clip_grad_norm=self.clip,
            exact=True,
        )


def _batches(case: _Case, steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(5)
    return [(torch.randn(case.samples, 16), torch.randn(case.samples, 16)) for _ in range(steps)]


def _train(case: _Case, steps: int = 3) -> tuple[list[nn.Module], list[float]]:
    modules = case.modules()
    pipe = case.pipeline(modules)
    losses = [pipe.step(*batch) for batch in _batches(case, steps)]
    pipe.gather()
    return modules, losses


def _plain(case: _Case, steps: int = 3) -> tuple[list[nn.Module], list[float]]:
    """Trains with plain PyTorch. With a precision, gradients are computed with cast copies."""
    modules = case.modules()
    count = case.data * case.microbatches
    parameters = {id(p): p for m in modules for p in m.parameters() if p.requires_grad}
    optimizer = case.optimizer(list(parameters.values()))
    losses = []
    for inputs, targets in _batches(case, steps):
        cast = copy.deepcopy(nn.ModuleList(modules)).to(case.precision or torch.float32)
        total = 0.0
        for x, y in zip(inputs.tensor_split(count), targets.tensor_split(count), strict=True):
            value = _mse(chain(list(cast))(x.to(case.precision or x.dtype)).float(), y)
            (value * len(x) / len(inputs)).backward()
            total += value.item() * len(x) / len(inputs)
            pairs = zip(nn.ModuleList(modules).parameters(), cast.parameters(), strict=True)
            for own, other in pairs:
                if other.grad is not None:
                    gradient = other.grad.float()
                    own.grad = gradient if own.grad is None else own.grad + gradient
                    other.grad = None
        if case.clip:
            nn.utils.clip_grad_norm_(parameters.values(), case.clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return modules, losses


def _random_case(seed: int) -> _Case:
    draw = random.Random(seed)
    schedule = draw.choice(["1f1b", "gpipe", "zb-h1", "interleaved", "zbv", "dualpipe", "chimera"])
    is_tied, data = draw.random() < 0.3, draw.randint(1, 3)
    microbatches = 4 if schedule == "dualpipe" else draw.choice([2, 4])
    return _Case(
        schedule=schedule,
        data=data,
        zero=draw.randint(0, 3),
        precision=draw.choice([None, torch.bfloat16]),
        gradient_dtype=draw.choice([torch.float32, torch.float32, torch.bfloat16]),
        recompute=draw.choice([None, {"hold": "least"}]),
        is_tied=is_tied,
        clip=draw.choice([0.0, 0.1]),
        samples=microbatches * data * 2 + draw.choice([0, 3]),
        microbatches=microbatches,
        has_frozen=draw.random() < 0.3,
    )


@pytest.mark.parametrize("seed", range(40))
def test_random_ways_train_like_plain_pytorch(seed: int) -> None:
    case = _random_case(seed)
    modules, losses = _train(case)
    expected, expected_losses = _plain(case)
    # Plain PyTorch adds the gradients of both uses of a tied weight in bfloat16.
    is_rounded = case.gradient_dtype == torch.bfloat16 or (case.precision is not None and case.is_tied)
    assert losses == pytest.approx(expected_losses, rel=1e-2 if is_rounded else 1e-5), case
    bound = (0.2 if is_rounded else 1e-4) * distance(modules, case.modules())
    assert distance(modules, expected) < bound, case


@pytest.mark.parametrize("precision", [None, torch.bfloat16])
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_shards_change_no_bit(zero: int, precision: torch.dtype | None) -> None:
    for case in (
        _Case(precision=precision, data=3, clip=0.1, is_tied=True),
        _Case("interleaved", precision=precision, samples=19),
        _Case("zbv", precision=precision, recompute={"hold": "least"}, has_frozen=True),
    ):
        sharded, losses = _train(dataclasses.replace(case, zero=zero))
        whole, expected = _train(case)
        assert losses == expected
        assert distance(sharded, whole) == 0


def test_replicas_add_gradients_in_their_order() -> None:
    """With ``exact``, bitwise: each accumulates its microbatches' gradients, then all are added."""

    def sgd(parameters: list[Any]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    case = _Case(optimizer=sgd)
    modules, _ = _train(case, 1)
    expected = case.modules()
    ((inputs, targets),) = _batches(case, 1)
    sums: list[list[torch.Tensor]] = []
    for x, y in zip(inputs.chunk(2), targets.chunk(2), strict=True):
        for part, target in zip(x.chunk(4), y.chunk(4), strict=True):
            (_mse(chain(expected)(part), target) / 8).backward()
        parameters = list(nn.ModuleList(expected).parameters())
        sums.append([p.grad for p in parameters if p.grad is not None])
        for p in parameters:
            p.grad = None
    for p, one, other in zip(parameters, *sums, strict=True):
        p.grad = one + other
    sgd(parameters).step()
    assert distance(modules, expected) == 0


@pytest.mark.parametrize("precision", [None, torch.bfloat16])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_run_resumes_bitwise(zero: int, precision: torch.dtype | None) -> None:
    case = _Case(zero=zero, precision=precision)
    expected, losses = _train(case, 4)
    modules = case.modules()
    pipe = case.pipeline(modules)
    batches = _batches(case, 4)
    before = [pipe.step(*batch) for batch in batches[:2]]
    pipe.gather()
    model = copy.deepcopy([module.state_dict() for module in modules])
    state = copy.deepcopy(pipe.state_dict())
    resumed = case.modules()
    again = case.pipeline(resumed)
    for module, weights in zip(resumed, model, strict=True):
        module.load_state_dict(weights)
    again.load_state_dict(state)
    assert before + [again.step(*batch) for batch in batches[2:]] == losses
    again.gather()
    assert distance(resumed, expected) == 0


_DIVISIONS = [
    _Case(data=1, microbatches=8),
    _Case(data=2, zero=3),
    _Case(data=3, zero=1, is_tied=True),
    _Case("dualpipe", data=2, zero=2, microbatches=4),
]


@pytest.mark.parametrize("saved", _DIVISIONS)
@pytest.mark.parametrize("loaded", _DIVISIONS)
@pytest.mark.parametrize("precision", [None, torch.bfloat16])
def test_a_state_does_not_depend_on_how_replicas_divide_it(saved: _Case, loaded: _Case, precision: torch.dtype | None) -> None:
    saved = dataclasses.replace(saved, precision=precision, has_frozen=True)
    loaded = dataclasses.replace(loaded, precision=precision, is_tied=saved.is_tied, has_frozen=True)
    batches = _batches(saved, 4)
    expected, resumed = saved.modules(), loaded.modules()
    pipe, again = saved.pipeline(expected), loaded.pipeline(resumed)
    for batch in batches[:2]:
        pipe.step(*batch)
    state = copy.deepcopy(pipe.state_dict())
    pipe.gather()
    for module, other in zip(resumed, expected, strict=True):
        module.load_state_dict(other.state_dict())
    again.load_state_dict(state)
    torch.testing.assert_close(again.state_dict(), state, rtol=0, atol=0)
    losses = [again.step(*batch) for batch in batches[2:]]
    rounding = 1e-5 if precision is None else 1e-2
    assert losses == pytest.approx([pipe.step(*batch) for batch in batches[2:]], rel=rounding)
    again.gather()
    pipe.gather()
    bound = (1e-4 if precision is None else 0.2) * distance(expected, saved.modules())
    assert distance(resumed, expected) < bound
    ours, theirs = again.state_dict(), pipe.state_dict()
    assert ours["steps"] == theirs["steps"] == 4
    for one, other in zip(ours["optimizers"], theirs["optimizers"], strict=True):
        for number, values in other["state"].items():
            assert one["state"][number]["step"] == values["step"] == 4
            assert one["state"][number]["exp_avg"].shape == values["exp_avg"].shape


@pytest.mark.parametrize("precision", [None, torch.bfloat16])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_changes_between_steps_count(zero: int, precision: torch.dtype | None) -> None:
    """Changes weights and the batch's size, and evaluates in between."""
    results = []
    for case in (_Case(zero=zero, precision=precision), _Case(precision=precision, data=1)):
        case = dataclasses.replace(case, microbatches=8 // case.data)
        modules = case.modules()
        pipe = case.pipeline(modules)
        losses = [pipe.step(*batch) for batch in _batches(case, 2)]
        losses.append(pipe.eval_step(*_batches(case, 1)[0]))
        pipe.gather()
        with torch.no_grad():
            for module in modules:
                for parameter in module.parameters():
                    parameter.mul_(0.9)
        for samples in (24, 13, 16):
            losses += pipe.steps(_batches(dataclasses.replace(case, samples=samples), 2))
        pipe.gather()
        results.append((modules, losses))
    (modules, losses), (expected, expected_losses) = results
    assert losses == pytest.approx(expected_losses, rel=1e-3)
    assert distance(modules, expected) < 1e-3


def test_weights_in_shards_are_an_error_to_read() -> None:
    case = _Case(zero=3)
    modules = case.modules()
    pipe = case.pipeline(modules)
    pipe.step(*_batches(case, 1)[0])
    weight = next(modules[0].parameters())
    for read in (lambda: weight + 1, lambda: weight.sum().item(), lambda: weight.tolist()):
        with pytest.raises(RuntimeError, match=r"divided among replicas.*gather\(\)"):
            read()
    assert pipe.timeline().makespan > 0
    pipe.gather()
    assert torch.isfinite(weight).all()


def test_dropout_depends_on_the_microbatch_only() -> None:
    def train(data: int) -> list[float]:
        torch.manual_seed(0)
        modules = [nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5)) for _ in range(2)]
        pipe = pt.Pipeline(modules, ranks=2, microbatches=4, loss=_mse, data_parallel=data, seed=7, exact=True)
        return [pipe.step(torch.ones(8, 16), torch.ones(8, 16)) for _ in range(3)]

    assert train(2) == pytest.approx(train(1), rel=1e-5)


def test_gradients_are_left_in_parameters_without_an_optimizer() -> None:
    case = _Case(optimizer=None)
    modules = case.modules()
    pipe = case.pipeline(modules)
    inputs, targets = _batches(case, 1)[0]
    pipe.step(inputs, targets)
    expected = case.modules()
    _mse(chain(expected)(inputs), targets).backward()
    for one, other in zip(modules, expected, strict=True):
        for p, q in zip(one.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)


def test_zero_refuses_what_it_cannot_divide() -> None:
    transposed = nn.Linear(4, 4)
    transposed.weight = nn.Parameter(torch.zeros(4, 4).t())
    for module, message in (
        (nn.Linear(4, 4).bfloat16(), "'weight' is torch.bfloat16, but zero shards float32"),
        (transposed, "'weight' is not contiguous"),
    ):
        with pytest.raises(Error, match=message):
            pt.Pipeline([module, nn.Linear(4, 4)], loss=_mse, data_parallel=2, zero=1)


@pytest.mark.parametrize("frozen", [(0,), (1, 2), (1, 2, 3)])
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_stages_without_trained_weights(zero: int, frozen: tuple[int, ...]) -> None:
    def train(of: int) -> tuple[list[nn.Module], list[float], dict[str, Any]]:
        case = _Case(schedule="zbv", zero=of, clip=0.1)
        modules = case.modules()
        for stage in frozen:
            modules[stage].requires_grad_(False)
        pipe = case.pipeline(modules)
        losses = [pipe.step(*batch) for batch in _batches(case, 3)]
        pipe.gather()
        return modules, losses, pipe.state_dict()

    modules, losses, state = train(zero)
    expected, expected_losses, expected_state = train(0)
    assert losses == expected_losses
    assert distance(modules, expected) == 0
    assert [each is None for each in state["optimizers"]] == [stage in frozen for stage in range(4)]
    assert [each is None for each in expected_state["optimizers"]] == [stage in frozen for stage in range(4)]


@pytest.mark.parametrize("zero", [1, 2])
def test_a_stage_may_share_all_of_its_weights(zero: int) -> None:
    def train(of: int) -> tuple[list[nn.Module], list[float]]:
        torch.manual_seed(2)
        modules: list[nn.Module] = [nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)]
        modules[1].weight = modules[0].weight  # type: ignore[assignment]
        pipe = pt.Pipeline(modules, loss=_mse, microbatches=4, data_parallel=2, zero=of, optimizer=_adamw)
        losses = [pipe.step(*batch) for batch in _batches(_Case(), 3)]
        pipe.gather()
        return modules, losses

    modules, losses = train(zero)
    expected, expected_losses = train(0)
    assert losses == expected_losses
    assert distance(modules, expected) == 0
    with pytest.raises(Error, match="stage 0 shares all of its weights .* use zero=2"):
        train(3)


def test_replicas_do_not_share_running_statistics() -> None:
    modules = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Linear(4, 4)]
    pipe = pt.Pipeline(modules, microbatches=4, loss=_mse, data_parallel=2)
    with pytest.raises(Error, match="stage 0 updates buffers .* the 2 replicas"):
        pipe.step(torch.randn(8, 4), torch.randn(8, 4))


# Prints the losses and the final weights of a run for each line "SCHEDULE DATA ZERO PRECISION".
_SCRIPT = """
import sys
import torch, penstock.torch as pt
from torch import nn

here, count = pt.place()
for each in sys.argv[1].split(","):
    schedule, data, zero, precision = each.split()
    torch.manual_seed(1)
    modules = [nn.Sequential(nn.Linear(16, 21), nn.GELU(), nn.Linear(21, 16)) for _ in range(2)]
    modules[1][0].weight = modules[0][0].weight
    pipe = pt.Pipeline(
        modules, schedule, ranks=2, microbatches=8, loss=nn.functional.mse_loss, exact=True,
        data_parallel=int(data), zero=int(zero), clip_grad_norm=0.1, timeout=60,
        precision=torch.bfloat16 if precision == "bf16" else None,
    )
    lines = []
    for samples in (16, 16, 19, 16):
        lines.append(repr(pipe.step(torch.randn(samples, 16), torch.randn(samples, 16))))
    lines.append(repr(pipe.eval_step(torch.randn(8, 16), torch.randn(8, 16))))
    state = pipe.state_dict()
    pipe.load_state_dict(state)
    lines.append(repr(pipe.step(torch.randn(16, 16), torch.randn(16, 16))))
    pipe.gather()
    local = {pipe.schedule.rank_of_stage.index(r) % 2 for r in range(pipe.schedule.ranks)
             if r * count // pipe.schedule.ranks == here}
    for stage in sorted(local):
        weights = [p.double().sum().item() for p in modules[stage].parameters()]
        lines.append(f"stage {stage} {weights}")
    sys.stdout.write("".join(f"result {each}: {line}\\n" for line in lines))
    sys.stdout.flush()
"""


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_train_like_threads(processes: int) -> None:
    cases = [f"1f1b 2 {zero} {precision}" for zero in range(4) for precision in ("f32", "bf16")]
    cases += ["zb-h1 4 2 f32", "1f1b 4 3 bf16"] + (["dualpipe 2 2 f32"] if processes == 4 else [])
    expected = set(lines_of(_SCRIPT, ",".join(cases), prefix="result"))
    assert len(expected) == 8 * len(cases)
    found = lines_of(_SCRIPT, ",".join(cases), prefix="result", processes=processes)
    assert set(found) == expected


def test_replicas_on_processes_begin_with_equal_weights() -> None:
    script = _SCRIPT.replace("torch.manual_seed(1)", "torch.manual_seed(here)")
    equal_batches = "    torch.manual_seed(2)\n"
    script = script.replace("    modules[1][0].weight = modules[0][0].weight\n", equal_batches)
    ended = run_all(script, "1f1b 2 0 f32")
    assert all(code != 0 for code, _, _ in ended)
    assert all("has other values on process" in errors for _, _, errors in ended)


# Saves after two steps what a process has of them.
_SAVING = """
import sys
import torch, penstock.torch as pt
from torch import nn

torch.manual_seed(1)
modules = [nn.Sequential(nn.Linear(16, 21), nn.GELU(), nn.Linear(21, 16)) for _ in range(2)]
pipe = pt.Pipeline(
    modules, microbatches=4, loss=nn.functional.mse_loss, data_parallel=2, zero=3, timeout=60
)
for _ in range(2):
    pipe.step(torch.randn(16, 16), torch.randn(16, 16))
state = pipe.state_dict()
pipe.gather()
weights = [module.state_dict() for module in modules]
torch.save((state, weights), f"{sys.argv[1]}/{pt.place()[0]}.pt")
"""


@pytest.mark.parametrize("processes", [2, 4])
def test_the_states_of_processes_are_loaded_by_one(tmp_path: pathlib.Path, processes: int) -> None:
    ended = run_all(_SAVING, str(tmp_path), processes=processes)
    assert all(code == 0 for code, _, _ in ended), ended
    saved = [torch.load(tmp_path / f"{process}.pt") for process in range(processes)]
    states = [state for state, _ in saved]
    # With four processes, each has one stage; with two, one replica of both.
    weights = [saved[stage if processes == 4 else 0][1][stage] for stage in range(2)]

    def pipeline(**options: Any) -> tuple[list[nn.Module], pt.Pipeline]:
        torch.manual_seed(1)
        modules = [nn.Sequential(nn.Linear(16, 21), nn.GELU(), nn.Linear(21, 16)) for _ in range(2)]
        return list(modules), pt.Pipeline(list(modules), microbatches=4, loss=_mse, **options)

    expected, pipe = pipeline()
    for _ in range(2):
        pipe.step(torch.randn(16, 16), torch.randn(16, 16))
    batch = torch.randn(16, 16), torch.randn(16, 16)
    loss = pipe.step(*batch)
    for options in ({}, {"data_parallel": 2, "zero": 2}):
        modules, again = pipeline(**options)
        for module, values in zip(modules, weights, strict=True):
            module.load_state_dict(values)
        if processes == 4:
            with pytest.raises(Error, match="the state has none of stage 1: pass a list of the"):
                again.load_state_dict(states[0])
        again.load_state_dict(states)
        assert again.step(*batch) == pytest.approx(loss, rel=1e-5)
        again.gather()
        assert distance(modules, expected) < 1e-3
    with pytest.raises(Error, match="the states are of different steps, .0, 2."):
        again.load_state_dict([*states, pipeline()[1].state_dict()])
