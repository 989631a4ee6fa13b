"""penstock launch: runs any command, starts it again if it fails, and passes signals on."""
import pathlib
import shutil
import signal
import subprocess
import time

import program

# Counts its runs in the file 'runs', one byte for each.
COUNT = "printf x >>runs; "


class LaunchTest(program.CommandTest):
    def launch(self, *options, script):
        return self.start("launch", *options, "--", "sh", "-c", script)

    def count(self):
        path = self.folder / "runs"
        return path.stat().st_size if path.exists() else 0

    def begin_and_wait(self, *words):
        """Starts a command and waits until it has written the file 'ready'."""
        process = self.begin(*words)
        self.wait_for(process, "ready")
        return process

    def test_a_signal_stops_the_job_and_is_no_failure(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            wait = f"trap 'touch late; exit 3' {number:d}; printf x >ready; while :; do sleep 0.05; done"
            process = self.begin_and_wait("launch", "--restarts", "5", "--", "sh", "-c", COUNT + wait)
            process.send_signal(number)
            _, stderr = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 128 + number, stderr)
            self.assertNotIn("penstock", stderr)
            for name in ("late", "ready", "runs"):
                (self.folder / name).unlink()

    def test_a_signal_that_is_sent_twice_is_passed_on_once(self):
        script = ("trap 'printf s >>signals' TERM; printf x >ready; "
                  "while [ ! -e go ]; do sleep 0.05; done; exit 143")
        process = self.begin_and_wait("launch", "--", "sh", "-c", script)
        sent = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.wait_for(process, "signals")
        process.send_signal(signal.SIGTERM)
        in_time = time.monotonic() - sent < 1
        self.write("go", "")
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 143)
        if in_time:
            self.assertEqual((self.folder / "signals").read_text(), "s")

    def test_waits_for_the_children_of_a_stopped_job(self):
        # The shell ends at once; its child still writes a file.
        child = "(trap 'sleep 0.3; touch late; exit' TERM; printf x >ready; while :; do sleep 0.05; done)"
        process = self.begin_and_wait("launch", "--", "sh", "-c", f"{child} & wait")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual((process.returncode, self.files()), (128 + signal.SIGTERM, ["late", "ready"]))

    def test_a_second_signal_kills_children_that_ignore_the_first(self):
        child = "(trap '' INT; printf x >ready; while :; do sleep 0.05; done)"
        process = self.begin_and_wait("launch", "--", "sh", "-c", f"{child} & wait")
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)

    def test_a_signal_ends_the_pause(self):
        with self.begin("launch", "--restarts", "100000", "--", "sh", "-c", COUNT + "exit 1") as process:
            while self.count() < 2:
                self.assertIsNone(process.poll())
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)

    def test_kills_what_a_failed_job_leaves(self):
        # The child has left the group of the job, and its parent has ended.
        result = self.launch(script="setsid sh -c 'sleep 1000 & echo $! >left; wait' & "
                                    "while [ ! -s left ]; do sleep 0.01; done; exit 4")
        self.assertEqual(result.returncode, 4)
        left = pathlib.Path("/proc") / (self.folder / "left").read_text().strip()
        self.assertFalse(left.exists())

    def test_ignored_signals_stay_ignored(self):
        with subprocess.Popen(["nohup", program.PROGRAM, "launch", "--", "sh", "-c",
                               "printf x >ready; while [ ! -e go ]; do sleep 0.01; done"],
                              cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            self.wait_for(process, "ready")
            process.send_signal(signal.SIGHUP)
            (self.folder / "go").touch()
        self.assertEqual(process.returncode, 0)

    def test_mpi_jobs_have_time_to_stop(self):
        if shutil.which("mpirun") is None:
            self.skipTest("there is no mpirun")
        script = "trap 'sleep 2; touch late; exit 140' USR2; printf x >ready; while :; do sleep 0.05; done"
        process = self.begin_and_wait("launch", "--restarts", "5", "--", "mpirun", "--quiet",
                                      "--allow-run-as-root", "-n", "1", "sh", "-c", script)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, stderr)
        self.assertNotIn("penstock", stderr)
        self.assertIn("late", self.files())


if __name__ == "__main__":
    program.main()
