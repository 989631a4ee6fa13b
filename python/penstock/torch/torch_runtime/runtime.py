"""torch's own pipeline runtime, loaded with a schedule."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _Action, _add_reduce_grad, _PipelineScheduleRuntime

from penstock import Error, Schedule
from penstock.torch.arguments import LossFn, checked, in_code_of, one_of, shown
from penstock.torch.devices import device_of
from penstock.torch.torch_runtime.differences import Lanes, keep_buffers, of_mesh, skip_messages_to_itself, with_waits
from penstock.torch.torch_runtime.memory_actions import MemoryActions, divide
from penstock.torch.torch_runtime.split_check import check_first_step

_without_engine: Error | None = None
try:
    from penstock.torch.torch_runtime.own_split import OwnSplit
    from penstock.torch.torch_runtime.stage_group import StageGroup
except Error as missing:
    _without_engine = missing

Split: TypeAlias = Annotated[str, one_of("'auto', 'captured' or 'torch'", "auto", "captured", "torch")]

_SHARDING = frozenset(("UNSHARD", "RESHARD", "REDUCE_GRAD"))


@checked
def runtime(
    stages: Sequence[PipelineStage] | Sequence[nn.Module | None] | Mapping[int, nn.Module],
    schedule: Schedule,
    loss_fn: LossFn = None,
    *,
    group: dist.ProcessGroup | None = None,
    mesh: Any = None,
    device: torch.device | str | None = None,
    split: Split = "auto",
    compile: bool = False,
    **options: Any,
) -> _PipelineScheduleRuntime:
    """Returns torch's ``_PipelineScheduleRuntime``, loaded with any schedule that torch can run.

    Call it on every rank of the process group. The runtime is used like torch's own:
    ``runtime.step(batch, target=target, losses=losses)``.

    Args:
        stages: the modules by stage number, as a list or a mapping. Only this rank's are needed:
            ``{s: build(s) for s, r in enumerate(schedule.rank_of_stage) if r == rank}``. Or the
            ``PipelineStage`` objects of this rank.
        schedule: its ranks are the group's.
        loss_fn: takes the last stage's output and the target of a microbatch. It returns a scalar.
            Without one, steps run no backward.
        group: the ranks of the pipeline. Default: all. ``PipelineStage`` objects have their own.
        mesh: a ``DeviceMesh``; ``group`` is its "pipeline" or "pp". Captured stages may have collectives along its other
            dimensions, which run beside the other part of a pair.
        device: of the messages. Default: the device of each module's parameters.
        split: who computes the actions of stages. ``"captured"``: graphs that the engine captures from the
            code of the stages, which divides backwards right, also at the first stage. ``"torch"``: autograd.
            ``"auto"``: graphs if the schedule divides backwards into I and W, and autograd for stages that
            cannot be captured, such as those with FSDP or DDP, with a warning.
        compile: torch.compile compiles the graphs.
        options: of ``_PipelineScheduleRuntime``. Gradients are divided by the number of
            microbatches unless ``scale_grads=False``.

    Where torch divides backwards into I and W, the first step compares the gradients of I and W with a
    whole backward's for each stage, on the first microbatch, and fails on all ranks if they differ.
    Stages with FSDP are not compared.

    Raises:
        Error: torch cannot run the schedule, or a stage of this rank is missing.
    """
    _require_arguments(stages, schedule, device)
    built = [stage for stage in _values(stages) if isinstance(stage, PipelineStage)]
    if built:
        group = built[0].group
    _require_group(schedule, group)
    schedule, memory = divide(schedule, dist.get_rank(group)) if loss_fn is not None and split != "torch" else (schedule, MemoryActions())
    actions = _actions_of(schedule)
    local = _local_stages(stages, built, schedule, group, device, mesh)
    with in_code_of("runtime"):  # options that torch does not know
        made = _PipelineScheduleRuntime(  # type: ignore[no-untyped-call]
            local, schedule.microbatches, loss_fn=loss_fn, **options
        )
    made.penstock_algorithm = schedule.algorithm  # type: ignore[attr-defined]  # for reports
    if _has_messages(actions) or any(map(_is_sharding, itertools.chain(*actions.values()))):
        made._prepare_schedule_with_comms(with_waits(actions), format="compute_comms")
    else:
        made.pipeline_order = dict(actions)
        made._prepare_schedule_with_comms(made.pipeline_order)
    split, split_stages = "captured" if memory.after else split, _split_stages(actions)
    is_wanted = bool(split_stages) or (mesh is not None and any(map(_pairs, actions.values())))
    own: Collection[int] = ()
    if _computes_graphs(split, compile, loss_fn, is_wanted):
        pairs, required = _pairs(actions[dist.get_rank(group)]), compile or split == "captured"
        own = OwnSplit(made, loss_fn, memory, pairs, StageGroup(mesh, group), compiled=compile, required=required).stages
    check_first_step(made, split_stages, own)
    return made


def _computes_graphs(split: str, compiled: bool, loss_fn: LossFn, is_wanted: bool) -> bool:
    """Returns whether captured graphs compute the actions of stages. Raises Error if they cannot, but are asked for."""
    if compiled and split == "torch":
        raise Error("compile=True compiles captured graphs, which split='torch' does not make: leave split out")
    required = split == "captured" or compiled
    if split == "torch" or loss_fn is None or not (is_wanted or required):
        return False
    if _without_engine is not None and required:
        raise _without_engine
    return _without_engine is None


def _values(stages: Sequence[Any] | Mapping[int, Any]) -> list[Any]:
    return list(stages.values() if isinstance(stages, Mapping) else stages)


def _require_arguments(stages: Any, schedule: Any, device: Any) -> None:
    if not isinstance(schedule, Schedule):
        raise Error(
            f"schedule is a {type(schedule).__name__}; give a penstock.Schedule, such as "
            "penstock.schedule('zbv', ranks=4, microbatches=8)"
        )
    kinds = (Sequence, Mapping, nn.ModuleList, nn.Sequential)
    if not isinstance(stages, kinds) or isinstance(stages, (str, bytes)):
        raise Error(f"stages is {shown(stages)}: pass a list or a mapping of modules")
    if device is not None:
        with in_code_of(f"device is {shown(device)}"):
            torch.device(device)


def _require_group(schedule: Schedule, group: dist.ProcessGroup | None) -> None:
    if group is not None and not isinstance(group, dist.ProcessGroup):
        raise Error(f"group is {shown(group)}: pass a torch.distributed.ProcessGroup, or None")
    if not dist.is_initialized():
        raise Error("torch.distributed has no process group; call init_process_group before")
    size = dist.get_world_size(group)
    if size != schedule.ranks:
        raise Error(f"the schedule has {schedule.ranks} ranks and the process group {size}; generate it with ranks={size}")


def _is_sharding(action: _Action) -> bool:
    return _op_of(action) in _SHARDING


def _op_of(action: _Action) -> str:
    return action.computation_type.value


def _split_stages(actions: Lanes) -> set[int]:
    """Returns the stages whose backward is divided into I and W."""
    return {part.stage_index for action in itertools.chain(*actions.values()) for part in _parts(action) if _op_of(part) == "I"}


def _pairs(lane: Sequence[_Action]) -> dict[tuple[int, int], tuple[int, int]]:
    """Returns the stages and microbatches of pairs whose F comes first: by the F's, the B's."""
    pairs = [_parts(action) for action in lane if [_op_of(part) for part in _parts(action)] == ["F", "B"]]
    return {(of_f.stage_index, of_f.microbatch_index): (of_b.stage_index, of_b.microbatch_index) for of_f, of_b in pairs}


def _parts(action: _Action) -> tuple[_Action, ...]:
    """Returns the parts of a pair, or the action itself."""
    return action.sub_actions or (action,)


def _actions_of(schedule: Schedule) -> Lanes:
    """Returns torch's actions by rank. Refuses what its runtime does not support."""
    _require_supported(schedule)
    actions = _parse(schedule)
    ops = {_op_of(action) for lane in actions.values() for action in lane}
    if ops & _SHARDING and not _has_messages(actions):
        actions = _parse(schedule.lower(for_torch=True))
    elif _has_messages(actions) and "REDUCE_GRAD" not in ops:
        # torch scales gradients only there.
        actions = {rank: _add_reduce_grad(lane, schedule.microbatches) for rank, lane in actions.items()}
    _require_losses_in_order(schedule, actions)
    return actions


