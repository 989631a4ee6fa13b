"""Overlapped reductions, checkpoints, ramp-up, the command, and what is refused."""

from __future__ import annotations

import dataclasses
import pathlib
import types
from typing import Any

import penstock
import pytest
import worlds
from penstock.megatron import lanes
from penstock.megatron.checks import refusals
from tiny_gpt import Case

V = {"pp": 2, "vp": 2}


@pytest.mark.parametrize("case", [Case("zb-h1", pp=2), Case("zbv", **V), Case("dualpipev", **V)], ids=lambda case: case.schedule)
def test_reductions_begin_during_the_step(case: Case) -> None:
    case = dataclasses.replace(case, dp=2, overlap=True, bucket=4000, steps=3)
    for steps in worlds.run(case, "runs.reductions"):
        # In the first step, Megatron counts the gradients of each bucket and reduces at the end.
        for done in steps[1:]:
            begun = [position for position, what in enumerate(done) if what == "reduction"]
            assert begun and begun[-1] < done.index("end")
            if case.vp > 1:  # the gradients of one chunk are reduced while the other one computes
                assert any(what in "FIWB" for what in done[begun[0] :])


@pytest.mark.parametrize(
    "case",
    [Case("zbv,passes=offload", **V, frees=True), Case("zb-h1,passes=offload", pp=2, recompute="full", experts=4)],
    ids=lambda case: case.schedule,
)
def test_offloaded_tensors_leave_and_return(case: Case) -> None:
    sizes = [size for result in worlds.run(dataclasses.replace(case, steps=1), "runs.offloaded") for size in result]
    assert sizes
    for before, after, again in sizes:
        assert before > 0 and after < before / 8 and again == before, sizes


@pytest.mark.parametrize(("schedule", "where"), [("zbv", "_run_input_backward"), ("1f1b", "_run_backward")])
def test_recomputation_runs_in_its_action(schedule: str, where: str) -> None:
    case = Case(schedule, pp=2, vp=2 if schedule == "zbv" else 1, recompute="full", steps=1)
    times = case.layers // case.pp * case.microbatches
    assert worlds.run(case, "runs.layers_run") == [{"_run_forward": times, where: times}] * 2
    case = dataclasses.replace(case, schedule=f"{schedule},passes=recompute")
    assert worlds.run(case, "runs.layers_run") == [{"_run_forward": times, "_recompute": times}] * 2


def test_gradients_of_grouped_experts_are_divided() -> None:
    case = Case("zb-h1", pp=2, dtype="bfloat16", experts=4, grouped=True, steps=1)
    divided = {("_run_input_backward", (True, False)), ("_run_weights", (False, True))}
    assert worlds.run(case, "runs.grouped_gradients")[0] == divided


def test_pairs_run_layer_by_layer() -> None:
    case = Case("dualpipev", **V, dp=2, ep=2, experts=4, combined=True, steps=1)
    lanes_of = penstock.schedule("dualpipev", ranks=case.pp, microbatches=case.microbatches).lanes
    pairs = sum(int((lane["op2"] != penstock.NO_OP).sum()) for lane in lanes_of)
    layers = case.layers // (case.pp * case.vp)
    assert sum(worlds.run(case, "runs.layers_run_together")) == pairs * layers * case.dp
    assert sum(worlds.run(dataclasses.replace(case, combined=False), "runs.layers_run_together")) == 0


@pytest.mark.parametrize(
    ("ops", "records", "message"),
    [
        ({"F", "I", "OFFLOAD", "RECOMPUTE"}, False, "x has OFFLOAD and RECOMPUTE actions, but with overlap_moe"),
        ({"F", "B"}, True, "x is recorded, but with overlap_moe"),
    ],
)
def test_combined_pairs_are_alone(ops: set[str], records: bool, message: str) -> None:
    config = types.SimpleNamespace(overlap_moe_expert_parallel_comm=True, recompute_granularity="selective")
    with pytest.raises(penstock.Error, match=message):
        refusals.refuse_actions("x", ops, config, records=records)
    config.overlap_moe_expert_parallel_comm = False
    refusals.refuse_actions("x", ops, config, records=records)


def test_structures_of_losses_are_sent_once() -> None:
    expected = worlds.run(Case(evaluate=1), "runs.ramped")[-1]
    assert worlds.run(Case("zbv", **V, evaluate=1), "runs.ramped")[-1] == pytest.approx(expected, rel=1e-6)
    assert worlds.run(Case("zbv", **V), "runs.structures_sent") == [2, 0]  # of training and of evaluation


