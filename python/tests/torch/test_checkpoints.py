"""Recomputation draws the random numbers of forward: torch's checkpoints, and the engine's own."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from reference import accumulate, chain, distance, mlp
from torch import nn
from torch.nn import functional
from torch.utils import checkpoint as checkpoints

import penstock.torch as pt

transformers.logging.set_verbosity_error()
_WIDTH = 16
_Op = Callable[[torch.Tensor], torch.Tensor]

# Random functions of a tensor that are linear in it for given numbers.
_DRAWS: dict[str, _Op] = {
    "dropout": lambda h: functional.dropout(h, 0.5),
    "dropout_in_place": lambda h: functional.dropout(h + 0, 0.5, inplace=True),
    "dropout_of_channels": lambda h: functional.dropout1d(h, 0.5),
    "bernoulli": lambda h: h * torch.bernoulli(torch.full_like(h, 0.5)),
    "bernoulli_of_values": lambda h: h * torch.bernoulli(torch.sigmoid(h.detach())),
    "bernoulli_in_place": lambda h: h * torch.empty(_WIDTH).bernoulli_(0.5),
    "rand": lambda h: h * torch.rand(_WIDTH),
    "rand_like": lambda h: h * torch.rand_like(h),
    "randn_like": lambda h: h * torch.randn_like(h),
    "randint": lambda h: h * torch.randint(0, 3, (_WIDTH,)),
    "drop_path": lambda h: h * (torch.rand(h.shape[0], 1) + 0.5).floor(),
    "twice": lambda h: functional.dropout(functional.dropout(h, 0.3), 0.3),
    "attention": lambda h: functional.scaled_dot_product_attention(
        torch.ones(1, h.shape[0], 8), torch.ones(1, h.shape[0], 8), h[None], dropout_p=0.4
    )[0],
}


def _plain(function: Callable[..., Any], *args: Any) -> Any:
    return checkpoints.checkpoint(function, *args, use_reentrant=False)


def _nested(function: Callable[..., Any], *args: Any) -> Any:
    return _plain(functools.partial(_plain, function), *args)


def _selective(function: Callable[..., Any], *args: Any) -> Any:
    saved = [torch.ops.aten.mm.default, torch.ops.aten.mul.Tensor]
    return checkpoints.checkpoint(
        function,
        *args,
        use_reentrant=False,
        context_fn=functools.partial(checkpoints.create_selective_checkpoint_contexts, saved),
    )


def _not_preserving(function: Callable[..., Any], *args: Any) -> Any:
    return checkpoints.checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)


def _reentrant(function: Callable[..., Any], *args: Any) -> Any:
    return checkpoints.checkpoint(function, *args, use_reentrant=True)


def _to_the_end(function: Callable[..., Any], *args: Any) -> Any:
    with checkpoints.set_checkpoint_early_stop(False):
        return _plain(function, *args)


def _mixed(function: Callable[..., Any], *args: Any) -> Any:
    """Checkpoints of all kinds inside each other."""
    inner = functools.partial(_not_preserving, functools.partial(_nested, function))
    return _reentrant(inner, *args)


_WAYS = [_plain, _nested, _selective, _not_preserving, _reentrant, _to_the_end, _mixed]


class Drawing(nn.Module):
    """Two matrices with a random function after each, in a checkpoint."""

    def __init__(self, draw: _Op, way: Callable[..., Any] | None) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(_WIDTH, _WIDTH) / 4 for _ in range(2))
        self.draw, self.way = draw, way

    def _run(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = self.draw(x @ weight).relu()
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._run(x) if self.way is None else self.way(self._run, x)


def _square(output: torch.Tensor) -> torch.Tensor:
    return output.square().sum()


def _expect_consistent(stages: list[nn.Module], schedule: str, **arguments: Any) -> None:
    """Expects gradients of the forward that computed the loss.

    For given random numbers, the loss is quadratic in each weight, so weight * gradient is twice
    the loss (Euler). With another mask in the backward, it is not.
    """
    given = {"microbatches": 2, "loss": _square, "optimizer": None, **arguments}
    pipe = pt.Pipeline(stages, schedule, **given)
    loss = pipe.step(torch.randn(16, _WIDTH))
    assert loss > 0
    for stage in stages:
        for weight in stage.parameters():
            assert weight.grad is not None
            assert (weight * weight.grad).sum().item() == pytest.approx(2 * loss, rel=1e-4)


@pytest.mark.parametrize("way", _WAYS)
def test_recomputation_draws_the_numbers_of_forward(way: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    for name, draw in _DRAWS.items():
        first = nn.Linear(_WIDTH, _WIDTH, bias=False)
        try:
            _expect_consistent([first, Drawing(draw, way)], "gpipe", ranks=2)
        except Exception as error:
            raise AssertionError(f"{name}: {error}") from error


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("schedule", ["1f1b", "zbv", "dualpipev"])
def test_every_schedule_recomputes_with_the_numbers_of_forward(schedule: str, exact: bool) -> None:
    stages: list[nn.Module] = [nn.Linear(_WIDTH, _WIDTH, bias=False)]
    stages += [Drawing(_DRAWS["dropout"], way) for way in (_plain, _reentrant, _selective)]
    ranks = 4 if schedule == "1f1b" else 2
    _expect_consistent(stages, schedule, ranks=ranks, microbatches=4, exact=exact)


@pytest.mark.parametrize("way", _WAYS)
def test_a_checkpoint_changes_no_number(way: Callable[..., Any]) -> None:
    """As autograd's: the same masks and gradients with it and without."""
    results = []
    for used in (way, None):
        torch.manual_seed(0)
        stages = [mlp(), Drawing(_DRAWS["twice"], used)]
        pipe = pt.Pipeline(stages, ranks=2, microbatches=2, loss=_square, optimizer=None, exact=True, seed=5)
        losses = [pipe.step(torch.randn(8, _WIDTH)) for _ in range(2)]
        results.append((losses, [p.grad for stage in stages for p in stage.parameters()]))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))


