"""What holds for every command: help, version, refusals."""
import random

import program

COMMANDS = ("schedules", "schedule", "validate", "simulate", "show", "report")


class UsageTest(program.CommandTest):
    def test_version_and_help(self):
        self.assertRegex(self.run_ok("--version"), r"^penstock \d+\.\d+\.\d+\n$")
        listing = self.run_ok("--help")
        for command in COMMANDS:
            self.assertIn(command, listing)
            self.assertIn("--", self.run_ok(command, "--help"))

    def test_unknown_words_are_refused(self):
        self.refuse()
        self.refuse("simulat")
        self.refuse("simulate", "--schedule", "1f1b", "--no-such-option")
        self.refuse("simulate", "--schedule", "1f1b", "--ranks", "four")
        self.refuse("simulate", "--schedule", "1f1b", "--ranks")

    def test_unknown_schedule_names_those_there_are(self):
        for command in ("simulate", "show"):
            self.assertIn("interleaved", self.refuse(command, "--schedule", "1f2b"))

    def test_sizes_out_of_range_are_refused(self):
        for option in ("--ranks", "--chunks", "--microbatches"):
            for value in ("0", "-3", "99999999999999999999", "1.5", ""):
                self.refuse("simulate", "--schedule", "interleaved", f"{option}={value}")
        self.refuse("simulate", "--schedule", "interleaved", "-p", "60000", "-v", "60000")

    def test_costs_that_make_no_sense_are_refused(self):
        for cost in ("1,2", "a", "1,-1,1", "nan", "inf,1,1", "1,1,1,1", ""):
            self.refuse("simulate", "--schedule", "1f1b", f"--cost={cost}")
        for comm in ("-1", "nan", "x"):
            self.refuse("simulate", "--schedule", "1f1b", f"--comm={comm}")

    def test_random_words_never_crash(self):
        draw = random.Random(4)
        words = ["--schedule", "1f1b", "interleaved", "--ranks", "3", "-m", "--cost", "1,2,3", "-v",
                 "--json", "--csv", "none.csv", "--comm", "0.5", "--format", "csv", "-1", "", "=",
                 "--width", "7", "-o", "x.html", "--time-steps", "\x01", "--", "--memory-limit"]
        for _ in range(60):
            command = [draw.choice(COMMANDS)] + draw.choices(words, k=draw.randint(0, 6))
            result = self.start(*command)
            self.assertIn(result.returncode, (0, 1, 2), command)
            self.assertLessEqual(result.stderr.count("\n"), 1, f"{command}: {result.stderr}")
            self.assertNotIn("internal error", result.stderr, command)
            if result.returncode == 2:
                self.assertEqual(result.stdout, "", command)


if __name__ == "__main__":
    program.main()
