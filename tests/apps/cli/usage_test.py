"""Properties of all commands: help, examples, and words that nobody expects."""
import random
import re

import program

# Their output is no table.
WITHOUT_JSON = {"launch", "completion", "man", "export"}


class UsageTest(program.CommandTest):
    def commands(self):
        return sorted(set(re.findall(r"^  ([\w-]+)  ", self.run_ok("--help"), re.MULTILINE)) - {"help", "version"})

    def test_help_of_each_command(self):
        for command in self.commands():
            with self.subTest(command):
                text, brief = self.run_ok(command, "--help"), self.run_ok(command, "-h")
                self.assertIn(f"Usage: penstock {command} ", text)
                self.assertEqual([self.run_ok("help", command), self.run_ok("--help", command)], [text, text])
                if command not in WITHOUT_JSON:
                    self.assertIn("--json", text)
                self.assertLess(len(brief), len(text))
                self.assertIn(f"'penstock {command} --help' says more.", brief)
                self.assertLessEqual(set(re.findall(r"(?m)^  (?:-., )?(--[a-z0-9-]+)", text)), set(re.findall("--[a-z0-9-]+", brief)))

    def test_help_fits_a_terminal_and_says_the_exit_codes(self):
        for words in ((), *((command,) for command in self.commands())):
            for text in (self.run_ok("help", *words), self.run_ok(*words, "-h")):
                self.assertLessEqual(max(map(len, text.splitlines())), 80, words)
            text = self.run_ok("help", *words)
            self.assertRegex(text, r"(?s)\nExit codes: 0 .*;\s2\s", words)
            self.assertNotRegex(text, r"\b(INT|UINT|FLOAT|TEXT:|REQUIRED)\b", words)
        for columns, most in ((70, 70), (90, 90), (300, 100)):
            longest = max(map(len, self.on_terminal("simulate", "--help", columns=columns).splitlines()))
            self.assertTrue(most - 5 <= longest <= most, (columns, longest))

    def test_every_command_has_examples(self):
        self.write("mine.csv", self.run_ok("schedule", "1f1b"))
        for command in self.commands():
            text = self.run_ok("help", command)
            lines = re.findall(r"(?m)^  (\S.*)$", re.search(r"\nExamples:\n(.*?)\n\n", text, re.DOTALL)[1])
            self.assertTrue(lines, command)
            self.assertIn(".SH EXAMPLES", self.run_ok("man", command))
            for line in lines:
                self.assertIn(f"penstock {command}", line)
                for option in re.findall(r" (--?[a-z][a-z0-9-]*)", line.partition(" -- ")[0].partition(" | ")[0]):
                    self.assertIn(option, text, line)
                if command in ("schedules", "schedule", "validate", "simulate", "show", "diff", "report"):
                    self.run_ok(*line.split()[1:])

    def test_examples_of_the_program_are_of_its_commands(self):
        for line in re.findall(r"(?m)^  penstock (\S+)", self.run_ok("--help")):
            self.assertIn(line, self.commands())

    def test_random_words_never_crash(self):
        draw = random.Random(4)
        words = ["--schedule", "1f1b", "interleaved", "--ranks", "3", "-m", "--cost", "1,2,3", "-v", "--json", "--csv", "none.csv", "--comm", "0.5",
                 "--format", "csv", "-1", "", "=", "--width", "7", "-o", "x.html", "--time-steps", "\x01", "--", "--memory-limit"]
        commands = ("schedules", "schedule", "validate", "simulate", "show", "diff", "report", "calibrate", "watch", "checkpoint", "launch",
                    "completion", "man")
        calls = [[draw.choice(commands), *draw.choices(words, k=draw.randint(0, 6))] for _ in range(60)]
        for _ in range(30):  # tests/fuzz has more bytes
            calls.append(["validate", "".join(draw.choices("0123456789FIWB,;()\n SENDRCV_OLAPUHT", k=draw.randint(0, 60)))])
        for number, call in enumerate(calls):
            if number >= 60:
                call[1] = self.write("a.csv", call[1])
            # Otherwise, watch waits for the run.
            result = self.start(*call, *(("--once",) if call[0] == "watch" else ()))
            self.assertIn(result.returncode, (0, 1, 2), call)
            self.assertLessEqual(result.stderr.count("\n"), 1, f"{call}: {result.stderr}")
            self.assertNotIn("internal error", result.stderr, call)
            if result.returncode == 2:
                self.assertEqual(result.stdout, "", call)


if __name__ == "__main__":
    program.main()