@pytest.mark.parametrize("before", [True, False], ids=["model", "step"])
def test_what_one_rank_refuses_ends_all(before: bool) -> None:
    with pytest.raises(worlds.Failed) as failed:
        worlds.run(Case("zbv", **V), "runs.refused_on_one", (before,))
    reason = "the model provider takes no" if before else "moe_paged_stash needs"
    begin = "penstock._core.Error: "
    lines = [line for line in str(failed.value).splitlines() if line.startswith(begin)]
    assert sorted(line.split(reason)[0] for line in lines) == [begin, f"{begin}pipeline rank 1: "]


def test_parameters_start_as_megatrons() -> None:
    """Also the head's copy of the embedding, which Megatron copies between ranks."""
    for schedule, vp in (("zb-h1", 1), ("zbv", 2)):
        results = worlds.run(Case(schedule, pp=2, vp=vp, keep=True, steps=0))
        copies = [
            value
            for result in results
            for (_, _, name), value in result["parameters"].items()
            if name in ("embedding.word_embeddings.weight", "output_layer.weight")
        ]
        assert len(copies) == 2 and copies[0].equal(copies[1]) and copies[0].abs().sum() > 0


def test_checkpoints_fit_any_schedule(tmp_path: pathlib.Path) -> None:
    folder = str(tmp_path / "saved")
    worlds.run(Case("interleaved", **V, dtype="bfloat16", save=folder))
    after = {"dtype": "bfloat16", "load": folder, "first_step": 2, "keep": True}
    expected = worlds.merged(Case(pp=2, **after))
    for case in (Case("zbv", **V, **after), Case("zb-h1", pp=2, **after), Case("zbv", pp=4, vp=2, **after)):
        found = worlds.differences(worlds.merged(case), expected)
        assert found["losses"] == found["gradients"] == 0, (case, found)
    worlds.run(Case("zbv", **V, **after, save=str(tmp_path / "again")))
    alone = worlds.merged(Case(**{**after, "load": str(tmp_path / "again"), "first_step": 4}))
    pipelined = worlds.merged(Case("zb-h1", pp=2, **{**after, "load": str(tmp_path / "again"), "first_step": 4}))
    assert alone["losses"] == pytest.approx(pipelined["losses"], rel=1e-3)  # 16 bits


def test_schedules_follow_the_number_of_microbatches() -> None:
    expected = worlds.run(Case(), "runs.ramped")[-1]
    for case in (Case("zb-h1", pp=2), Case("zbv", **V), Case("dualpipev", **V), Case("zb-auto", pp=2)):
        found = worlds.run(case, "runs.ramped")[-1]
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "case",
    [Case("zb-h1", pp=2), Case("zbv", **V), Case("dualpipev", **V), Case("1f1b,passes=offload", pp=2)],
    ids=lambda case: case.schedule,
)
@pytest.mark.parametrize("options", [{}, {"dp": 2, "overlap": True, "bucket": 4000, "steps": 3}], ids=["alone", "overlap"])
def test_layers_with_queues_of_weight_gradients(case: Case, options: dict[str, Any]) -> None:
    case = dataclasses.replace(case, **options)
    found = worlds.differences(worlds.merged(case, "runs.queued", (True,)), worlds.reference(worlds.alone(case)))
    assert found["gradients"] < 3e-6 and found["losses"] < 5e-7, found


def test_layers_that_delay_nothing_are_refused() -> None:
    with pytest.raises(worlds.Failed, match="_QueuedLinear of Transformer Engine computes weight gradients in I"):
        worlds.run(Case("zb-h1", pp=2), "runs.queued", (False,))


SCRIPT = """
import sys
import tiny_gpt
assert sys.argv[1:] == ["--lr", "1"], sys.argv
tiny_gpt.RESULT = tiny_gpt.run(tiny_gpt.COMMAND)
"""
PRETRAIN = """
import tiny_gpt
from megatron.core import parallel_state
from megatron.training import pretrain

def datasets(samples, vp_stage=None):
    first = parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=vp_stage)
    return first, parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=vp_stage)

def provider(pre_process=True, post_process=True, vp_stage=None, config=None, pg_collection=None):
    return tiny_gpt.model_provider(tiny_gpt.COMMAND, config)(pre_process, post_process, vp_stage, config, pg_collection)

tiny_gpt.RESULT = pretrain(datasets, provider, None, None)
"""


