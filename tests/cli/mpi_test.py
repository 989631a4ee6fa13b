"""penstock train on the processes of an MPI job gives the bits of a run on threads."""
import json
import os
import pathlib
import shutil
import subprocess

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[2] / "examples" / "english.yaml"
SMALL = ("dim=16", "heads=2", "sequence=32", "batch=1", "steps=4", "microbatches=4", "sample=10",
         "warmup=2", "dropout=0.1")
# As root, with more processes than cores, without the notice that mpirun adds to an error.
MPIRUN = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
          "OMPI_MCA_rmaps_base_oversubscribe": "1"}


class MpiTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        if not pathlib.Path(program.PROGRAM).with_name("penstock-engine-mpi").exists():
            self.skipTest("a build without MPI")
        self.write("text", "".join(f"line {i * i} of {i}\n" for i in range(600)))

    def mpirun(self, processes, *words):
        return subprocess.run(
            [shutil.which("mpirun"), "--quiet", "-n", str(processes), program.PROGRAM,
             *map(str, words)],
            cwd=self.folder, capture_output=True, timeout=240, check=False, text=True,
            errors="replace", env={**os.environ, **MPIRUN})

    def words(self, name, *more):
        return ("train", ENGLISH, *SMALL, "--data", "text", "--name", name, *more)

    def results(self, name):
        """Everything that does not depend on time."""
        run = self.folder / "runs" / name
        steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        model = (run / "model.safetensors").read_bytes()
        length = int.from_bytes(model[:8], "little")
        header = json.loads(model[8:8 + length])
        del header["__metadata__"]
        return [[step[key] for key in ("step", "loss", "lr", "grad_norm")] for step in steps], header, \
            model[8 + length:]

    def test_gives_the_bits_of_threads(self):
        cases = [(2, ("ranks=4", "clip=0.5")),  # two ranks per process
                 (4, ("ranks=2", "parallel.data=2", "parallel.zero=1", "precision=bf16")),
                 (2, ("schedule=zbv", "ranks=2", "nonfinite=skip", "post_validation=true")),
                 (2, ("model.name=gpt2", "ranks=2"))]
        for number, (processes, options) in enumerate(cases):
            with self.subTest(options):
                self.run_ok(*self.words(f"threads-{number}", *options))
                result = self.mpirun(processes, *self.words(f"mpi-{number}", *options))
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stderr, "")
                self.assertIn(f"{processes} processes", result.stdout)
                self.assertEqual(self.results(f"mpi-{number}"), self.results(f"threads-{number}"))
                written = [sorted(path.name for path in (self.folder / "runs" / name).iterdir())
                           for name in (f"mpi-{number}", f"threads-{number}")]
                self.assertEqual(*written)

    def test_an_open_number_of_ranks_is_that_of_the_processes(self):
        result = self.mpirun(4, *self.words("a", "--json"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["ranks"], 4)

    def test_an_error_is_reported_once(self):
        for words, code, message in [
                (("ranks=2", "optimizer.lr=-1"), 2, "optimizer.lr"),
                (("ranks=2", "lr=1e30"), 1, "is not finite"),
                (("ranks=1",), 2, "2 hosts cannot share 1 ranks")]:
            with self.subTest(words):
                result = self.mpirun(2, *self.words("a", *words))
                self.assertEqual(result.returncode, code, result.stderr)
                errors = [line for line in result.stderr.splitlines() if "penstock: error" in line]
                self.assertEqual(len(errors), 1, result.stderr)
                self.assertIn(message, errors[0])


if __name__ == "__main__":
    program.main()
