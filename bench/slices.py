"""Runs programs at the same time in alternating slices, so that a drifting machine affects all alike.

Only one program runs at a time. The others are stopped (SIGSTOP), with all of their processes.
"""
import os
import pathlib
import signal
import subprocess
import time

SLICE = 2.0  # seconds; longer than a step, shorter than any time limit of a run


def descendants(root):
    """Returns the process and all of its descendants, parents first."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # has ended
        children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


class Program:
    """A command that appends a line to a file whenever it has done one unit of work."""

    def __init__(self, command, progress, env=None):
        self.progress = pathlib.Path(progress)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, **(env or {})}, start_new_session=True)
        self.seconds = 0.0
        self.done = 0

    def units(self):
        return self.progress.read_bytes().count(b"\n") if self.progress.exists() else 0

    def signal(self, number):
        for process in descendants(self.process.pid):
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass

    def run(self, seconds):
        before, start = self.units(), time.monotonic()
        self.signal(signal.SIGCONT)
        time.sleep(seconds)
        self.signal(signal.SIGSTOP)
        self.seconds += time.monotonic() - start
        self.done += self.units() - before

    def await_units(self, count):
        while self.units() < count:
            if self.process.poll() is not None:
                raise SystemExit(f"{self.process.args} ended: {self.process.stdout.read()}")
            time.sleep(0.05)
        self.signal(signal.SIGSTOP)

    def end(self):
        """Returns what it has printed."""
        self.signal(signal.SIGKILL)
        return self.process.communicate()[0]


def rates(programs, rounds):
    """Returns the units per second of each program, over `rounds` slices each."""
    for program in programs:
        program.await_units(3)
    for _ in range(rounds):
        for program in programs:
            program.run(SLICE)
    for program in programs:
        program.end()
    return [program.done / program.seconds for program in programs]
