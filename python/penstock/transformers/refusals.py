"""What a Trainer on a Pipeline cannot do: refused when it is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from penstock import Error, Schedule

#: Arguments of a Pipeline that a Trainer passes on.
PASSED_ON = (
    *("exact", "threads", "seed", "data_parallel", "gradient_dtype", "recompute", "offload", "timeout"),
    *("device_graphs", "device_parts", "verify_every", "transport"),
)


def check_options(options: Mapping[str, Any]) -> None:
    """Raises Error for an argument of Pipeline that the Trainer sets itself, or that it cannot follow."""
    for name in options:
        if name not in PASSED_ON:
            raise Error(f"pipeline: '{name}' is not passed on: give some of {', '.join(PASSED_ON)}")


def check_schedule(schedule: Schedule) -> None:
    """Raises Error for a schedule whose steps do not end with the gradients of a whole batch."""
    if schedule.weight_policy != "flush":
        raise Error(
            f"schedule {schedule.algorithm!r} updates weights within a batch, but the Trainer's optimizer updates them after it: "
            "choose another schedule"
        )
    if schedule.slices > 1:
        raise Error("schedule: losses of transformers need whole sequences, not slices: choose another schedule")


def check_processes(count: int) -> None:
    """Raises Error for processes that torch.distributed does not connect."""
    if count > 1 and not torch.distributed.is_initialized():
        raise Error(f"the Trainer runs in {count} processes that torch.distributed does not connect: start them with torchrun")


def check_batch(samples: int, microbatches: int, processes: int) -> None:
    """Raises Error for a batch that only a whole model can train, which no one of several processes has."""
    if processes > 1:
        raise Error(
            f"a batch has {samples} samples, fewer than the {microbatches} microbatches of the {processes} processes: "
            "give dataloader_drop_last=True, or fewer microbatches"
        )


def check_trainer(trainer: Any) -> None:
    """Raises Error for arguments of the Trainer that its steps on a Pipeline would not follow."""
    for name in _refused(trainer):
        raise Error(f"{name}, which steps on a Pipeline do not follow: leave it out, or use transformers.Trainer")


def _refused(trainer: Any) -> Iterator[str]:
    args = trainer.args
    if args.n_gpu > 1:
        yield f"the Trainer has {args.n_gpu} devices (set CUDA_VISIBLE_DEVICES to one)"
    if trainer.is_model_parallel:
        yield "the model is divided among devices (device_map)"
    if args.fp16:
        yield "fp16 scales losses"
    for name in ("torch_compile", "use_liger_kernel", "auto_find_batch_size", "fp16_full_eval", "bf16_full_eval"):
        if getattr(args, name, False):
            yield f"{name} is set"
    if args.deepspeed or trainer.is_deepspeed_enabled:
        yield "deepspeed is set"
    if args.fsdp or trainer.is_fsdp_enabled:
        yield "fsdp is set"
    if getattr(args, "parallelism_config", None) is not None:
        yield "parallelism_config is set"
    if args.neftune_noise_alpha is not None:
        yield "neftune_noise_alpha is set"
    optimizer = str(getattr(args.optim, "value", args.optim))
    if "lomo" in optimizer or "layerwise" in optimizer:
        yield f"optim {optimizer} updates weights within the backward"
    if trainer.is_distributed_loading_by_transformers:
        yield "the model was divided when it was loaded (distributed_config)"
    if getattr(trainer.model, "is_quantized", False):
        yield "the model is quantized"
