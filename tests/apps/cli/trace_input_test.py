"""Traces of other systems as schedules with measured times: show, diff, report, simulate and schedule.

tests/interop/data has traces of torch.distributed.pipelining, recorded by tests/interop/record_torch_traces.py.
"""
import csv
import gzip
import json
import pathlib
import random
import shutil

import program

INTEROP = pathlib.Path(__file__).resolve().parents[2] / "interop"
DATA = INTEROP / "data"
# The folder of a recorded run: the lanes, or what makes them, and the number of ranks.
RECORDED = {
    "torch_1f1b": (("1f1b", "-p", 4, "-m", 6), 4),
    "torch_gpipe": ("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n", 2),  # backwards in the order of forwards
    "torch_interleaved_1f1b": ("Interleaved1F1B_p2_v2_m4.csv", 2),
    "torch_zero_bubble": ("InterleavedZeroBubble_p2_v1_m4.csv", 2),
}
RULE = """events:
  - match: 'rank(?<rank>\\d+) fwd mb(?<microbatch>\\d+)'
    action: F
  - match: 'rank(?<rank>\\d+) bwd mb(?<microbatch>\\d+)'
    action: B
"""


def event(name, start, duration, pid=0, tid=0, **more):
    return {"ph": "X", "name": name, "ts": start, "dur": duration, "pid": pid, "tid": tid, **more}


def lanes_of(text):
    return [[cell for cell in row if cell] for row in csv.reader(text.splitlines())]