@pytest.mark.parametrize("schedule", ["zb-h1", "interleaved", "zb-auto,costs=costs.yaml", "own.csv"])
def test_command_runs_a_script(schedule: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "costs.yaml").write_text(penstock.Costs.uniform(comm=0.1).to_yaml())
    penstock.schedule("zb-h1", ranks=2, microbatches=8).to_csv(tmp_path / "own.csv")
    words = schedule.replace("costs.yaml", str(tmp_path / "costs.yaml")).replace("own.csv", str(tmp_path / "own.csv"))
    case = Case(pp=2, vp=2 if schedule == "interleaved" else 1)
    result = worlds.run(case, "runs.command", ([words, str(tmp_path / "script.py"), "--lr", "1"],))[-1]
    expected = worlds.reference(Case())
    assert result["losses"] == pytest.approx(expected["losses"], rel=1e-6)


@pytest.mark.parametrize(("schedule", "vp"), [("zb-h1", 1), ("zbv", 2)])
def test_command_places_models_of_pretrain(schedule: str, vp: int, tmp_path: pathlib.Path) -> None:
    (tmp_path / "pretrain.py").write_text(PRETRAIN)
    results = worlds.run(Case(pp=2, vp=vp), "runs.command", ([schedule, str(tmp_path / "pretrain.py")], True))
    assert results[-1]["losses"] == pytest.approx(worlds.reference(Case())["losses"], rel=1e-6)
    ends = [[(True, False), (False, True)], [(False, False), (False, False)]] if vp == 2 else [[(True, False)], [(False, True)]]
    assert [result["datasets"] for result in results] == ends


V_BY_HAND = "build models with the provider"


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case("zbv", pp=2, vp=2, wrapped=False, tied=False), V_BY_HAND),
        (Case("zbv", pp=4, vp=2, wrapped=False, layers=16, tied=False), V_BY_HAND),
        (Case("hanayo", pp=2, vp=4, wrapped=False, tied=False), V_BY_HAND),
        (Case("interleaved,chunks=2", pp=2), "the model 1 stage"),
        (Case("zbv", pp=2), "set --num-virtual-stages-per-pipeline-rank 2"),
        (Case("zb-h1", pp=2, vp=2), "set no virtual pipeline stages"),
        (Case("dualpipe", pp=2, vp=2), "dualpipe has 2 chains of stages"),
        (Case("pipedream", pp=2), "pipedream has weights that are stashed"),
        (Case("seq1f1b,slices=2", pp=2), "slices: schedules of penstock.megatron have the options"),
        (Case("no-such-name", pp=2), "no-such-name"),
        (Case("zbv,waves", pp=2), "'waves' is not option=value"),
        (Case("zbv,passes=no-such-pass", **V), "no-such-pass"),
        (Case("zb-h1,passes=recompute", pp=2), "set --recompute-granularity"),
        (
            Case("zb-h1,passes=recompute", pp=2, recompute="full", config=(("distribute_saved_activations", True),)),
            "turn distribute_saved_activations off",
        ),
        (Case("interleaved,chunks=x", pp=2), "chunks=x: give a whole number"),
        *[
            (Case("zb-h1", pp=2, config=((name, True),)), f"{name} needs a schedule of Megatron's own")
            for name in ("hybrid_context_parallel", "fine_grained_activation_offloading", "moe_paged_stash")
        ],
        (
            Case("1f1b", pp=2, config=(("num_microbatches_with_partial_activation_checkpoints", 1),)),
            "needs a schedule of Megatron's own",
        ),
        (Case("zb-h1", pp=2, config=(("pipeline_dtype", "bfloat16"),)), "set pipeline_dtype"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(case: Case, message: str) -> None:
    with pytest.raises(worlds.Failed, match="penstock._core.Error") as failed:
        worlds.run(case)
    lines = [line for line in str(failed.value).splitlines() if line.startswith("penstock._core.Error: ")]
    assert any(message in line for line in lines), lines


@pytest.mark.parametrize("name", [*refusals.CONFIG, "cuda_graph_impl", "gtp_weight_remat_size"])
def test_options_that_own_the_schedule_are_refused(name: str) -> None:
    value = {"cuda_graph_impl": "local", "gtp_weight_remat_size": 2}.get(name, True)
    with pytest.raises(penstock.Error, match=rf"^{name}.* needs a schedule of Megatron's own: .*; turn it off"):
        refusals.refuse_config(types.SimpleNamespace(**{name: value}))
    refusals.refuse_config(
        types.SimpleNamespace(**{name: None}, cuda_graph_impl="none", gtp_weight_remat_size=1)
        if name not in ("cuda_graph_impl", "gtp_weight_remat_size")
        else types.SimpleNamespace()
    )


def test_messages_of_all_schedules_complete_also_where_they_block() -> None:
    for algorithm in penstock.schedules():
        for ranks in (2, 4, 6):
            schedule = penstock.schedule(algorithm.name, ranks=ranks, microbatches=12)
            if schedule.replicas == schedule.slices == schedule.steps == 1 and schedule.weight_policy == "flush":
                lanes.Lanes(schedule)  # runs the messages


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1",
            "1RECV_F1,1RECV_F0,1F0,1F1,1B0,1B1,1SEND_B0,1SEND_B1",
            "rank 0 waits at 0SEND_F0 forever",
        ),
        ("0F0,0F1,0I0,0I1,0W1,0W0", "1F0,1F1,1B0,1B1", "stage 0 has its W in another order"),
        ("0F1,0F0,0B0,0B1", "1F1,1F0,1B0,1B1", "stage 0 runs forwards out of the order"),
        ("0F0,0F1,0B0,0B1,0REDUCE_GRAD", "1F0,1F1,1B0,1B1,1REDUCE_GRAD", "has REDUCE_GRAD actions"),
    ],
)
def test_schedules_that_cannot_run_are_refused(first: str, second: str, message: str) -> None:
    with pytest.raises(penstock.Error, match=message):
        lanes.Lanes(penstock.Schedule([0, 1], [first.split(","), second.split(",")]))


