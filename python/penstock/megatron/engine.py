"""The function that Megatron calls for each step, with a schedule of ours."""

from __future__ import annotations

import functools
import importlib
import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from penstock import Error
from penstock.megatron.checks import contracts
from penstock.megatron.checks.agreement import gathered, together
from penstock.megatron.checks.refusals import refuse_actions, refuse_call, refuse_config, refuse_models
from penstock.megatron.lanes import Lanes, Source
from penstock.megatron.losses import LossMessages
from penstock.megatron.messages import Messages
from penstock.megatron.placement import Placement, layers_of_stages, require_placed
from penstock.megatron.step import NoSync, Observer, Program, Stage, Step
from penstock.megatron.weights import SplitBackward

_SCHEDULES = "megatron.core.pipeline_parallel.schedules"
_state = contracts.module("megatron.core.parallel_state")
_utils = contracts.module("megatron.core.utils")
_Groups = contracts.attribute("ProcessGroupCollection", "megatron.core.process_groups_config")
_config_of = contracts.attribute("get_model_config", "megatron.core.utils")
_tensor_shapes = contracts.function(
    "get_tensor_shapes",
    _SCHEDULES,
    required="seq_length micro_batch_size decoder_seq_length config tp_group cp_group",
    optional="model_type",
)


class Engine:
    """A ``forward_backward_func`` of Megatron: takes its arguments and returns its losses."""

    def __init__(self, source: Source, observer: Observer | None) -> None:
        self.source, self._observer = source, observer
        self._agreed: set[str] = set()  # digests of lanes that all ranks have
        self._programs: dict[tuple[Any, ...], Program] = {}
        self._splits: weakref.WeakKeyDictionary[Any, SplitBackward] = weakref.WeakKeyDictionary()
        self._placed: weakref.WeakKeyDictionary[Any, Placement] = weakref.WeakKeyDictionary()
        self._placements: dict[tuple[int, ...], Placement] = {}
        self._loss_messages: dict[int, LossMessages] = {}

    def __call__(
        self,
        *,
        forward_step_func: Any,
        data_iterator: Any,
        model: Any,
        num_microbatches: int,
        seq_length: int,
        micro_batch_size: int,
        decoder_seq_length: int | None = None,
        forward_only: bool = False,
        collect_non_loss_data: bool = False,
        first_val_step: bool | None = None,
        adjust_tensor_shapes_fn: Any = None,
        p2p_communicator: Any = None,
        pg_collection: Any = None,
        force_all_reduce: bool = False,
    ) -> list[Any]:
        """Runs one step as Megatron's own functions do. Returns the losses of each microbatch, on the last pipeline rank.

        Raises:
            Error: the schedule, the model and the step do not fit each other, or an option is refused.
        """
        del p2p_communicator  # messages are sent in the order of the schedule
        refuse_call(adjust_tensor_shapes_fn, pg_collection)
        models = model if isinstance(model, list) else [model]
        iterators = data_iterator if isinstance(data_iterator, list) else [data_iterator]
        groups = pg_collection or _default_groups()
        config = _config_of(models[0])
        lanes, placement = self._prepare(models, iterators, config, groups, None if forward_only else num_microbatches)
        program = self._program(lanes, placement, groups.pp.rank(), num_microbatches, forward_only)
        if config.timers is not None:
            config.timers("forward-backward", log_level=1).start(barrier=config.barrier_with_L1_time)
        model_type, device = _model_type(models[0]), _device(models)
        sizes = {"seq_length": seq_length, "micro_batch_size": micro_batch_size, "decoder_seq_length": decoder_seq_length}
        shape = _tensor_shapes(**sizes, config=config, tp_group=groups.tp, cp_group=groups.cp, model_type=model_type)[0]
        step = _kind_of_step(config, lanes, forward_only)(
            self._stages(models, iterators, config, groups, placement, program, forward_only),
            _messages(config, groups, shape, device, forward_only),
            config,
            {
                "forward_step_func": forward_step_func,
                "num_microbatches": num_microbatches,
                "forward_data_store": [],
                "config": config,
                "cp_group_size": groups.cp.size(),
                "collect_non_loss_data": collect_non_loss_data,
            },
            model_type=model_type,
            forward_only=forward_only,
            first_val_step=first_val_step,
            tokens=torch.zeros([], dtype=torch.int, device=device),
            observer=self._observer,
        )
        self._synchronize_parameters(models, config, forward_only)
        if self._observer is not None:
            self._observer.begin_step(lanes.schedule, forward_only)
        step.run(program)
        if self._observer is not None:
            self._observer.end_step()
        self._move_losses(step, placement, groups.pp, num_microbatches, not forward_only and not collect_non_loss_data)
        if not forward_only:
            _finalize(step, models, config, groups, force_all_reduce)
        if config.timers is not None:
            config.timers("forward-backward").stop()
        return step.losses

    def placement(self, ranks: int, chunks: int) -> Placement:
        """Returns where stages are, before the first step. Raises ``Error`` if the schedule is for other numbers."""
        return self._placement_of(self.source.any_lanes(ranks, chunks, _known_microbatches()))

    def splits(self, ranks: int, chunks: int) -> bool:
        """Whether backwards are divided into I and W."""
        return self.source.any_lanes(ranks, chunks, _known_microbatches()).splits

    def _placement_of(self, lanes: Lanes) -> Placement:
        return self._placements.setdefault(tuple(lanes.rank_of_stage), Placement(lanes))

    def _prepare(
        self, models: Sequence[Any], iterators: Sequence[Any], config: Any, groups: Any, microbatches: int | None
    ) -> tuple[Lanes, Placement]:
        """Returns the lanes of the step. Checks models and options when they are new."""
        check = functools.partial(self._checked_lanes, models, iterators, config, groups, microbatches)
        lanes = check() if self._agreed else together(groups.pp, check)
        if lanes.digest not in self._agreed:
            _require_agreement(lanes, groups.pp)
            self._agreed.add(lanes.digest)
        return lanes, self._placement_of(lanes)

    def _checked_lanes(
        self, models: Sequence[Any], iterators: Sequence[Any], config: Any, groups: Any, microbatches: int | None
    ) -> Lanes:
        ranks, chunks = groups.pp.size(), len(models)
        if microbatches is None:
            lanes = self.source.any_lanes(ranks, chunks, _known_microbatches())
        else:
            lanes = self.source.lanes(ranks, chunks, microbatches)
        placement = self._placement_of(lanes)
        refuse_actions(lanes.name, lanes.ops, config, records=self._observer is not None)
        if any(self._placed.get(model) is not placement for model in models):
            if len(iterators) != len(models):
                raise Error(
                    f"the step has {len(models)} model chunks and {len(iterators)} data iterators; give one iterator per chunk"
                )
            refuse_config(config)
            refuse_models(models)
            require_placed(placement, groups.pp.rank(), models, config)
            if self._observer is not None:
                self._observer.note_layers(layers_of_stages(placement, groups.pp.rank(), models))
            for model in models:
                self._placed[model] = placement
        if microbatches is not None and lanes.splits:
            for model in models:
                if model not in self._splits:
                    self._splits[model] = SplitBackward(model)
        return lanes

    def _program(self, lanes: Lanes, placement: Placement, rank: int, microbatches: int, forward_only: bool) -> Program:
        key = (lanes.rank_of_stage if forward_only else lanes.digest, rank, microbatches, forward_only)
        if key not in self._programs:
            actions = lanes.forward_only(rank, microbatches) if forward_only else lanes.of_rank[rank]
            self._programs[key] = Program.of(actions)
        return self._programs[key]

    def _stages(
        self,
        models: Sequence[Any],
        iterators: Sequence[Any],
        config: Any,
        groups: Any,
        placement: Placement,
        program: Program,
        forward_only: bool,
    ) -> dict[int, Stage]:
        rank, chunks = groups.pp.rank(), len(models)
        contexts = [NoSync(function) for function in _per_chunk(config.no_sync_func, 1)]
        functions = _per_chunk(config.grad_sync_func, chunks)
        stages = {}
        for chunk, model in enumerate(models):
            number = placement.stage(rank, chunk)
            stage = stages[number] = Stage(number, chunk, model, iterators[chunk], chunk if chunks > 1 else None)
            stage.first, stage.last = number == 0, number == placement.stages - 1
            stage.view_rank = placement.view_rank(rank, chunk) if placement.moved else None
            if not forward_only:
                stage.split = self._splits.get(model)
                stage.no_sync = contexts[chunk if len(contexts) > 1 else 0]
                stage.synchronize = functions[chunk]
                stage.last_input, stage.last_weight = program.last_input[number], program.last_weight[number]
                stage.offloaded = program.offloaded[number]
        for number, stage in stages.items():
            stage.previous, stage.next = stages.get(number - 1), stages.get(number + 1)
            if not stage.first:
                stage.previous_peer = dist.get_global_rank(groups.pp, placement.rank_of_stage[number - 1])
            if not stage.last:
                stage.next_peer = dist.get_global_rank(groups.pp, placement.rank_of_stage[number + 1])
        return stages

    def _synchronize_parameters(self, models: Sequence[Any], config: Any, forward_only: bool) -> None:
        if not forward_only:
            for function, model in zip(_per_chunk(config.param_sync_func, len(models)), models, strict=True):
                if function is not None:
                    function(model.parameters())

    def _move_losses(self, step: Step, placement: Placement, group: Any, microbatches: int, trains: bool) -> None:
        """Moves losses and token counts to the last rank, where Megatron reads them."""
        last = placement.ranks - 1
        if placement.last_rank == last:
            return
        messages = self._loss_messages.setdefault(id(group), LossMessages(group, placement.last_rank, last))
        if group.rank() == placement.last_rank:
            messages.send(step.losses, step.tokens, step.tokens.device, trains=trains)
        elif group.rank() == last:
            losses, tokens = messages.receive(microbatches, step.tokens.device, trains=trains)
            step.losses.extend(losses)
            step.tokens += tokens


