"""Modules and functions of torch in a stage: gradients are autograd's, or the stage is refused."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference import Around, accumulate
from torch import nn
from torch.nn import functional as F

import penstock
import penstock.torch as pt

_Function = Callable[[torch.Tensor], Any]


class _Stage(nn.Module):
    """Scales the input [batch, 6, 8] by a weight, and applies a module or a function to it."""

    def __init__(self, function: _Function) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 48).reshape(6, 8))
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x * self.scale)


class _Frozen(nn.Module):
    """Calls a module in evaluation mode, without its random ops."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module.eval()

    def train(self, mode: bool = True) -> _Frozen:
        return self

    def forward(self, x: torch.Tensor) -> Any:
        return self.module(x)


def _loss(output: Any, _: torch.Tensor) -> torch.Tensor:
    tensors = [output] if isinstance(output, torch.Tensor) else _leaves(output)
    total = torch.zeros(())
    for index, each in enumerate(tensors):
        if each.is_complex():
            each = torch.view_as_real(each)
        if each.is_floating_point():
            total = total + (index + 1) * (each.float().sin() * each.float()).mean()
    return total


def _leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for each in value for leaf in _leaves(each)]


def _images(function: _Function) -> _Function:
    return _Call(lambda x: x.reshape(-1, 3, 4, 4), function)


def _square(function: _Function) -> _Function:
    """Calls it with well-conditioned matrices [batch, 6, 6]."""
    return lambda x: function(x @ x.mT + 6 * torch.eye(6))


class _Call(nn.Module):
    def __init__(self, *functions: _Function) -> None:
        super().__init__()
        self.functions = functions
        self.modules_ = nn.ModuleList([each for each in functions if isinstance(each, nn.Module)])

    def forward(self, x: Any) -> Any:
        for function in self.functions:
            x = function(x)
        return x


def _attention(**arguments: Any) -> nn.Module:
    return Around(lambda attention, x: attention(x, x, x), nn.MultiheadAttention(8, 2, batch_first=True, **arguments))


def _seq2seq(transformer: nn.Module, x: torch.Tensor) -> Any:
    return transformer(x, x.flip(1), tgt_mask=nn.Transformer.generate_square_subsequent_mask(6))


def _cell(cell: nn.Module) -> nn.Module:
    return Around(lambda cell, x: functools.reduce(lambda state, token: cell(token, state), x.unbind(1), None), cell)


def _binary(module: nn.Module) -> nn.Module:
    return Around(lambda module, x: module(x, x.flip(-1).cos()), module)


def _indices(module: nn.Module) -> nn.Module:
    """Adds what a module of indices returns."""

    def forward(module: nn.Module, x: torch.Tensor) -> Any:
        found = module(x.detach().argsort(-1)[:, :, 0] % 5)
        return x + (found if found.dim() == 3 else found[:, None])

    return Around(forward, module)


def _rotary(x: torch.Tensor) -> torch.Tensor:
    """Llama's reference code."""
    angles = torch.outer(torch.arange(6.0), 1 / 10 ** torch.arange(0, 1, 0.25))
    table = torch.polar(torch.ones_like(angles), angles)
    complex_x = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(complex_x * table).flatten(2)


def _in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1:3] = y[:, 3:5] * 2
    y[y > 1] = 0.5
    y.mul_(2).clamp_(-1, 1)
    return y


def _packed(x: torch.Tensor) -> Any:
    lengths = torch.full((x.shape[0],), 3)
    return nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True).data


def _wrapped(wrap: Callable[[nn.Module], nn.Module]) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return wrap(nn.Linear(8, 8))


_LOSSES = "l1_loss smooth_l1_loss huber_loss poisson_nll_loss binary_cross_entropy_with_logits soft_margin_loss kl_div".split()
_ACTIVATIONS = (
    "relu6 hardswish hardsigmoid hardtanh elu selu celu gelu leaky_relu logsigmoid softplus softsign tanhshrink "
    "softshrink hardshrink mish silu glu rrelu"
).split()

