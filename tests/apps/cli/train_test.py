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
            run.send_signal(signal.SIGINT)
            self.assertIn("a second signal stops at once", run.stderr.readline() +
                          run.stderr.readline())
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=120)
        self.assertIn(run.returncode, (-signal.SIGINT, 130))  # or it stopped before the second signal

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


if __name__ == "__main__":
    program.main()
