"""A failure of one process ends a run on all of them, with one line, and leaves valid checkpoints.

Each limit of time is far above what the failure needs, so that a busy machine does not exceed it.
"""
import pathlib
import re
import resource
import shlex
import shutil
import signal
import subprocess
import time

import jobs
import program

PROCESS_TIMEOUT = 3  # seconds, instead of 20
ENDLESS = ("ranks=2", "steps=1000000", "checkpoint.every=1")


class FailuresTest(jobs.JobTest):
    def expect_end(self, job, limit):
        """Returns the line of the error of a job that must end within `limit` seconds."""
        begin = time.monotonic()
        result = self.finish(job, limit)
        print(f"{self.id().rpartition('.')[2]}: ended after {time.monotonic() - begin:.1f} s")
        self.assertIn(result.returncode, (1, 128 + signal.SIGKILL), result.stderr)
        self.assertNotIn("penstock: stopping", result.stderr)
        return self.one_error(result)

    def expect_valid_checkpoints(self, name):
        self.run_ok("checkpoint", self.folder / "runs" / name, "--verify")

    def test_a_killed_process(self):
        for rank, limit in ((1, 30), (0, 30)):
            job = self.begin_job(self.mpirun_words(2, *self.words("a", *ENDLESS, "resume=auto")))
            self.wait_for_steps(job, "a")
            jobs.kill(self.ranks()[rank])
            line = self.expect_end(job, limit)
            self.assertRegex(line, rf"process {rank} on \S+ is gone: it has ended; "
                                   rf"it last reported: rank {rank} ")
            self.expect_valid_checkpoints("a")
            shutil.rmtree(self.folder / "runs")

    def test_a_killed_process_of_a_tensor_rank(self):
        for rank in (0, 3):
            words = self.words("a", *ENDLESS, "parallel.tensor=2", "resume=auto")
            job = self.begin_job(self.mpirun_words(4, *words))
            self.wait_for_steps(job, "a")
            jobs.kill(self.ranks()[rank])
            self.assertRegex(self.expect_end(job, 30),
                             rf"error: process {rank} on \S+ is gone: it has ended")
            self.expect_valid_checkpoints("a")
            shutil.rmtree(self.folder / "runs")

    def test_a_stopped_process(self):
        job = self.begin_job(self.mpirun_words(2, *self.words("a", *ENDLESS)),
                             env={"PENSTOCK_PROCESS_TIMEOUT": str(PROCESS_TIMEOUT)})
        self.wait_for_steps(job, "a")
        jobs.kill(self.ranks()[1], signal.SIGSTOP)
        line = self.expect_end(job, PROCESS_TIMEOUT + 30)
        self.assertRegex(line, rf"process 1 on \S+ is gone: it has not responded for {PROCESS_TIMEOUT} s; "
                               r"it last reported: rank 1 ")
        self.expect_valid_checkpoints("a")

    def test_an_invalid_timeout_is_refused(self):
        result = self.mpirun(1, *self.words("a", "ranks=2"), env={"PENSTOCK_PROCESS_TIMEOUT": "soon"})
        self.assertEqual(result.returncode, 2)
        self.assertIn("PENSTOCK_PROCESS_TIMEOUT: 'soon' is not a number", self.one_error(result))

    def mpirun_different(self, first, second):
        """Runs two processes with different words."""
        mpirun = self.mpirun_words(1, "")[:-2]
        return self.finish(self.begin_job([*mpirun, *first, ":", "-n", "1", *second]))

    def test_different_configurations_are_refused(self):
        train = (program.PROGRAM, *self.words("a", "ranks=2"))
        result = self.mpirun_different((*train, "lr=0.01"), (*train, "lr=0.02"))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(self.one_error(result),
                         r"optimizer.lr is 0.01 on process 0 on \S+ and 0.02 on process 1 on \S+: start all")

    def test_different_programs_are_refused(self):
        other = self.folder / "other"
        other.mkdir()
        for name in ("penstock", "penstock-engine-mpi"):
            shutil.copy(pathlib.Path(program.PROGRAM).with_name(name), other)
        with (other / "penstock-engine-mpi").open("ab") as file:
            file.write(b"x")  # ignored by the loader
        words = self.words("a", "ranks=2")
        result = self.mpirun_different((program.PROGRAM, *words), (other / "penstock", *words))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(self.one_error(result),
                         r"process 1 on \S+ runs another build of Penstock than process 0 on \S+ ")
        self.assertFalse((self.folder / "runs").exists())

    def test_a_full_disk(self):
        """The run's folder is a file system of 4 MiB, in a name space of its own."""
        mount = "mount -t tmpfs -o size=4m tmpfs runs"
        (self.folder / "runs").mkdir()
        unshare = ["unshare", "--mount", "--map-root-user"]
        allowed = subprocess.run([*unshare, "sh", "-c", mount], cwd=self.folder, check=False,
                                 capture_output=True)
        if allowed.returncode != 0:
            self.skipTest(f"this user may not mount a file system: {allowed.stderr}")
        train = self.mpirun_words(2, *self.words("a", *ENDLESS, "keep=0"))
        verify = [program.PROGRAM, "checkpoint", "runs/a", "--verify"]
        script = f"{mount} && {shlex.join(train)}; code=$?; {shlex.join(verify)} || code=$?; exit $code"
        job = self.begin_job([*unshare, "sh", "-c", script])
        line = self.expect_end(job, 60)
        self.assertRegex(line, r"cannot write runs/a/\S*: No space left on device")
        self.assertRegex(line, r"process [01] on ")

    def test_a_limit_of_file_sizes(self):
        job = self.begin_job(self.mpirun_words(2, *self.words("a", *ENDLESS)))
        self.wait_for_steps(job, "a")
        resource.prlimit(self.ranks()[1], resource.RLIMIT_FSIZE, (1 << 12, 1 << 12))
        self.assertRegex(self.expect_end(job, 60),
                         r"process 1 on \S+: cannot write runs/a/\S*: File too large")
        self.expect_valid_checkpoints("a")

    def flip(self, path):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)

    def test_a_damaged_shard(self):
        options = ("ranks=2", "steps=6", "every=2", "keep=0", "resume=auto")
        self.run_ok(*self.words("whole", *options))
        self.mpirun(2, *self.words("a", *options))
        stored = self.folder / "runs" / "a" / "checkpoints"
        self.flip(stored / "step-6" / "shard-2-of-2.safetensors")
        result = self.mpirun(2, *self.words("a", *options))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"resume: process 1 on \S+: \S+/step-6/shard-2-of-2.safetensors is "
                                        r"damaged: .*; trying the previous one, \S+/step-4")
        self.assertEqual(self.results("a"), self.results("whole"))
        for step in (2, 4, 6):
            self.flip(stored / f"step-{step}" / "shard-2-of-2.safetensors")
        result = self.mpirun(2, *self.words("a", *options))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(self.one_error(result), r"none of 3 checkpoints is complete: process 1 on \S+: "
                                                 r"\S+/step-6/shard-2-of-2.safetensors is damaged")

    def peak_memory(self):
        """Returns the KiB of address space that a process needs for the small model."""
        job = self.begin_job(self.mpirun_words(2, *self.words("a", *ENDLESS)))
        self.wait_for_steps(job, "a")
        status = pathlib.Path(f"/proc/{self.ranks()[1]}/status").read_text()
        jobs.kill(job.pid, signal.SIGTERM)
        self.finish(job)
        return int(re.search(r"VmPeak:\s*(\d+) kB", status).group(1))

    def test_out_of_memory(self):
        limit = self.peak_memory() + (64 << 10)
        train = (program.PROGRAM, *self.words("b", "ranks=2", "dim=64", "sequence=512", "batch=256",
                                              "memory_limit=none"))
        result = self.mpirun_different(train, ("sh", "-c", f'ulimit -v {limit}; exec "$@"', "sh", *train))
        self.assertIn(result.returncode, (1, 2), result.stderr)
        self.assertRegex(self.one_error(result), r"process 1 on \S+: .*out of memory|"
                                                 r"rank 1 \(process 1 on \S+\): .*: out of memory")


if __name__ == "__main__":
    program.main()
