"""Models, data and Trainers for the tests of penstock.transformers."""

from __future__ import annotations

import copy
import pathlib
from typing import Any

import pytest
import torch
import transformers

import penstock.transformers

torch.set_num_threads(1)
SHAPE: dict[str, Any] = {
    **dict(hidden_size=16, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=2),
    **dict(vocab_size=48, max_position_embeddings=16, attn_implementation="eager"),
}


def llama(**options: Any) -> Any:
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SHAPE, **options}))


def data(samples: int = 22, tokens: int = 6) -> list[dict[str, torch.Tensor]]:
    """Samples whose losses have unlike numbers of terms."""
    generator = torch.Generator().manual_seed(2)
    found = []
    for _ in range(samples):
        ids = torch.randint(48, (tokens,), generator=generator)
        labels = ids.masked_fill(torch.rand(tokens, generator=generator) < 0.4, -100)
        labels[-1] = ids[-1]
        found.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels})
    return found


class Runs:
    """Makes plain Trainers and Trainers on a Pipeline with the same model, arguments and data."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def arguments(self, name: str, **options: Any) -> transformers.TrainingArguments:
        return transformers.TrainingArguments(
            **{
                **dict(output_dir=str(self.folder / name), per_device_train_batch_size=4, per_device_eval_batch_size=5, max_steps=4),
                **dict(learning_rate=1e-2, logging_steps=1, report_to="none", use_cpu=True, save_strategy="no", disable_tqdm=True),
                **options,
            }
        )

    def plain(self, model: Any, options: dict[str, Any] | None = None, **named: Any) -> transformers.Trainer:
        return transformers.Trainer(copy.deepcopy(model), self.arguments("plain", **(options or {})), **{**defaults(), **named})

    def ours(self, model: Any, options: dict[str, Any] | None = None, name: str = "ours", **named: Any) -> penstock.transformers.Trainer:
        arguments = self.arguments(name, **(options or {}))
        return penstock.transformers.Trainer(copy.deepcopy(model), arguments, **{**defaults(), **dict(microbatches=2), **named})


def defaults() -> dict[str, Any]:
    return {"train_dataset": data(), "eval_dataset": data(7)}


def history(trainer: Any) -> list[dict[str, Any]]:
    """What the Trainer logged, without times."""
    timed = ("runtime", "per_second", "flos", "preparation_time")
    return [{key: value for key, value in each.items() if not key.endswith(timed)} for each in trainer.state.log_history]


def assert_same(one: Any, other: Any) -> None:
    """Two Trainers logged the same, and have the same weights, to rounding."""
    logs, others = history(one), history(other)
    assert [sorted(each) for each in logs] == [sorted(each) for each in others]
    for log, of_other in zip(logs, others, strict=True):
        for key, value in log.items():
            assert of_other[key] == pytest.approx(value, rel=2e-4, abs=1e-6), (key, log, of_other)
    for (name, weight), (_, of_other) in zip(one.model.named_parameters(), other.model.named_parameters(), strict=True):
        torch.testing.assert_close(of_other, weight, rtol=1e-3, atol=2e-5, msg=name)
