"""Properties of traces of other systems as schedules with measured times.

tests/interop/data has traces of torch.distributed.pipelining, recorded by tests/interop/record_torch_traces.py.
"""
import json
import pathlib
import random

import program

DATA = pathlib.Path(__file__).resolve().parents[2] / "interop/data"
RECORDED = {"torch_1f1b": 4, "torch_gpipe": 2, "torch_interleaved_1f1b": 2, "torch_zero_bubble": 2}  # ranks of recorded runs
RULE = """events:
  - match: 'rank(?<rank>\\d+) fwd mb(?<microbatch>\\d+)'
    action: F
  - match: 'rank(?<rank>\\d+) bwd mb(?<microbatch>\\d+)'
    action: B
"""


def event(name, start, duration, pid=0, tid=0, **more):
    return {"ph": "X", "name": name, "ts": start, "dur": duration, "pid": pid, "tid": tid, **more}


class TraceInputTest(program.CommandTest):
    def trace(self, events, name="a.json", **more):
        self.write(name, json.dumps({"traceEvents": events, **more}))
        return name

    def lanes(self, *words):
        return self.run_ok("schedule", *words).splitlines()

    def one_f_one_b(self, ranks=2, microbatches=3, name=None):
        """Events of a 1F1B run of `ranks` processes: the actions of the simulation, in milliseconds."""
        name = name or (lambda rank, action, n: f"rank{rank} {'fwd' if action == 'F' else 'bwd'} mb{n}")
        (run,) = self.run_rows("show", "1f1b", "-p", ranks, "-m", microbatches)
        events = []
        for rank, steps in enumerate(run["time_steps"]):
            for step in steps:
                kind, number = ("F", "B")["B" in step["action"]], step["action"].split("F")[-1].split("B")[-1]
                events.append(event(name(rank, kind, number), 1e3 * step["start"] + 7e9,
                                    1e3 * (step["end"] - step["start"]), pid=rank + 100))
        return events

    def test_bubbles_of_recorded_runs_add_up(self):
        for folder, ranks in RECORDED.items():
            with self.subTest(folder=folder):
                simulated, measured = self.run_rows("show", DATA / folder)
                self.assertTrue(measured["schedule"].endswith(" (measured)"))
                self.assertLess(0.01, measured["makespan"])
                self.assertLess(measured["makespan"], 1)  # seconds
                self.assertLessEqual(simulated["makespan"], measured["makespan"])
                difference = self.run_json("diff", DATA / folder)
                for run, figures in zip((simulated, measured), difference["schedules"]):
                    use = figures["time_per_rank"]
                    total = sum(use["busy"].values()) + sum(use["idle"].values())
                    self.assertAlmostEqual(total, run["makespan"], delta=1e-6)
                    busy = sum(rank["busy"] for rank in run["per_rank"]) / ranks
                    self.assertAlmostEqual(sum(use["busy"].values()), busy, delta=1e-6)
                self.assertEqual(difference["reordered"], 0)

    def test_actions_do_not_overlap_and_start_after_their_inputs(self):
        for folder in RECORDED:
            _, measured = self.run_rows("show", DATA / folder)
            ends = {}
            for lane in measured["time_steps"]:
                for before, after in zip(lane, lane[1:]):
                    self.assertLessEqual(before["end"], after["start"] + 1e-9)
                ends.update({step["action"]: step["end"] for step in lane})
            for lane in measured["time_steps"]:
                for step in lane:
                    stage, _, number = step["action"].partition("F")
                    if number and stage != "0":
                        self.assertLessEqual(ends[f"{int(stage) - 1}F{number}"], step["end"])

    def test_clocks_of_processes_are_aligned(self):
        self.write("rule.yaml", RULE)
        for shifts in ((0, 5e4, 0), (0, -2e3, 7e6), (1e4, 0, -1e5)):
            self.trace([{**each, "ts": each["ts"] + shifts[each["pid"] - 100]} for each in self.one_f_one_b(3, 5)])
            (simulated, measured) = self.run_rows("show", "a.json", "--trace-rule", "rule.yaml")
            for lanes in zip(simulated["time_steps"], measured["time_steps"]):
                for expected, found in zip(*lanes):
                    self.assertAlmostEqual(found["start"], expected["start"], delta=1e-8)
            furthest, by = max(((rank, shifts[0] - shift) for rank, shift in enumerate(shifts)), key=lambda each: abs(each[1]))
            self.assertIn(f"that of rank {furthest} was set {abs(by) / 1e3:.3g} ms {'back' if by < 0 else 'forward'}, by the messages",
                          self.run_ok("show", "a.json", "--trace-rule", "rule.yaml", "--explain"))

    def test_half_open_pairs_and_several_pipelines_of_a_job(self):
        self.write("rule.yaml", RULE)
        events, expected = self.one_f_one_b(), self.lanes("1f1b", "-p", 2, "-m", 3)
        self.trace([half for each in events for half in (
            {**each, "ph": "B"}, {"ph": "E", "ts": each["ts"] + each["dur"], "pid": each["pid"], "tid": 0})])
        self.assertEqual(self.lanes("a.json", "--trace-rule", "rule.yaml"), expected)
        # The files come from a job with two pipelines of two ranks.
        self.write("rule.yaml", "events: [{match: fwd, action: F}, {match: bwd, action: B}]\n")
        groups = [{"pg_name": "0", "ranks": [0, 1, 2, 3]}, {"pg_name": "1", "ranks": [0, 2]}, {"pg_name": "2", "ranks": [0]}]
        (self.folder / "job").mkdir()
        for ranks, config, held in (((0, 2), groups, True), ((0, 1), groups, False), ((0, 1), [], True)):
            for i, rank in enumerate(ranks):
                self.trace([each for each in events if each["pid"] == 100 + i], f"job/{i}.json",
                           distributedInfo={"rank": rank, "world_size": 4, "pg_config": config})
            if held:
                self.assertEqual(self.lanes("job", "--trace-rule", "rule.yaml"), expected)
            else:
                self.assertIn("ranks 0, 1 of 4", self.refuse("show", "job", "--trace-rule", "rule.yaml"))

    def test_megatron(self):
        def timers(rank, kind, number):
            return "forward-compute" if kind == "F" else "backward-compute"

        self.trace(self.one_f_one_b(4, 6, timers))
        self.assertEqual(self.lanes("a.json"), self.lanes("1f1b", "-p", 4, "-m", 6))
        functions = "megatron/core/pipeline_parallel/schedules.py"
        events = self.one_f_one_b(2, 3, lambda rank, kind, number: f"{functions}({number}): "
                                  + ("forward_step" if kind == "F" else "backward_step"))
        steps = [event(f"{functions}(9): forward_backward_pipelining_without_interleaving", 7e9 - 1, 13e3, pid=pid)
                 for pid in (100, 101)]
        later = [{**each, "ts": each["ts"] + 2e4} for each in events + steps]
        self.trace(steps + events + later + [{**each, "ts": each["ts"] + 4e4} for each in events[:3]])
        expected = self.lanes("1f1b", "-p", 2, "-m", 3)
        for words in ((), ("--iteration", 0), ("--iteration", 1)):
            self.assertEqual(self.lanes("a.json", *words), expected)

    def test_megatron_interleaved(self):
        for name, chunks, microbatches in (("interleaved", 2, 4), ("interleaved", 3, 6)):
            lanes = self.lanes(name, "-p", 2, "-v", chunks, "-m", microbatches)
            (run,) = self.run_rows("show", name, "-p", 2, "-v", chunks, "-m", microbatches)
            self.trace([event("forward-compute" if "F" in step["action"] else "backward-compute", 1e3 * step["start"],
                              1e3 * (step["end"] - step["start"]), pid=rank)
                        for rank, steps in enumerate(run["time_steps"]) for step in steps])
            self.assertEqual(self.lanes("a.json", "-v", chunks), lanes)

    def test_gpu_annotations_come_first(self):
        self.write("rule.yaml", "events: [{match: '^F(?<microbatch>.)', action: F}, {match: '^B(?<microbatch>.)', action: B}]\n")
        events = []
        for rank in range(2):
            # On the CPU, both ranks launch everything at once.
            events += [event(name, 10 * i + 1, 5, pid=rank, cat="user_annotation") for i, name in enumerate(("F0", "B0"))]
            start = (100, 200)[rank], (400, 300)[rank]
            for name, at in zip(("F0", "B0"), start):
                events.append(event(name, at, 90, pid=rank, tid=7, cat="gpu_user_annotation"))
            events.append(event("F0", 150, 90, pid=rank, tid=20, cat="gpu_user_annotation"))  # NCCL's stream
        self.trace(events)
        _, measured = self.run_rows("show", "a.json", "--trace-rule", "rule.yaml")
        self.assertAlmostEqual(measured["makespan"], 390e-6)

    def test_own_traces_are_read_back(self):
        for words in (("1f1b",), ("zbv",), ("chimera",), ("dualpipev",), ("seq1f1b",), ("pipedream", "--steps", 3),
                      ("1f1b", "--pass", "vocabulary"), ("1f1b", "-p", 1), ("gpipe", "--pass", "recompute"),
                      ("1f1b", "--model", "llama-3-8b", "--device", "h100")):
            with self.subTest(words=words):
                self.run_ok("report", *words, "-o", "a.trace.json")
                (expected,) = self.run_json("show", *words)["schedules"]
                _, found = self.run_json("show", "a.trace.json")["schedules"]
                self.assertAlmostEqual(found["makespan"], expected["makespan"], delta=1e-6)
                self.assertAlmostEqual(found["bubble"], expected["bubble"], delta=1e-5)
                for lanes in zip(expected["time_steps"], found["time_steps"]):
                    self.assertEqual(*([step["action"] for step in lane] for lane in lanes))
                    for a, b in zip(*lanes):
                        if a["start"] < a["end"]:  # others are not drawn
                            self.assertAlmostEqual(a["start"], b["start"], delta=1e-6)

    def test_damaged_traces_never_crash(self):
        """Changes bytes and values of a trace. Every result is a schedule or one line."""
        self.write("rule.yaml", RULE)
        good = json.dumps({"traceEvents": self.one_f_one_b()})
        values = (None, -1, 1e300, "", "x", [], {}, True, [[[]]], {"a": {"b": []}}, 2**63, "rank0 fwd mb1")
        numbers = random.Random(5)
        for trial in range(150):
            text = good
            kind = trial % 3
            if kind == 0:
                text = text[:numbers.randrange(len(text))]
            elif kind == 1:
                at = numbers.randrange(len(text))
                text = text[:at] + numbers.choice('{}[]",:0-e\\\x00') + text[at + 1:]
            else:
                trace = json.loads(text)
                for _ in range(3):
                    numbers.choice(trace["traceEvents"])[numbers.choice(("name", "ts", "dur", "pid", "tid", "ph", "cat"))] = \
                        numbers.choice(values)
                text = json.dumps(trace)
            self.write("a.json", text)
            result = self.start("show", "a.json", "--trace-rule", "rule.yaml", "--explain", "--json")
            self.assertIn(result.returncode, (0, 2), (text, result.stderr))
            if result.returncode:
                self.assertEqual(result.stderr.count("\n"), 1, (text, result.stderr))


if __name__ == "__main__":
    program.main()
