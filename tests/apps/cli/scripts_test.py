"""./run and ./test when nothing is installed or built yet."""
import os
import pathlib
import re
import shutil
import subprocess

import program

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Emulate a machine without any package and a user who is not root.
STUBS = {"id": "echo 1000", "sudo": "exit 1", "dpkg-query": "exit 1", "apt-get": "exit 1"}


class ScriptsTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        for name in ("run", "test"):
            shutil.copy(ROOT / name, self.folder)
        shutil.copytree(ROOT / "tools", self.folder / "tools")
        stubs = self.folder / "stubs"
        stubs.mkdir()
        for name, text in STUBS.items():
            (stubs / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            (stubs / name).chmod(0o755)

    def script(self, *words):
        path = f"{self.folder / 'stubs'}:{os.environ['PATH']}"
        return subprocess.run([self.folder / words[0], *words[1:]], cwd="/", capture_output=True,
                              timeout=60, check=False, text=True,
                              env={**os.environ, "PATH": path})

    def test_help_needs_nothing_installed(self):
        for words in (("run", "--help"), ("run", "-h"), ("run", "help"), ("test", "--help"),
                      ("test", "-h")):
            result = self.script(*words)
            self.assertEqual((result.returncode, result.stderr), (0, ""), words)
            self.assertIn(f"Usage: ./{words[0]} ", result.stdout)
            self.assertIn("Exit codes:", result.stdout)
            self.assertLessEqual(max(map(len, result.stdout.splitlines())), 100, words)
        self.assertFalse((self.folder / "build").exists())

    def test_help_of_run_names_every_command(self):
        commands = re.findall(r"^  ([\w-]+)  ", self.run_ok("--help"), re.MULTILINE)
        text = self.script("run", "--help").stdout
        for command in set(commands) - {"help", "version"}:
            self.assertRegex(text, rf"\b{command}\b")

    def test_without_root_the_line_to_run_updates_the_package_lists_first(self):
        for name in ("run", "test"):
            result = self.script(name)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, "sudo apt-get update && sudo apt-get install -y .*g\\+\\+")
            announced, error = result.stderr.splitlines()
            self.assertIn("about", announced)
            self.assertIn("error: packages are missing", error)


if __name__ == "__main__":
    program.main()
