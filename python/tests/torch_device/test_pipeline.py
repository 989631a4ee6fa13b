"""A Pipeline on a device computes what it computes on the CPU, bit for bit, ordered by events."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_test_device import take_report
from torch import nn
from torch.utils.checkpoint import checkpoint

import penstock
import penstock.torch as pt
from penstock.torch.devices import require_one

DEVICE = "test_device:0"


def mlp(width: int = 16, dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.LayerNorm(24), nn.Dropout(dropout), nn.Linear(24, width))


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp(dropout=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]


class Running(nn.Module):
    """A saved buffer that each microbatch changes, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("shift", torch.ones(16), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.linear(x + self.shift)  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(x).unflatten(-1, (3, 2, 8)).movedim(-3, 0).transpose(2, 3)
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def mse(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(output.float(), target)


def with_metrics(output: torch.Tensor, target: torch.Tensor) -> Any:
    return mse(output, target), {"largest": output.detach().abs().max()}


def stages(make: Callable[[], nn.Module] = mlp, count: int = 4) -> list[nn.Module]:
    return [make() for _ in range(count)]


def tied() -> list[nn.Module]:
    made = stages(lambda: nn.Linear(16, 16))
    made[3].weight = made[0].weight  # type: ignore[assignment]
    return made


@dataclasses.dataclass
class Case:
    make: Callable[[], list[nn.Module]] = stages
    schedule: str = "1f1b"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    loss: Callable[..., Any] = mse
    shape: tuple[int, ...] = (8, 16)
    batch_on_device: bool = True
    # By stage: which of two devices has it. The stages of a rank are on one device.
    places: tuple[int, ...] = (0, 1, 0, 1)


CASES = {
    "plain": Case(),
    "batch on the CPU": Case(batch_on_device=False),
    "zb-h1": Case(schedule="zb-h1"),
    "zbv": Case(schedule="zbv", options={"ranks": 2}, places=(0, 1, 1, 0)),
    "dualpipev": Case(schedule="dualpipev", options={"ranks": 2}, places=(0, 1, 1, 0)),
    "dualpipe": Case(schedule="dualpipe", options={"microbatches": 8}, places=(0, 1, 1, 0)),
    "interleaved": Case(schedule="interleaved", options={"ranks": 2}),
    "replicas": Case(options={"data_parallel": 2, "microbatches": 8}),
    "zero 1": Case(options={"data_parallel": 2, "microbatches": 8, "zero": 1}),
    "zero 2": Case(options={"data_parallel": 2, "microbatches": 8, "zero": 2}),
    "zero 3": Case(options={"data_parallel": 2, "microbatches": 8, "zero": 3, "precision": torch.bfloat16}),
    "attention": Case(lambda: stages(Attention), shape=(8, 6, 16)),
    "dropout": Case(lambda: stages(lambda: mlp(dropout=0.3))),
    "checkpoint": Case(lambda: stages(Checkpointed)),
    "running statistics": Case(lambda: stages(Running)),
    "shared": Case(tied, places=(0, 1, 1, 0)),
    "sgd": Case(options={"optimizer": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)}),
    "torch's adamw": Case(options={"optimizer": torch.optim.AdamW}),
    "schedulers": Case(options={"lr_scheduler": lambda o: torch.optim.lr_scheduler.StepLR(o, 1, gamma=0.5)}),
    "clip": Case(options={"clip_grad_norm": 0.1}),
    "skip": Case(options={"skip_nonfinite": True}),
    "bf16": Case(options={"precision": torch.bfloat16}),
    "bf16 gradients": Case(options={"gradient_dtype": torch.bfloat16}),
    "recompute": Case(options={"recompute": {"hold": "least"}}),
    "metrics": Case(loss=with_metrics, options={"outputs": True}),
    "weights of losses": Case(options={"loss_weight": lambda target: (target > 0).sum()}),
    "unequal microbatches": Case(shape=(10, 16)),
}


def twins(case: Case) -> tuple[list[nn.Module], list[nn.Module]]:
    """Returns two models with equal weights."""
    torch.manual_seed(1)
    model = case.make()
    return model, copy.deepcopy(model)


def pipeline(case: Case, model: list[nn.Module]) -> pt.Pipeline:
    options: dict[str, Any] = {"ranks": 4, "microbatches": 4, "loss": case.loss, **case.options}
    return pt.Pipeline(model, case.schedule, exact=True, threads=1, seed=5, **options)


def data(case: Case, device: str, step: int, last: str = "") -> tuple[torch.Tensor, torch.Tensor]:
    """Returns inputs on the device, and targets there or on the device of the last stage."""
    generator = torch.Generator().manual_seed(step)
    x, y = (torch.randn(case.shape, generator=generator) for _ in range(2))
    return (x.to(device), y.to(last or device)) if case.batch_on_device else (x, y)


def places(case: Case) -> list[str]:
    return [f"test_device:{place}" for place in case.places]


def train(case: Case, model: list[nn.Module], device: str | list[str], steps: int = 3) -> Any:
    """Returns the pipeline, and the losses, metrics, outputs and norms of its steps."""
    there = device if isinstance(device, list) else [device] * len(model)
    for stage, place in zip(model, there, strict=True):
        stage.to(place)
    pipe, found = pipeline(case, model), []
    for step in range(steps):
        loss = pipe.step(*data(case, there[0], step, there[-1]))
        last = pipe.last
        outputs = None if last.outputs is None else last.outputs.cpu()
        norm = None if last.grad_norm is None else round(last.grad_norm, 6)  # sums of another order
        found.append((loss, last.losses, last.metrics, norm, outputs))
    pipe.gather()
    return pipe, found


def tensors(model: list[nn.Module]) -> list[torch.Tensor]:
    return [each.detach().cpu() for stage in model for each in stage.state_dict().values()]


def assert_same(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        if isinstance(left, torch.Tensor):
            assert torch.equal(left, right)
        elif isinstance(left, (list, tuple)):
            assert_same(list(left), list(right))
        else:
            assert left == right


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_the_cpu(name: str) -> None:
    case = CASES[name]
    model, there = twins(case)
    _, expected = train(case, model, "cpu")
    _, found = train(case, there, DEVICE)
    assert_same(expected, found)
    assert_same(tensors(model), tensors(there))


@pytest.mark.parametrize("name", CASES)
def test_recorded_steps_are_those_of_the_cpu(name: str) -> None:
    case = CASES[name]
    model, there = twins(case)
    _, expected = train(case, model, "cpu", 6)
    recorded = dataclasses.replace(case, options={**case.options, "device_graphs": True})
    take_report()
    pipe, found = train(recorded, there, DEVICE, 6)
    assert_same(expected, found)
    assert_same(tensors(model), tensors(there))
    report = take_report()  # which the fixture then does not see
    assert [line for line in report if line.startswith("race")] == []
    # What draws random numbers runs op by op.
    modules = (each for stage in model for each in stage.modules())
    is_random = any(isinstance(each, nn.Dropout) and each.p > 0 for each in modules)
    assert ("replays" in report) == (not is_random)
    graphs = pipe.recorded_graphs
    assert [each.rank for each in graphs] == list(range(pipe.schedule.ranks))
    assert (sum(each.runs for each in graphs) > 0) == (not is_random)
    for each in graphs:
        assert each.recorded or each.refused


@pytest.mark.parametrize("name", CASES)
def test_steps_on_two_devices_are_those_of_the_cpu(name: str) -> None:
    case = CASES[name]
    model, there = twins(case)
    _, expected = train(case, model, "cpu")
    pipe, found = train(case, there, places(case))
    assert_same(expected, found)
    assert_same(tensors(model), tensors(there))
    for stage, place in zip(there, places(case), strict=True):
        assert {each.device for each in stage.parameters()} == {torch.device(place)}
    for step in range(3, 6):  # on the device already
        pipe.step(*data(case, places(case)[0], step, places(case)[-1]))


def test_two_devices_with_graphs_and_parts() -> None:
    model, there = twins(Case())
    case = Case(schedule="zb-h1")
    _, expected = train(case, model, "cpu", 5)
    case.options = {"device_graphs": True, "device_parts": True}
    _, found = train(case, there, places(case), 5)
    assert_same(expected, found)


_PLACES = pytest.mark.parametrize("there", [[DEVICE] * 4, places(Case())], ids=["one", "two"])


@_PLACES
def test_evaluation(there: list[str]) -> None:
    case = Case()
    model, moved = twins(Case())
    pipe, _ = train(case, model, "cpu", 1)
    on_devices, _ = train(case, moved, there, 1)
    x, y = data(Case(batch_on_device=False), DEVICE, 3)
    assert pipe.eval_step(x, y) == on_devices.eval_step(x, y)
    assert pipe.eval_step(x, y) == on_devices.eval_step(x.to(there[0]), y.to(there[-1]))


def test_a_state_moves_to_two_devices() -> None:
    case = Case()
    model, there = twins(Case())
    pipe, _ = train(case, model, "cpu", 2)
    for stage, place, trained in zip(there, places(case), model, strict=True):
        stage.load_state_dict(trained.state_dict())
        stage.to(place)
    resumed = pipeline(case, there)
    resumed.load_state_dict(pipe.state_dict())
    x, y = data(Case(batch_on_device=False), DEVICE, 9)
    assert pipe.step(x, y) == resumed.step(x, y)


def test_what_two_devices_cannot_do() -> None:
    model = stages()
    for index, stage in enumerate(model):
        stage.to(f"test_device:{index % 2}")
    with pytest.raises(penstock.Error, match="rank 1 trains stages 1 and 2, which are on test_dev"):
        pt.Pipeline(model, "zbv", ranks=2, microbatches=4, loss=mse)
    with pytest.raises(penstock.Error, match="device is test_device:0, but stage 1: parameter"):
        pt.Pipeline(model, ranks=4, microbatches=4, loss=mse, device=DEVICE)
    pipe = pt.Pipeline(model, ranks=4, microbatches=4, loss=mse, device="test_device")
    x = torch.randn(8, 16)
    with pytest.raises(penstock.Error, match="targets are on test_device:0, but the last stage is"):
        pipe.step(x.to(DEVICE), x.to(DEVICE))
    with pytest.raises(penstock.Error, match="inputs are on test_device:1, but the first stage is"):
        pipe.step(x.to("test_device:1"), x)
    assert pipe.step(x, x) > 0
    with pytest.raises(penstock.Error, match="'c10d'.* are on test_device:0 and test_device:1"):
        require_one([stage[0].weight.device for stage in model])  # type: ignore[index, union-attr]
    model[2].add_module("more", nn.Linear(16, 16).to("test_device:1"))
    with pytest.raises(penstock.Error, match="stage 2: parameter 'more.weight' is on test_device:1"):
        pt.Pipeline(model, ranks=4, microbatches=4, loss=mse)
    model = [*stages(count=3), mlp().to(DEVICE)]
    with pytest.raises(penstock.Error, match="stage 3: parameter '0.weight' is on test_device:0, but"):
        pt.Pipeline(model, ranks=4, microbatches=4, loss=mse)


def test_each_rank_has_a_part_of_the_device() -> None:
    model, there = twins(Case())
    _, expected = train(Case(), model, "cpu")
    _, found = train(Case(options={"device_parts": True}), there, DEVICE)
    assert_same(expected, found)


@_PLACES
def test_no_rank_waits_for_the_host_within_steps(there: list[str]) -> None:
    case = Case()
    model = [stage.to(place) for stage, place in zip(stages(), there, strict=True)]
    pipe = pipeline(case, model)
    batches = [data(case, there[0], step, there[-1]) for step in range(5)]
    pipe.step(*batches[0])
    take_report()
    pipe.steps(batches)
    waits = [line for line in take_report() if line.startswith("host")]
    reads = waits.count("host: copy to the host")
    allowed = {"host: copy to the host", "host: wait for an event", "host: wait for a stream"}
    assert set(waits) <= allowed
    assert reads <= 5 * (4 + 2)  # norms of stages, and losses


def test_gradients_without_an_optimizer() -> None:
    case = Case(options={"optimizer": None})
    model, there = twins(Case())
    train(case, model, "cpu", 2)
    train(case, there, DEVICE, 2)
    pairs = zip(nn.ModuleList(model).parameters(), nn.ModuleList(there).parameters(), strict=True)
    for one, other in pairs:
        assert one.grad is not None and other.grad is not None
        assert torch.equal(one.grad, other.grad.cpu())


def test_a_state_moves_between_devices() -> None:
    case = Case()
    model, there = twins(Case())
    pipe, _ = train(case, there, DEVICE, 2)
    state = pipe.state_dict()
    back = copy.deepcopy(there)
    for stage in back:
        stage.to("cpu")
    resumed = pipeline(case, back)
    resumed.load_state_dict(state)
    assert pipe.step(*data(case, DEVICE, 9)) == resumed.step(*data(case, "cpu", 9))
    again_there = copy.deepcopy(back)
    for stage in again_there:
        stage.to(DEVICE)
    again = pipeline(case, again_there)
    again.load_state_dict(resumed.state_dict())
    assert resumed.step(*data(case, "cpu", 10)) == again.step(*data(case, DEVICE, 10))


def test_models_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=64,
        n_positions=16,
        n_embd=16,
        n_layer=4,
        n_head=2,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        attn_implementation="sdpa",
    )
    tokens = torch.randint(0, 64, (8, 12))
    found = {}
    for device in ("cpu", DEVICE):
        torch.manual_seed(1)
        inputs = {"input_ids": tokens, "labels": tokens}
        split = pt.split(transformers.GPT2LMHeadModel(config), inputs, 4)
        for stage in split:
            stage.to(device)
        pipe = pt.Pipeline(split, "1f1b", ranks=4, microbatches=4, exact=True, threads=1, seed=5)
        found[device] = [pipe.step(inputs) for _ in range(3)]
    assert found["cpu"] == found[DEVICE]


def test_what_is_refused() -> None:
    model = stages()
    with pytest.raises(penstock.Error, match="device is test_device:0, but stage 0: parameter '0.weight' is"):
        pt.Pipeline(model, ranks=4, microbatches=4, loss=mse, device=DEVICE)
    with pytest.raises(penstock.Error, match="device is 'abacus'"):
        pt.Pipeline(model, ranks=4, microbatches=4, loss=mse, device="abacus")
    model[0].to(DEVICE)
    with pytest.raises(penstock.Error, match="parameter '0.weight' is on cpu, but the pipeline"):
        pt.Pipeline(model, ranks=4, microbatches=4, loss=mse)
    for stage in model:
        stage.to(DEVICE)
    pipe = pt.Pipeline(model, ranks=4, microbatches=4, loss=mse, device="test_device")
    x = torch.randn(8, 16)
    with pytest.raises(penstock.Error, match="inputs are on meta"):
        pipe.step(x.to("meta"), x)
    assert pipe.step(x, x) > 0


@pytest.mark.parametrize("through_data", [False, True])
def test_a_changed_tensor_is_read_as_it_is(through_data: bool) -> None:
    model = [stage.to(DEVICE) for stage in stages(Running)]
    case = Case()
    pipe = pipeline(case, model)
    pipe.step(*data(case, DEVICE, 0))
    shift: Any = model[1].shift
    with torch.no_grad():
        (shift.data if through_data else shift)[3] = torch.nan
    assert torch.tensor(pipe.step(*data(case, DEVICE, 1)), device="cpu").isnan()


class Shifts(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        for i in range(count):
            self.register_buffer(f"shift{i}", torch.full((16,), 0.5 / count), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(sum(self.buffers(), x))  # type: ignore[no-any-return]


def test_the_host_waits_as_often_for_many_constants_as_for_one() -> None:
    case, waits = Case(), []
    for count in (1, 5):
        pipe = pipeline(case, [Shifts(count).to(DEVICE) for _ in range(4)])
        for step in range(3):
            take_report()
            pipe.step(*data(case, DEVICE, step))
        waits.append(sum(line.startswith("host") for line in take_report()))
    assert waits[0] == waits[1]
