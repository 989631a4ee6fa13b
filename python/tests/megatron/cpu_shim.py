"""Lets megatron-core run on CPUs with gloo. Only for tests: it replaces names of torch.cuda and of Megatron in this process."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _NoCuda(TorchFunctionMode):
    """Creates tensors on the CPU where Megatron names CUDA."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        given = dict(kwargs or {})
        if str(given.get("device", "")).startswith("cuda"):
            given["device"] = "cpu"
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.record_stream:
            return None
        if func is torch.Tensor.type and len(args) == 1 and not given:  # compared with the names of CUDA's types
            return func(*args).replace("torch.", "torch.cuda.")
        return func(*args, **given)


class _Stream:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_, **__: self

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 0.0

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None: ...


class _Norm(torch.nn.LayerNorm):
    """A LayerNorm with sequence parallelism, which Megatron has only with Apex or Transformer Engine."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__(hidden_size, eps=eps)
        self.weight.sequence_parallel = self.bias.sequence_parallel = True  # type: ignore[attr-defined]


def install() -> None:
    """Changes this process."""
    cuda: Any = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")
    cuda.synchronize = lambda *_: None
    cuda.Stream = cuda.Event = _Stream
    cuda.current_stream = cuda.default_stream = lambda *_: _Stream()
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *_: None
    cuda.nvtx.range = lambda *_: contextlib.nullcontext()
    cuda.stream = lambda *_: contextlib.nullcontext()
    cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.manual_seed = torch.manual_seed
    _NoCuda().__enter__()
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer import transformer_block
    from megatron.core.transformer.moe import moe_utils, token_dispatcher

    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None
    move = token_dispatcher.maybe_move_tensor_to_cpu

    def to_host(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
        return (
            tensor.numpy()
            if as_numpy and torch.is_tensor(tensor)
            else move(tensor, as_numpy=as_numpy, record_stream=record_stream)
        )

    token_dispatcher.maybe_move_tensor_to_cpu = to_host
    filesystem_async._process_memory = lambda: 0  # wants psutil; without it, Megatron waits forever
    transformer_block.LayerNormImpl = _Norm


def norm() -> type[torch.nn.Module]:
    """Returns the LayerNorm for layers with sequence parallelism."""
    return _Norm


class _GroupedGemm(torch.autograd.Function):
    """Stands in for the CUDA kernels of the package grouped_gemm."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor, batch_sizes: torch.Tensor, trans_b: bool) -> torch.Tensor:
        ctx.save_for_backward(a, b, batch_sizes)
        ctx.trans_b = trans_b
        parts = zip(a.split(batch_sizes.tolist()), b, strict=True)
        return torch.cat([rows @ (weight.t() if trans_b else weight) for rows, weight in parts])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        a, b, batch_sizes = ctx.saved_tensors
        assert not ctx.trans_b
        parts = gradients[0].split(batch_sizes.tolist())
        a_gradient = b_gradient = None
        if ctx.needs_input_grad[0]:
            a_gradient = torch.cat([rows @ weight.t() for rows, weight in zip(parts, b, strict=True)])
        if ctx.needs_input_grad[1]:
            inputs = a.split(batch_sizes.tolist())
            b_gradient = torch.stack([rows.t() @ part for rows, part in zip(inputs, parts, strict=True)])
        return a_gradient, b_gradient, None, None


def group_experts() -> None:
    """Stands in for the package grouped_gemm."""
    from megatron.core.transformer.moe import grouped_gemm_util

    def gmm(a: torch.Tensor, b: torch.Tensor, batch_sizes: torch.Tensor, trans_b: bool = False) -> Any:
        return _GroupedGemm.apply(a, b, batch_sizes, trans_b)  # type: ignore[no-untyped-call]

    grouped_gemm_util.grouped_gemm = grouped_gemm_util
    grouped_gemm_util.ops = types.SimpleNamespace(gmm=gmm, GroupedGemm=_GroupedGemm)


def fuse_weight_gradients() -> None:
    """Stands in for the CUDA kernels of Apex that accumulate weight gradients."""
    from megatron.core.tensor_parallel import layers

    def accumulate(input: torch.Tensor, gradient: torch.Tensor, main_grad: torch.Tensor) -> None:
        main_grad.add_(gradient.t() @ input)

    layers.fused_weight_gradient_mlp_cuda = types.SimpleNamespace(wgrad_gemm_accum_fp32=accumulate)
    layers._grad_accum_fusion_available = True
