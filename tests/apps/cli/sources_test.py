"""Every command accepts names, CSV files, folders of dumps and configurations as arguments."""
import json

import program

# Options for comparable output of each command. report also needs a file.
COMMANDS = {"schedule": (), "show": ("--json",), "simulate": ("--json",),
            "report": ("--json", "-o", "a.svg"), "validate": ("--json",)}
SHAPE = ("-p", 2, "-m", 4)


class SourcesTest(program.CommandTest):
    def same(self, command, words, expected):
        """Checks that the outputs are equal except for the label, which is what the user wrote."""
        texts = []
        for source in (words, expected):
            text = self.run_ok(command, *source, *COMMANDS[command])
            if command in ("show", "simulate", "report"):
                rows = json.loads(text)
                for row in rows["schedules"]:
                    row.pop("schedule")
                text = json.dumps(rows)
            texts.append(text)
        self.assertEqual(*texts, (command, words))

    def test_every_command_takes_names_and_files(self):
        self.run_ok("schedule", "interleaved", *SHAPE, "-o", "a.csv")
        self.run_ok("simulate", "interleaved", *SHAPE, "--dump", "dumps")
        self.write("config.yaml", "schedule: interleaved\nranks: 2\nmicrobatches: 4\n")
        self.write("b.yml", "schedule: a.csv\n")
        self.write("shape.yaml", "ranks: 2\nmicrobatches: 4\n")
        named = ("--schedule", "interleaved", *SHAPE)
        for command in COMMANDS:
            self.same(command, ("interleaved", *SHAPE), named)
            self.same(command, (*SHAPE, "interleaved"), named)
            self.same(command, ("config.yaml",), named)
            self.same(command, ("interleaved", "shape.yaml"), named)
            self.same(command, ("-s", "interleaved", "shape.yaml"), named)
            self.same(command, ("a.csv",), ("--csv", "a.csv"))
            self.same(command, ("b.yml",), ("--csv", "a.csv"))
            self.same(command, ("./dumps/interleaved",), ("--csv", "dumps/interleaved"))

    def test_several_names_and_files_are_one_comparison(self):
        self.run_ok("schedule", "zb-h1", *SHAPE, "-o", "a.csv")
        self.write("config.yaml", "schedule: [gpipe, a.csv]\n")
        for words in (("gpipe", "a.csv", *SHAPE), ("gpipe,a.csv", *SHAPE), ("config.yaml", *SHAPE),
                      ("gpipe", "--csv", "a.csv", *SHAPE), ("-s", "gpipe", "a.csv", *SHAPE)):
            rows = self.run_rows("simulate", *words)
            self.assertEqual({row["schedule"] for row in rows}, {"gpipe", "a.csv"}, words)
            self.assertEqual(len(self.run_rows("show", *words)), 2, words)
            self.run_ok("report", *words, "-o", "a.svg")
            self.assertIn("2 schedules", self.refuse("schedule", *words))
            self.assertIn("2 schedules", self.refuse("validate", *words))

    def test_the_command_line_wins_over_the_configuration(self):
        self.write("config.yaml", "schedule: [gpipe, 1f1b]\nranks: 2\nmicrobatches: 4\n")
        (row,) = self.run_rows("simulate", "config.yaml", "zb-h1", "-p", 3)
        self.assertEqual((row["schedule"], row["ranks"], row["microbatches"]), ("zb-h1", 3, 4))

    def test_a_folder_with_the_name_of_a_schedule_does_not_hide_it(self):
        self.run_ok("simulate", "gpipe", *SHAPE, "--dump", ".")
        (row,) = self.run_rows("simulate", "gpipe")
        self.assertEqual(row["ranks"], 4)
        (row,) = self.run_rows("simulate", "./gpipe")
        self.assertEqual(row["ranks"], 2)

    def test_primus_configurations_are_drawn_and_written_too(self):
        self.write("primus.yaml", "fwd_time: 10\nbwd_time: 10\nwgrad_time: 10\nschedulers:\n"
                   "  - {name: 1f1b, pp_size: 2, vpp_size: 1, micro_batches: 4}\n")
        for command in COMMANDS:
            self.same(command, ("primus.yaml",), ("1f1b", *SHAPE, "--cost", "10,10,10"))

    def test_invalid_sources_are_refused(self):
        self.write("config.yaml", "ranks: 2\n")
        self.write("b.yaml", "schedule: config.yaml\n")
        self.write("a.txt", "0F0,0B0\n")
        self.write("a.cvs", "0F0,0B0\n")
        for command in COMMANDS:
            words = COMMANDS[command]
            self.assertIn("no schedule is given", self.refuse(command, *words))
            self.assertIn("no schedule is given", self.refuse(command, "config.yaml", *words))
            self.assertIn("both configurations", self.refuse(command, "config.yaml", "b.yaml", *words))
            self.assertIn("not a schedule", self.refuse(command, "b.yaml", *words))
            self.assertIn("--csv a.txt", self.refuse(command, "a.txt", *words))
            self.assertIn("did you mean '.csv'?", self.refuse(command, "a.cvs", *words))
            self.assertIn("none/there", self.refuse(command, "none/there", *words))
            self.assertIn("none.csv", self.refuse(command, "none.csv", *words))
            self.assertIn("none.yaml", self.refuse(command, "none.yaml", *words))
            self.run_ok(command, "--csv", "a.txt", *words)


if __name__ == "__main__":
    program.main()
