"""What tests run in the processes of a case besides ``tiny_gpt.train``."""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib.machinery
import queue
import runpy
import sys
import types
from typing import Any

import cpu_shim
import penstock
import torch
import torch.distributed as dist
import tiny_gpt
from megatron.core.distributed import param_and_grad_buffer
from megatron.core.models.common.model_chunk_schedule_plan import TransformerLayerSchedulePlan
from megatron.core.transformer.transformer_layer import TransformerLayer
from penstock.megatron import activations, engine, placement, step, weights
from penstock.megatron import installation as installation_module
from torch.multiprocessing.reductions import StorageWeakRef


def mutated(case: tiny_gpt.Case) -> dict[str, Any]:
    """Trains with a fault."""
    _MUTATIONS[case.mutation]()
    return tiny_gpt.train(case)


def _ready_at_the_last_input() -> None:
    def run(self: Any, stage: Any, microbatch: int) -> None:
        original(self, stage, microbatch)
        if microbatch == stage.last_input:
            ready(self, stage)

    original, ready = step.Step._run_input_backward, step.Step._weights_are_ready
    step.Step._run_input_backward = run  # type: ignore[method-assign]
    step.Step._weights_are_ready = lambda self, stage: None  # type: ignore[method-assign]


def _tied_sum_is_omitted() -> None:
    step.Step.add_tied_gradients = lambda self: None  # type: ignore[method-assign]


def _weights_are_dropped() -> None:
    def drop(self: Any, microbatch: int) -> None:
        if microbatch != 0:
            original(self, microbatch)
        else:
            self._work.pop(microbatch)

    original = weights.SplitBackward.weight_gradients
    weights.SplitBackward.weight_gradients = drop  # type: ignore[method-assign]


def _state_has_no_view() -> None:
    step._set_rank = lambda rank: None


def _group_has_no_view() -> None:
    placement._PipelineView.rank = lambda self: self._group.rank()  # type: ignore[method-assign]


def _embedding_is_not_copied() -> None:
    placement.tied = lambda model: False  # type: ignore[assignment]


def _losses_stay() -> None:
    engine.Engine._move_losses = lambda *_: None  # type: ignore[method-assign]


_MUTATIONS = {
    "none": lambda: None,
    "ready_at_the_last_input": _ready_at_the_last_input,
    "tied_sum_is_omitted": _tied_sum_is_omitted,
    "weights_are_dropped": _weights_are_dropped,
    "state_has_no_view": _state_has_no_view,
    "group_has_no_view": _group_has_no_view,
    "embedding_is_not_copied": _embedding_is_not_copied,
    "losses_stay": _losses_stay,
}


class _Store:
    """Transformer Engine's queue of delayed weight gradients."""

    def __init__(self, delays: bool) -> None:
        self._delays, self.context = delays, queue.Queue[Any]()

    def delay_wgrad_compute(self) -> bool:
        return self._delays


class _QueuedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, weight: torch.Tensor, store: _Store) -> torch.Tensor:
        ctx.save_for_backward(input, weight)
        ctx.store = store
        return input @ weight.t()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        input, weight = ctx.saved_tensors
        ctx.store.context.put((gradients[0].flatten(0, -2), input.flatten(0, -2)))
        return gradients[0] @ weight, None, None


class _QueuedLinear(torch.nn.Module):
    """Delays weight gradients as layers of Transformer Engine do, with the hooks of Megatron's data parallelism."""

    def __init__(self, linear: Any, delays: bool) -> None:
        super().__init__()
        self.weight, self.bias, self._hooks = linear.weight, linear.bias, []
        self.wgrad_store = _Store(delays)
        self.weight.skip_backward_post_hook = True  # type: ignore[attr-defined]

    def forward(self, input: torch.Tensor) -> Any:
        return _QueuedProduct.apply(input, self.weight, self.wgrad_store), self.bias  # type: ignore[no-untyped-call]

    def register_wgrad_accumulation_and_reduce_hooks(self, hook: Any) -> None:
        self._hooks.append(hook)

    def backward_dw(self) -> None:
        gradient, input = self.wgrad_store.context.get_nowait()
        self.weight.grad = gradient.t() @ input
        for hook in self._hooks:
            hook()


