"""The function that torchtitan calls for its pipeline runs schedules that torchtitan cannot place."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from gloo_ranks import run_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import penstock
import penstock.torchtitan

RANKS, MICROBATCHES, LAYERS = 2, 4, 8


class Decoder(nn.Module):
    """Has the modules of a decoder of torchtitan, each of which may be missing."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tok_embeddings: nn.Module | None = nn.Embedding(12, 8)
        self.layers = nn.ModuleDict({str(number): nn.Linear(8, 8) for number in range(LAYERS)})
        self.norm: nn.Module | None = nn.LayerNorm(8)
        self.lm_head: nn.Module | None = nn.Linear(8, 12)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden if self.tok_embeddings is None else self.tok_embeddings(hidden)
        for layer in self.layers.values():
            hidden = hidden + layer(hidden).tanh()
        hidden = hidden if self.norm is None else self.norm(hidden)
        return hidden if self.lm_head is None else self.lm_head(hidden)


def loss_fn(logits: torch.Tensor, labels: torch.Tensor, tokens: Any = None) -> tuple[torch.Tensor, dict[str, Any]]:
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / 10, {}


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randint(12, (8, 3)), torch.randint(12, (8, 3))


def arguments(mesh: Any, **changed: Any) -> dict[str, Any]:
    """What torchtitan passes."""
    parallelism = types.SimpleNamespace(
        module_fqns_per_model_part=None, pipeline_parallel_microbatch_size=2, pipeline_parallel_first_stage_less_layers=1,
        pipeline_parallel_last_stage_less_layers=1,
    )  # fmt: skip
    vars(parallelism).update(changed)
    return dict(
        parallel_dims=types.SimpleNamespace(get_mesh=lambda name: mesh[name]),
        training=types.SimpleNamespace(local_batch_size=8),
        parallelism=parallelism,
        compile_config=None,
        ac_config=None,
        dump_folder="",
        device=torch.device("cpu"),
        model_config=types.SimpleNamespace(layers=[None] * LAYERS),
        parallelize_fn=lambda part, **_: part,
        loss_fn=loss_fn,
    )


def train(rank: int, name: str, options: dict[str, Any]) -> dict[str, torch.Tensor]:
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("pp",))
    schedule = penstock.schedule(name, ranks=RANKS, microbatches=MICROBATCHES, **options)
    made, parts, is_first, is_last = penstock.torchtitan.pipelining_fn(schedule)(Decoder(), **arguments(mesh))
    tokens, labels = batch()
    losses: list[torch.Tensor] | None = [] if is_last else None
    made.step(*([tokens] if is_first else []), target=labels if is_last else None, losses=losses, return_outputs=False)
    found = {name: weight.grad for part in parts for name, weight in part.named_parameters()}
    return found | ({"loss": torch.stack(losses).sum().detach()} if losses is not None else {})


@pytest.mark.parametrize(("name", "options"), [("zbv", {}), ("hanayo", {"waves": 2}), ("1f1b", {})], ids=["zbv", "hanayo", "1f1b"])
def test_gradients_are_the_models(name: str, options: dict[str, Any]) -> None:
    found = {key: value for of_rank in run_ranks(RANKS, train, name, options) for key, value in of_rank.items()}
    model = Decoder()
    tokens, labels = batch()
    loss, _ = loss_fn(model(tokens), labels)
    loss.backward()
    wanted = {key: weight.grad for key, weight in model.named_parameters()} | {"loss": loss.detach()}
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, msg=key)


def test_what_is_refused() -> None:
    schedule = penstock.schedule("zbv", ranks=RANKS, microbatches=MICROBATCHES)
    build = penstock.torchtitan.pipelining_fn(schedule)
    with pytest.raises(penstock.Error, match="the trainer has 8 microbatches, but the schedule 4: generate it with as many"):
        build(Decoder(), **arguments(None, num_pp_microbatches=8))
    parts: Any = {"pp": None}
    with pytest.raises(penstock.Error, match="has 1 parts, but the schedule 4 stages"):
        build(Decoder(), **arguments(parts, module_fqns_per_model_part=[["tok_embeddings"]]))
    with pytest.raises(penstock.Error, match="schedule is 'zbv': give a penstock.Schedule"):
        penstock.torchtitan.pipelining_fn("zbv")  # type: ignore[arg-type]
