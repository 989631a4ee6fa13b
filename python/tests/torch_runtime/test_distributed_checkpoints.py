"""Checkpoints in torch's distributed format: of a Pipeline with other stages, of plain models, and of FSDP."""

from __future__ import annotations

import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from gloo_ranks import run_ranks
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import penstock.torch as pt
from penstock import Error
from penstock.torch.training import checkpoint

FLAT, NESTED = StateDictOptions(flatten_optimizer_state_dict=True), StateDictOptions()


class Model(nn.Module):
    def __init__(self, seed: int, *, is_tied: bool = False) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(12, 8)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)])
        self.head = nn.Linear(8, 12, bias=False)
        if is_tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch() -> torch.Tensor:
    return torch.arange(24).view(8, 3) % 12


def decayed(of: Callable[..., torch.optim.Optimizer], parameters: list[Any]) -> torch.optim.Optimizer:
    matrices, others = [each for each in parameters if each.dim() > 1], [each for each in parameters if each.dim() < 2]
    groups = [{"params": each, "weight_decay": decay} for each, decay in ((matrices, 0.1), (others, 0.0)) if each]
    return of(groups, lr=0.01)


def pipeline(model: nn.Module, schedule: str = "1f1b", **options: Any) -> pt.Pipeline:
    stages = pt.split(model, batch()[:1], 4 if schedule == "zbv" else 2)
    given: dict[str, Any] = {
        "optimizer": lambda parameters: decayed(pt.AdamW, parameters),
        "lr_scheduler": lambda of: torch.optim.lr_scheduler.LambdaLR(of, lambda step: 1 / (1 + step)),
        **options,
    }
    return pt.Pipeline(stages, schedule, ranks=2, microbatches=4, loss=loss, exact=True, **given)


def steps(pipe: pt.Pipeline, count: int) -> list[float]:
    return [pipe.step(batch(), batch()) for _ in range(count)]


def assert_equal(one: nn.Module, other: nn.Module, *, is_close: bool = False) -> None:
    for (name, weight), (_, found) in zip(one.state_dict().items(), other.state_dict().items(), strict=True):
        torch.testing.assert_close(found, weight, rtol=1e-5 if is_close else 0, atol=1e-6 if is_close else 0, msg=name)


@pytest.mark.parametrize("options", [{}, {"data_parallel": 2, "zero": 3}], ids=["plain", "zero"])
@pytest.mark.parametrize("is_tied", [False, True], ids=["own", "tied"])
def test_another_number_of_stages(tmp_path: pathlib.Path, options: dict[str, Any], is_tied: bool) -> None:
    model, other = Model(0, is_tied=is_tied), Model(1, is_tied=is_tied)
    pipe = pipeline(model)
    steps(pipe, 2)
    pipe.save_checkpoint(tmp_path)
    loaded = pipeline(other, "zbv", **options)
    loaded.load_checkpoint(tmp_path)
    assert_equal(model, other)
    assert loaded.lr == pipe.lr
    assert steps(loaded, 2) == pytest.approx(steps(pipe, 2), rel=1e-5)
    loaded.gather()
    assert_equal(model, other, is_close=True)
    assert loaded.state_dict()["steps"] == 4


@pytest.mark.parametrize("options", [FLAT, NESTED], ids=["flat", "nested"])
@pytest.mark.parametrize("keys", [("model", "optimizer"), ("", "optim")], ids=["keys", "titan"])
def test_plain_models(tmp_path: pathlib.Path, options: StateDictOptions, keys: tuple[str, str]) -> None:
    model, plain, last = Model(0), Model(1), Model(2)
    pipe, optimizer = pipeline(model), decayed(torch.optim.AdamW, list(plain.parameters()))
    steps(pipe, 2)
    pipe.save_checkpoint(tmp_path / "ours", model=keys[0], optimizer=keys[1])
    state = _state(plain, optimizer, options, keys)
    dcp.load(state, checkpoint_id=tmp_path / "ours")
    weights = state["model"] if keys[0] else {name: state[name] for name in plain.state_dict()}
    set_state_dict(plain, optimizer, model_state_dict=weights, optim_state_dict=state[keys[1]], options=options)
    assert_equal(model, plain)
    assert [group["lr"] for group in optimizer.param_groups] == [pipe.lr, pipe.lr]
    loss(plain(batch()), batch()).backward()
    optimizer.step()
    steps(pipe, 1)
    assert_equal(model, plain, is_close=True)
    dcp.save(_state(plain, optimizer, options, keys), checkpoint_id=tmp_path / "theirs")
    loaded = pipeline(last, "zbv", lr_scheduler=None)
    loaded.load_checkpoint(tmp_path / "theirs", model=keys[0], optimizer=keys[1])
    for each in loaded.optimizers:
        assert each is not None
        each.param_groups[0]["lr"] = each.param_groups[-1]["lr"] = pipe.lr
    steps(loaded, 1), steps(pipe, 1)
    assert_equal(model, last, is_close=True)


