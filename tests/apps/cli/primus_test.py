"""Primus's configurations run unchanged with the same makespans; its dumps are read and written.

primus_figures.json has the figures of AMD Primus's simulator for configurations whose schedules it generates
correctly: class, pp_size, vpp_size, micro_batches, further keys, [fwd, bwd, wgrad] times, step time, memory.
"""
import json
import pathlib

import program

FIGURES = pathlib.Path(__file__).with_name("primus_figures.json")
CLASSES = "primus.core.pipeline_parallel.scheduler.algorithms."
EXAMPLE = """
fwd_time: 1000
bwd_time: 1000
wgrad_time: 1000

print_simulation_result: true

output_dir: ./pp_result

schedulers:
  - {name: basic_1f1b, class: %(c)sbasic_1f1b.Schedule1F1B, pp_size: 8, vpp_size: 1, micro_batches: 32}
  - {name: zerobubble, class: %(c)szerobubble.ScheduleZeroBubble, pp_size: 8, vpp_size: 1, micro_batches: 32}
  - name: interleaved_1f1b
    class: %(c)sinterleaved_1f1b.ScheduleInterleaved1F1B
    pp_size: 8
    vpp_size: 2
    micro_batches: 32
  - {name: zbv-formatted, class: %(c)szbv_formatted.ScheduleZBVFormatted, pp_size: 8, vpp_size: 2, micro_batches: 32}
  - name: v-half
    class: %(c)szbv_greedy.ScheduleZBVGreedy
    pp_size: 8
    vpp_size: 2
    micro_batches: 32
    memory_config: half
  - name: my-v-min
    class: %(c)szbv_greedy.ScheduleZBVGreedy
    pp_size: 8
    vpp_size: 2
    micro_batches: 32
    memory_config: min
  - name: zb-heuristic-mem8
    class: %(c)szerobubble_heuristic.ScheduleZeroBubbleHeuristic
    pp_size: 8
    vpp_size: 1
    micro_batches: 32
    cost_f: 1000
    cost_b: 1000
    cost_w: 1000
    cost_comm: 10
    max_mem: 8
""" % {"c": CLASSES}
BY_NAME = {"1f1b": 117, "1f1b-interleaved": 106.5, "zero-bubble": 103, "zero-bubble-heuristic": 103,
           "zbv-formatted": 99.5, "v-half": 104.5, "v-min": 109}


