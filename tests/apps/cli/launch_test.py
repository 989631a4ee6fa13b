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

    def test_passes_words_output_and_exit_code_on(self):
        result = self.start("launch", "--", "printf", "%s|", "--ranks", "[1,2]", "--cuts", "--", "")
        self.assertEqual((result.returncode, result.stdout, result.stderr),
                         (0, "--ranks|[1,2]|--cuts|--||", ""))
        result = self.launch(script="echo error >&2; exit 7")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (7, "", "error\n"))

    def test_restarts_until_the_job_succeeds(self):
        result = self.launch("--restarts", 5, script=COUNT + "[ $(cat runs) = xxx ] || exit 3")
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        self.assertRegex(result.stderr,
                         r"^penstock: launch: the job failed with exit code 3 after [^;]*; restart 1 of 5\n"
                         r"penstock: launch: the job failed with exit code 3 after [^;]*; restart 2 of 5\n$")

    def test_restarts_end(self):
        result = self.launch("--restarts=2", script=COUNT + "kill -9 $$")
        self.assertEqual((result.returncode, self.count()), (128 + signal.SIGKILL, 3))
        self.assertIn("the job was killed by signal 9", result.stderr)
        self.assertTrue(result.stderr.endswith("; it was restarted 2 times\n"), result.stderr)

    def test_bad_usage_and_stops_are_final(self):
        for code in (2, 130, 140, 143):
            result = self.launch("--restarts", 5, script=COUNT + f"exit {code}")
            self.assertEqual((result.returncode, result.stderr), (code, ""))
        self.assertEqual(self.count(), 4)
        # It was valid in the first run, so something else has changed.
        (self.folder / "runs").unlink()
        self.assertEqual(self.launch("--restarts", 1, script=COUNT + "exit $(cat runs | wc -c)").returncode, 2)
        self.assertEqual(self.count(), 2)

    def test_a_training_job_resumes(self):
        script = self.folder / "penstock"
        script.write_text('#!/bin/sh\necho "$*"\nexit 1\n', encoding="utf-8")
        script.chmod(0o755)
        for given, again in (
                (("train", "a.yaml", "dim=2"), "train --resume auto a.yaml dim=2"),
                (("train", "a.yaml", "resume=b"), "train a.yaml resume=b"),
                (("train", "--resume", "b", "a.yaml"), "train --resume b a.yaml"),
                (("eval", "a.yaml"), "eval a.yaml")):
            result = self.start("launch", "--restarts", 1, "--", script, *given)
            self.assertEqual(result.stdout, f"{' '.join(given)}\n{again}\n")

    def test_gives_up_without_a_new_step(self):
        self.write("a.yaml", "name: b\n")
        script = self.folder / "penstock"
        step = '{"step": $n, "loss": 1, "lr": 1, "grad_norm": 1, "bubble": 0, "seconds": 1}'
        script.write_text("#!/bin/sh\n" + COUNT.replace("runs", "count") +
                          "n=$(cat count | wc -c)\nmkdir -p runs/b/checkpoints/step-4\n"
                          "[ $n -lt 3 ] && touch runs/b/checkpoints/step-4/manifest.json &&\n"
                          f"cat >runs/b/metrics.jsonl <<END\n{step}\nEND\nexit 1\n", encoding="utf-8")
        script.chmod(0o755)
        result = self.start("launch", "--restarts", 9, "--", script, "train", "a.yaml")
        self.assertEqual((result.returncode, (self.folder / "count").stat().st_size), (1, 4))
        lines = result.stderr.splitlines()
        self.assertTrue(lines[0].endswith("; restart 1 of 9 from step 4"), lines)
        self.assertTrue(lines[-1].endswith("; no restart, because 2 runs in a row ended without a new step"), lines)

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

    def test_refusals(self):
        self.assertIn("a command is missing", self.refuse("launch"))
        self.assertIn("a command is missing", self.refuse("launch", "--restarts", 3, "--"))
        self.assertIn("write -- before the command", self.refuse("launch", "mpirun", "-n", "2"))
        self.assertIn("'--restart'", self.refuse("launch", "--restart", 3, "--", "true"))
        self.assertIn("--restarts", self.refuse("launch", "--restarts", -1, "--", "true"))
        self.assertIn("cannot start none", self.refuse("launch", "--restarts", 3, "--", "none"))
        self.assertIn("exit codes", self.run_ok("launch", "--help").lower())
        self.assertIn("Usage: penstock launch [OPTION...] -- COMMAND...", self.run_ok("launch", "--help"))


if __name__ == "__main__":
    program.main()