def _has_messages(actions: Lanes) -> bool:
    return any(_op_of(action).startswith("SEND") for lane in actions.values() for action in lane)


def _parse(schedule: Schedule) -> Lanes:
    lanes = schedule.to_csv().split("\n")[: schedule.ranks]
    return {rank: [_parse_cell(cell) for cell in lane.split(",") if cell] for rank, lane in enumerate(lanes)}


def _parse_cell(cell: str) -> _Action:
    action = _Action.from_str(cell)
    if str(action) != cell:  # before 2.15, torch reads 0WAIT_SEND_F0 as 0W
        raise Error(f"torch {torch.__version__} has no action {cell}; omit the pass that adds it")
    return action


def _require_supported(schedule: Schedule) -> None:
    try:
        schedule._frozen().require_torch_ops()
    except Error as error:
        raise Error(f"{schedule.algorithm or 'the schedule'}: {error}") from None
    schedule.check()


def _require_losses_in_order(schedule: Schedule, actions: Lanes) -> None:
    """Refuses schedules for which torch would take the losses and outputs of other microbatches.

    The runtime appends them in the order of the last stage's forwards.
    """
    last = schedule.stages - 1
    rank = schedule.rank_of_stage[last]
    order = [
        part.microbatch_index
        for action in actions[rank]
        for part in _parts(action)
        if part.stage_index == last and _op_of(part) == "F"
    ]
    for expected, found in enumerate(order):
        if expected != found:
            raise Error(
                f"rank {rank}: {last}F{found} is forward {expected} of the last stage, which "
                "torch's runtime takes for that of the same microbatch; order them by microbatch"
            )