def queued(case: tiny_gpt.Case, delays: bool) -> dict[str, Any]:
    """Trains with layers like Transformer Engine's in all MLPs."""
    provide = tiny_gpt.model_provider

    def model_provider(*arguments: Any) -> Any:
        def provider(**given: Any) -> Any:
            model = provide(*arguments)(**given)
            for layer in model.decoder.layers:
                layer.mlp.linear_fc1 = _QueuedLinear(layer.mlp.linear_fc1, delays)
                layer.mlp.linear_fc2 = _QueuedLinear(layer.mlp.linear_fc2, delays)
            return model

        return functools.wraps(provide(*arguments))(provider)

    tiny_gpt.model_provider = model_provider
    tiny_gpt.DistributedDataParallelConfig = functools.partial(tiny_gpt.DistributedDataParallelConfig, delay_wgrad_compute=True)
    return tiny_gpt.train(case)


def reductions(case: tiny_gpt.Case) -> list[list[str]]:
    """Trains, and returns for each step what was done: F, I, W, B, a reduction that began, and the end of the step."""
    done: list[list[str]] = []
    original = param_and_grad_buffer._ParamAndGradBucketGroup.start_grad_sync

    class Recorder:
        def note_layers(self, layers: Any) -> None: ...

        def begin_step(self, schedule: penstock.Schedule, forward_only: bool) -> None:
            done.append([])

        def begin(self) -> None: ...

        def end(self, op: str, stage: int, microbatch: int) -> None:
            done[-1].append(op)

        def end_step(self) -> None:
            done[-1].append("end")

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        done[-1].append("reduction")
        original(self, *args, **kwargs)

    param_and_grad_buffer._ParamAndGradBucketGroup.start_grad_sync = start
    created = engine.Engine.__init__

    def create(self: engine.Engine, source: Any, observer: Any) -> None:
        created(self, source, Recorder())

    engine.Engine.__init__ = create  # type: ignore[method-assign]
    tiny_gpt.train(case)
    return done


def offloaded(case: tiny_gpt.Case) -> list[tuple[int, int, int]]:
    """Trains, and returns for each OFFLOAD the bytes that were saved before it, after it, and after the RELOAD."""
    sizes: dict[tuple[int, int], list[int]] = {}
    saved: dict[int, dict[StorageWeakRef, int]] = {}
    pack, run = activations.SavedTensors._pack, {name: getattr(step.Step, name) for name in ("_offload", "_reload")}

    def note(self: Any, tensor: torch.Tensor) -> Any:
        packed = pack(self, tensor)
        if isinstance(packed, activations._Saved):
            storage = tensor.untyped_storage()
            saved.setdefault(id(self), {})[StorageWeakRef(storage)] = storage.nbytes()
        return packed

    def alive(tensors: Any) -> int:
        return sum(size for storage, size in saved[id(tensors)].items() if not storage.expired())

    def offload(self: Any, stage: Any, microbatch: int) -> None:
        tensors = stage.saved[microbatch]
        sizes[stage.number, microbatch] = [alive(tensors)]
        run["_offload"](self, stage, microbatch)
        sizes[stage.number, microbatch].append(alive(tensors))

    def reload(self: Any, stage: Any, microbatch: int) -> None:
        storages = list(stage.saved[microbatch]._storages.values())
        run["_reload"](self, stage, microbatch)
        sizes[stage.number, microbatch].append(sum(each.data.nbytes() for each in storages))

    activations.SavedTensors._pack = note  # type: ignore[method-assign]
    step.Step._offload, step.Step._reload = offload, reload  # type: ignore[method-assign]
    tiny_gpt.train(case)
    return [(before, after, again) for before, after, again in sizes.values()]


def layers_run(case: tiny_gpt.Case) -> dict[str, int]:
    """Trains, and returns how many layers ran forward during each kind of action."""
    counts: collections.Counter[str] = collections.Counter()
    running = _running()
    forward = TransformerLayer.forward

    def count(self: Any, *args: Any, **kwargs: Any) -> Any:
        counts[running[0]] += 1
        return forward(self, *args, **kwargs)

    TransformerLayer.forward = count
    tiny_gpt.train(case)
    return dict(counts)


def _running() -> list[str]:
    """Returns a list whose only entry is the name of the method that runs the current action."""
    running = [""]
    for name in ("_run_forward", "_recompute", "_run_input_backward", "_run_backward", "_run_weights"):
        run = getattr(step.Step, name)

        def noted(self: Any, stage: Any, microbatch: int, name: str = name, run: Any = run) -> None:
            running[0] = name
            run(self, stage, microbatch)

        setattr(step.Step, name, noted)
    return running


