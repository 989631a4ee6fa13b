"""penstock watch on the files of made-up and real runs. The page is read by a headless Chromium, if one is installed."""
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import termios
import unittest

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
CONFIG = """name: "a"
steps: {steps}
seconds: 0
batch: 2
model: {{sequence: 16, layers: 4}}
pipeline: {{schedule: "1f1b", csv: "", microbatches: 2, stage_layers: []}}
"""
SCHEDULE = "".join(f"{rank}F0,{rank}F1,{rank}B0,{rank}B1\n" for rank in range(4))
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")


def line_of(step, busy=(0.1, 0.1, 0.2, 0.1)):
    return json.dumps({"step": step, "loss": 4 - step / 100, "lr": 0.1, "grad_norm": 2, "clipped": False,
                       "skipped": False, "bubble": 0.25, "seconds": (step + 1) / 2, "busy": busy,
                       "rank_bubble": [1 - b for b in busy],
                       "peak_activation_bytes": [(rank + 1) << 20 for rank in range(len(busy))]}) + "\n"


class WatchTest(program.CommandTest):
    def make_run(self, done, steps, name="runs/a"):
        """Writes the files of a run with `done` steps, in the order in which a run writes them."""
        run = self.folder / name
        run.mkdir(parents=True, exist_ok=True)
        (run / "schedule.csv").write_text(SCHEDULE)
        (run / "config.yaml").write_text(CONFIG.format(steps=steps))
        self.add_lines(range(done), name)

    def add_lines(self, steps, name="runs/a"):
        with open(self.folder / name / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.writelines(map(line_of, steps))

    def lock(self):
        """Marks the run as one of this process."""
        (self.folder / "runs" / "a" / ".lock").write_text(f"process {os.getpid()} on {socket.gethostname()}")

    def test_follows_a_run_from_before_its_start_to_its_end(self):
        with self.begin("watch", "a", "--interval", "0.01") as watch:
            def expect(text):
                self.assertIn(text, watch.stdout.readline())
            expect("waiting for a run in runs/a")
            (self.folder / "runs" / "a").mkdir(parents=True)
            self.lock()
            self.make_run(0, 6)
            expect("starting")
            self.add_lines([0, 1])
            expect("step 2/6")
            with open(self.folder / "runs/a/metrics.jsonl", "a", encoding="utf-8") as file:
                file.write(line_of(2)[:40])
            # It is killed here, and its successor resumes from step 1: it replaces the file.
            (self.folder / "runs" / "a" / ".lock").unlink()
            expect("stopped")
            os.utime(self.folder / "runs/a/metrics.jsonl", (1e9, 1e9))  # long before the next lock
            self.lock()
            expect("starting")
            self.write("runs/a/new", line_of(0) + line_of(1) + line_of(2) + line_of(3))
            (self.folder / "runs/a/new").rename(self.folder / "runs/a/metrics.jsonl")
            expect("step 4/6")
            self.add_lines([4, 5])
            expect("step 6/6")
            note = "penstock: there is no run 'a' yet; waits for runs/a\n"
            self.assertEqual(watch.communicate(timeout=60), ("", note))
            self.assertEqual(watch.returncode, 0)

    def test_ctrl_c_ends_it_with_success(self):
        self.make_run(3, 10)
        with self.begin("watch", "a") as watch:
            self.assertIn("step 3/10", watch.stdout.readline())
            watch.send_signal(signal.SIGINT)
            self.assertEqual(watch.communicate(timeout=60), ("", ""))
        self.assertEqual(watch.returncode, 0)

    def test_redraws_within_a_terminal(self):
        self.make_run(30, 40)
        self.lock()
        self.add_lines([30])
        master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        with subprocess.Popen([program.PROGRAM, "watch", "a", "--interval", "0.01"], cwd=self.folder,
                              stdout=terminal, stderr=terminal) as watch:
            os.close(terminal)
            shown = self.read_until(master, b"step 31/40", b"")
            self.add_lines(range(31, 40))
            shown = self.read_until(master, None, shown)
        os.close(master)
        self.assertEqual(watch.returncode, 0)
        self.assertIn("step 40/40", shown)
        self.assertRegex(shown, r"\x1b\[\d+A")  # a picture over the previous one
        for line in re.sub(r"\x1b\[\d*[AJK]|\r", "", shown).split("\n"):
            self.assertLessEqual(len(line), 40, line)

    def read_until(self, master, wanted, shown):
        """Reads the terminal until `wanted` is there, or to the end. Returns everything so far."""
        while wanted is None or wanted not in shown:
            try:
                got = os.read(master, 65536)
            except OSError:  # the other end is closed
                got = b""
            if not got:
                break
            shown += got
        return shown if wanted else shown.decode()

    @unittest.skipUnless(BROWSER, "apt-get install chromium-headless-shell")
    def test_the_page_shows_the_figures_in_a_browser(self):
        self.make_run(60, 100)
        self.run_ok("watch", "a", "--once", "--page", "a.html")
        document, log = self.browse("a.html")
        self.assertNotIn("CONSOLE", log)
        text = re.sub(r"<style.*?</style>|<[^>]*>", " ", document, flags=re.DOTALL)
        for figure in ("60", "of 100", "3.505", "128", "25.0%", "200.0 ms", "80.0%", "3.00 MiB",
                       "takes 2.00 times as long"):
            self.assertIn(f" {figure}", text)
        self.assertIn('reload every 5 s', document)
        points = re.search(r'<polyline points="([^"]*)"', document).group(1).split()
        self.assertEqual(len(points), 60)
        self.assertNotIn("http://", document.replace("http://www.w3.org/", ""))
        # An error of a script would have been noticed.
        self.write("b.html", "<script>missing()</script>")
        self.assertIn("CONSOLE", self.browse("b.html")[1])

    def browse(self, name):
        """Returns the document as the browser has it, and the browser's log."""
        result = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr",
             f"--user-data-dir={self.folder / 'profile'}", "--dump-dom", (self.folder / name).as_uri()],
            capture_output=True, text=True, timeout=120, check=True)
        return result.stdout, result.stderr

    def test_the_page_is_kept_up_to_date_while_watching(self):
        self.make_run(3, 10)
        with self.begin("watch", "a", "--interval", "0.01", "--page", "a.html") as watch:
            self.assertIn("step 3/10", watch.stdout.readline())
            self.assertIn(">3<", (self.folder / "a.html").read_text())
            self.add_lines(range(3, 10))
            self.assertIn("step 10/10", watch.stdout.readline())
            self.assertEqual(watch.wait(timeout=60), 0)
        page = (self.folder / "a.html").read_text()
        self.assertIn(">10<", page)
        self.assertNotIn("reload every", page)
        self.assertEqual(self.files(), ["a.html", "runs"])  # no temporary files

    def test_follows_a_real_run(self):
        self.require_engine()
        self.write("text", "".join(f"line {i * i} of {i}\n" for i in range(600)))
        words = ("train", ENGLISH, "dim=16", "heads=2", "sequence=32", "batch=1", "steps=30", "microbatches=4",
                 "sample=10", "ranks=2", "--data", "text", "--name", "a", "--json")
        with self.begin("watch", "a", "--interval", "0.01") as watch:
            self.assertIn("waiting", watch.stdout.readline())
            trained = self.start(*words)
            self.assertEqual(trained.returncode, 0, trained.stderr)
            self.assertIn("step 30/30", watch.communicate(timeout=60)[0].splitlines()[-1])
            self.assertEqual(watch.returncode, 0)
        status = self.run_json("watch", "a")
        self.assertEqual(status["state"], "finished")
        self.assertAlmostEqual(status["tokens_per_second"], 128 / status["step_time"])
        summary = json.loads(trained.stdout)
        self.assertEqual([rank["peak_activation_bytes"] for rank in status["per_rank"]],
                         [rank["peak_activation_bytes"] for rank in summary["per_rank"]])
        for rank in status["per_rank"]:
            self.assertGreater(rank["busy"], 0)
            self.assertLess(rank["bubble"], 1)


if __name__ == "__main__":
    program.main()