@pytest.mark.parametrize("places", [[0, 1, 1, 1], [0, 0, 1, 1]])
def test_placements_that_megatron_has_not_are_refused(places: list[int]) -> None:
    actions: dict[int, list[str]] = {0: [], 1: []}
    for op, order in (("F", range(len(places))), ("B", reversed(range(len(places))))):
        for stage in order:
            actions[places[stage]].append(f"{stage}{op}0")
    with pytest.raises(penstock.Error, match="places stages on ranks"):
        lanes.Lanes(penstock.Schedule(places, list(actions.values())))


def moved(name: str, ranks: list[int], folder: pathlib.Path) -> str:
    """Writes a schedule whose rank r runs as rank ``ranks[r]``."""
    given = penstock.schedule(name, ranks=len(ranks), microbatches=8)
    actions = [given.texts(ranks.index(rank)) for rank in range(len(ranks))]
    penstock.Schedule([ranks[rank] for rank in given.rank_of_stage], actions, microbatches=8).to_csv(folder / "own.csv")
    return str(folder / "own.csv")


@pytest.mark.parametrize(
    ("name", "ranks"), [("zb-h1", [1, 0]), ("zbv", [1, 0]), ("zbv", [2, 0, 3, 1]), ("interleaved", [1, 2, 0, 3])]
)
def test_stages_may_be_on_any_ranks(name: str, ranks: list[int], tmp_path: pathlib.Path) -> None:
    vp, tied = (1, False) if name == "zb-h1" else (2, name == "zbv")
    case = Case(moved(name, ranks, tmp_path), pp=len(ranks), vp=vp, tied=tied, per_token=True, evaluate=2)
    found = worlds.differences(worlds.merged(case), worlds.reference(worlds.alone(case)))
    assert found["gradients"] < 3e-6 and max(found["losses"], found["evaluations"]) < 5e-7, found


def test_tied_embeddings_need_one_rank_or_both_ends(tmp_path: pathlib.Path) -> None:
    with pytest.raises(worlds.Failed, match="starts on rank 1 and ends on rank 0, where Megatron cannot share"):
        worlds.run(Case(moved("zb-h1", [1, 0], tmp_path), pp=2))


@pytest.mark.parametrize(("microbatches", "ranks"), [(6, 2), (8, 4)])
def test_files_for_other_numbers_are_refused(microbatches: int, ranks: int, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "own.csv")
    penstock.schedule("1f1b", ranks=ranks, microbatches=microbatches).to_csv(path)
    with pytest.raises(worlds.Failed, match=r"own|1f1b is for (6 microbatches|4 pipeline ranks)"):
        worlds.run(Case(path, pp=2))
