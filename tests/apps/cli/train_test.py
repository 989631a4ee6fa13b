"""penstock train, generate and eval on a small version of the example configuration."""
import json
import pathlib
import shutil
import signal
import time

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
SMALL = ("dim=16", "heads=2", "sequence=32", "batch=1", "steps=4", "microbatches=4", "sample=20")
FILES = ["config.yaml", "loss.svg", "metrics.jsonl", "model.safetensors", "report.html",
         "schedule.csv", "timeline.svg", "trace.json"]


class TrainTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.require_engine()
        self.write("text", "".join(f"line {i * i} of {i}\n" for i in range(3000)))

    def train(self, *words):
        return ("train", ENGLISH, *SMALL, "--data", "text", *words)

    def test_json_is_the_only_output_on_stdout(self):
        result = self.start(*self.train("--name", "a", "--json", "--ranks", "2"))
        self.assertEqual(result.returncode, 0, result.stderr)
        summary = json.loads(result.stdout)
        for key in ("held_out_loss", "baseline_loss", "tokens_per_second", "step_time",
                    "predicted_step_time"):
            self.assertGreater(summary[key], 0, key)
        self.assertEqual(summary["ranks"], 2)
        self.assertRegex(summary["drift"], r"^(furthest from the plan: \S+ on rank [01] took .* in "
                                           r"step \d+, .* planned|no action took longer)")
        self.assertEqual(len(summary["per_rank"]), 2)
        for rank in summary["per_rank"]:
            for key in ("busy", "bubble", "peak_activation_bytes",
                        "predicted_peak_activation_bytes"):
                self.assertGreaterEqual(rank[key], 0, key)
        written = sorted(path.name for path in (self.folder / "runs" / "a").iterdir())
        self.assertEqual(written, FILES)
        self.assertEqual(sorted(pathlib.Path(name).name for name in summary["files"]), FILES)

        loss = self.run_json("eval", "a", "--data", "text")["held_out_loss"]
        self.assertAlmostEqual(loss, summary["held_out_loss"], places=5)
        text = self.run_ok("generate", "a", "--prompt", "line ", "--tokens", "10",
                           "--top-k", "50", "--top-p", "0.9")
        self.assertTrue(text.startswith("line "), text)

    def test_bf16_without_instructions_for_it_is_computed_in_fp32(self):
        avx2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
                "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
        losses = []
        for precision in ("f32", "bf16"):
            result = self.start(*self.train("--name", precision, f"precision={precision}"), env=avx2)
            self.assertEqual(result.returncode, 0, result.stderr)
            lines = [line for line in result.stdout.splitlines() if line.startswith("bf16: ")]
            self.assertEqual(len(lines), 1 if precision == "bf16" else 0, result.stdout)
            for line in lines:
                self.assertIn("computed in fp32", line)
            losses.append(self.run_json("eval", f"runs/{precision}", "--data", "text"))
        self.assertAlmostEqual(losses[0]["held_out_loss"], losses[1]["held_out_loss"], delta=0.02)

    def test_graph_times_every_pass(self):
        graph = ("graph", ENGLISH, *SMALL, "--timing", "--disable", "fold_constants")
        passes = self.run_json(*graph)["passes"]
        names = [one["name"] for one in passes]
        # In running order, without the disabled pass.
        self.assertEqual(names[:3], ["split_fsdp_prefetch", "split_fsdp_reduce_scatter", "simplify"])
        self.assertIn("partition", names)
        for one in passes:
            self.assertGreaterEqual(one["seconds"], 0)
            self.assertGreater(one["nodes"], 0)
        self.assertGreater(sum(one["seconds"] for one in passes), 0)
        lines = self.run_ok(*graph).splitlines()
        self.assertEqual(lines[0].split(), ["pass", "ms", "nodes"])
        self.assertEqual([line.split()[0] for line in lines[1:]], [*names, "all"])
        self.assertNotIn("passes", self.run_json(*graph[:-3]))

    def test_writes_traces_of_the_requested_steps(self):
        result = self.start(*self.train("--name", "a", "--json", "--ranks", "2", "--trace-steps", "1,3"))
        self.assertEqual(result.returncode, 0, result.stderr)
        for step in (1, 3):
            path = self.folder / "runs" / "a" / f"trace-step-{step}.json"
            self.assertIn(f"runs/a/{path.name}", json.loads(result.stdout)["files"])
            events = json.loads(path.read_text())["traceEvents"]
            actions = [event["name"] for event in events if event["ph"] == "X"]
            for name in ("0F0", "3F3", "3B0", "0B3"):  # first and last stage and microbatch
                self.assertEqual(actions.count(name), 1, actions)
            self.assertTrue(any(event["ph"] == "C" for event in events))
        self.assertIn("  bubble ", result.stderr)

    def test_sigusr1_writes_the_timeline_of_the_current_step(self):
        folder = self.folder / "runs" / "a"
        with self.begin(*self.endless("--name", "a")) as run:
            self.wait_for(run, "runs/a/metrics.jsonl")
            for count in (1, 2):  # it works repeatedly
                run.send_signal(signal.SIGUSR1)
                while len(list(folder.glob("trace-step-*.json"))) < count:
                    self.assertIsNone(run.poll())
            run.send_signal(signal.SIGINT)
            stdout, stderr = run.communicate(timeout=120)
        self.assertEqual(run.returncode, 130, stderr)
        steps = len((folder / "metrics.jsonl").read_text().splitlines())
        for path in folder.glob("trace-step-*.json"):
            self.assertIn(f"wrote runs/a/{path.name}\n", stdout)
            self.assertLess(int(path.stem.rpartition("-")[2]), steps)
            events = json.loads(path.read_text())["traceEvents"]
            actions = [event["name"] for event in events if event["ph"] == "X"]
            for name in ("0F0", "3F3", "3B0", "0B3"):  # the whole step, on both ranks
                self.assertEqual(actions.count(name), 1, actions)

    def test_sigusr1_does_not_end_a_run_without_a_flush(self):
        with self.begin(*self.endless("--name", "a", "--schedule", "pipedream", "chunks=auto", "stages=2")) as run:
            self.wait_for(run, "runs/a/metrics.jsonl")
            run.send_signal(signal.SIGUSR1)
            lines = iter(run.stdout.readline, "")
            self.assertIn("'pipedream' does not flush", next(line for line in lines if "no timeline" in line))
            run.send_signal(signal.SIGTERM)
            run.communicate(timeout=120)
        self.assertEqual(run.returncode, 143)

    def test_the_stored_configuration_and_schedule_run_again(self):
        words = self.train("--schedule", "zb-h1", "--ranks", "2", "--name", "a")
        self.assertEqual(self.start(*words).returncode, 0)
        for name, source in (("b", ()), ("c", ("--csv", "runs/a/schedule.csv"))):
            result = self.start("train", "runs/a/config.yaml", "--name", name, *source)
            self.assertEqual(result.returncode, 0, result.stderr)
        def losses(name):
            lines = (self.folder / "runs" / name / "metrics.jsonl").read_text().splitlines()
            return [json.loads(line)["loss"] for line in lines]
        self.assertEqual(losses("a"), losses("b"))
        self.assertEqual(losses("a"), losses("c"))

    def test_refusals(self):
        self.write("empty", "")
        self.write("bad.csv", "0F0,0B0\n1F0\n")
        self.write("worse.csv", "0F0,zero\n")
        for words in (["--schedule", "1f2b"], ["--ranks", "3", "--chunks", "2"], ["layers=3"],
                      ["--ranks", "eight"], ["--data", "none"], ["--data", "empty"], ["dimm=3"],
                      ["--csv", "bad.csv"], ["--csv", "worse.csv"], ["--csv", "none.csv"],
                      ["--schedule", "dualpipe", "--ranks", "4"], ["--no-such-option"],
                      ["sequence=100000"], ["folder=text"]):
            self.refuse(*self.train(*words))
        self.assertIn("model.dim", self.refuse(*self.train("dimm=3")))
        self.refuse("train")
        self.refuse("train", "none.yaml")
        self.refuse("eval", "none")
        self.refuse("generate", "text")
        self.assertEqual([name for name in self.files() if name == "runs"], [])

    def test_names_the_stage_whose_kernels_are_missing(self):
        self.run_ok("compile", ENGLISH, *SMALL, "ranks=2", "fuse=true", "-o", "stages")
        lost = {"XDG_CACHE_HOME": str(self.folder / "empty"), "PENSTOCK_CXX": "/no/such/compiler"}
        message = self.refuse(*self.train("ranks=2", "fuse=true", "compiled=stages"), code=1,
                              env=lost)
        self.assertIn("kernels of stages/stage0.safetensors are not in this machine's cache",
                      message)
        self.assertIn("cannot run the C++ compiler /no/such/compiler", message)
        self.assertNotIn("damaged", message)

    def test_a_failed_run_reports_why_and_keeps_its_metrics(self):
        result = self.start(*self.train("lr=1e30", "steps=50", "--json", "--name", "a"))
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout, "")
        self.assertIn("penstock: error: ", result.stderr.splitlines()[-1])
        self.assertEqual(self.left("a"), ["config.yaml", "metrics.jsonl", "schedule.csv"])

    def test_a_run_that_has_not_trained_fails(self):
        for name, words, reason in (
                ("skipped", ["lr=1e9", "nonfinite=skip", "steps=20"], "steps were skipped"),
                ("lost", ["lr=1e45", "steps=1"], "held-out loss is "),
                ("clipped", ["lr=1e30", "clip=1e30", "warmup=0"], "the gradient of ")):
            result = self.start(*self.train("--name", name, "--json", *words))
            self.assertEqual((result.returncode, result.stdout), (1, ""), name)
            self.assertIn(reason, result.stderr.splitlines()[-1])

    def left(self, run):
        return sorted(path.name for path in (self.folder / "runs" / run).iterdir())

    def endless(self, *words):
        return self.train("steps=1000000", "--ranks", "2", *words)

    def test_a_signal_ends_a_run_after_a_step_with_a_checkpoint(self):
        for number, words in ((signal.SIGINT, []), (signal.SIGTERM, ["every=1000"])):
            name = number.name
            result = self.interrupt(*self.endless("--json", "--name", name, *words), number=number,
                                    file=f"runs/{name}/metrics.jsonl")
            self.assertEqual((result.returncode, result.stdout), (128 + number, ""))
            self.assertEqual(self.left(name),
                             ["checkpoints", "config.yaml", "metrics.jsonl", "schedule.csv"])
            metrics = (self.folder / "runs" / name / "metrics.jsonl").read_text().splitlines()
            saved = f"runs/{name}/checkpoints/step-{len(metrics)}"
            self.assertEqual(result.stderr.splitlines()[-1],
                             f"penstock: stopped by {name} after {len(metrics)} of 1000000 steps: "
                             f"resume=auto continues from {saved}")
            self.assertEqual(self.run_json("eval", f"runs/{name}")["step"], len(metrics))

    def test_a_signal_after_the_last_step_leaves_the_weights(self):
        result = self.interrupt(*self.train("sample=100000000", "--name", "a"),
                                file="runs/a/model.safetensors")
        self.assertEqual(result.returncode, 130)
        self.assertIn("the weights are in runs/a/model.safetensors", result.stderr)
        self.assertEqual(self.run_json("eval", "runs/a")["step"], 4)

    def test_a_signal_that_is_sent_twice_counts_once(self):
        for first, second in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT),
                              (signal.SIGINT, signal.SIGINT), (signal.SIGUSR2, signal.SIGTERM)):
            name = f"{first.name}-{second.name}"
            with self.subTest(name), self.begin(*self.endless("--name", name)) as run:
                self.wait_for(run, f"runs/{name}/metrics.jsonl")
                sent = time.monotonic()
                run.send_signal(first)
                run.send_signal(second)
                in_time = time.monotonic() - sent < 1
                run.communicate(timeout=120)
                if in_time:
                    self.assertIn(run.returncode, (128 + first, 128 + second))
                    self.assertIn("checkpoints", self.left(name))

    def test_a_second_signal_ends_a_run_at_once(self):
        with self.begin(*self.endless("--name", "a")) as run:
            self.wait_for(run, "runs/a/metrics.jsonl")
            run.send_signal(signal.SIGTERM)
            self.assertIn("a second signal stops at once", run.stderr.readline() +
                          run.stderr.readline())
            run.send_signal(signal.SIGTERM)
            run.communicate(timeout=120)
        self.assertIn(run.returncode, (-signal.SIGTERM, 143))  # or it stopped before the second signal

    def test_a_folder_is_used_by_one_run_at_a_time(self):
        with self.begin(*self.endless("--name", "a", "every=20", "keep=0")) as run:
            self.wait_for(run, "runs/a/checkpoints/step-20/manifest.json")
            message = self.refuse(*self.train("--name", "a", "resume=auto"))
            self.assertIn(f"runs/a is in use by another run, process {run.pid} on ", message)
            self.assertGreaterEqual(self.run_json("eval", "runs/a")["step"], 20)
            run.kill()
            run.communicate()
        self.assertEqual(self.start(*self.train("--name", "a", "steps=21")).returncode, 0)

    def test_a_folder_that_is_deleted_ends_the_run(self):
        with self.begin(*self.endless("--name", "a", "--json")) as run:
            self.wait_for(run, "runs/a/metrics.jsonl")
            shutil.rmtree(self.folder / "runs")
            stdout, stderr = run.communicate(timeout=120)
        self.assertEqual((run.returncode, stdout), (1, ""))
        self.assertIn("runs/a was deleted or moved", stderr.splitlines()[-1])
        self.assertFalse((self.folder / "runs").exists())

    def test_a_closed_stdout_does_not_end_the_run(self):
        with self.begin(*self.train("--name", "a")) as run:
            run.stdout.readline()
            run.stdout.close()
            self.assertEqual(run.stderr.read(), "")
        self.assertEqual(run.returncode, 0)
        self.assertEqual(self.left("a"), FILES)

    def test_the_help_says_what_exit_codes_mean(self):
        self.assertIn("143 stopped by SIGTERM", " ".join(self.run_ok("train", "--help").split()))


if __name__ == "__main__":
    program.main()