class PrimusTest(program.CommandTest):
    def config(self, **keys):
        return self.write("config.yaml", json.dumps(
            {"fwd_time": 1000, "bwd_time": 1000, "wgrad_time": 1000, **keys}))

    def entry(self, **keys):
        return {"name": "1f1b", "pp_size": 4, "vpp_size": 1, "micro_batches": 8, **keys}

    def test_the_example_of_primus_runs_unchanged(self):
        rows = self.run_rows("simulate", self.write("pp_simulation.yaml", EXAMPLE))
        self.assertEqual([row["makespan"] for row in rows],
                         [117e3, 103e3, 106.5e3, 99.5e3, 104.5e3, 109e3, 103e3])
        self.assertEqual([row["peak_memory"] for row in rows[:6]], [8, 8, 11.5, 8, 5, 4])
        self.assertEqual([row["schedule"] for row in rows][:2], ["basic_1f1b", "zerobubble"])
        dump = json.loads((self.folder / "pp_result/my-v-min/pp_rank_7.json").read_text())
        self.assertEqual(dump["0"]["total"], rows[5]["per_rank"][7]["last_end"])
        self.assertIn("pp_result", self.run_ok("simulate", "pp_simulation.yaml"))

    def test_figures_match_those_of_primus(self):
        figures = json.loads(FIGURES.read_text())
        self.assertGreater(len(figures), 250)
        for times in ([1000, 1000, 1000], [1000, 1200, 801]):
            chosen = [row for row in figures if row[5] == times]
            entries = [{"name": str(number), "class": CLASSES + row[0], "pp_size": row[1], "vpp_size": row[2],
                        "micro_batches": row[3], **row[4]} for number, row in enumerate(chosen)]
            config = self.config(schedulers=entries, bwd_time=times[1], wgrad_time=times[2])
            for row, ours in zip(chosen, self.run_rows("simulate", config), strict=True):
                if row[0].endswith("Heuristic"):  # ours is another search within the same memory
                    self.assertLessEqual(ours["makespan"], row[6], row)
                    self.assertLessEqual(ours["peak_memory"], row[4].get("max_mem", row[3]), row)
                    continue
                self.assertEqual(ours["makespan"], row[6], row)
                if "Interleaved" not in row[0]:  # whose memory Primus overestimates
                    self.assertEqual(ours["peak_memory"], row[7], row)

    def test_algorithms_by_the_names_of_primus(self):
        for name, makespan in BY_NAME.items():
            chunks = 2 if name[0] == "v" or "v" in name or "inter" in name else 1
            entry = self.entry(name=name, pp_size=8, vpp_size=chunks, micro_batches=32)
            (row,) = self.run_rows("simulate", self.config(schedulers=[entry]))
            self.assertEqual(row["makespan"], makespan * 1000, name)
            self.run_ok("simulate", "--schedule", name, "-p", 8, "-m", 32)
        self.assertEqual(self.files(), ["config.yaml"], "no dump without output_dir")

    def test_chunk_times(self):
        chunk = {"fwd": 2, "bwd": 3, "wgrad": 1, "activation": 0.5}
        config = self.config(chunk_time_ms=[[chunk]] * 4, schedulers=[self.entry()])
        (row,) = self.run_rows("simulate", config)
        self.assertEqual([row["makespan"], row["peak_memory"]], [(8 + 3) * 6, 2])
        slow = [[chunk], [chunk], [{**chunk, "fwd": 4}], [chunk]]
        (row,) = self.run_rows("simulate", self.config(chunk_time_ms=slow, schedulers=[self.entry()]))
        self.assertEqual(row["per_rank"][2]["busy"], 8 * 8)
        self.refuse("simulate", self.config(chunk_time_ms=[[chunk]] * 3, schedulers=[self.entry()]))
        self.refuse("simulate", self.config(chunk_time_ms=[[{"fwd": 1}]] * 4, schedulers=[self.entry()]))
        self.refuse("simulate", self.config(chunk_time_ms=3, schedulers=[self.entry()]))

    def test_times_are_rounded_as_primus_does(self):
        entry = self.entry(name="1f1b-interleaved", pp_size=2, vpp_size=2, micro_batches=4)
        (row,) = self.run_rows("simulate", self.config(fwd_time=5, bwd_time=5, wgrad_time=6, schedulers=[entry]))
        self.assertEqual(row["per_rank"][0]["busy"], 4 * 2 * (5 // 2 + (5 + 6) // 2))

    def test_errors_name_the_key_in_one_line(self):
        for keys, words in ((self.entry(foo=1), "foo"), (self.entry(pp_size=0), "pp_size"),
                            (self.entry(micro_batches="many"), "micro_batches"), (self.entry(vpp_size=2), "1f1b"),
                            (self.entry(name="v-half", vpp_size=2, memory_config="third"), "memory_config"),
                            (self.entry(**{"class": "a.b.ScheduleUnheardOf"}), "ScheduleUnheardOf"),
                            (self.entry(name=None), "name"), ("1f1b", "map"),
                            (self.entry(name="zero-bubble-heuristic", max_mem="much"), "max_mem"),
                            (self.entry(name="zero-bubble-heuristic", cost_f=[1, 2]), "cost_f")):
            self.assertIn(words, self.refuse("simulate", self.config(schedulers=[keys])))
        self.assertIn("speed", self.refuse("simulate", self.config(speed=3, schedulers=[self.entry()])))
        self.refuse("simulate", self.config(schedulers=[]))
        self.refuse("simulate", self.config(schedulers=[self.entry()], fwd_time=-1))
        self.refuse("simulate", self.config(schedulers=[self.entry()], fwd_time=None))
        self.refuse("simulate", self.config(schedulers=[self.entry()]), "--ranks", 4)
        self.refuse("simulate", self.write("bad.yaml", "schedulers: [\n"))
        self.refuse("simulate", "none.yaml")

    def test_dumps_round_trip(self):
        for name, options in (("zb-h1", ()), ("interleaved", ("-v", 3)), ("v-half", ()),
                              ("hanayo", ("--waves", 2)), ("dualpipev", ("--overlap", "sum"))):
            shape = ("-p", 3, "-m", 9, "--cost", "3,2,4", *options)
            (made,) = self.run_rows("simulate", "--schedule", name, *shape, "--dump", "dumps")
            overlap = options if "--overlap" in options else ()
            (read,) = self.run_rows("simulate", "--csv", f"dumps/{name}", *overlap)
            self.assertIn("valid", self.run_ok("validate", f"dumps/{name}"))
            for key in ("ranks", "chunks", "microbatches", "actions", "makespan", "messages", "peak_memory"):
                self.assertAlmostEqual(read[key], made[key], msg=f"{name}: {key}")
            self.assertEqual(self.run_ok("schedule", "--csv", f"dumps/{name}"),
                             self.run_ok("schedule", name, *shape))
        self.refuse("simulate", "--schedule", "dualpipe", "-p", 2, "-m", 4, "--dump", "dumps")
        self.refuse("simulate", "--csv", "dumps/zb-h1", "--iteration", 1)
        self.refuse("simulate", "--csv", "dumps")
        self.write("file", "")
        self.refuse("simulate", "--schedule", "1f1b", "--dump", "file")


class ConfigTest(program.CommandTest):
    """Penstock's configuration files, whose keys are the options."""

    def test_keys_equal_options(self):
        self.write("a.yaml", "schedule: [1f1b, interleaved]\nranks: 3\nmicrobatches: 9\ncost: [1, 2, 1.5]\ncomm: 0.25\n")
        options = ("--schedule", "1f1b,interleaved", "-p", 3, "-m", 9, "--cost", "1,2,1.5", "--comm", 0.25)
        self.assertEqual(self.run_rows("simulate", "a.yaml"), self.run_rows("simulate", *options))
        self.assertEqual(self.run_rows("simulate", "a.yaml", "-m", 5, "--cost", "1"),
                         self.run_rows("simulate", "-s", "1f1b,interleaved", "-p", 3, "-m", 5, "--comm", 0.25))
        self.assertEqual([row["schedule"] for row in self.run_rows("simulate", "a.yaml", "-s", "gpipe")], ["gpipe"])

    def test_stages_may_differ(self):
        self.write("a.yaml", "schedule: 1f1b\nranks: 2\nmicrobatches: 4\nstage_costs:\n- {forward: 1}\n"
                             "- {forward: 3, backward_weight: 2, activation: 2, activation_after_i: 1}\n")
        (row,) = self.run_rows("simulate", "a.yaml")
        self.assertEqual([rank["busy"] for rank in row["per_rank"]], [12, 24])
        self.assertEqual([rank["peak_memory"] for rank in row["per_rank"]], [2, 2])
        self.assertIn("stage", self.refuse("simulate", "a.yaml", "-p", 3))

    def test_passes(self):
        self.write("a.yaml", "schedule: zb-h1\npass: merge-backward\nranks: 3\n")
        self.assertEqual(self.run_rows("simulate", "a.yaml"),
                         self.run_rows("simulate", "-s", "zb-h1", "-p", 3, "--pass", "merge-backward"))

    def test_refusals(self):
        for text in ("ranks: 4\nspeed: 3\n", "ranks: four\n", "- 1f1b\n", "schedule: {}\n", "split: maybe\n",
                     "schedule: 1f1b\nstage_costs: [{forward: -1}]\n", "schedule: 1f1b\nstage_costs: [3]\n",
                     "schedule: 1f1b\nstage_costs: [{activation: 1, activation_after_i: 2}]\n", "a: &a [*a]\n", "ranks: 4\n"):
            self.refuse("simulate", self.write("a.yaml", text))


if __name__ == "__main__":
    program.main()
