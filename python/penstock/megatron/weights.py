"""The backward in two parts: I computes gradients of inputs, W accumulates gradients of weights."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch

from penstock import Error
from penstock.megatron.checks import contracts

_LAYERS = "megatron.core.tensor_parallel.layers"
_layers = contracts.module(_LAYERS)
_prepare = contracts.attribute("prepare_input_tensors_for_wgrad_compute", "megatron.core.utils")
_Whole: Any = contracts.attribute("LinearWithGradAccumulationAndAsyncCommunication", _LAYERS)
_ARGUMENTS = contracts.attribute("linear_with_grad_accumulation_and_async_allreduce", _LAYERS)
_signature = inspect.signature(_ARGUMENTS)
# Megatron-core 0.19 has grouped GEMM by Transformer Engine alone.
_Grouped: Any = getattr(contracts.module("megatron.core.transformer.moe.experts"), "GroupedMLP", None)
_grouped_gemm: Any = _Grouped and contracts.module("megatron.core.transformer.moe.grouped_gemm_util")

_FORWARD = contracts.accepting(
    _Whole.forward,
    f"{_LAYERS}.{_Whole.__name__}.forward",
    required="ctx input weight bias gradient_accumulation_fusion allreduce_dgrad sequence_parallel grad_output_buffer "
    "wgrad_deferral_limit tp_group",
    optional="gtp_remat_size",
)

# The weight gradients that the running I leaves for its W. None in a B, which computes them at once. The backward may run in
# a thread of autograd's, so this is not thread-local.
_delayed: list[Callable[[], None]] | None = None


class SplitBackward:
    """The delayed weight gradients of one model chunk.

    Megatron's linear layers take part as instances, so that other models in the process are untouched.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.weights: dict[int, torch.nn.Parameter] = {}  # that layers of this chunk have delayed
        self._work: dict[int, list[Callable[[], None]]] = {}
        self._queues = []  # Transformer Engine's layers: W runs the oldest entry of each
        kinds = tuple(contracts.attribute(name, _LAYERS) for name in ("ColumnParallelLinear", "RowParallelLinear"))
        for layer in model.modules():
            if isinstance(layer, kinds):
                original = type(layer)._forward_impl.__get__(layer)
                layer._forward_impl = functools.partial(_forward, original, self.weights)
            elif _Grouped is not None and isinstance(layer, _Grouped):
                layer.forward = functools.partial(_forward_grouped, type(layer).forward.__get__(layer), layer, self.weights)
            elif hasattr(layer, "wgrad_store"):
                self._queues.append(_delaying(layer))

    def input_gradients(self, microbatch: int, backward: Callable[[], Any]) -> Any:
        """Runs a backward as I: keeps the work of its weight gradients for ``weight_gradients``."""
        global _delayed
        _delayed = self._work[microbatch] = []
        try:
            return backward()
        finally:
            _delayed = None

    def weight_gradients(self, microbatch: int) -> None:
        """Runs W: accumulates the weight gradients of an earlier I."""
        for work in self._work.pop(microbatch):
            work()
        self.queued_gradients()

    def queued_gradients(self) -> None:
        """Accumulates the oldest weight gradient of each of Transformer Engine's layers, also after a whole backward."""
        for layer in self._queues:
            layer.backward_dw()

    @property
    def has_queues(self) -> bool:
        """Whether Transformer Engine's own hooks run with W."""
        return bool(self._queues)

    def require_finished(self) -> None:
        """Raises ``Error`` if a weight gradient of the step is left."""
        left = [layer for layer in self._queues if not layer.wgrad_store.context.empty()]
        if left or self._work:
            raise Error(
                f"{len(left)} Transformer Engine layers have more weight gradients than W actions; layers that a microbatch "
                "runs twice need a schedule without W, such as 1f1b or interleaved"
            )

    def ready(self, ddp: Any) -> None:
        """Tells Megatron's data parallelism that the delayed weights have their gradients, as its hook does for others."""
        for weight in self.weights.values():
            if weight in ddp.param_to_bucket_group:
                ddp.param_to_bucket_group[weight].register_grad_ready(weight, getattr(ddp, "force_all_reduce", False))


def _delaying(layer: Any) -> Any:
    """Returns a layer of Transformer Engine's. Raises ``Error`` if it computes weight gradients in I."""
    if not layer.wgrad_store.delay_wgrad_compute():
        raise Error(
            f"{type(layer).__name__} of Transformer Engine computes weight gradients in I: build models by the .model(provider) "
            "of penstock.megatron.install, and set delay_wgrad_compute=True in DistributedDataParallelConfig"
        )
    return layer


