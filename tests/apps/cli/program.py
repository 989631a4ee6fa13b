"""Runs the built program and checks the exit codes and one-line errors of every command.

A test file ends with program.main(); ctest runs it as FILE_test.py PROGRAM.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import termios
import unittest

PROGRAM = ""


class CommandTest(unittest.TestCase):
    """Each test runs its commands in an empty folder."""

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-cli-")
        self.addCleanup(self._folder.cleanup)
        self.folder = pathlib.Path(self._folder.name)

    @property
    def has_engine(self):
        return "\n  train " in self.start("--help").stdout

    @property
    def screenshots(self):
        return pathlib.Path(PROGRAM).with_name("screenshots")

    def require_engine(self):
        """Skips the test in a build without the engine."""
        if not self.has_engine:
            self.skipTest("a build without the engine")

    def start(self, *words, env=None):
        return subprocess.run([PROGRAM, *map(str, words)], cwd=self.folder, capture_output=True,
                              timeout=120, check=False, text=True, errors="replace",
                              env={**os.environ, **(env or {})})

    def interrupt(self, *words, thread=None, file=None, number=signal.SIGINT):
        """Runs a command and sends it a signal once it has a thread of this name or has written to
        this file. Returns its exit code and output."""
        with self.begin(*words) as process:
            if file:
                self.wait_for(process, file)
            else:
                while thread not in thread_names(process.pid):
                    self.assertIsNone(process.poll(), words)
            process.send_signal(number)
            stdout, stderr = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)

    def begin(self, *words):
        return subprocess.Popen([PROGRAM, *map(str, words)], cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait_for(self, process, name):
        """Waits until the process has written to the file."""
        path = self.folder / name
        while not (path.exists() and path.stat().st_size > 0):
            if process.poll() is not None:
                self.fail(f"ended without {name}: {process.communicate()}")

    def run_ok(self, *words, env=None):
        """Runs a command that must succeed without writing to stderr. Returns its stdout."""
        result = self.start(*words, env=env)
        self.assertEqual(result.returncode, 0, f"{words}: {result.stderr}")
        self.assertEqual(result.stderr, "", words)
        return result.stdout

    def on_terminal(self, *words, env=None, columns=0):
        """Runs a command whose output goes to a terminal. Returns what the terminal receives."""
        reader, writer = os.openpty()
        termios.tcsetwinsize(writer, (24 if columns else 0, columns))
        with subprocess.Popen([PROGRAM, *map(str, words)], cwd=self.folder, stdout=writer, stderr=writer,
                              env={**os.environ, "TERM": "xterm", **(env or {})}) as process:
            os.close(writer)
            received = b""
            while True:
                try:
                    part = os.read(reader, 1 << 16)
                except OSError:  # every writer has closed the terminal
                    break
                if not part:
                    break
                received += part
        os.close(reader)
        self.assertEqual(process.returncode, 0, f"{words}: {received}")
        return received.decode().replace("\r\n", "\n")

    def run_json(self, *words):
        return json.loads(self.run_ok(*words, "--json"))

    def run_rows(self, *words):
        """Returns the schedules that a command prints."""
        return self.run_json(*words)["schedules"]

    def refuse(self, *words, code=2, env=None):
        """Runs a command that must fail with one line on stderr and nothing on stdout. Returns the line."""
        result = self.start(*words, env=env)
        self.assertEqual(result.returncode, code, f"{words}: {result.stderr}{result.stdout}")
        self.assertEqual(result.stdout, "", words)
        self.assertEqual(result.stderr.count("\n"), 1, f"{words}: {result.stderr}")
        self.assertTrue(result.stderr.startswith("penstock: error: "), result.stderr)
        return result.stderr

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def files(self):
        return sorted(path.name for path in self.folder.iterdir())


def thread_names(process):
    names = []
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:  # it has ended
            pass
    return names


def main():
    # Shells start background jobs with SIGINT ignored, and nohup ignores SIGHUP.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    global PROGRAM  # pylint: disable=global-statement
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    sys.modules["program"].PROGRAM = PROGRAM
    unittest.main(module="__main__", verbosity=1)