class TraceInputTest(program.CommandTest):
    def trace(self, events, name="a.json", **more):
        self.write(name, json.dumps({"traceEvents": events, **more}))
        return name

    def lanes(self, *words):
        return lanes_of(self.run_ok("schedule", *words))

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

    def test_recorded_runs_have_the_lanes_that_ran(self):
        for folder, (source, ranks) in RECORDED.items():
            with self.subTest(folder=folder):
                lanes = self.lanes("--csv", DATA / folder)
                if "\n" in source:
                    expected = lanes_of(source)
                elif isinstance(source, str):
                    expected = lanes_of((INTEROP / "torch_csv" / source).read_text(encoding="utf-8"))
                else:
                    expected = self.lanes(*source)
                self.assertEqual(lanes, expected)
                self.assertEqual(len(lanes), ranks)

    def test_bubbles_of_recorded_runs_add_up(self):
        for folder, (_, ranks) in RECORDED.items():
            with self.subTest(folder=folder):
                simulated, measured = self.run_rows("show", DATA / folder)
                self.assertTrue(measured["schedule"].endswith(", measured"))
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
                text = self.run_ok("show", DATA / folder, "--explain", "--width", 100)
                self.assertEqual(text.count("warm-up"), 2)
                self.assertEqual(text.count("rank 0"), 2)

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

    def test_steps(self):
        folder = DATA / "torch_gpipe"
        (_, last), (_, first) = self.run_rows("show", folder), self.run_rows("show", folder, "--iteration", 1)
        (_, second) = self.run_rows("show", folder, "--iteration", 2)
        self.assertEqual(last["time_steps"], second["time_steps"])
        self.assertNotEqual(last["time_steps"], first["time_steps"])
        self.assertIn("there is no step 9; the trace has 1 to 2", self.refuse("show", folder, "--iteration", 9))

    def test_diff_prices_algorithms_by_the_recorded_run(self):
        found = self.run_json("diff", DATA / "torch_1f1b", "1f1b")
        measured, ideal = found["schedules"]
        self.assertEqual(found["reordered"], 0)
        self.assertAlmostEqual(measured["time_per_rank"]["busy"]["F"], ideal["time_per_rank"]["busy"]["F"], delta=5e-3)
        self.assertLess(ideal["makespan"], measured["makespan"])
        found = self.run_json("diff", DATA / "torch_1f1b", "gpipe", "--cost", "1,1,1")
        self.assertEqual(found["schedules"][1]["makespan"], 27)
        recorded, other = self.run_rows("simulate", DATA / "torch_interleaved_1f1b", "interleaved:v=4")
        self.assertLess(other["makespan"], 2 * recorded["makespan"])
        self.assertEqual((other["ranks"], other["microbatches"]), (2, 4))

    def test_report(self):
        self.run_ok("report", DATA / "torch_zero_bubble", "-o", "a.html")
        self.run_ok("report", DATA / "torch_zero_bubble", "-o", "a.trace.json")
        names = {each["args"]["name"] for each in json.loads((self.folder / "a.trace.json").read_text())["traceEvents"]
                 if each["name"] == "process_name"}
        self.assertEqual(len(names), 2)

    def test_rules(self):
        expected = self.lanes("1f1b", "-p", 2, "-m", 3)
        self.write("rule.yaml", RULE)
        self.trace(self.one_f_one_b())
        self.assertEqual(self.lanes("a.json", "--trace-rule", "rule.yaml"), expected)
        (simulated, measured) = self.run_rows("show", "a.json:trace_rule=rule.yaml")
        self.assertAlmostEqual(measured["makespan"], 12e-3)
        self.assertAlmostEqual(simulated["makespan"], 12e-3)
        self.assertAlmostEqual(measured["bubble"], 0.25)
        # Ranks by process: no group is needed. Python's spelling of groups. Half-open pairs of B and E.
        self.write("rule.yaml", RULE.replace("(?<rank>\\d+)", "\\d").replace("?<micro", "?P<micro"))
        self.assertEqual(self.lanes("a.json", "--trace-rule", "rule.yaml"), expected)
        halves = []
        for each in self.one_f_one_b():
            halves.append({**each, "ph": "B"})
            halves.append({"ph": "E", "ts": each["ts"] + each["dur"], "pid": each["pid"], "tid": 0})
        self.trace(halves)
        self.assertEqual(self.lanes("a.json", "--trace-rule", "rule.yaml"), expected)
        # Without microbatches, and ranks by thread.
        self.write("rule.yaml", "events: [{match: fwd, action: F}, {match: bwd, action: B}]\nrank: thread\n")
        self.trace([{**each, "tid": each["pid"], "pid": 1} for each in self.one_f_one_b()])
        self.assertEqual(self.lanes("a.json", "--trace-rule", "rule.yaml"), expected)
        self.write("a.yaml", "csv: a.json\ntrace_rule: rule.yaml\n")
        self.assertEqual(len(self.run_rows("show", "a.yaml")), 2)

    def test_clocks_of_processes_are_aligned(self):
        self.write("rule.yaml", RULE)
        for shifts in ((0, 5e4, 0), (0, -2e3, 7e6), (1e4, 0, -1e5)):
            self.trace([{**each, "ts": each["ts"] + shifts[each["pid"] - 100]} for each in self.one_f_one_b(3, 5)])
            (simulated, measured) = self.run_rows("show", "a.json", "--trace-rule", "rule.yaml")
            for lanes in zip(simulated["time_steps"], measured["time_steps"]):
                for expected, found in zip(*lanes):
                    self.assertAlmostEqual(found["start"], expected["start"], delta=1e-8)

    def test_a_bare_list_and_gzip(self):
        self.write("rule.yaml", RULE)
        self.write("a.json", json.dumps(self.one_f_one_b()))
        expected = self.lanes("1f1b", "-p", 2, "-m", 3)
        self.assertEqual(self.lanes("a.json", "--trace-rule", "rule.yaml"), expected)
        (self.folder / "b.json.gz").write_bytes(gzip.compress((self.folder / "a.json").read_bytes()))
        self.assertEqual(self.lanes("b.json.gz", "--trace-rule", "rule.yaml"), expected)
        (self.folder / "b.json.gz").write_bytes(gzip.compress((self.folder / "a.json").read_bytes())[:-20])
        self.assertIn("gzip", self.refuse("show", "b.json.gz"))

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

    def test_folder_sorts_files_by_rank(self):
        shutil.copytree(DATA / "torch_1f1b", self.folder / "run")
        for rank, name in enumerate(("z", "y", "x", "w")):
            (self.folder / "run" / f"rank{rank}.json").rename(self.folder / "run" / f"{name}.json")
        self.assertEqual(self.lanes("run"), self.lanes("--csv", DATA / "torch_1f1b"))

    def test_some_ranks_are_no_pipeline(self):
        for folder, (_, ranks) in RECORDED.items():
            for rank in range(ranks):
                message = self.refuse("show", DATA / folder / f"rank{rank}.json")
                self.assertIn(f"rank {rank} of {ranks}: not all ranks of a pipeline", message)
        shutil.copytree(DATA / "torch_1f1b", self.folder / "run")
        for rank in (3, 0):
            (self.folder / "run" / f"rank{rank}.json").unlink()
            self.assertIn("not all ranks of a pipeline", self.refuse("show", "run"))
        # The file belongs to a job with two pipelines of two ranks.
        self.write("rule.yaml", "events: [{match: fwd, action: F}, {match: bwd, action: B}]\n")
        events = self.one_f_one_b()
        groups = [{"pg_name": "0", "ranks": [0, 1, 2, 3]}, {"pg_name": "1", "ranks": [0, 2]}, {"pg_name": "2", "ranks": [0]}]
        (self.folder / "job").mkdir()
        for ranks, config, held in (((0, 2), groups, True), ((0, 1), groups, False), ((0, 1), [], True)):
            for i, rank in enumerate(ranks):
                self.trace([each for each in events if each["pid"] == 100 + i], f"job/{i}.json",
                           distributedInfo={"rank": rank, "world_size": 4, "pg_config": config})
            if held:
                self.assertEqual(self.lanes("job", "--trace-rule", "rule.yaml"), self.lanes("1f1b", "-p", 2, "-m", 3))
            else:
                self.assertIn("ranks 0, 1 of 4", self.refuse("show", "job", "--trace-rule", "rule.yaml"))
        # Files that say nothing of their ranks.
        self.trace([each for each in events if each["pid"] == 100])
        self.assertIn("those of one rank (", self.refuse("show", "a.json", "--trace-rule", "rule.yaml"))

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
        self.run_ok("report", "1f1b", "-o", "a.trace.json")
        self.assertIn("makespan 33,", self.run_ok("show", "a.trace.json"))
        self.run_ok("report", DATA / "torch_1f1b", "-o", "b.trace.json")  # simulated and measured
        self.assertAlmostEqual(self.run_json("show", "b.trace.json")["schedules"][1]["makespan"],
                               self.run_json("show", DATA / "torch_1f1b")["schedules"][1]["makespan"], delta=1e-6)
        self.run_ok("report", "1f1b", "zbv", "-o", "c.trace.json")
        self.assertIn("c.trace.json: the trace has 2 schedules (1f1b; zbv)", self.refuse("show", "c.trace.json"))
        self.assertIn("--iteration has no effect", self.refuse("show", "a.trace.json", "--iteration", 1))

    def test_a_training_run_is_read_back(self):
        self.run_ok("report", "1f1b", "-p", 2, "-o", "a.trace.json")
        run = self.folder / "runs" / "a"
        run.mkdir(parents=True)
        self.run_ok("schedule", "1f1b", "-p", 2, "--output", run / "schedule.csv")
        self.assertIn("there is no runs/a/trace.json yet", self.refuse("show", "runs/a"))
        shutil.copy(self.folder / "a.trace.json", run / "trace.json")
        (run / "config.json").write_text("{}")
        for path in ("runs/a", "runs/a/", "runs/a/trace.json"):
            self.assertEqual(self.run_json("show", path)["schedules"][1]["makespan"], 27)

    def test_damaged_own_traces_are_refused(self):
        self.run_ok("report", "1f1b", "-p", 2, "-m", 2, "-o", "a.trace.json")
        good = json.loads((self.folder / "a.trace.json").read_text())

        def refuse(change):
            trace = json.loads(json.dumps(good))
            change(trace)
            self.write("b.trace.json", json.dumps(trace))
            return self.refuse("show", "b.trace.json")

        def describe(**more):
            def change(trace):
                own = json.loads(trace["otherData"]["penstock"])
                own.update({key: value for key, value in more.items() if key in own})
                own["runs"][0].update({key: value for key, value in more.items() if key not in own})
                trace["otherData"]["penstock"] = json.dumps(own)
            return change

        actions = [i for i, each in enumerate(good["traceEvents"]) if each["ph"] == "X"]
        self.assertIn("has no event of", refuse(lambda trace: trace["traceEvents"].pop(actions[0])))
        self.assertIn("its schedule has no", refuse(lambda trace: trace["traceEvents"].append(trace["traceEvents"][actions[0]])))
        self.assertIn("after an action that ends", refuse(lambda trace: trace["traceEvents"][actions[-1]].update(ts=0)))
        self.assertIn("takes -1", refuse(lambda trace: trace["traceEvents"][actions[0]].update(dur=-1)))
        self.assertIn("not a JSON object", refuse(lambda trace: trace["otherData"].update(penstock="[]")))
        self.assertIn("has no runs", refuse(lambda trace: trace["otherData"].update(
            penstock='{"time_unit": "s", "microseconds": 1, "runs": []}')))
        for change in (describe(schedule="x"), describe(microbatches=-1), describe(slices=0), describe(weights="x"),
                       describe(replicas=1.5), describe(microseconds="x"), describe(time_unit=3)):
            self.assertIn("b.trace.json", refuse(change))

    def test_mistakes_are_explained(self):
        self.write("rule.yaml", RULE)
        good = self.one_f_one_b()

        def refuse(events, *words, rule=("--trace-rule", "rule.yaml")):
            self.trace(events)
            return self.refuse("show", "a.json", *rule, *words)

        self.assertIn("no event is an action", refuse(good, rule=()))
        self.assertIn("a.json: no event matches the rule rule.yaml; the first names are: 'x'", refuse([event("x", 0, 1)]))
        self.assertIn("has 0 events, not one", refuse(good[1:]))
        self.assertIn("has 2 events, not one", refuse(good + [event("rank0 bwd mb0", 9e9, 1)]))
        self.assertIn("starts before", refuse([{**each, "dur": 5e3} for each in good]))
        self.assertIn("not a time and a duration", refuse([{**good[0], "dur": -1}, *good[1:]]))
        self.assertIn("not a time and a duration", refuse([{**good[0], "ts": "1"}, *good[1:]]))
        self.assertIn("not a number from 0", refuse([event("rank0 fwd mb99999999999", 0, 1), *good]))
        self.assertIn("events", refuse([event("rank0 fwd mb16777215", 0, 1), *good]))
        self.assertIn("--ranks 3: a.json has 2", refuse(good, "-p", 3))
        self.assertIn("at most 65536 stages", refuse(good, "-v", 2000000000))
        self.assertIn("2F0 has 0 events, not one", refuse(good, "-v", 3))
        self.assertIn("not one", refuse([each for each in good if "mb1" not in each["name"]]))
        self.assertIn("not a Chrome trace", self.refuse("show", self.trace_of_text("{}")))
        self.assertIn("damaged at byte", self.refuse("show", self.trace_of_text('{"traceEvents": [{')))
        self.assertIn("there is no file", self.refuse("show", "b.json"))
        self.assertIn("--trace-rule has no effect", self.refuse("show", "1f1b", "--trace-rule", "rule.yaml"))
        stage = "events: [{match: 'stage(?<stage>.) (?<microbatch>.) F', action: F}, {match: 'stage(?<stage>.) (?<microbatch>.) B', action: B}]"
        self.write("rule.yaml", stage)
        self.assertIn("stage 0 runs on", refuse([event("stage0 0 F", 1, 1, pid=pid) for pid in (1, 2)]))
        self.assertIn("stage 0 has no event", refuse([event(f"stage{n} 0 F", 1, 1, pid=n) for n in (1, 2)]))

    def trace_of_text(self, text):
        self.write("a.json", text)
        return "a.json"

    def test_mistakes_in_rules_are_explained(self):
        self.trace(self.one_f_one_b())
        for text, expected in (
                ("", "rule"), ("event: []\n", "did you mean 'events'?"), ("events: 3\n", "line 1: events: a list"),
                ("events: [{match: a}]\n", "say what the event is"),
                ("events: [{match: a, action: F, catgory: b}]\n", "catgory"),
                ("events: [{match: a, action: G}]\n", "none of F, B, I and W"),
                ("events: [{match: '(', action: F}]\n", "not a regular expression"),
                ("events: [{match: '(?<stag>.)', action: F}]\n", "did you mean 'stage'?"),
                ("events: [{match: '(?<stage', action: F}]\n", "no closing"),
                ("events: [{match: a, action: F}]\nrank: files\n", "did you mean 'file'?"),
                ("events: [{match: a, action: F}]\nrank: group\n", "has no group"),
                ("events: [{match: a, action: F}]\nstep: '(?<stage>.)'\n", "line 2: step:")):
            with self.subTest(text=text):
                self.write("rule.yaml", text)
                message = self.refuse("show", "a.json", "--trace-rule", "rule.yaml")
                self.assertIn(expected, message)
                self.assertIn("rule.yaml", message)
        self.assertIn("none.yaml", self.refuse("show", "a.json", "--trace-rule", "none.yaml"))

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
        self.write("a.json", "[" * 100000)
        self.refuse("show", "a.json")


if __name__ == "__main__":
    program.main()