class _SplitLinear(torch.autograd.Function):
    """Megatron's linear layer, whose backward can leave the gradient of the weight for later.

    The weight is in a tuple, which autograd does not look into. As an input, it would get a gradient of None in I, and the
    hook of Megatron's data parallelism would take it as ready.
    """

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, bias: torch.Tensor | None, arguments: tuple[Any, dict[str, Any]]) -> torch.Tensor:
        weight, given = arguments
        ctx.weight, ctx.fused = weight, given["gradient_accumulation_fusion"]
        # Detached, the weight has none of the attributes in which Megatron's backward would record a gradient.
        output: torch.Tensor = _FORWARD(ctx, **{**given, "input": input, "weight": weight.detach(), "bias": None})
        return output if bias is None else output + bias

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        weight = ctx.weight
        ctx.main_grad = getattr(weight, "main_grad", None)
        ctx.gradient_accumulation_fusion = ctx.fused
        ctx.grad_output_buffer = None
        if _delayed is not None:
            # Megatron's own deferral: with a buffer, it does not compute the weight's gradient; with the fusion, it returns none.
            ctx.gradient_accumulation_fusion, ctx.grad_output_buffer, ctx.wgrad_deferral_limit = True, [], 0
        input = ctx.saved_tensors[0]
        input_gradient, weight_gradient, *_ = _Whole.backward(ctx, gradient)
        if _delayed is not None:
            group = ctx.tp_group if ctx.sequence_parallel else None
            _delayed.append(functools.partial(_weight_gradient, weight, input, gradient, ctx.fused, group))
        elif weight_gradient is not None:
            _accumulate(weight, weight_gradient)
        bias_gradient = gradient.reshape(-1, gradient.shape[-1]).sum(dim=0) if ctx.needs_input_grad[1] else None
        return input_gradient, bias_gradient, None


def _forward(original: Callable[..., Any], weights: dict[int, torch.nn.Parameter], /, *args: Any, **kwargs: Any) -> Any:
    bound = _signature.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    weight = given["weight"]
    if not weight.requires_grad or not torch.is_grad_enabled():
        return original(*args, **kwargs)
    weights.setdefault(id(weight), weight)
    input, bias = given.pop("input"), given.pop("bias")
    del given["weight"]
    given.pop("async_grad_allreduce", None)
    if given["tp_group"] is None:
        given["tp_group"] = _layers.get_tensor_model_parallel_group_if_none(None)
    return _SplitLinear.apply(input, bias, (weight, dict(given)))  # type: ignore[no-untyped-call]


class _SplitGrouped(torch.autograd.Function):
    """The product of grouped GEMM, whose backward can leave the gradient of the experts' weights for later."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, arguments: tuple[Any, ...]) -> torch.Tensor:
        ctx.save_for_backward(input)
        ctx.arguments = arguments
        product, _, view, sizes, transposed = arguments
        return product.gmm(input, view, sizes, transposed)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        product, weight, view, sizes, transposed = ctx.arguments
        saved = ctx.saved_tensors[0], view, sizes
        input_gradient, *_ = _grouped_gradients(product, saved, transposed, gradients[0], (True, False))

        @torch.no_grad()
        def accumulate() -> None:
            _, gradient, *_ = _grouped_gradients(product, saved, transposed, gradients[0], (False, True))
            _accumulate(weight, gradient.reshape(weight.shape))

        if _delayed is None:
            accumulate()
        else:
            _delayed.append(accumulate)
        return input_gradient, None


def _grouped_gradients(product: Any, saved: Any, transposed: bool, gradient: torch.Tensor, needed: tuple[bool, bool]) -> Any:
    """Runs the package's own backward for one of its two gradients."""
    context = types.SimpleNamespace(saved_tensors=saved, trans_b=transposed, needs_input_grad=needed)
    return product.GroupedGemm.backward(context, gradient)


def _forward_grouped(
    original: Callable[..., Any], layer: Any, weights: dict[int, torch.nn.Parameter], /, *args: Any, **kwargs: Any
) -> Any:
    """Runs the forward of experts in grouped GEMM with weights that autograd does not see, and products that know them."""
    own = {weight.data_ptr(): weight for weight in (layer.weight1, layer.weight2)}
    if not torch.is_grad_enabled() or not all(weight.requires_grad for weight in own.values()):
        return original(*args, **kwargs)
    weights.update((id(weight), weight) for weight in own.values())
    product = _grouped_gemm.ops

    def gmm(input: torch.Tensor, view: torch.Tensor, sizes: torch.Tensor, trans_b: bool = False) -> Any:
        return _SplitGrouped.apply(input, (product, own[view.data_ptr()], view, sizes, trans_b))  # type: ignore[no-untyped-call]

    layer.__dict__.update(weight1=layer.weight1.detach(), weight2=layer.weight2.detach())  # before the parameters, to Python
    _grouped_gemm.ops = types.SimpleNamespace(gmm=gmm)
    try:
        return original(*args, **kwargs)
    finally:
        _grouped_gemm.ops = product
        del layer.__dict__["weight1"], layer.__dict__["weight2"]


@torch.no_grad()
def _weight_gradient(weight: Any, input: torch.Tensor, gradient: torch.Tensor, fused: bool, group: Any) -> None:
    if group is not None:  # of sequence parallelism: the input of this rank is a part
        shape = (input.shape[0] * group.size(), *input.shape[1:])
        whole = _layers.get_global_memory_buffer().get_tensor(shape, input.dtype, "mpu")
        _layers.dist_all_gather_func(whole, input.contiguous(), group=group)
        input = whole
    gradient, input = _prepare(gradient, input)
    if not fused:
        _accumulate(weight, gradient.t().matmul(input))
        return
    kernels = _layers.fused_weight_gradient_mlp_cuda
    if weight.main_grad.dtype == torch.float32:
        kernels.wgrad_gemm_accum_fp32(input, gradient, weight.main_grad)
    else:
        kernels.wgrad_gemm_accum_fp16(input, gradient, weight.main_grad)


@torch.no_grad()
def _accumulate(weight: Any, gradient: torch.Tensor) -> None:
    if hasattr(weight, "main_grad"):
        weight.main_grad.add_(gradient)
    else:
        weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
