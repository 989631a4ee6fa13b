"""calibrate: tables of measured runs, scores, fits and refusals."""
import json
import random
import shlex

import program

# Step times of llama-3-8b as a machine with an efficiency of 0.45 would have them, give or take a percent.
COLUMNS = "model,device,nodes,tensor,data_parallel,ranks,chunks,microbatches,step_time,peak_bytes,release"


class CalibrateTest(program.CommandTest):
    def write_runs(self, efficiency=0.45):
        lines = [COLUMNS]
        noise = random.Random(1)
        for tensor, data, ranks, chunks in ((1, 4, 4, 1), (2, 2, 4, 1), (2, 4, 2, 1), (4, 2, 2, 1), (1, 2, 8, 1), (2, 2, 4, 2)):
            schedule = "interleaved" if chunks > 1 else "1f1b"
            words = ("--model", "llama-3-8b", "--nodes", "2x8", "--tensor", tensor, "--data-parallel", data, "-p", ranks,
                     "-m", 32 // data, "--flops-efficiency", efficiency, "--chunks", chunks)
            (row,) = self.run_rows("simulate", schedule, *words)
            time = row["step_time"] * noise.uniform(0.99, 1.01)
            lines.append(f"llama-3-8b,h100,2x8,{tensor},{data},{ranks},{chunks},{32 // data},{time:.5f},"
                         f"{row['peak_bytes'] * 1.03:.0f},2026-08")
        self.write("runs.csv", "\n".join(lines) + "\n")

    def test_scores_have_the_documented_keys(self):
        self.write_runs()
        scores = self.run_json("calibrate", "runs.csv")
        self.assertEqual(list(scores), ["rows", "priced", "refused", "time", "groups", "memory", "fitted"])
        self.assertEqual([scores["rows"], scores["priced"], scores["refused"]], [6, 6, []])
        self.assertEqual(list(scores["time"]), ["mape", "bias", "pairs_in_order"])
        self.assertLess(scores["time"]["bias"], -0.1)  # the usual efficiency is 0.6
        (group,) = scores["groups"]
        self.assertEqual(list(group), ["group", "rows", "best_found", "regret"])
        self.assertIn("device h100", group["group"])
        self.assertTrue(group["best_found"])
        self.assertEqual(scores["memory"], {"rows": 6, "within_5": 1, "within_10": 1})
        self.assertIsNone(scores["fitted"])
        rows = self.run_json("calibrate", "runs.csv", "--rows")["predictions"]
        self.assertEqual([row["row"] for row in rows], [1, 2, 3, 4, 5, 6])
        for row in rows:
            (run,) = self.run_rows(*shlex.split(row["command"])[1:])
            self.assertAlmostEqual(run["step_time"] / row["step_time"], 1, places=12)

    def test_a_fit_is_what_simulate_then_reads(self):
        self.write_runs()
        fitted = self.run_json("calibrate", "runs.csv", "--fit", "flops_efficiency", "-o", "machine.yaml")["fitted"]
        (constant,) = fitted["constants"]
        self.assertEqual(constant["for"], {"device": "h100", "precision": "bf16", "release": "2026-08"})
        self.assertAlmostEqual(constant["value"], 0.45, delta=0.01)
        self.assertLess(constant["error"], 0.01)
        self.assertLess(fitted["mape"], 0.01)
        self.assertLess(fitted["cross_validated_mape"], 0.02)
        words = ("simulate", "1f1b", "--model", "llama-3-8b", "-m", 8)
        (usual,), (slower,) = (self.run_rows(*words, *more) for more in ((), ("--machine", "machine.yaml")))
        self.assertGreater(slower["makespan"], usual["makespan"])
        self.assertIn("it has no flops_efficiency for --device b200",
                      self.refuse(*words, "--device", "b200", "--machine", "machine.yaml"))
        (given,) = self.run_rows(*words, "--device", "b200", "--machine", "machine.yaml", "--flops-efficiency", 0.5)
        self.assertGreater(given["makespan"], 0)
        self.write("a.yaml", f"schedule: 1f1b\nmodel: llama-3-8b\nmachine: machine.yaml\nmicrobatches: 8\n")
        (config,) = self.run_rows("simulate", "a.yaml")
        self.assertEqual(config["makespan"], slower["makespan"])
        scores = self.run_json("calibrate", "runs.csv", "--machine", "machine.yaml")
        self.assertAlmostEqual(scores["time"]["mape"], fitted["mape"], delta=1e-3)

    def test_auto_and_tables(self):
        self.write_runs()
        text = self.run_ok("calibrate", "runs.csv", "--fit", "auto", "--rows")
        for words in ("6 rows in runs.csv: 6 priced, 0 refused", "pairs in order", "within 5%",
                      "best row found in 1 of 1", "flops_efficiency", "standard error", "of rows that it leaves out"):
            self.assertIn(words, text)

    def test_rows_that_cannot_be_priced_are_refused_one_by_one(self):
        self.write("runs.csv", COLUMNS + "\n"
                   "llama-3-8b,h100,2x8,1,4,4,1,8,2.5s,,\n"
                   "llama-3-8b,h100,2x8,3,4,4,1,8,2.5,,\n"
                   "llama-3-8b,h100,2x8,x,4,4,1,8,2.5,,\n"
                   "nothing,h100,2x8,1,4,4,1,8,2.5,,\n"
                   "llama-3-8b,h100,2x8,1,4,4,1,8,,,\n"
                   ",h100,2x8,1,4,4,1,8,1,,\n"
                   "llama-3-8b,h100,2x8,1,4,4,1,8,-1,,\n"
                   "llama-3-8b,h100,2x8,1,4,4,1,8,1,40 apples,\n")
        scores = self.run_json("calibrate", "runs.csv")
        self.assertEqual([scores["rows"], scores["priced"]], [8, 1])
        reasons = {row["row"]: row["reason"] for row in scores["refused"]}
        self.assertEqual(sorted(reasons), [2, 3, 4, 5, 6, 7, 8])
        for row, words in ((2, "tensor 3"), (3, "tensor"), (4, "'nothing'"), (5, "nothing that was measured"),
                           (6, "model"), (7, "step_time '-1'"), (8, "peak_bytes '40 apples'")):
            self.assertIn(words, reasons[row])
            self.assertNotIn("\n", reasons[row])
            self.assertNotIn("`", reasons[row])
        self.assertIn("runs.csv: line 3: tensor 3", self.run_ok("calibrate", "runs.csv", "--rows"))
        self.assertIsNone(scores["memory"]["within_5"])

    def test_units_of_what_was_measured(self):
        words = ("simulate", "1f1b", "--model", "llama-3-8b", "--nodes", "1x8", "--data-parallel", 2, "-p", 4, "-m", 8)
        (row,) = self.run_rows(*words)
        for column, value in (("step_time", f"{row['step_time'] * 1e3}ms"), ("iteration_ms", row["step_time"] * 1e3),
                              ("tokens_per_second_per_device", row["tokens_per_second"] / 8)):
            self.write("runs.csv", f"model,nodes,data_parallel,p,global_batch,{column}\nllama-3-8b,1x8,2,4,16,{value}\n")
            self.assertLess(self.run_json("calibrate", "runs.csv")["time"]["mape"], 1e-6, column)

    def test_defaults_jobs_and_the_rank_of_the_peak(self):
        columns = "model,nodes,p,m,data_parallel,step_time,peak_bytes,peak_of,job,default:device,default:flops-efficiency"
        self.write("runs.csv", f"{columns}\nllama-3-8b,1x8,8,4,1,1,1GiB,last,a,a100,0.3\nllama-3-8b,1x8,8,4,1,2,1GiB,worst,a,a100,0.3\n")
        last, worst = self.run_json("calibrate", "runs.csv", "--rows")["predictions"]
        self.assertEqual((last["group"], worst["group"]), ("a", "a"))
        self.assertIn("--device=a100", last["command"])
        self.assertLess(last["peak_bytes"], worst["peak_bytes"])
        (first, _) = self.run_json("calibrate", "runs.csv", "--rows", "--device", "h100", "--flops-efficiency", 0.5)["predictions"]
        self.assertIn("--device=h100", first["command"])
        self.assertLess(first["step_time"], last["step_time"])
        self.write("runs.csv", "model,step_time,peak_of\nllama-3-8b,1,best\n")
        self.assertIn("peak_of 'best': worst or last is needed", self.refuse("calibrate", "runs.csv"))

    def test_a_fit_needs_times(self):
        self.write("runs.csv", "model,peak_bytes\nllama-3-8b,40GiB\n")
        self.assertEqual(self.run_json("calibrate", "runs.csv")["memory"]["rows"], 1)
        for names in ("auto", "time_factor"):
            self.assertIn("runs.csv: no row has a measured time", self.refuse("calibrate", "runs.csv", "--fit", names))
        self.write("runs.csv", "model,step_time\nllama-3-8b,10\n")
        self.assertIn("1 rows with a time do not determine 1 constants", self.refuse("calibrate", "runs.csv", "--fit", "time_factor"))
        self.refuse("calibrate", "runs.csv", "--fit", "auto")

    def test_bad_files(self):
        for text, words in (("", "the table is empty"),
                            ("model\n", "a header and no rows"),
                            ("model,model\na,b\n", "line 1: column 'model' is given twice"),
                            ("model,step\na,1\n", "line 1: column 'step' is no option of 'penstock simulate'"),
                            ("model,tensr,step_time\na,1,1\n", "did you mean 'tensor'?"),
                            ("model,tensor\nllama-3-8b,1\n", "no column says what was measured"),
                            ("model,step_time\nllama-3-8b\n", "line 2: the row has 1 cells, the header 2"),
                            ("model,step_time\n\"llama,1\n", "line 2: a quoted cell does not end"),
                            ("model,step_time\nx,1\n", "none of the 1 rows can be priced; the first: line 2: model 'x'"),
                            ("model,step_time\n\x01,1\n", "line 2: ")):
            self.write("runs.csv", text)
            self.assertIn(words,
                          self.refuse("calibrate", "runs.csv"))
        self.assertIn("missing.csv", self.refuse("calibrate", "missing.csv"))

    def test_mutated_files_end_with_one_line(self):
        self.write_runs()
        text = (self.folder / "runs.csv").read_text()
        chance = random.Random(7)
        for _ in range(60):
            bytes_ = bytearray(text.encode())
            for _ in range(chance.randint(1, 6)):
                at = chance.randrange(len(bytes_))
                bytes_[at:at + chance.randint(0, 3)] = bytes(chance.choice(b',"\n\r0-9.x\xff\x00;e') for _ in range(chance.randint(0, 3)))
            (self.folder / "bad.csv").write_bytes(bytes_)
            result = self.start("calibrate", "bad.csv", "--json")
            self.assertIn(result.returncode, (0, 2), bytes_)
            if result.returncode == 2:
                self.assertEqual(result.stderr.count("\n"), 1, bytes_)
            else:
                json.loads(result.stdout)

    def test_refusals_of_options(self):
        self.write_runs()
        for words, expected in ((("-o", "a.yaml"), "--output has no effect without --fit"),
                                (("--fit-per", "device"), "--fit-per has no effect without --fit"),
                                (("--fit", "flops"), "did you mean 'flops_efficiency'?"),
                                (("--fit", "microbatches"), "no constant of the machine"),
                                (("--group-by", "devce"), "did you mean 'device'?"),
                                (("--fit", "flops_efficiency", "--fit-per", "tensor,data_parallel,ranks,chunks"),
                                 "6 rows with a time do not determine 6 constants"),
                                (("--fit", "flops_efficiency", "-o", "no/such/folder.yaml"), "no/such")):
            self.assertIn(expected, self.refuse("calibrate", "runs.csv", *words))


if __name__ == "__main__":
    program.main()
