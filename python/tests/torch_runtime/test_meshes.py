"""Captured stages in torch's runtime whose collectives connect the processes of a mesh: tensor and expert parallelism."""

from __future__ import annotations

import contextlib
import functools
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gloo_ranks import run_ranks
from torch import fx, nn
from torch.distributed import _functional_collectives as fc
from torch.distributed.tensor import DTensor, _random, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module
from torch_mesh import dtensor_model, mlp, parity

import penstock
import penstock.torch
from penstock.torch.mesh.random_parts import drawn_by_part
from penstock.torch.torch_runtime.captured_stage import CapturedStage
from penstock.torch.torch_runtime.piece_code import Piece
from penstock.torch.torch_runtime.stage_group import StageGroup

_MICROBATCHES = 4
_SCHEDULES = ("1f1b", "zb-h1", "zbv", "dualpipev")


class _Experts(nn.Module):
    """Sends the second half of its tokens to the second expert, and the first half to the first one."""

    def __init__(self, group: Any = None) -> None:
        super().__init__()
        self.gate = nn.Linear(mlp.SIZE, mlp.SIZE)
        own = range(2) if group is None else [dist.get_rank(group)]
        self.experts = nn.ModuleDict({str(each): nn.Linear(mlp.SIZE, mlp.SIZE) for each in own})
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = torch.tanh(self.gate(x))
        if self.group is None:
            of_experts = [self.experts[str(each)](half) for each, half in enumerate(tokens.chunk(2))]
            return x + torch.tanh(torch.cat(of_experts))
        halves = [len(x) // 2] * 2
        (expert,) = self.experts.values()
        sent = expert(fc.all_to_all_single_autograd(tokens, halves, halves, self.group))
        return x + torch.tanh(fc.all_to_all_single_autograd(sent, halves, halves, self.group))


def _mlps(count: int, mesh: Any) -> tuple[list[nn.Module], list[nn.Module]]:
    group, whole = mesh["tensor"].get_group(), mlp.blocks(count)
    return [parity.copy_parts(mlp.Block(mlp.HIDDEN // 2, group), each, mlp.dim_of, group) for each in whole], whole


def _experts(count: int, mesh: Any) -> tuple[list[nn.Module], list[nn.Module]]:
    group = _across(mesh)
    torch.manual_seed(1)
    whole: list[nn.Module] = [_Experts() for _ in range(count)]
    return [parity.copy_parts(_Experts(group), each, lambda _: None, group) for each in whole], whole


def _dtensors(count: int, mesh: Any, *, loss: bool = False) -> tuple[list[nn.Module], list[nn.Module]]:
    parts = [dtensor_model.parallelize(each, mesh["tensor"], sequence=True, loss=loss) for each in dtensor_model.stages(count)]
    return parts, dtensor_model.stages(count)


_MODELS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "mlp": (_mlps, mlp.batches, nn.functional.mse_loss),
    "experts": (_experts, mlp.batches, nn.functional.mse_loss),
    "dtensors": (_dtensors, dtensor_model.batches, dtensor_model.loss_of),
    "divided logits": (functools.partial(_dtensors, loss=True), dtensor_model.batches, dtensor_model.loss_of),
}


def _mesh(model: str = "") -> Any:
    return parity.mesh_of(f"pipeline {'expert' if model == 'experts' else 'tensor'}", 2, 2)


def _across(mesh: Any) -> Any:
    """Returns the group of the processes that have the same stages."""
    return mesh[mesh.mesh_dim_names[1]].get_group()


_Trained = tuple[list[nn.Module], list[nn.Module], list[int]]


def _train(model: str, name: str, mesh: Any, around: Any = contextlib.nullcontext, **options: Any) -> _Trained:
    """Computes the gradients of two steps, of which the last ones stay.

    Returns this process's parts of the stages, whole stages, and the numbers of the stages of this rank.
    """
    schedule = penstock.schedule(name, ranks=2, microbatches=_MICROBATCHES)
    parts, whole = _MODELS[model][0](schedule.stages, mesh)
    return _train_parts(model, schedule, mesh, parts, whole, around, **options)


def _train_parts(model: str, schedule: penstock.Schedule, mesh: Any, parts: Any, whole: Any, around: Any, **options: Any) -> _Trained:
    _, batches, loss = _MODELS[model]
    pipeline, across = mesh["pipeline"].get_group(), _across(mesh)
    own = [stage for stage, of in enumerate(schedule.rank_of_stage) if of == dist.get_rank(pipeline)]
    options = {"mesh": mesh, "split": "captured", **options}
    runtime = penstock.torch.runtime({each: parts[each] for each in own}, schedule, loss, group=pipeline, **options)
    with around(runtime), loss_parallel():
        for x, y in batches(2, 4 * _MICROBATCHES):
            for stage in (*parts, *whole):
                stage.zero_grad()
            of_experts = [(x, y)] if model != "experts" else list(zip(x.chunk(2), y.chunk(2), strict=True))
            given = of_experts[dist.get_rank(across) % len(of_experts)]
            last = {"target": given[1]} if schedule.stages - 1 in own else {}
            runtime.step(*(given[:1] if 0 in own else ()), **last)
            for inputs, targets in of_experts:
                for each in zip(inputs.chunk(_MICROBATCHES), targets.chunk(_MICROBATCHES), strict=True):
                    (loss(nn.Sequential(*whole)(each[0]), each[1]) / _MICROBATCHES).backward()
    return parts, whole, own


def _errors(_: int, model: str, names: tuple[str, ...], options: dict[str, Any]) -> dict[str, float]:
    mesh, errors = _mesh(model), {}
    for name in names:
        errors |= _errors_of(model, name, mesh, _train(model, name, mesh, **options))
    return errors


def _errors_of(model: str, name: str, mesh: Any, trained: _Trained) -> dict[str, float]:
    """Returns relative errors of this process's gradients."""
    (parts, whole, own), across, errors = trained, _across(mesh), {}
    for stage in own:
        for key, parameter in parts[stage].named_parameters():
            found, expected = parameter.grad, whole[stage].get_parameter(key).grad
            assert found is not None and expected is not None, (name, stage, key)
            if isinstance(found, DTensor):
                assert found.placements == parameter.placements
                found = found.full_tensor()
            elif model == "experts" and key.startswith("gate"):  # of own tokens
                dist.all_reduce(found, group=across)
            elif model == "mlp":
                expected = parity.slice_of(expected, mlp.dim_of(key), across)
            errors[f"{name} {stage} {key}"] = parity.relative(found, expected)
    return errors


@pytest.mark.parametrize("model", _MODELS)
def test_gradients_equal_autograd(model: str) -> None:
    for of_rank in run_ranks(4, _errors, model, _SCHEDULES, {}, seconds=200):
        assert len(of_rank) >= 5 * len(_SCHEDULES)
        assert max(of_rank.values()) < 1e-5, {key: each for key, each in of_rank.items() if each >= 1e-5}


def test_compiled_graphs_have_collectives() -> None:
    for of_rank in run_ranks(4, _errors, "mlp", ("dualpipev",), {"compile": True}, seconds=200):
        assert max(of_rank.values()) < 1e-5, of_rank


def _hidden(graph: fx.Graph, of_forward: int, of_both: int) -> set[str]:
    """Returns the parts of a pair of which a collective starts before, and is waited for after, a matmul of the other part.

    The first inputs of the graph are the forward's, then come the backward's, then parameters.
    """
    part: dict[fx.Node, set[str]] = {}
    for index, node in enumerate(graph.nodes):
        own = {"F" if index < of_forward else "B"} if index < of_both else set()
        part[node] = own.union(*(part[each] for each in node.all_input_nodes))
    nodes, found = list(graph.nodes), set()
    for start in nodes:
        if start.op != "call_function" or "_c10d_functional" not in str(start.target) or "wait" in str(start.target):
            continue
        assert len(part[start]) == 1, (start, part[start])
        (wait,) = (each for each in start.users if "wait_tensor" in str(each.target))
        between = nodes[nodes.index(start) : nodes.index(wait)]
        if any("mm" in str(each.target) and part[each] and part[each] != part[start] for each in between):
            found |= part[start]
    return found


def _pairs(_: int) -> list[set[str]]:
    """Returns what is hidden in each pair's graph."""
    found, original = [], CapturedStage.pair

    def pair(self: CapturedStage, program: Any, *rest: Any) -> Any:
        piece = original(self, program, *rest)
        assert piece is not None
        found.append(_hidden(piece.code.graph, len(program.pieces["F"].slots), len(piece.slots)))
        return piece

    CapturedStage.pair = pair  # type: ignore[method-assign]
    _train("dtensors", "dualpipev", _mesh())
    return found


def test_collectives_of_each_part_of_a_pair_run_beside_compute_of_the_other() -> None:
    for of_rank in run_ranks(4, _pairs):
        assert of_rank
        assert {"F", "B"} in of_rank, of_rank


def _record(_: int) -> float:
    """Returns the time of a pair as a factor of its parts', on a pipeline's rank 0."""
    mesh, runs = _mesh(), []

    def around(runtime: Any) -> Any:
        runs.append(penstock.torch.record(runtime))
        return runs[0]

    _train("mlp", "dualpipev", mesh, around)
    if mesh["pipeline"].get_local_rank() != 0:
        return 1.0
    assert runs[0].predict().makespan > 0
    (overlap,) = (line for line in runs[0].costs.to_yaml().splitlines() if "overlap" in line)
    return float(overlap.partition(":")[2])


def test_records_of_pairs_have_a_factor() -> None:
    for factor in run_ranks(4, _record):
        assert 0 < factor <= 1


class _Switched(mlp.Block):
    """Computes the same in two ways."""

    is_on = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x if self.is_on else 1.0 * x)


def _on_one_process(rank: int, has_hook: bool) -> tuple[list[str], int]:
    """A module of one process has a hook of autograd, which graphs do not call, or a value of it changes after the first step.

    Returns warnings and the number of captures.
    """
    mesh, schedule = _mesh(), penstock.schedule("zb-h1", ranks=2, microbatches=_MICROBATCHES)
    group, (_, whole), captures, capture = mesh["tensor"].get_group(), _mlps(schedule.stages, mesh), [], CapturedStage._capture
    parts = [parity.copy_parts(_Switched(mlp.HIDDEN // 2, group), each, mlp.dim_of, group) for each in whole]
    if has_hook and rank == 1:
        parts[0].up.register_full_backward_hook(lambda *_: None)

    def counted(*given: Any, **named: Any) -> Any:
        captures.append(given)
        return capture(*given, **named)

    @contextlib.contextmanager
    def changing(runtime: Any) -> Iterator[None]:
        original = runtime.step

        def step(*given: Any, **named: Any) -> None:
            original(*given, **named)
            parts[0].is_on = has_hook or rank != 1

        runtime.step = step
        yield

    CapturedStage._capture = counted  # type: ignore[method-assign]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained = _train_parts("mlp", schedule, mesh, parts, whole, changing, split="auto")
    assert max(_errors_of("mlp", "zb-h1", mesh, trained).values()) < 1e-5
    return [str(each.message) for each in caught if "is not captured" in str(each.message)], len(captures)


def test_all_processes_of_a_stage_capture_it_or_none() -> None:
    ((first,), _), ((second,), _), *others = run_ranks(4, _on_one_process, True)
    assert "process 1: stage 0" in first and "hook" in second and others == [([], 1)] * 2


def test_what_changes_on_one_process_is_captured_again_on_all() -> None:
    assert run_ranks(4, _on_one_process, False) == [([], 2), ([], 2), ([], 1), ([], 1)]


def _refused(_: int) -> list[str]:
    mesh, x = parity.mesh_of("pipeline tensor", 1, 2), mlp.batches(1)[0][0]
    group, alone = mesh["tensor"].get_group(), mesh["pipeline"].get_group()
    column = parallelize_module(nn.Linear(mlp.SIZE, mlp.SIZE), mesh["tensor"], ColwiseParallel(use_local_output=False))

    def step(module: nn.Module, **options: Any) -> None:
        schedule = penstock.schedule("1f1b", ranks=1, microbatches=_MICROBATCHES)
        runtime = penstock.torch.runtime([module], schedule, nn.functional.mse_loss, group=alone, split="captured", **options)
        runtime.step(x, target=x)

    def call(module: nn.Module, given: torch.Tensor) -> None:
        CapturedStage(module, 0, 2, None, StageGroup(mesh, alone), compiled=False).program((given,), {}, None)

    cases: list[Callable[[], None]] = [
        lambda: step(mlp.Block(mlp.HIDDEN, group)),
        lambda: step(column),
        lambda: step(mlp.Block(), mesh=parity.mesh_of("pipeline tensor", 2, 1)),
        lambda: call(column, x),
        lambda: call(nn.Linear(mlp.SIZE, mlp.SIZE), distribute_tensor(x, mesh["tensor"])),
        lambda: StageGroup(mesh, alone).alike("stage 0", lambda: [_Piece(["broadcast", group.group_name], 1 + dist.get_rank())], lambda of: of),
    ]
    lines = []
    for case in cases:
        with pytest.raises((penstock.Error, RuntimeError)) as refused:
            case()
        lines.append(str(refused.value.__cause__ or refused.value))
    return lines


class _Piece(Piece):
    """Has no graph."""

    def __init__(self, call: list[str], times: int) -> None:
        self.collectives = [call] * times


_REFUSED = (
    "all_reduce of torch.distributed exchanges tensors with other processes, which compiled steps do not repeat: pass mesh=",
    "stage 0: parameter 'weight' is a DTensor, as fully_shard (FSDP2), parallelize_module and distribute_tensor make them",
    "mesh has the processes [0, 1] along its pipeline, but the stages are on [",
    "stage 0 returns a DTensor, which captured stages do not pass on: return to_local()",
    "stage 0 takes a DTensor, which graphs do not take: pass to_local()",
    "stage 0 calls other collectives on process ",
)


def test_what_stages_on_a_mesh_cannot_do_is_refused_in_one_line() -> None:
    for of_rank in run_ranks(2, _refused):
        for line, part in zip(of_rank, _REFUSED, strict=True):
            assert part in line and "\n" not in line, (line, part)


def test_random_ops_of_dtensors_are_refused_on_other_devices() -> None:
    plane: Any = types.SimpleNamespace(numbers_random_ops=False)
    spec: Any = types.SimpleNamespace(mesh=types.SimpleNamespace(device_type="cuda"))
    with drawn_by_part(plane), pytest.raises(RuntimeError, match="draws random numbers of a DTensor"):
        _random._rng_tracker._distribute_region(spec)  # type: ignore[union-attr]
