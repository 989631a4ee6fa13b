"""Jobs of several processes, strangers at their ports, and what a killed mpirun leaves."""
import contextlib
import os
import pathlib
import socket
import tempfile
import time

import jobs
import program

# As on several machines, where Open MPI needs TCP.
TCP = {"OMPI_MCA_btl": "self,tcp", "PENSTOCK_PROCESS_TIMEOUT": "2"}
ENDLESS = ("ranks=2", "steps=1000000", "watchdog=2")


def listening_ports(pid):
    """Returns the TCP ports at which a process listens."""
    own = set()
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            own.add(os.readlink(descriptor))
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def session_files(mpirun):
    """Returns the files that Open MPI keeps for the session of an mpirun."""
    sessions = list(pathlib.Path(tempfile.gettempdir()).glob(f"ompi.*/pid.{mpirun}"))
    files = list(sessions)
    for session in sessions:
        number = int((session / "contact.txt").read_text().partition(".")[0])
        files += pathlib.Path("/dev/shm").glob(f"vader_segment.*.{number >> 16:x}????.*")
    return files


class StrangersTest(jobs.JobTest):
    def begin_run(self, name, env=None):
        job = self.begin_job(self.mpirun_words(2, *self.words(name, *ENDLESS)), env=env)
        self.wait_for_steps(job, name, steps=3)
        return job

    def end(self, job):
        job.terminate()  # mpirun then ends its processes and removes its files
        job.communicate()

    def test_processes_of_one_machine_listen_at_no_port(self):
        job = self.begin_run("a")
        ports = {pid: listening_ports(pid) for pid in self.ranks().values()}
        self.end(job)
        self.assertEqual(list(ports.values()), [set(), set()])

    def test_strangers_do_not_freeze_a_job(self):
        for connections, sent in ((1, b"x"), (1, b"x" * 1000), (70, b"")):
            name = f"{connections}-{len(sent)}"
            with self.subTest(name), contextlib.ExitStack() as strangers:
                job = self.begin_run(name, env=TCP)
                ports = {port for pid in self.ranks().values() for port in listening_ports(pid)}
                self.assertTrue(ports)
                for port in sorted(ports) * connections:
                    with contextlib.suppress(OSError):
                        stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", port)))
                        stranger.sendall(sent)
                # It runs on, or it ends with a line.
                before, give_up = self.metrics_size(name), time.monotonic() + 60
                while job.poll() is None and self.metrics_size(name) < before + 100_000:
                    self.assertLess(time.monotonic(), give_up, "the job neither runs nor ends")
                    time.sleep(0.01)
                if job.poll() is None:
                    self.end(job)
                else:
                    result = self.finish(job)
                    self.assertEqual(result.returncode, 1, result.stderr)
                    self.assertIn("penstock: error: ", result.stderr)

    def test_launch_removes_what_a_killed_mpirun_leaves(self):
        job = self.begin_job([program.PROGRAM, "launch", "--", *self.mpirun_words(2, *self.words("a", *ENDLESS))])
        self.wait_for_steps(job, "a", steps=3)
        [mpirun] = self.processes("mpirun")
        files = session_files(mpirun)
        self.assertEqual(len(files), 3)  # and the shared memory of two processes
        for pid in (mpirun, *self.ranks().values()):
            jobs.kill(pid)
        self.assertEqual(self.finish(job).returncode, 137)
        self.assertEqual([file for file in files if file.exists()], [])


if __name__ == "__main__":
    program.main()