def _state(model: nn.Module, optimizer: torch.optim.Optimizer, options: StateDictOptions, keys: tuple[str, str]) -> dict[str, Any]:
    weights, states = get_state_dict(model, optimizer, options=options)
    return {**({keys[0]: weights} if keys[0] else weights), keys[1]: states}


def _train_sharded(rank: int, folder: pathlib.Path) -> None:
    model = Model(3)
    fully_shard(model)
    optimizer = decayed(torch.optim.AdamW, list(model.parameters()))
    state = _state(model, optimizer, FLAT, ("model", "optimizer"))
    dcp.load(state, checkpoint_id=folder / "ours")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"], options=FLAT)
    loss(model(batch()), batch()).backward()
    optimizer.step()
    dcp.save(_state(model, optimizer, FLAT, ("model", "optimizer")), checkpoint_id=folder / "theirs")


def test_sharded_models(tmp_path: pathlib.Path) -> None:
    model, other = Model(0), Model(1)
    pipe = pipeline(model)
    steps(pipe, 2)
    pipe.save_checkpoint(tmp_path / "ours")
    run_ranks(2, _train_sharded, tmp_path)
    steps(pipe, 1)
    loaded = pipeline(other, "zbv")
    loaded.load_checkpoint(tmp_path / "theirs")
    assert_equal(model, other, is_close=True)


def _train_in_processes(rank: int, folder: pathlib.Path, schedule: str, options: dict[str, Any]) -> list[float]:
    model, other = Model(0), Model(1)
    pipe = pipeline(model, schedule, **options)
    steps(pipe, 2)
    pipe.save_checkpoint(folder / "processes")
    loaded = pipeline(other, schedule, **options)
    loaded.load_checkpoint(folder / "alone")
    return steps(pipe, 2) + steps(loaded, 2)


@pytest.mark.parametrize(
    ("processes", "schedule", "options"),
    [
        (2, "1f1b", {}),
        (2, "zbv", {"transport": "c10d"}),
        (4, "zbv", {"data_parallel": 2, "transport": "c10d"}),
        (4, "1f1b", {"data_parallel": 2, "zero": 1}),
        (2, "1f1b", {"data_parallel": 2, "zero": 3}),
    ],
)
def test_several_processes(tmp_path: pathlib.Path, processes: int, schedule: str, options: dict[str, Any]) -> None:
    """Processes save one checkpoint, which one process loads, and load what one has saved."""
    alone, model = pipeline(Model(0)), Model(2)
    steps(alone, 2)
    alone.save_checkpoint(tmp_path / "alone")
    expected = steps(alone, 2) * 2
    for found in run_ranks(processes, _train_in_processes, tmp_path, schedule, options):
        assert found == pytest.approx(expected, rel=1e-5)
    loaded = pipeline(model)
    loaded.load_checkpoint(tmp_path / "processes")
    assert steps(loaded, 2) == pytest.approx(expected[:2], rel=1e-5)


def test_stages_of_ones_own(tmp_path: pathlib.Path) -> None:
    def made(seed: int) -> nn.ModuleList:
        torch.manual_seed(seed)
        return nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(2)])

    stages, others = made(0), made(1)
    pipe, loaded = (pt.Pipeline(each, microbatches=2, loss=nn.functional.mse_loss) for each in (stages, others))
    pipe.step(torch.randn(8, 4), torch.randn(8, 4))
    pipe.save_checkpoint(tmp_path, model="")
    loaded.load_checkpoint(tmp_path, model="")
    assert_equal(stages, others)
    dcp.load(made(2).state_dict(), checkpoint_id=tmp_path)
    for keys, message in (
        ({"model": "net"}, "'net.0.0.weight' is missing in .*: pass model= with the key"),
        ({"model": "", "optimizer": "optim"}, "'optim' is missing in .*, or None to load weights only"),
    ):
        with pytest.raises(Error, match=message):
            loaded.load_checkpoint(tmp_path, **keys)
    with pytest.raises(Error, match="load_checkpoint: "):
        loaded.load_checkpoint(tmp_path / "missing")


class _Hostile:
    """Runs a command where it is unpickled."""

    def __init__(self, ran: pathlib.Path) -> None:
        self.ran = ran

    def __reduce__(self) -> Any:
        return pathlib.Path.touch, (self.ran,)


@pytest.mark.parametrize("where", ["metadata", "value"])
def test_nothing_in_a_checkpoint_is_run(tmp_path: pathlib.Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, folder, ran = pipeline(Model(1)), tmp_path / "checkpoint", tmp_path / "ran"
    steps(pipe, 1)
    if where == "value":
        monkeypatch.setattr(checkpoint, "_as_text", lambda _: _Hostile(ran))
    pipe.save_checkpoint(folder)
    if where == "metadata":
        (folder / ".metadata").write_bytes(pickle.dumps(_Hostile(ran)))
    with pytest.raises(Error, match="which is not read"):
        pipe.load_checkpoint(folder)
    assert not ran.exists()