def _local_stages(stages: Any, built: list[PipelineStage], schedule: Schedule, group: Any, device: Any, mesh: Any) -> list[PipelineStage]:
    """Returns the stages of this rank in ascending order, as the runtime's start-up needs them."""
    rank = dist.get_rank(group)
    local = [stage for stage, of in enumerate(schedule.rank_of_stage) if of == rank]
    found = _check_built(built, local, schedule, rank) if built else _make_stages(stages, local, schedule, group, device, mesh)
    for stage in found:
        skip_messages_to_itself(stage)
        keep_buffers(stage)
        _skip_gradients_of_eval(stage)
    return found


def _make_stages(stages: Any, local: list[int], schedule: Schedule, group: Any, device: Any, mesh: Any) -> list[PipelineStage]:
    rank = dist.get_rank(group)
    modules = stages if isinstance(stages, Mapping) else dict(enumerate(stages))
    made = []
    for stage in local:
        module = modules.get(stage)
        if not isinstance(module, nn.Module):
            raise Error(f"rank {rank}: stage {stage} has no module; the schedule places {_numbers(local)} on this rank")
        where = torch.device(device) if device is not None else device_of(module)
        made.append(PipelineStage(module, stage, schedule.stages, where, group=group, **of_mesh(mesh)))
    return made


def _check_built(built: list[PipelineStage], local: list[int], schedule: Schedule, rank: int) -> list[PipelineStage]:
    built = sorted(built, key=lambda stage: stage.stage_index)
    given = [stage.stage_index for stage in built]
    if given != local:
        raise Error(
            f"rank {rank}: given are the PipelineStages of {_numbers(given)}, but the schedule "
            f"places {_numbers(local)} on this rank (schedule.rank_of_stage)"
        )
    for stage in built:
        if stage.num_stages != schedule.stages:
            raise Error(
                f"stage {stage.stage_index}: its PipelineStage is one of {stage.num_stages}, but "
                f"the schedule has {schedule.stages} stages; give it num_stages={schedule.stages}"
            )
    return built


def _numbers(stages: Sequence[int]) -> str:
    return f"stage{'' if len(stages) == 1 else 's'} {', '.join(map(str, stages))}"


def _skip_gradients_of_eval(stage: PipelineStage) -> None:
    """Lets ``eval`` pass the backwards of stages that are next to each other on one rank.

    torch skips backwards there, but still hands their gradients over to the neighbor, and fails.
    """
    take, give = stage.get_local_bwd_output, stage.set_local_bwd_input

    def take_if_any(microbatch: int) -> tuple[torch.Tensor | None, ...]:
        if not stage.has_backward:
            return ()
        return take(microbatch)  # type: ignore[no-untyped-call, no-any-return]

    def give_if_any(gradients: tuple[torch.Tensor | None, ...], microbatch: int) -> None:
        if stage.has_backward:
            give(gradients, microbatch)

    stage.get_local_bwd_output = take_if_any  # type: ignore[method-assign]
    stage.set_local_bwd_input = give_if_any  # type: ignore
