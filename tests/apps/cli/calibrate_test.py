"""calibrate: tables of measured runs, scores and fits. transcripts/calibrate.txt has what it refuses."""
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


if __name__ == "__main__":
    program.main()
