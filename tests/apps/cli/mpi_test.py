"""penstock train on the processes of an MPI job gives the bits of a run on threads."""
import json
import os
import pathlib
import signal
import time

import jobs
import program


class MpiTest(jobs.JobTest):
    def test_gives_the_bits_of_threads(self):
        cases = [(2, ("ranks=4", "clip=0.5")),  # two ranks per process
                 (4, ("ranks=2", "parallel.data=2", "parallel.zero=1", "precision=bf16")),
                 (4, ("schedule=zbv", "ranks=2", "layers=8", "parallel.data=2", "parallel.zero=3")),
                 (2, ("schedule=zbv", "ranks=2", "nonfinite=skip", "post_validation=true")),
                 (2, ("model.name=gpt2", "ranks=2")),
                 (2, ("ranks=4", "shard_vocabulary=true", "vocabulary=301", "clip=0.5")),
                 (4, ("ranks=2", "parallel.tensor=2", "clip=0.5")),  # each process has one rank
                 (2, ("ranks=2", "parallel.tensor=2", "schedule=zbv", "layers=8")),
                 (4, ("schedule=zbv", "ranks=2", "layers=8", "parallel.tensor=2", "parallel.data=2",
                      "parallel.zero=3", "precision=bf16", "clip=0.5"))]
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
        result = self.mpirun(4, *self.words("b", "parallel.tensor=2", "--json"))
        self.assertEqual(json.loads(result.stdout)["ranks"], 2)

    def test_an_error_is_reported_once(self):
        for words, code, message in [
                (("ranks=2", "optimizer.lr=-1"), 2, "optimizer.lr"),
                (("ranks=2", "--rank"), 2, "there is no option '--rank'"),
                (("ranks=2", "--steps"), 2, "--steps needs a value"),
                (("ranks=2", "lr=1e30"), 1, "is not finite"),
                (("ranks=1",), 2, "2 processes cannot share 1 ranks")]:
            with self.subTest(words):
                self.expect_error(self.mpirun(2, *self.words("a", *words)), code, message)

    def test_an_error_before_the_run_is_reported_once(self):
        for words, message in [
                (("train", "missing.yaml"), "missing.yaml"), (("train", "bad=option"), "bad=option"),
                (("train",), "CONFIG.yaml"), (("trian",), "did you mean 'train'?"),
                (("simulate", "1f1b", "--rank", 2), "there is no option '--rank'")]:
            with self.subTest(words):
                self.expect_error(self.mpirun(4, *words), 2, message)

    def test_an_error_of_one_process_is_reported(self):
        correct = self.words("a", "ranks=2")
        for wrong, message in [((*correct, "--rank"), "there is no option '--rank'"),
                               (("train", "missing.yaml"), "missing.yaml"),
                               (("trian",), "did you mean 'train'?")]:
            with self.subTest(wrong):
                job = self.mpirun(1, *correct, ":", "-n", 1, program.PROGRAM, *wrong)
                self.expect_error(job, 2, message)

    def test_a_waiting_process_uses_no_core(self):
        for stopped, run in enumerate("ab"):
            with self.subTest(stopped=stopped):
                words = self.words(run, "ranks=2", "steps=1000000", "dim=128", "sequence=128",
                                   "batch=4")
                job = self.begin_job(self.mpirun_words(2, *words))
                self.wait_for_steps(job, run, steps=3)
                ranks = self.ranks()
                share = share_while_stopped(ranks[stopped], ranks[1 - stopped])
                job.send_signal(signal.SIGTERM)
                self.finish(job)
                self.assertLess(share, 0.05)

    def expect_error(self, result, code, message):
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(message, self.one_error(result))


def share_while_stopped(stopped, waiting):
    """Stops a process. Returns the share of a core that the other uses, which waits for it."""
    os.kill(stopped, signal.SIGSTOP)
    try:
        time.sleep(3)  # the other process completes its part of the step and notices the stop
        begin, before = time.monotonic(), cpu_seconds(waiting)
        time.sleep(4)
        return (cpu_seconds(waiting) - before) / (time.monotonic() - begin)
    finally:
        os.kill(stopped, signal.SIGCONT)


def cpu_seconds(pid):
    """Returns the processor time of all threads, in user and kernel mode."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    program.main()
