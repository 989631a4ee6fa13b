"""The files in a run's folder belong to one run: those of another one are moved to superseded-N."""
import json
import pathlib
import signal

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
RUN = pathlib.Path("runs") / "english"
RESULTS = {"model.safetensors", "report.html", "trace.json", "loss.svg", "timeline.svg"}
HISTORY = {"config.yaml", "schedule.csv", "metrics.jsonl"}


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

    def test_another_run_moves_all_files_of_a_finished_one(self):
        self.write("text2", (self.folder / "text").read_text() + "more\n")
        self.train()
        # Each differs in one thing from the one before.
        for number, change in enumerate(
                (("schedule=gpipe", "ranks=4", "data.path=text2"), ("seconds=100",),
                 ("trace_steps=1", "tensorboard=true"), ("seed=2",)), 1):
            with self.subTest(change):
                before = self.kept()
                self.assertLessEqual(RESULTS | HISTORY, set(before))
                output = self.train(*change)
                name = f"superseded-{number}"
                self.assertIn(f"the files of an earlier run are kept in {RUN / name}\n", output)
                self.assertEqual(self.kept(name), before)
                self.assertLessEqual(RESULTS | HISTORY, set(self.kept()))

    def test_the_same_command_keeps_the_earlier_result(self):
        self.train()
        before = self.kept()
        self.train()
        self.assertEqual((self.aside(), self.kept("superseded-1")), (["superseded-1"], before))

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

    def test_a_run_from_an_older_checkpoint_moves_the_later_results(self):
        self.train("every=1", "keep=0")
        before = self.kept()
        self.train("every=1", "keep=0", f"resume={RUN / 'checkpoints' / 'step-2'}", "seed=2")
        self.assertEqual(self.kept("superseded-1"), before)
        self.assertEqual(self.steps(), [0, 1, 2, 3])
        self.run_ok("eval", RUN / "superseded-1")

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

    def test_other_files_stay(self):
        (self.folder / RUN / "stages").mkdir(parents=True)
        for name in ("notes.txt", "stages/0.ir", "report.pdf"):
            (self.folder / RUN / name).write_text("mine")
        self.train()
        self.train("seed=2")
        for name in ("notes.txt", "stages/0.ir", "report.pdf"):
            self.assertEqual((self.folder / RUN / name).read_text(), "mine")

    def test_a_failed_start_moves_nothing(self):
        self.train()
        before = self.kept()
        for change in (("seed=2", "data.path=none"), ("compiled=none",), ("resume=none",)):
            self.assertNotEqual(self.start(*self.words(*change)).returncode, 0)
            self.assertEqual((self.aside(), self.kept()), ([], before))


if __name__ == "__main__":
    program.main()
