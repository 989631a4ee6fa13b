"""A training run that is killed at random times and resumed gives bitwise the same results.

PENSTOCK_KILLS is the number of kills (default 10), PENSTOCK_SEED the seed of their times.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
SMALL = ("dim=16", "heads=2", "sequence=32", "batch=1", "steps=60", "microbatches=4", "sample=10",
         "warmup=5", "dropout=0.1", "ranks=2", "every=1")
RUN = pathlib.Path("runs") / "english"


def wait_line(run):
    """Returns the next line before the first step; an empty string once the steps begin."""
    line = run.stdout.readline()
    return "" if line.startswith("model: ") else line


class ResumeTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.require_engine()
        self.write("text", "".join(f"line {i * i} of {i}\n" for i in range(600)))

    def words(self, *more):
        return ("train", ENGLISH, *SMALL, "--data", self.folder / "text", *more)

    def losses(self, run):
        lines = (run / "metrics.jsonl").read_text().splitlines()
        return [[json.loads(line)[key] for key in ("step", "loss", "lr")] for line in lines]

    def expect_same(self, run, whole):
        # Compares everything but the time: weights, step and configuration.
        def without_time(folder):
            header = (folder / "model.safetensors").read_bytes()
            length = int.from_bytes(header[:8], "little")
            fields = json.loads(header[8:8 + length])
            for key in ("seconds", "checksum"):
                del fields["__metadata__"][key]
            return fields, header[8 + length:]
        self.assertEqual(without_time(run), without_time(whole))
        self.assertEqual(self.losses(run), self.losses(whole))

    def train(self, where, kill=lambda run: None):
        """Returns the output of a run that ended by itself; None if `kill` killed it."""
        where.mkdir(exist_ok=True)
        with subprocess.Popen([program.PROGRAM, *map(str, self.words("resume=auto"))], cwd=where,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
            output = kill(run)
            if output is None:
                output, _ = run.communicate()
        if run.returncode == -signal.SIGKILL:
            return None
        self.assertEqual(run.returncode, 0, output)
        self.assertNotIn("trying the previous one", output)
        return output

    def killer(self, moments, duration, steps_duration):
        """Returns a function that kills a run after a random time from its start or, more often, its first step."""
        among_steps = moments.random() < 0.6
        seconds = moments.uniform(0, steps_duration if among_steps else duration)

        def kill(run):
            before = "".join(iter(lambda: wait_line(run), "")) if among_steps else ""
            try:
                return before + run.communicate(timeout=seconds)[0]
            except subprocess.TimeoutExpired:
                run.kill()  # SIGKILL
                return run.communicate()[0]
        return kill

    def test_a_killed_run_resumes_to_the_same_result(self):
        moments = random.Random(int(os.environ.get("PENSTOCK_SEED", "1")))
        whole = self.folder / "whole"
        times = [time.monotonic()]

        def note_start_of_steps(run):
            while wait_line(run):
                pass
            times.append(time.monotonic())
        self.train(whole, note_start_of_steps)
        times.append(time.monotonic())
        left = int(os.environ.get("PENSTOCK_KILLS", "10"))
        checkpoint_steps = []
        while left > 0:
            killed = self.folder / "killed"
            while self.train(killed, self.killer(moments, times[2] - times[0], times[2] - times[1])
                             if left > 0 else lambda run: None) is None:
                left -= 1
                stored = (killed / RUN / "checkpoints").glob("step-*/manifest.json")
                steps = [int(path.parent.name[5:]) for path in stored]
                checkpoint_steps.append(max(steps, default=0))
                if steps:
                    self.run_ok("checkpoint", killed / RUN, "--verify")
            self.expect_same(killed / RUN, whole / RUN)
            shutil.rmtree(killed)
        print("killed after the checkpoints of steps", checkpoint_steps)
        self.assertGreater(max(checkpoint_steps), 0)

    def test_a_run_stopped_by_signals_resumes_to_the_same_result(self):
        for every in (0, 7):
            whole, stopped = self.folder / f"whole{every}", self.folder / f"stopped{every}"
            more = (f"every={every}", "steps=300", "resume=auto")
            for where in (whole, stopped):
                where.mkdir()
            subprocess.run([program.PROGRAM, *map(str, self.words(*more))], cwd=whole, check=True,
                           stdout=subprocess.DEVNULL)
            metrics = stopped / RUN / "metrics.jsonl"
            for number in (signal.SIGINT, signal.SIGTERM, None):
                before = metrics.stat().st_size if metrics.exists() else 0
                with subprocess.Popen([program.PROGRAM, *map(str, self.words(*more))], cwd=stopped,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True) as run:
                    while number and not (metrics.exists() and metrics.stat().st_size != before):
                        self.assertIsNone(run.poll())
                    if number:
                        run.send_signal(number)
                    output, _ = run.communicate()
                self.assertEqual(run.returncode, 128 + number if number else 0, output)
            self.expect_same(stopped / RUN, whole / RUN)

    def test_eval_and_generate_read_the_files_of_a_killed_run(self):
        whole = self.folder / "whole"
        self.train(whole)
        (whole / RUN / "model.safetensors").unlink()
        newest = RUN / "checkpoints" / "step-60"
        self.assertTrue((whole / newest).exists())
        for path in (RUN, RUN / "checkpoints", newest):
            self.assertEqual(self.run_json("eval", whole / path)["step"], 60)
        self.assertTrue(self.run_ok("generate", whole / RUN, "--prompt", "line ", "--bytes", "5")
                        .startswith("line "))


if __name__ == "__main__":
    program.main()