_WORKS: dict[str, Callable[[], _Function]] = {
    # Recurrent modules.
    "LSTM": lambda: nn.LSTM(8, 5, batch_first=True),
    "LSTM with two layers and two directions": lambda: nn.LSTM(8, 4, 2, bidirectional=True),
    "LSTM without biases": lambda: nn.LSTM(8, 4, 2, bias=False, batch_first=True),
    "LSTM with projections": lambda: nn.LSTM(8, 6, 2, batch_first=True, proj_size=3),
    "LSTM in bfloat16": lambda: _Call(lambda x: x.bfloat16(), nn.LSTM(8, 4, batch_first=True, dtype=torch.bfloat16)),
    "LSTMCell": lambda: _cell(nn.LSTMCell(8, 5)),
    "GRU": lambda: nn.GRU(8, 5, 2, batch_first=True, bidirectional=True),
    "GRUCell": lambda: _cell(nn.GRUCell(8, 5)),
    "RNN": lambda: nn.RNN(8, 5, batch_first=True),
    "RNN with relu": lambda: nn.RNN(8, 5, 2, nonlinearity="relu", bidirectional=True),
    "RNNCell": lambda: _cell(nn.RNNCell(8, 5)),
    # Attention.
    "MultiheadAttention": _attention,
    "MultiheadAttention with bias_kv": lambda: _attention(add_bias_kv=True, add_zero_attn=True),
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
    "TransformerEncoder": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True), 2, enable_nested_tensor=False
    ),
    "TransformerEncoderLayer in eval mode": lambda: _Frozen(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)),
    "Transformer": lambda: Around(_seq2seq, nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)),
    "scaled_dot_product_attention": lambda: (
        lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True)
    ),
    "attention with a mask": lambda: (
        lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], torch.ones(6, 6).tril().bool())
    ),
    # Convolutions and images.
    "Conv1d": lambda: nn.Conv1d(6, 4, 3, padding=1, groups=2),
    "Conv2d": lambda: _images(nn.Conv2d(3, 4, 3, stride=2, padding_mode="reflect", padding=1)),
    "Conv3d": lambda: _Call(lambda x: x.reshape(-1, 3, 4, 2, 2), nn.Conv3d(3, 2, 2)),
    "ConvTranspose2d": lambda: _images(nn.ConvTranspose2d(3, 2, 3, 2, dilation=2)),
    "MaxPool2d": lambda: _images(nn.MaxPool2d(2)),
    "MaxUnpool2d": lambda: _images(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)),
    "AvgPool2d": lambda: _images(nn.AvgPool2d(3, 1, 1, count_include_pad=False)),
    "LPPool2d": lambda: _images(nn.LPPool2d(2, 2)),
    "AdaptiveAvgPool2d": lambda: _images(nn.AdaptiveAvgPool2d((3, 2))),
    "AdaptiveMaxPool2d": lambda: _images(nn.AdaptiveMaxPool2d(3)),
    "AdaptiveMaxPool1d": lambda: nn.AdaptiveMaxPool1d(3),
    "PixelShuffle": lambda: _Call(lambda x: x.reshape(-1, 12, 2, 2), nn.PixelShuffle(2)),
    "PixelUnshuffle": lambda: _images(nn.PixelUnshuffle(2)),
    "ChannelShuffle": lambda: nn.ChannelShuffle(2),
    "Upsample": lambda: _images(nn.Upsample(scale_factor=2, mode="nearest")),
    "interpolate bilinear": lambda: _images(lambda x: F.interpolate(x, size=(5, 7), mode="bilinear", antialias=True)),
    "interpolate bicubic": lambda: _images(lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic")),
    "grid_sample": lambda: _images(lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False)),
    "affine_grid": lambda: lambda x: F.affine_grid(x[:, :2, :3], [x.shape[0], 3, 4, 4], align_corners=False),
    "unfold": lambda: _images(lambda x: F.unfold(x, 2)),
    "fold": lambda: lambda x: F.fold(x.reshape(-1, 12, 4), (4, 4), 2, stride=2),
    "Tensor.unfold": lambda: lambda x: x.unfold(2, 4, 2),
    "pad": lambda: lambda x: F.pad(x, (1, 2), "replicate") + F.pad(x, (1, 2), "circular"),
    "LocalResponseNorm": lambda: _images(nn.LocalResponseNorm(2)),
    # Norms.
    "LayerNorm": lambda: nn.LayerNorm(8),
    "RMSNorm": lambda: nn.RMSNorm(8),
    "GroupNorm": lambda: nn.GroupNorm(3, 6),
    "InstanceNorm1d": lambda: nn.InstanceNorm1d(6, affine=True),
    "InstanceNorm with statistics": lambda: nn.InstanceNorm1d(6, track_running_stats=True),
    "BatchNorm1d": lambda: nn.BatchNorm1d(6),
    "BatchNorm2d in eval mode": lambda: _images(_Frozen(nn.BatchNorm2d(3))),
    "BatchNorm without statistics": lambda: nn.BatchNorm1d(6, track_running_stats=False),
    "weight_norm": lambda: _wrapped(nn.utils.weight_norm),
    "parametrizations.weight_norm": lambda: _wrapped(nn.utils.parametrizations.weight_norm),
    "spectral_norm": lambda: _wrapped(nn.utils.spectral_norm),
    "parametrizations.spectral_norm": lambda: _wrapped(nn.utils.parametrizations.spectral_norm),
    "parametrizations.orthogonal": lambda: _wrapped(lambda m: nn.utils.parametrizations.orthogonal(m, orthogonal_map="cayley")),
    "normalize": lambda: lambda x: F.normalize(x, p=3, dim=1),
    # Embeddings and linear modules.
    "Embedding": lambda: _indices(nn.Embedding(5, 8, padding_idx=1)),
    "Embedding(sparse=True)": lambda: _indices(nn.Embedding(5, 8, sparse=True)),
    "Embedding(scale_grad_by_freq=True)": lambda: _indices(nn.Embedding(5, 8, scale_grad_by_freq=True)),
    "EmbeddingBag": lambda: _indices(nn.EmbeddingBag(5, 8, mode="mean")),
    "EmbeddingBag(sparse=True)": lambda: _indices(nn.EmbeddingBag(5, 8, mode="sum", sparse=True)),
    "EmbeddingBag with max": lambda: _indices(nn.EmbeddingBag(5, 8, mode="max")),
    "Bilinear": lambda: _binary(nn.Bilinear(8, 8, 4)),
    "CosineSimilarity": lambda: _binary(nn.CosineSimilarity(dim=-1)),
    "PairwiseDistance": lambda: _binary(nn.PairwiseDistance(3)),
    # Losses inside of a stage.
    "losses": lambda: lambda x: [getattr(F, name)(x, x.detach().flip(1).sigmoid()) for name in _LOSSES],
    "losses of classes": lambda: (
        lambda x: [
            F.cross_entropy(x.flatten(0, 1), _classes(x), label_smoothing=0.1, ignore_index=2),
            F.cross_entropy(x.flatten(0, 1), x.flatten(0, 1).detach().softmax(-1)),
            F.nll_loss(x.mT.log_softmax(1)[:, :, :5], _classes(x).reshape(-1, 6)[:, :5] % 6),
            F.multi_margin_loss(x.flatten(0, 1), _classes(x)),
            F.multilabel_soft_margin_loss(x.flatten(0, 1), (x.flatten(0, 1) > 0).float()),
            F.cosine_embedding_loss(x[:, 0], x[:, 1], torch.ones(x.shape[0])),
            F.triplet_margin_loss(x[:, 0], x[:, 1], x[:, 2]),
            F.margin_ranking_loss(x[:, 0], x[:, 1], torch.ones_like(x[:, 0])),
            F.hinge_embedding_loss(x, torch.ones_like(x)),
        ]
    ),
    "ctc_loss with fixed lengths": lambda: (
        lambda x: F.ctc_loss(
            x.log_softmax(-1).transpose(0, 1), torch.ones(x.shape[0], 2, dtype=torch.long), (6,) * x.shape[0], (2,) * x.shape[0]
        )
    ),
    # Activations.
    "activations": lambda: lambda x: [*(getattr(F, name)(x) for name in _ACTIVATIONS), torch.erf(x), torch.sinc(x)],
    "softmaxes": lambda: lambda x: [x.softmax(1), F.softmin(x, -1), x.log_softmax(0)],
    "PReLU": lambda: nn.PReLU(6),
    "Threshold": lambda: nn.Threshold(0.1, 2.0),
    # Selections and reductions.
    "max": lambda: lambda x: x.max(),
    "min of ties": lambda: lambda x: x.clamp(-0.2, 0.2).min() + x.clamp(-0.2, 0.2).max(),
    "median": lambda: lambda x: x.median() + x.nanmedian(),
    "max along a dimension": lambda: lambda x: [x.max(1).values, x.amax((0, 1)), x.amin(1)],
    "median along a dimension": lambda: lambda x: [x.median(1).values, x.kthvalue(2, 1).values],
    "mode": lambda: lambda x: x.mode(1).values,
    "topk": lambda: lambda x: x.topk(3, -1).values + x.topk(3, -1, largest=False).values,
    "sort": lambda: lambda x: x.sort(1, descending=True).values.cumsum(1),
    "prod": lambda: lambda x: x.prod(),
    "prod along a dimension": lambda: lambda x: x.prod(1) + x.prod(1, keepdim=True)[:, 0],
    "prod with zeros": lambda: lambda x: F.relu(x).prod(-1).sum() + (x[:, 0] * 0).prod(1),
    "cumprod": lambda: lambda x: x.cumprod(1) + F.relu(x).cumprod(-1),
    "cumulative": lambda: lambda x: [x.cumsum(1), x.logcumsumexp(1), x.cummax(1).values, x.cummin(-1).values],
    "logsumexp": lambda: lambda x: x.logsumexp((1, 2)),
    "norms": lambda: lambda x: [x.norm(), x.norm(3, dim=1), x.norm(float("inf")), torch.linalg.vector_norm(x, 1, 2)],
    "std and var": lambda: lambda x: [x.std(1), x.var((0, 1)), *torch.std_mean(x, -1)],
    "quantile": lambda: lambda x: x.quantile(0.3, dim=1) + x.nanquantile(0.5, dim=1),
    "renorm": lambda: lambda x: x.renorm(2, 1, 0.5),
    "trace": lambda: lambda x: x[0, :6, :6].trace() + x.diagonal(0, 1, 2).sum(),
    "cdist": lambda: lambda x: torch.cdist(x, x.flip(1) + 1) + torch.cdist(x, x + 2, p=1),
    "pdist": lambda: lambda x: F.pdist(x[0]),
    # Indexing.
    "where": lambda: lambda x: torch.where(x > 0, x, x * 0.1),
    "masked_fill": lambda: lambda x: x.masked_fill(x > 0.5, -1),
    "in-place assignments": lambda: _in_place,
    "gather": lambda: lambda x: x.gather(1, x.detach().argsort(1)),
    "take_along_dim": lambda: lambda x: x.take_along_dim(x.detach().argsort(2), 2),
    "scatter_add": lambda: lambda x: torch.zeros_like(x).scatter_add(1, x.detach().argsort(1), x),
    "scatter_reduce": lambda: lambda x: torch.ones_like(x).scatter_reduce(1, x.detach().argsort(1), x, "amax"),
    "index_put": lambda: lambda x: torch.zeros(6, 8).index_put((torch.tensor([0, 0, 3]),), x[0, :3], accumulate=True),
    "index_select": lambda: lambda x: x.index_select(1, torch.tensor([2, 2, 0])),
    "index_add": lambda: lambda x: torch.zeros_like(x).index_add(1, torch.tensor([0, 1, 0, 5, 2, 2]), x),
    "index_copy": lambda: lambda x: x.index_copy(1, torch.tensor([1]), x[:, 3:4] * 2),
    "index with integers": lambda: lambda x: x[:, [0, 2, 2], 1:] * x[:, torch.tensor([3])][..., 1:],
    "take": lambda: lambda x: x.take(torch.tensor([1, 5, 5])),
    "put": lambda: lambda x: x.put(torch.tensor([1, 5]), x[0, 0, :2] * 3),
    "one_hot": lambda: lambda x: F.one_hot(x.detach().argmax(-1), 8).float() @ x.mT,
    "select": lambda: lambda x: x.select(1, 2) + x.narrow(1, 1, 3).sum(1) + x[:, -1],
    "masked_scatter": lambda: lambda x: x.masked_scatter(x > 0, x.flatten()),
    "repeat_interleave": lambda: lambda x: x.repeat_interleave(2, 1),
    # Shapes.
    "shapes": lambda: (
        lambda x: [
            x.roll(2, 1),
            x.flip(0, 2),
            x.rot90(1, (1, 2)),
            x.tile(1, 2, 1),
            x.movedim(1, 2),
            x.tril(),
            x.triu(1),
            torch.block_diag(x[0], x[1]),
            x.diff(dim=1),
            x.expand(3, *x.shape),
            torch.stack([x, x]).unflatten(0, (1, 2)),
            torch.cat([x, x], 1).squeeze(),
            torch.kron(x[0], x[1]),
            *x.split([1, 5], 1),
            *x.chunk(3, 2),
            *torch.meshgrid(x[0, 0], x[0, 1], indexing="ij"),
            x.as_strided((2, 3), (8, 1)),
            torch.diag_embed(x),
            torch.cartesian_prod(x[0, 0], x[0, 1]),
        ]
    ),
    "einsum": lambda: lambda x: torch.einsum("bij,bkj,bkl->bil", x, x, x),
    "tensordot": lambda: lambda x: torch.tensordot(x, x, dims=([0, 2], [0, 2])),
    "products": lambda: (
        lambda x: [
            torch.cross(x[..., :3], x[..., 3:6], dim=-1),
            torch.outer(x[0, 0], x[1, 1]),
            torch.dot(x[0, 0], x[0, 1]),
            torch.mv(x[0], x[1, 0]),
            torch.addbmm(x[0, :, :6], x, x.mT),
            torch.baddbmm(x[:, :, :6], x, x.mT),
            torch.chain_matmul(x[0], x[0].T, x[1]),
        ]
    ),
    "vmap": lambda: lambda x: torch.vmap(lambda row: row.outer(row))(x.flatten(0, 1)),
    # Linear algebra.
    "inverse": lambda: _square(torch.linalg.inv),
    "det": lambda: _square(lambda a: a.det() / 1e5 + a.logdet() + torch.linalg.slogdet(a)[1]),
    "solve": lambda: _square(lambda a: torch.linalg.solve(a, a.sin())),
    "cholesky": lambda: _square(torch.linalg.cholesky),
    "cholesky_solve": lambda: _square(lambda a: torch.cholesky_solve(a.sin(), torch.linalg.cholesky(a))),
    "triangular solve": lambda: _square(lambda a: torch.linalg.solve_triangular(a.tril(), a.sin(), upper=False)),
    "qr": lambda: _square(torch.linalg.qr),
    "svd": lambda: _square(torch.linalg.svdvals),
    "eigh": lambda: _square(torch.linalg.eigvalsh),
    "lu": lambda: _square(lambda a: torch.linalg.lu(a)[1:]),
    "pinv": lambda: _square(lambda a: torch.linalg.pinv(a) + torch.linalg.matrix_power(a / 9, 3)),
    "matrix_exp": lambda: _square(lambda a: torch.linalg.matrix_exp(a / 9)),
    "matrix norms": lambda: _square(lambda a: torch.linalg.matrix_norm(a) + torch.linalg.matrix_norm(a, 2)),
    # Complex numbers.
    "rotary positions with complex numbers": lambda: _rotary,
    "polar": lambda: lambda x: torch.polar(x.abs() + 1, x),
    "complex arithmetic": lambda: (
        lambda x: [(z * z.conj()).real + (z / (z + 2)).imag + z.abs() + z.angle() for z in [torch.complex(x, x.flip(1) + 3)]]
    ),
    "complex matrices": lambda: lambda x: torch.complex(x, x + 1) @ torch.complex(x, x.flip(1)).mH,
    "fft": lambda: lambda x: torch.fft.fft2(x).real + torch.fft.fft(x, dim=1).imag,
    "rfft": lambda: lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1) * (1 + 2j), n=6, dim=1),
    "stft": lambda: lambda x: torch.stft(x[:, :4].flatten(1), 8, window=torch.ones(8), return_complex=True).abs(),
    "eigenvalues": lambda: _square(lambda a: torch.linalg.eigvals(a + a.triu(1).sin()).abs()),
}