def test_shapes_that_ranks_capture_at_the_same_time_recompute_with_the_same_numbers() -> None:
    stages: list[nn.Module] = [nn.Linear(_WIDTH, _WIDTH, bias=False)]
    stages += [Drawing(_DRAWS["dropout"], _plain) for _ in range(3)]
    pipe = pt.Pipeline(stages, ranks=4, microbatches=2, loss=_square, optimizer=None)
    for samples in (16, 8, 12, 4):
        for stage in stages:
            stage.zero_grad()
        loss = pipe.step(torch.randn(samples, _WIDTH))
        for stage in stages:
            for weight in stage.parameters():
                assert (weight * weight.grad).sum().item() == pytest.approx(2 * loss, rel=1e-4)


def test_a_reentrant_checkpoint_of_inputs_without_gradient_has_none_as_in_torch() -> None:
    stages: list[nn.Module] = [Drawing(lambda h: h, _reentrant), nn.Linear(_WIDTH, _WIDTH)]
    pipe = pt.Pipeline(stages, ranks=2, microbatches=2, loss=_square, optimizer=None)
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        pipe.step(torch.randn(8, _WIDTH))
    assert all(weight.grad is None for weight in stages[0].parameters())
    assert all(weight.grad is not None for weight in stages[1].parameters())


class _OwnCheckpoint(torch.autograd.Function):
    """A checkpoint like Megatron's, whose backward calls backward()."""

    @staticmethod
    def forward(ctx: Any, run: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.run = run
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_(True)
        with torch.enable_grad():
            torch.autograd.backward(ctx.run(x), gradient)
        return None, x.grad


def test_gradients_that_a_backward_stores_itself_are_refused() -> None:
    stages = [nn.Linear(_WIDTH, _WIDTH), Drawing(lambda h: h, _OwnCheckpoint.apply)]
    pipe = pt.Pipeline(stages, ranks=2, microbatches=2, loss=_square)
    with pytest.raises(pt.Error, match=r"parameter 'weights\.\d'.*use torch.utils.checkpoint"):
        pipe.step(torch.randn(8, _WIDTH))
    assert all(weight.grad is None for weight in stages[1].parameters())


_TOKENS = torch.randint(64, (4, 12), generator=torch.Generator().manual_seed(0))


def _gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=32, n_layer=4, n_head=4, vocab_size=64, n_positions=16, use_cache=False)
    assert config.resid_pdrop == config.embd_pdrop == config.attn_pdrop == 0.1
    return transformers.GPT2LMHeadModel(config)


def _language_loss(output: Any, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output.logits.flatten(0, 1), targets.flatten())


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("hook", [True, False])
def test_gradient_checkpointing_of_transformers(reentrant: bool, hook: bool) -> None:
    losses, gradients = [], []
    for enabled in (True, False):
        model = _gpt2()
        if enabled:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        if hook:
            model.enable_input_require_grads()
        parts = pt.split(model, _TOKENS[:1], 2)
        pipe = pt.Pipeline(parts, ranks=2, microbatches=2, loss=_language_loss, optimizer=None, exact=True, seed=1)
        losses.append(pipe.step(_TOKENS, _TOKENS))
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    assert losses[0] == losses[1]
    for name, gradient in gradients[0].items():
        assert torch.equal(gradient, gradients[1][name]), name


@pytest.mark.parametrize("recompute", [{"hold": "least"}, {"hold": "4KiB"}, {"hold": "least", "hold_for_weight": "least"}])
def test_the_engine_recomputes_to_hold_less(recompute: dict[str, str]) -> None:
    results = []
    for policy in (None, recompute):
        torch.manual_seed(0)
        stages = [nn.Sequential(mlp(), mlp()), Drawing(_DRAWS["dropout"], None), mlp(), mlp()]
        pipe = pt.Pipeline(
            stages, "zbv", ranks=2, microbatches=4, loss=functional.mse_loss, optimizer=None, exact=True, seed=3, recompute=policy
        )
        loss = pipe.step(torch.randn(32, _WIDTH), torch.randn(32, _WIDTH))
        gradients = [p.grad for stage in stages for p in stage.parameters()]
        results.append((loss, gradients, sum(pipe.saved_bytes)))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))
    assert results[1][2] < results[0][2]


def test_checkpoints_outside_of_pipelines_are_those_of_torch() -> None:
    pt.Pipeline([mlp()], ranks=1, microbatches=1, loss=_square).step(torch.randn(4, _WIDTH))
    x = torch.randn(4, _WIDTH)
    models = [Drawing(_DRAWS["dropout"], way) for way in (_plain, _reentrant, None)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    for model in models:
        torch.manual_seed(7)
        _square(model(x.clone().requires_grad_(True))).backward()
    assert distance(models[:1], models[2:]) == 0
    for a, b, c in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(a.grad, c.grad) and torch.equal(b.grad, c.grad)
    plain = copy.deepcopy(models[1])
    accumulate(chain([plain]), lambda y, _: _square(y), x.requires_grad_(True), x, 1)
