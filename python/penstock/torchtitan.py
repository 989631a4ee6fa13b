"""Any of our schedules in an unmodified torchtitan: docs/torch-runtime.md."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

from penstock.needs import needs

needs("penstock.torchtitan", "torch")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.pipelining import PipelineStage  # noqa: E402

import penstock.torch  # noqa: E402
from penstock import Error, Schedule  # noqa: E402
from penstock.arguments import named  # noqa: E402
from penstock.torch.arguments import shown  # noqa: E402


@named
def pipelining_fn(schedule: Schedule) -> Callable[..., tuple[Any, list[nn.Module], bool, bool]]:
    """Returns a function for ``ModelSpec.pipelining_fn`` of torchtitan, which runs a schedule.

    Stages are where the schedule has them, whatever ``pipeline_parallel_schedule`` is. Their modules
    are those of ``module_fqns_per_model_part``, or as many layers in each as torchtitan would give.

    Raises:
        Error: torch cannot run the schedule, as `penstock.torch.runtime`; or the trainer's ranks or
            microbatches are not the schedule's. Raised when the trainer calls the function.
    """
    if not isinstance(schedule, Schedule):
        raise Error(f"schedule is {shown(schedule)}: give a penstock.Schedule")

    def build(
        model: nn.Module, *, parallel_dims: Any, training: Any, parallelism: Any, device: torch.device, model_config: Any,
        parallelize_fn: Callable[..., nn.Module], loss_fn: Callable[..., Any], **others: Any,
    ) -> tuple[Any, list[nn.Module], bool, bool]:  # fmt: skip
        _check_microbatches(schedule, training, parallelism)
        mesh = parallel_dims.get_mesh("pp")
        names = parallelism.module_fqns_per_model_part or _module_names(schedule.stages, len(model_config.layers), parallelism)
        if len(names) != schedule.stages:
            raise Error(f"module_fqns_per_model_part has {len(names)} parts, but the schedule {schedule.stages} stages: give as many")
        options: dict[str, Any] = {"group": mesh.get_group("pp")}
        if "get_mesh" in inspect.signature(PipelineStage).parameters:  # of DTensors that stages send
            options["get_mesh"] = lambda dimensions, layout: _mesh_of(parallel_dims, dimensions, layout)
        stages, parts = [], []
        for stage, rank in enumerate(schedule.rank_of_stage):
            if rank == mesh.get_local_rank():
                part = parallelize_fn(
                    _part(model, names[stage]), parallel_dims=parallel_dims, training=training, parallelism=parallelism, **others
                )
                parts.append(part)
                stages.append(PipelineStage(part, stage, schedule.stages, device, **options))
        # The trainer's loss returns metrics, too, and is divided by the tokens of all microbatches.
        runtime = penstock.torch.runtime(stages, schedule, lambda *args, **named: loss_fn(*args, **named)[0], scale_grads=False)
        return runtime, parts, any(each.is_first for each in stages), any(each.is_last for each in stages)

    return build


def _check_microbatches(schedule: Schedule, training: Any, parallelism: Any) -> None:
    microbatches = getattr(parallelism, "num_pp_microbatches", None)  # after 0.3
    if microbatches is None:
        microbatches = training.local_batch_size // parallelism.pipeline_parallel_microbatch_size
    if microbatches != schedule.microbatches:
        raise Error(f"the trainer has {microbatches} microbatches, but the schedule {schedule.microbatches}: generate it with as many")


def _mesh_of(parallel_dims: Any, dimensions: tuple[str, ...], layout: Any) -> Any:
    mesh = parallel_dims.get_mesh(list(dimensions))
    return mesh if layout is None or mesh._layout == layout else None


def _module_names(stages: int, layers: int, parallelism: Any) -> list[list[str]]:
    """Divides the layers as torchtitan does: the embedding and the head count as some."""
    first, last = parallelism.pipeline_parallel_first_stage_less_layers, parallelism.pipeline_parallel_last_stage_less_layers
    each, more = divmod(layers + first + last, stages)
    sizes = [each + (stage < more) for stage in range(stages)]
    sizes[0] -= first
    sizes[-1] -= last
    if min(sizes) < 0:
        raise Error(f"{layers} layers cannot form {stages} stages: give module_fqns_per_model_part, or fewer stages")
    numbers = iter(range(layers))
    names = [[f"layers.{next(numbers)}" for _ in range(size)] for size in sizes]
    names[0].insert(0, "tok_embeddings")
    names[-1] += ["norm", "lm_head"]
    return names


def _part(model: nn.Module, names: list[str]) -> nn.Module:
    """Returns a copy of the model with None in place of other modules, as its forward expects."""
    part = copy.deepcopy(model)
    for name, child in list(part.named_children()):
        if isinstance(child, (nn.ModuleDict, nn.ModuleList)):
            for key in list(child._modules):
                if f"{name}.{key}" not in names:
                    del child._modules[key]
        elif name not in names:
            setattr(part, name, None)
    return part