def _classes(x: torch.Tensor) -> torch.Tensor:
    return x.detach().argmax(-1).flatten()


# By name: the function, and what the message says.
_REFUSED: dict[str, tuple[Callable[[], _Function], str]] = {
    "item": (lambda: lambda x: x * x.sum().item(), "reads a value out of a tensor"),
    "a condition": (lambda: lambda x: x if x.sum() > 0 else -x, "reads a value out of a tensor"),
    "tolist": (lambda: lambda x: x * x.detach().argmax(-1).tolist()[0][0], "reads a value"),
    "numpy": (lambda: lambda x: x * float(x.detach().numpy().max()), "reads a value"),
    "masked_select": (lambda: lambda x: x.masked_select(x > 0), "depends on data"),
    "a mask as index": (lambda: lambda x: x[x > 0], "depends on data"),
    "nonzero": (lambda: lambda x: x.flatten()[x.flatten().nonzero()], "depends on data"),
    "unique": (lambda: lambda x: x.unique(), "depends on data"),
    "bincount": (lambda: lambda x: x * x.detach().argmax(-1).flatten().bincount()[0], "data"),
    "repeat_interleave by a tensor": (
        lambda: lambda x: x[0].repeat_interleave(x[0].detach().argmax(-1) + 1, 0),
        "depends on data",
    ),
    "pack_padded_sequence": (lambda: _packed, "pack_padded_sequence"),
    "ctc_loss with lengths of the batch": (
        lambda: (
            lambda x: F.ctc_loss(
                x.log_softmax(-1).transpose(0, 1),
                torch.ones(x.shape[0], 2, dtype=torch.long),
                torch.full((x.shape[0],), 6),
                x.detach().argmax(-1)[:, 0] % 2 + 1,
            )
        ),
        "the lengths of ctc_loss",
    ),
    "tensor_split by a tensor": (lambda: lambda x: torch.tensor_split(x, x.detach().argmax(-1)[0, :1], 1)[0], "tensor_split"),
    "BatchNorm(momentum=None)": (lambda: nn.BatchNorm1d(6, momentum=None), "reads a value"),
    "AdaptiveLogSoftmaxWithLoss": (
        lambda: _Call(lambda x: x.flatten(0, 1), _binary(nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 8]))),
        "",
    ),
    "gaussian_nll_loss": (lambda: lambda x: F.gaussian_nll_loss(x, x.detach(), x.square()), "reads a value"),
    "lstsq": (lambda: _square(lambda a: torch.linalg.lstsq(a, a.sin()).solution), "data"),
    "embedding with max_norm": (lambda: _indices(nn.Embedding(5, 8, max_norm=1.0)), "embedding_renorm_"),
    "sparse tensors": (lambda: lambda x: torch.sparse.mm(x[0].to_sparse(), x[1].T), ""),
}

