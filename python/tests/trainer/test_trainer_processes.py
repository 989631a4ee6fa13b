"""A Trainer of several processes logs and saves what transformers' Trainer of one process does, on every process."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from forks import lines_of, run_all
from trainers import Runs, assert_same, data, history, llama

_HERE = str(pathlib.Path(__file__).parent)
_OPTIONS: dict[str, Any] = {
    **dict(gradient_accumulation_steps=2, max_grad_norm=0.5, warmup_steps=2, eval_strategy="steps", eval_steps=2),
    **dict(save_strategy="steps", save_steps=2, load_best_model_at_end=True, dataloader_drop_last=True, max_steps=4),
}
_SCRIPT = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import torch, penstock
from trainers import Runs, data, history, llama

folder, options, named, tied, resume = pathlib.Path(sys.argv[2]), *map(json.loads, sys.argv[3:])
trainer = Runs(folder).ours(llama(tie_word_embeddings=tied), options, **named)
trainer.train(resume_from_checkpoint=resume)
at = trainer.args.process_index
torch.save([weight.detach() for weight in trainer.model.parameters()], folder / f"weights{at}.pt")
if not trainer.args.prediction_loss_only:
    torch.save(torch.from_numpy(trainer.predict(data(7)).predictions), folder / f"predictions{at}.pt")
sys.stdout.write("history " + json.dumps(history(trainer)) + "\\n")
sys.stdout.flush()
"""


class _Ran:
    """What all processes have logged and left."""

    def __init__(self, folder: pathlib.Path, options: Any, named: Any, *, tied: bool = False, resume: Any = None, processes: int = 2) -> None:
        words = [_HERE, str(folder), *map(json.dumps, (options, named, tied, resume))]
        lines = lines_of(_SCRIPT, *words, prefix="history", processes=processes)
        assert len(lines) == processes and len(set(lines)) == 1
        self.state = transformers.TrainerState(log_history=json.loads(lines[0].partition(" ")[2]))
        left = [torch.load(folder / f"weights{each}.pt", weights_only=True) for each in range(processes)]
        for weights in left[1:]:
            assert all(torch.equal(*pair) for pair in zip(left[0], weights, strict=True))
        self.weights = left[0]
        self.predictions = [torch.load(each, weights_only=True).numpy() for each in folder.glob("predictions*.pt")]
        self.model = llama(tie_word_embeddings=tied)
        for weight, found in zip(self.model.parameters(), self.weights, strict=True):
            weight.data = found


@pytest.mark.parametrize(
    ("named", "options", "tied", "processes"),
    [
        ({"schedule": "zbv"}, {}, False, 2),
        ({"schedule": "1f1b"}, {"max_grad_norm": 0.0, "label_smoothing_factor": 0.1}, True, 2),
        ({"microbatches": 4, "pipeline": {"data_parallel": 2}}, {"prediction_loss_only": True}, False, 4),
    ],
    ids=["zbv", "tied", "replicas"],
)
def test_processes_train_like_one(runs: Runs, named: Any, options: Any, tied: bool, processes: int) -> None:
    options = {**_OPTIONS, **options}
    plain = runs.plain(llama(tie_word_embeddings=tied), options)
    plain.train()
    found = _Ran(runs.folder, options, named, tied=tied, processes=processes)
    assert_same(plain, found)
    assert len(found.predictions) == (0 if "prediction_loss_only" in options else processes)
    for predictions in found.predictions:
        np.testing.assert_allclose(predictions, plain.predict(data(7)).predictions, atol=1e-3)
    for file in ("model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"):
        assert (runs.folder / "ours" / "checkpoint-4" / file).is_file()


def test_a_checkpoint_has_the_states_of_all_processes(runs: Runs) -> None:
    whole = _Ran(runs.folder, _OPTIONS, {})
    resumed = _Ran(runs.folder, _OPTIONS, {}, resume=str(runs.folder / "ours" / "checkpoint-2"))
    assert all(torch.equal(*pair) for pair in zip(whole.weights, resumed.weights, strict=True))
    alone = runs.ours(llama(), _OPTIONS, "alone")
    alone.train(resume_from_checkpoint=str(runs.folder / "ours" / "checkpoint-2"))
    losses = [[each["loss"] for each in history(run) if "loss" in each] for run in (whole, alone)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_a_batch_that_no_process_can_train_is_refused(runs: Runs) -> None:
    words = [_HERE, str(runs.folder), *map(json.dumps, ({**_OPTIONS, "dataloader_drop_last": False}, {"microbatches": 4}, False, None))]
    for code, _, errors in run_all(_SCRIPT, *words):
        assert code != 0
        assert "a batch has 2 samples, fewer than the 4 microbatches of the 2 processes: give dataloader_drop_last=True" in errors