def _finalize(step: Step, models: Sequence[Any], config: Any, groups: Any, force_all_reduce: bool) -> None:
    """Finalizes gradients by Megatron's function, and adds the gradients of an embedding whose copies are both here.

    Without overlap, the sum comes first, because the reduction of the distributed optimizer keeps parts of the gradients. With
    overlap, reductions have begun; Megatron then has shared embeddings in a bucket of their own, divided equally.
    """
    overlaps = any(bool(getattr(getattr(model, "ddp_config", None), "overlap_grad_reduce", False)) for model in models)
    if not overlaps:
        step.add_tied_gradients()
    if config.finalize_model_grads_func is not None:
        tokens = step.tokens if config.calculate_per_token_loss else None
        config.finalize_model_grads_func(list(models), tokens, pg_collection=groups, force_all_reduce=force_all_reduce)
    if overlaps:
        step.add_tied_gradients()


def _messages(config: Any, groups: Any, shape: Sequence[int], device: torch.device, forward_only: bool) -> Messages:
    frees = bool(config.deallocate_pipeline_outputs) and not forward_only
    variable = bool(config.variable_seq_lengths)
    return Messages(groups.pp, shape, config.pipeline_dtype, device, variable=variable, frees=frees)


def _kind_of_step(config: Any, lanes: Lanes, forward_only: bool) -> type[Step]:
    if forward_only or not getattr(config, "overlap_moe_expert_parallel_comm", False):
        return Step
    if lanes.splits and getattr(config, "delay_wgrad_compute", False):
        config.delay_wgrad_compute = False  # read by layers when they were built; from here on, it would run W in I
    kind: type[Step] = importlib.import_module("penstock.megatron.combined").CombinedStep
    return kind