# On CPUs, it writes its indices where captures do not see it.
if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14) and "PENSTOCK_TESTED_DEVICE" not in os.environ:
    _REFUSED["quantile"] = (_WORKS.pop("quantile"), "two captures of the same code differ: a constant of aten::gather has other values")


def _run(make: Callable[[], _Function]) -> tuple[nn.Module, nn.Module, float, float]:
    """Runs a step of two microbatches in a Pipeline, and with autograd."""
    torch.manual_seed(0)
    stages: list[nn.Module] = [nn.Identity(), _Stage(make())]
    torch.manual_seed(0)
    plain = _Stage(make())
    x = torch.randn(4, 6, 8)
    pipe = pt.Pipeline(stages, "1f1b", ranks=2, microbatches=2, loss=_loss, optimizer=None, threads=1)
    loss = pipe.step(x, x)
    return stages[1], plain, loss, accumulate(plain, _loss, x, x, 2)


@pytest.mark.parametrize("name", _WORKS)
def test_gradients_are_those_of_autograd(name: str) -> None:
    stage, plain, loss, expected = _run(_WORKS[name])
    # In bfloat16, torch's own kernels differ by 0.2% among themselves, as the processor decides.
    assert loss == pytest.approx(expected, rel=1e-2 if "bfloat16" in name else 1e-4)
    for (of, one), other in zip(stage.named_parameters(), plain.parameters(), strict=True):
        if other.grad is None:
            assert one.grad is None or not one.grad.any(), of
            continue
        assert one.grad is not None, of
        expected_grad = other.grad.to_dense()
        scale = expected_grad.abs().max().item()
        tolerance = (0.05 if "bfloat16" in name else 1e-3) * scale + 1e-6
        assert (one.grad - expected_grad).abs().max().item() <= tolerance, of
    for (of, one), other in zip(stage.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(one, other, msg=of)


@pytest.mark.parametrize("name", _REFUSED)
def test_refusals_name_the_stage_and_the_line(name: str) -> None:
    make, text = _REFUSED[name]
    with pytest.raises(penstock.Error) as refused:
        _run(make)
    message = str(refused.value)
    assert message.startswith(("stage 1, forward at", "stage 1, backward of")), message
    assert "test_ops.py:" in message and text in message and "\n" not in message, message


def test_lazy_modules_are_refused_before_they_have_weights() -> None:
    with pytest.raises(penstock.Error, match="LazyLinear|lazy|uninitialized"):
        _run(lambda: nn.LazyLinear(4))
