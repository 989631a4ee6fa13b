"""A Trainer on a Pipeline logs what transformers' Trainer logs, and leaves the same weights."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from trainers import SHAPE, Runs, assert_same, data, defaults, history, llama

import penstock
import penstock.transformers

ACCUMULATED = {"gradient_accumulation_steps": 2, "max_grad_norm": 0.5, "warmup_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
BERT: dict[str, Any] = {
    **dict(vocab_size=48, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32),
    **dict(max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
}


def _qwen3_moe() -> Any:
    torch.manual_seed(1)
    experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, decoder_sparse_step=1, head_dim=8)
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**{**SHAPE, **experts}))


def _token_classes() -> Any:
    torch.manual_seed(1)
    return transformers.BertForTokenClassification(transformers.BertConfig(**BERT, num_labels=48))


def _same_runs(runs: Runs, model: Any, options: dict[str, Any] | None = None, named: Any = None, **of_pipeline: Any) -> Any:
    """Trains both ways, and returns the Trainers."""
    plain, ours = runs.plain(model, options, **(named or {})), runs.ours(model, options, **(named or {}), **of_pipeline)
    for each in (plain, ours):
        each.train()
    assert_same(plain, ours)
    return plain, ours


@pytest.mark.parametrize(
    "of_pipeline",
    [
        {"schedule": "zbv"},
        {"schedule": penstock.schedule("zb-h1", ranks=2, microbatches=3), "microbatches": None},  # a batch has 4 samples
        {"split": ["model.layers.1"]},
        {"microbatches": 4, "pipeline": {"data_parallel": 2}},  # the last batch has 2 samples
    ],
    ids=["zbv", "uneven", "names", "replicas"],
)
def test_schedules(runs: Runs, of_pipeline: dict[str, Any]) -> None:
    plain, ours = _same_runs(runs, llama(), ACCUMULATED, **of_pipeline)
    unlabeled = [{key: value for key, value in each.items() if key != "labels"} for each in data(7)]
    for samples in (data(7), unlabeled):
        expected, found = plain.predict(samples), ours.predict(samples)
        np.testing.assert_allclose(found.predictions, expected.predictions, atol=1e-3)
        assert found.metrics.keys() == expected.metrics.keys()


@pytest.mark.parametrize("make", [_qwen3_moe, _token_classes, lambda: llama(tie_word_embeddings=True)], ids=["experts", "mean", "tied"])
def test_models(runs: Runs, make: Any) -> None:
    _same_runs(runs, make(), ACCUMULATED)


def test_classes_of_samples(runs: Runs) -> None:
    torch.manual_seed(1)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**BERT, num_labels=3))
    samples = [{**each, "labels": torch.tensor(number % 3)} for number, each in enumerate(data())]

    def accuracy(found: Any) -> dict[str, float]:
        return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}

    _same_runs(runs, model, ACCUMULATED, dict(train_dataset=samples, eval_dataset=samples[:7], compute_metrics=accuracy))


def _sum(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    logits = outputs.logits[:, :-1].flatten(0, 1)
    return nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), ignore_index=-100, reduction="sum") / num_items_in_batch


def _mean(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten())


def _mean_of_shifted(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def _mean_of_samples(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    return outputs.logits.float().square().mean()


def _contrast(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    pooled = outputs.logits.float().mean(1)
    return nn.functional.cross_entropy(pooled @ pooled.T, torch.arange(len(pooled), device=pooled.device)) + pooled.square().mean()


@pytest.mark.parametrize("function", [_sum, _mean, _mean_of_shifted, _mean_of_samples, None], ids=lambda each: getattr(each, "__name__", "smooth"))
def test_losses(runs: Runs, function: Any) -> None:
    options = {} if function else {"label_smoothing_factor": 0.1}
    _same_runs(runs, llama(), {**ACCUMULATED, **options}, {"compute_loss_func": function})


def test_a_loss_that_compares_samples_is_refused(runs: Runs) -> None:
    with pytest.raises(penstock.Error, match="neither the sum nor a mean of the losses of each"):
        runs.ours(llama(), compute_loss_func=_contrast).train()


class _Scaled:
    """A loss that is a mean of the batch, and follows an attribute."""

    loss_is_scaled_for_ga = False
    factor = 1.0

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = self.factor * nn.functional.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return (loss, outputs) if return_outputs else loss


class _Plain(_Scaled, transformers.Trainer):
    pass


class _Ours(_Scaled, penstock.transformers.Trainer):
    pass


class _Double(transformers.TrainerCallback):
    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.factor = 2.0 * (state.global_step + 1)


def test_a_loss_of_a_derived_class(runs: Runs) -> None:
    model = llama()
    plain = _Plain(llama(), runs.arguments("plain", **ACCUMULATED), **defaults())
    ours = _Ours(model, runs.arguments("ours", **ACCUMULATED), **defaults(), microbatches=2)
    for each in (plain, ours):
        each.add_callback(_Double(each))
        each.factor = 1.0
        each.train()
    assert_same(plain, ours)


def test_a_run_resumes_bitwise(runs: Runs) -> None:
    model, options = llama(attention_dropout=0.3), {"max_steps": 6, "gradient_accumulation_steps": 2}
    whole = runs.ours(model, options, "whole")
    first = runs.ours(model, {**options, "save_strategy": "steps", "save_steps": 3}, "resumed")
    for each in (whole, first):
        each.train()
    resumed = runs.ours(model, options, "resumed")
    resumed.train(resume_from_checkpoint=str(runs.folder / "resumed" / "checkpoint-3"))
    for (name, weight), of_other in zip(whole.model.named_parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(weight, of_other), name
    losses = [[log["loss"] for log in history(each) if "loss" in log] for each in (whole, resumed)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("layers", [[0], [3]])
def test_adapters(runs: Runs, layers: list[int]) -> None:
    """With stages that train nothing."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(3)
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], layers_to_transform=layers, init_lora_weights=False)
    model = peft.get_peft_model(llama(), config)
    _, ours = _same_runs(runs, model, ACCUMULATED)
    graphs = [ours._running.graph(stage) for stage in range(2)]
    assert [" = gradient " in each for each in graphs] == [layers == [0], layers == [3]]
    ours.save_model(str(runs.folder / "adapter"))
    loaded = peft.PeftModel.from_pretrained(llama(), str(runs.folder / "adapter"))
    for name, weight in loaded.state_dict().items():
        assert torch.equal(weight, ours.model.state_dict()[name]), name