def grouped_gradients(case: tiny_gpt.Case) -> set[tuple[str, tuple[bool, bool]]]:
    """Trains, and returns what computed which gradients of grouped GEMM: of the input, of the weights."""
    found = set()
    running = _running()
    backward = cpu_shim._GroupedGemm.backward

    def noted(ctx: Any, *gradients: torch.Tensor) -> Any:
        found.add((running[0], tuple(ctx.needs_input_grad[:2])))
        return backward(ctx, *gradients)

    cpu_shim._GroupedGemm.backward = staticmethod(noted)  # type: ignore[method-assign]
    tiny_gpt.train(case)
    return found


def layers_run_together(case: tiny_gpt.Case) -> int:
    """Trains, and returns how many layers ran forward in turn with a layer that ran backward."""
    count = 0
    run = TransformerLayerSchedulePlan.run

    def counted(f_layer: Any, b_layer: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += f_layer is not None and b_layer is not None
        return run(f_layer, b_layer, **kwargs)

    TransformerLayerSchedulePlan.run = staticmethod(counted)
    tiny_gpt.train(case)
    return count


def _refuse(*_: Any) -> None:
    raise penstock.Error("the model provider takes no pg_collection")


def refused_on_one(case: tiny_gpt.Case, before: bool) -> None:
    """Trains with an option that one rank refuses, when its model is built or in the first step."""
    if dist.get_rank() == 1 and before:
        placement._require_takes = _refuse
    elif dist.get_rank() == 1:
        case = dataclasses.replace(case, config=(("moe_paged_stash", True),))
    tiny_gpt.train(case)


def structures_sent(case: tiny_gpt.Case) -> int:
    """Trains and evaluates with changing numbers of microbatches. Returns how often this rank sent objects."""
    sent = []
    send = dist.send_object_list
    dist.send_object_list = lambda *args, **kwargs: sent.append(send(*args, **kwargs))
    ramped(dataclasses.replace(case, evaluate=1))
    return len(sent)


def ramped(case: tiny_gpt.Case) -> list[float | None]:
    """Trains steps of 4, 8 and 12 microbatches with one installation. Returns the losses of the last pipeline rank."""
    wrap, ranks = (lambda provider: provider), None
    if case.schedule:
        installation = installation_module.install(case.schedule)
        wrap, ranks = installation.model, installation.embedding_ranks
    config = tiny_gpt.place(case, ranks)
    models = tiny_gpt.build(case, wrap(tiny_gpt.model_provider(case, config)), config)
    tiny_gpt.fill(case, models)
    models, _ = tiny_gpt.data_parallel(case, config, models)
    losses = []
    for number, microbatches in enumerate((4, 8, 12)):
        losses.append(tiny_gpt.step(case, models, number, microbatches, False))
        if case.evaluate:
            losses.append(tiny_gpt.evaluate(case, models, functools.partial(tiny_gpt.step, case, models, 9, 1 + number, True)))
    return losses


def command(case: tiny_gpt.Case, words: list[str], has_pretrain: bool = False) -> Any:
    """Runs ``python -m penstock.megatron`` in this process; if wanted, with the part of Megatron-LM that it wraps.

    The script then calls ``pretrain(datasets, model_provider, None, None)`` and gets what ``tiny_gpt.run`` returns.
    """

    def pretrain(datasets: Any, model_provider: Any, model_type: Any, forward_step: Any, get_embedding_ranks: Any = None) -> Any:
        result = tiny_gpt.run(case, lambda _: model_provider, get_embedding_ranks)
        result["datasets"] = [datasets([1, 1, 1], vp_stage=chunk if case.vp > 1 else None) for chunk in range(case.vp)]
        return result

    for name in ("megatron.training", "megatron.training.training") if has_pretrain else ():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name].pretrain = pretrain  # type: ignore[attr-defined]
    sys.argv = ["penstock.megatron", *words]
    tiny_gpt.COMMAND = case  # type: ignore[attr-defined]
    runpy.run_module("penstock.megatron", run_name="__main__", alter_sys=True)
    return tiny_gpt.RESULT  # type: ignore[attr-defined]