def _device(models: Sequence[Any]) -> torch.device:
    """Returns where the parameters are. A chunk may have none."""
    parameter = next(itertools.chain.from_iterable(model.parameters() for model in models), None)
    return parameter.device if parameter is not None else torch.device("cuda", torch.cuda.current_device())


def _per_chunk(given: Any, chunks: int) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given] * chunks


def _known_microbatches() -> int | None:
    """Returns the microbatches of the next step if Megatron knows them already."""
    try:
        return int(contracts.module("megatron.core.num_microbatches_calculator").get_num_microbatches())
    except AttributeError:  # no calculator yet
        return None


def _model_type(model: Any) -> Any:
    return _utils.get_model_type(model) if hasattr(_utils, "get_model_type") else None


def _require_agreement(lanes: Lanes, group: Any) -> None:
    digests = gathered(group, lanes.digest)
    other = next((rank for rank, digest in enumerate(digests) if digest != digests[0]), None)
    if other is not None:
        raise Error(
            f"pipeline ranks 0 and {other} have different actions of {lanes.name}; give all ranks the same file, and install "
            "the same version of penstock on all nodes"
        )


def _default_groups() -> Any:
    """Returns the process groups with which Megatron's own functions run by default."""
    schedules = contracts.module(_SCHEDULES)
    if hasattr(schedules, "_build_default_pg_collection"):
        return schedules._build_default_pg_collection()
    groups = _Groups()
    groups.tp = _state.get_tensor_model_parallel_group()
    groups.cp = _state.get_context_parallel_group()
    groups.embd = _state.get_embedding_group(check_initialized=False)
    groups.pos_embd = _state.get_position_embedding_group(check_initialized=False)
    groups.pp = _state.get_pipeline_model_parallel_group()
    groups.dp_cp = _state.get_data_parallel_group(with_context_parallel=True, partial_data_parallel=False)
    return groups
