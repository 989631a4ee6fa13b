"""Layouts of Megatron-LM: what is written, that it is read back, and what is refused."""

from __future__ import annotations

import itertools

import pytest

import penstock
from penstock import megatron


def sizes(text: str, kind: str = "t") -> list[int]:
    return [stage.count(kind) for stage in megatron.parse(text)]


@pytest.mark.parametrize(
    ("layers", "stages", "text"),
    [(1, 1, "EtL"), (4, 1, "Et*4,L"), (5, 5, "Et|(t|)*3,tL"), (32, 4, "Et*8|(t*8|)*2,t*8,L"), (30, 4, "Et*8|t*8|t*7|t*7,L")],
)
def test_divides_evenly(layers: int, stages: int, text: str) -> None:
    assert megatron.layout(layers, stages) == text


def test_reads_what_megatron_documents() -> None:
    deepseek = megatron.parse("Et*3|(tt|)*29,m|L")
    assert deepseek == ["Ettt", *["tt"] * 29, "m", "L"]
    assert megatron.parse("Ettt|(tt|)*29,m|L") == deepseek
    assert megatron.parse("E|(t|)*2tL") == ["E", "t", "t", "tL"]


def slowest(text: str, costs: list[float], embedding: float, loss: float) -> float:
    left = iter(costs)
    of = {"E": lambda: embedding, "L": lambda: loss, "t": lambda: next(left), "m": lambda: costs[-1]}
    return max(sum(of[kind]() for kind in stage) for stage in megatron.parse(text))


@pytest.mark.parametrize(("embedding", "loss"), [(0, 0), (0.5, 2.0), (3.0, 5.0)])
def test_no_split_is_faster(embedding: float, loss: float) -> None:
    costs = [1.0, 3.0, 2.0, 2.0, 1.0, 4.0, 1.0]
    for stages in range(1, 6):
        text = megatron.layout(7, stages, costs=costs, embedding=embedding, loss=loss)
        assert len(megatron.parse(text)) == stages and sum(sizes(text)) == 7
        items = [embedding, *costs, loss]
        best = min(
            max(sum(items[begin:end]) for begin, end in itertools.pairwise((0, *cuts, len(items))))
            for cuts in itertools.combinations(range(1, len(items)), stages - 1)
        )
        assert slowest(text, costs, embedding, loss) == best


def test_costly_loss_has_few_layers_beside_it() -> None:
    assert sizes(megatron.layout(126, 16, loss=2)) == [8] * 15 + [6]


def test_prediction_layers_stay_together() -> None:
    text = megatron.layout(61, 32, loss=1, mtp=2)
    assert sum(sizes(text, "m")) == 2 and max(sizes(text, "m")) == 2


def test_sizes_of_the_cost_model() -> None:
    text = megatron.layout(32, 8, costs="llama-3-8b")
    assert sum(sizes(text)) == 32 and sizes(text)[-1] < 4  # its head is as long as two layers
    costs = penstock.Costs.per_layer([2, 3], forward=[1.0, 4.0])
    assert sizes(megatron.layout(5, 2, costs=costs)) == [3, 2]
    with pytest.raises(penstock.Error, match="more than 30 layers"):
        megatron.layout(30, 8, costs="llama-3-8b")
    with pytest.raises(penstock.Error, match="32 layers"):
        megatron.layout(33, 8, costs="llama-3-8b")


@pytest.mark.parametrize("text", ["tL", "Et", "EtLt", "Emt L", "EEtL", "Etx|L", "Et*|L", "", "E|L"])
def test_refuses_what_megatron_refuses(text: str) -> None:
    with pytest.raises(penstock.Error, match="layout") as caught:
        megatron.parse(text)
    assert "\n" not in str(caught.value)


def test_refuses_what_cannot_be_divided() -> None:
    for arguments in ({"layers": 3, "stages": 4}, {"layers": 0, "stages": 1}):
        with pytest.raises(penstock.Error, match="give at least"):
            megatron.layout(**arguments)
    with pytest.raises(penstock.Error, match="2 values for 3 layers"):
        megatron.layout(3, 2, costs=[1, 2])
    with pytest.raises(penstock.Error, match="include embedding and loss"):
        megatron.layout(32, 2, costs="llama-3-8b", loss=1)


def test_megatron_itself_reads_it() -> None:
    layouts = pytest.importorskip("megatron.core.transformer.pipeline_parallel_layer_layout")
    for text in (megatron.layout(61, 32, mtp=1, loss=2), megatron.layout(30, 4)):
        read = layouts.PipelineParallelLayerLayout.parse_str_to_list(text)
        letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
        assert ["".join(letters[kind.name] for kind in of) for of in read] == megatron.parse(text)
