"""Training jobs of several processes, for tests."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
SMALL = ("dim=16", "heads=2", "sequence=32", "batch=1", "steps=4", "microbatches=4", "sample=10",
         "warmup=2", "dropout=0.1")
# As root, with more processes than cores.
MPIRUN = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
          "OMPI_MCA_rmaps_base_oversubscribe": "1"}


class JobTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        if not pathlib.Path(program.PROGRAM).with_name("penstock-engine-mpi").exists():
            self.skipTest("a build without MPI")
        self.write("text", "".join(f"line {i * i} of {i}\n" for i in range(600)))

    def words(self, name, *more):
        return ("train", ENGLISH, *SMALL, "--data", "text", "--name", name, *more)

    def mpirun_words(self, processes, *words):
        """Returns the command, which omits the notice that mpirun adds to an error."""
        return [shutil.which("mpirun"), "--quiet", "-n", str(processes), program.PROGRAM,
                *map(str, words)]

    def mpirun(self, processes, *words, env=None):
        return self.finish(self.begin_job(self.mpirun_words(processes, *words), env=env))

    def begin_job(self, command, env=None):
        return subprocess.Popen(list(map(str, command)), cwd=self.folder, text=True,
                                errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**os.environ, **MPIRUN, **(env or {})})

    def finish(self, job, limit=240):
        with job:
            try:
                stdout, stderr = job.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                for pid in [*self.ranks().values(), job.pid]:
                    kill(pid)
                self.fail(f"the job did not end within {limit} s: {job.communicate()}")
        return subprocess.CompletedProcess(job.args, job.returncode, stdout, stderr)

    def processes(self, program_name):
        """Returns the processes of a program that run in the test's folder."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (process / "comm").read_text().strip() == program_name[:15] and \
                        os.readlink(process / "cwd") == str(self.folder.resolve()):
                    found.append(int(process.name))
            except OSError:  # it has ended
                pass
        return found

    def ranks(self):
        """Returns the processes that train, by their number in the job."""
        return {number_in_job(pid): pid for pid in self.processes("penstock-engine-mpi")}

    def metrics_size(self, name):
        path = self.folder / "runs" / name / "metrics.jsonl"
        return path.stat().st_size if path.exists() else 0

    def wait_for_steps(self, job, name, steps=50):
        """Waits for so many steps that the processes have reported what they do."""
        path = self.folder / "runs" / name / "metrics.jsonl"
        while not path.exists() or path.read_bytes().count(b"\n") < steps:
            if job.poll() is not None:
                self.fail(f"ended without a step: {job.communicate()}")
            time.sleep(0.01)

    def one_error(self, result):
        """Returns the line of the error, which must be the only one."""
        errors = [line for line in result.stderr.splitlines() if "penstock: error" in line]
        self.assertEqual(len(errors), 1, result.stderr)
        return errors[0]

    def results(self, name):
        """Returns everything that does not depend on time."""
        run = self.folder / "runs" / name
        steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        model = (run / "model.safetensors").read_bytes()
        length = int.from_bytes(model[:8], "little")
        header = json.loads(model[8:8 + length])
        del header["__metadata__"]
        return [[step[key] for key in ("step", "loss", "lr", "grad_norm")] for step in steps], \
            header, model[8 + length:]


def number_in_job(pid):
    try:
        entries = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return -1
    for entry in entries:
        if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
            return int(entry.partition(b"=")[2])
    return -1


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has ended
        pass
