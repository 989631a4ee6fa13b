"""penstock train on the processes of an MPI job gives the bits of a run on threads."""
import json

import jobs
import program


class MpiTest(jobs.JobTest):
    def test_gives_the_bits_of_threads(self):
        cases = [(2, ("ranks=4", "clip=0.5")),  # two ranks per process
                 (4, ("ranks=2", "parallel.data=2", "parallel.zero=1", "precision=bf16")),
                 (4, ("schedule=zbv", "ranks=2", "layers=8", "parallel.data=2", "parallel.zero=3")),
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
                self.assertIn(message, self.one_error(result))


if __name__ == "__main__":
    program.main()