@pytest.mark.parametrize("options", [{"bf16": True}, {"gradient_checkpointing": True}, {"max_grad_norm": 0.0}], ids=str)
def test_arguments(runs: Runs, options: dict[str, Any]) -> None:
    plain, ours = runs.plain(llama(), options), runs.ours(llama(), options)
    for each in (plain, ours):
        each.train()
    losses = [[log["loss"] for log in history(each) if "loss" in log] for each in (plain, ours)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-2 if "bf16" in options else 1e-5)


def test_what_is_refused(runs: Runs) -> None:
    for options, named, message in (
        ({"torch_compile": True}, {}, "torch_compile is set"),
        ({"neftune_noise_alpha": 5.0}, {}, "neftune_noise_alpha is set"),
        ({}, {"schedule": "pipedream"}, "updates weights within a batch"),
        ({}, {"schedule": penstock.schedule("seq1f1b", ranks=2, microbatches=2, slices=2), "microbatches": None}, "whole sequences"),
        ({}, {"pipeline": {"optimizer": None}}, "'optimizer' is not passed on"),
        ({}, {"split": "odd"}, "split is 'odd'"),
        ({}, {"ranks": 0}, "ranks"),
    ):
        with pytest.raises(penstock.Error, match=message) as refused:
            runs.ours(llama(), options, **named)
        assert "\n" not in str(refused.value)
    with pytest.raises(penstock.Error, match="4 layers cannot form 8 stages"):
        runs.ours(llama(), ranks=8, microbatches=4).train()


class _Counting(penstock.transformers.Trainer):
    calls = 0

    def compute_loss(self, *args: Any, **named: Any) -> Any:
        self.calls += 1
        return super().compute_loss(*args, **named)


def test_a_loss_that_counts_is_refused(runs: Runs) -> None:
    trainer = _Counting(llama(), runs.arguments("counting"), **defaults(), microbatches=2)
    trainer.calls = 0
    with pytest.raises(penstock.Error, match="compute_loss changes 'calls'"):
        trainer.train()


def test_the_example_of_the_page_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = pathlib.Path(__file__).parents[3] / "docs" / "transformers.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile(block, page.name, "exec"), {})  # noqa: S102
