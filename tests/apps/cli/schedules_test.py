"""schedules, schedule and validate."""
import json
import random

import program


class SchedulesTest(program.CommandTest):
    def test_lists_the_algorithms(self):
        rows = {row["name"]: row for row in self.run_rows("schedules")}
        for name in ("naive", "gpipe", "1f1b", "interleaved"):
            self.assertIn(name, rows)
            self.assertIn(name, self.run_ok("schedules"))
        self.assertIn("vpp", rows["interleaved"]["aliases"])

    def test_with_a_size_closed_forms_are_next_to_simulated_figures(self):
        words = ("schedules", "-p", 8, "-m", 32, "--message-bytes", 1000)
        rows = self.run_rows(*words)
        names = ",".join(row["name"] for row in rows)
        for row, priced in zip(rows, self.run_rows("simulate", "-s", names, *words[1:]), strict=True):
            self.assertEqual(row["closed_form"], priced["closed_form"])
            self.assertEqual(row["simulated"], {key: priced[key] for key in row["simulated"]})
            for key, value in row["closed_form"].items():
                if value is not None:
                    self.assertAlmostEqual(value, row["simulated"][key], msg=(row["name"], key))
        lines = self.run_ok(*words).splitlines()
        self.assertEqual(sum(line.startswith("  closed form") for line in lines), len(rows))
        self.assertLessEqual(max(map(len, lines)), 130)

    def test_with_a_size_refusals_are_listed_and_large_schedules_not_simulated(self):
        rows = {row["name"]: row for row in self.run_rows("schedules", "-p", 3, "-m", 5)}
        self.assertIn("m", rows["dualpipe"]["refused"])
        self.assertIsNone(rows["dualpipe"]["simulated"])
        self.assertIsNone(rows["dualpipe"]["closed_form"]["messages"])
        self.assertIn("schedule dualpipe: ", self.run_ok("schedules", "-p", 3, "-m", 5))
        rows = {row["name"]: row for row in self.run_rows("schedules", "-p", 1024, "-m", 8192)}
        self.assertIsNone(rows["1f1b"]["simulated"])
        self.assertEqual(rows["1f1b"]["closed_form"]["makespan"], 3 * (8192 + 1023))
        self.assertEqual(rows["1f1b"]["closed_form"]["messages"], 2 * 1023 * 8192)

    def test_writes_one_line_per_rank(self):
        self.assertEqual(self.run_ok("schedule", "1f1b", "-p", 2, "-m", 3),
                         "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n")
        lowered = self.run_ok("schedule", "1f1b", "-p", 2, "-m", 3, "--lower")
        for cell in ("0SEND_F0", "1RECV_F0", "1SEND_B2", "0RECV_B2"):
            self.assertIn(cell, lowered)

    def test_file_equals_the_printed_csv(self):
        printed = self.run_ok("schedule", "interleaved", "-p", 3, "-m", 7)
        self.run_ok("schedule", "interleaved", "-p", 3, "-m", 7, "-o", "a.csv")
        self.assertEqual((self.folder / "a.csv").read_text(), printed)
        self.assertNotIn(".tmp", "".join(self.files()))

    def test_file_in_a_missing_folder_is_refused(self):
        self.refuse("schedule", "1f1b", "-o", "none/a.csv")
        self.assertEqual(self.files(), [])


class ValidateTest(program.CommandTest):
    def check(self, text, code, *words):
        result = self.start("validate", self.write("a.csv", text), "--json", *words)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return json.loads(result.stdout)

    def test_every_schedule_written_is_valid(self):
        for row in self.run_rows("schedules"):
            lower = () if row["name"] in ("1f1b", "zbv", "dualpipe") else ("--lower",)
            self.run_ok("schedule", row["name"], "-p", 4, "-m", 8, "-o", "a.csv", *lower)
            self.assertEqual(self.run_json("validate", "a.csv"), {"valid": True, "faults": []})

    def test_faults_have_rank_position_action_and_reason(self):
        verdict = self.check("0F0,0B0\n1B0,1F0\n", 1)
        self.assertEqual(set(verdict), {"valid", "faults"})
        self.assertFalse(verdict["valid"])
        fault = verdict["faults"][0]
        self.assertEqual(set(fault), {"rank", "position", "action", "reason"})
        self.assertEqual((fault["rank"], fault["action"]), (1, "1B0"))
        self.assertEqual(self.start("validate", "a.csv").returncode, 1)

    def test_position_skips_blank_cells(self):
        verdict = self.check("0F0,,,0F1,,0B0,0B1\n,,1F0,,1B0,1F1,,1B1,1B1\n", 1)
        self.assertEqual(verdict["faults"][0]["position"], 4)

    def test_unreadable_files_are_refused(self):
        self.refuse("validate", "none.csv")
        self.refuse("validate", ".")
        for text in ("", "\n\n", "0F\n", "x\n", "0F0 0B0\n", "0F0,0Q0\n", "99999999F0\n",
                     "0F99999999999\n", "(0F0)OVERLAP_F_B\n", "\0\0\0"):
            message = self.refuse("validate", self.write("a.csv", text))
            self.assertIn("a.csv", message)

    def test_random_bytes_never_crash(self):
        draw = random.Random(9)
        alphabet = "0123456789FIWB,;()\n SENDRCV_OLAPUHT"
        for _ in range(30):  # tests/fuzz covers more
            text = "".join(draw.choices(alphabet, k=draw.randint(0, 60)))
            code = self.start("validate", self.write("a.csv", text)).returncode
            self.assertIn(code, (0, 1, 2), text)


if __name__ == "__main__":
    program.main()
