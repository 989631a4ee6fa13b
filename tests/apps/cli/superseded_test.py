"""The files in a run's folder belong to one run: another run's are moved to superseded-N."""
import json
import pathlib
import signal

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
RUN = pathlib.Path("runs") / "english"


class SupersededTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.require_engine()
        self.write("text", "".join(f"line {i * i} of {i}\n" for i in range(600)))

    def words(self, *more):
        return ("train", ENGLISH, "dim=16", "heads=2", "sequence=32", "batch=1", "steps=4", "sample=1",
                "microbatches=4", "warmup=2", "ranks=2", "data.path=text", *more)

    def train(self, *more):
        return self.run_ok(*self.words(*more))

    def kept(self, name=""):
        """Returns the files in the run's folder, by name, with their contents."""
        folder = self.folder / RUN / name
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    def aside(self):
        return sorted(path.name for path in (self.folder / RUN).glob("superseded-*"))

    def steps(self, name=""):
        lines = (self.folder / RUN / name / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["step"] for line in lines]

    def kill(self, *more, after="metrics.jsonl"):
        """Kills a run that would take long, once it has written a file."""
        with self.begin(*self.words("steps=100000", *more)) as run:
            self.wait_for(run, RUN / after)
            run.kill()
            run.communicate()
        self.assertEqual(run.returncode, -signal.SIGKILL)

    def test_a_killed_run_starts_again_in_its_folder(self):
        for more in ((), ("resume=auto",), ("watchdog=50", "trace_steps=0")):
            self.kill(*more)
            self.assertEqual(self.aside(), [])
        # Another one does not overwrite what it has logged.
        before = self.kept()
        self.train()
        self.assertEqual(self.aside(), ["superseded-1"])
        self.assertEqual(self.kept("superseded-1"), {name: before[name] for name in before if name != ".lock"})

    def test_a_killed_run_resumes_in_its_folder(self):
        self.kill("every=1", after=pathlib.Path("checkpoints", "step-1", "manifest.json"))
        self.train("every=1", "resume=auto", "steps=1000", "seconds=0.1")
        self.assertEqual(self.aside(), [])
        done = len(self.steps())
        self.train("every=1", "resume=auto", f"steps={done + 3}")
        self.assertEqual((self.aside(), self.steps()), ([], list(range(done + 3))))

    def test_checkpoints_of_an_interrupted_run_are_moved_with_its_files(self):
        with self.begin(*self.words("steps=100000")) as run:
            self.wait_for(run, RUN / "metrics.jsonl")
            run.send_signal(signal.SIGTERM)
            run.communicate()
        before = self.kept()
        output = self.train("seed=2")
        self.assertIn(f"resume={RUN}/superseded-1 continues from its checkpoints\n", output)
        self.assertEqual((self.aside(), self.kept("superseded-1")), (["superseded-1"], before))
        self.run_ok("eval", RUN / "superseded-1")


if __name__ == "__main__":
    program.main()
