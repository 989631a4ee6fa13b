"""Tables of other systems (docs/measured.md): bench/run tables converts them, and calibrate prices some rows of each."""
import converted_tables
import program
from converted_tables import TABLES

# By table: rows, priced ones, and the largest mean error of time and the least share within 10% of memory, where they are measured
# and modeled. The errors are those of these rows, rounded up.
EXPECTED = {
    "a100_multi_node": (8, 8, 0.08, None),
    "a100_single_node": (25, 25, 0.11, None),
    "nemo_sweep": (6, 6, 0.08, None),
    "uneven_stages": (6, 6, 0.2, 0.3),
    "megatron_bridge": (14, 13, 0.08, None),
    "megatron_tests": (10, 10, None, 0.95),
}
# By table: a row, and columns that it becomes; "" for those that it leaves open.
CONVERTED = [
    # One node recomputes nothing, several recompute everything.
    ("a100_single_node", "4,16,4,2048,16,24,1024,1,2,2,410.5",
     {"model": "gpt", "layers": "24", "hidden": "8192", "nodes": "1x4", "microbatches": "2", "data_parallel": "2", "ranks": "2",
      "recompute": "", "step_time": "0.4105", "default:implementation": "megatron", "implementation": ""}),
    ("a100_multi_node", "3.6,64,512,8,3072,32,30,2048,2,32,1,3975.2", {"nodes": "8x8", "recompute": "full", "zero": "1"}),
    ("megatron_bridge", "26.08,Pre-Training,DeepSeekV3,DGX-GB300,256,MXFP8,4096,1,4096,0,1,2,1,8,32,6288,1635",
     {"model": "deepseek-v3", "device": "gb300", "nodes": "64x4", "precision": "mxfp8", "release": "2026-08", "chunks": "8",
      "expert": "32", "microbatches": "32", "predictors": "1", "cuda_graphs": "full", "layout": "4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,1",
      "tokens_per_second_per_device": "6288.0"}),
    # The last stage may have only the loss: Et|(tt|)*30mL.
    ("megatron_bridge", "25.09,Pre-Training,DeepSeekV3 (dropless),DGX-H100,1024,FP8,8192,1,4096,0,2,8,1,4,64,1297,338 (330)",
     {"layout": "1," + "2," * 30 + "0", "precision": "fp8-blockwise"}),
    # Only the all-to-all dispatcher drops tokens, and nothing overlapped its exchanges then.
    ("megatron_bridge", "25.09,Pre-Training,Qwen3_235B_a22B (tokendrop),DGX-H100,256,FP8,2048,1,4096,0,2,8,1,4,32,1204,178",
     {"drops_tokens": "true", "dispatcher": "all-to-all", "overlapped_experts": "", "cuda_graphs": ""}),
    ("megatron_bridge", "25.09,Pre-Training,Qwen3_235B_a22B (tokendrop),DGX-GB200,64,FP8,1024,1,4096,0,2,1,1,1,64,4452 (4416),659 (654)",
     {"dispatcher": "all-to-all", "cuda_graphs": "full"}),
    # Of two values in a cell, the first counts.
    ("megatron_bridge", "25.09,Pre-Training,LLAMA3_70B,DGX-GB200,64,FP8-CS (FP8-MX),128,2,8192,64 (0),1 (2),1 (4),1,1 (5),n/a,3541 (3475),1",
     {"precision": "fp8", "zero": "3", "offloaded_layers": "40", "ranks": "1", "tokens_per_second_per_device": "3541.0"}),
    ("uneven_stages", "a10g,aceso,gpt 2_6B,c,25150.69,18099.26,4,32,2560,32,2048,64,2,3,1/2/1,4,T/T/F,1/1/1,1/2/1",
     {"stage_tensor": "1,1,1", "stage_data": "1,2,1", "stage_recompute": "full,full,none", "microbatches": "32",
      "peak_bytes": str(18099.26 * 2**20)}),
    # The device is assumed.
    ("nemo_sweep", "llama 8B,8192,4,1,2,1,1,1024,128,23.6156,145.21",
     {"default:device": "a100", "default:attention": "flash", "device": "", "context": "2", "data_parallel": "16"}),
]
REFUSED = [
    ("a100_single_node", "4,15,4,2048,16,24,1024,1,2,2,410.5", "global_batch '15': 2 replicas of microbatches of 4 samples do not divide it"),
    ("a100_single_node", "4,16,4,2048,16,24,1024,1,2,2,", "iteration_ms '': a number is needed"),
    ("megatron_bridge", "26.08,Pre-Training,DeepSeekV9,DGX-GB300,256,MXFP8,4096,1,4096,0,1,2,1,8,32,6288,1", "model 'DeepSeekV9'"),
    ("uneven_stages", "a10g,aceso,g,c,25150,18099,4,32,2560,32,2048,64,2,3,1/2,4,T/T/F,1/1,1/2", "tp_first_op '1/1': 3 stages are needed"),
]


class MeasuredTablesTest(program.CommandTest):
    def calibrate(self, table, *words):
        converted_tables.convert([TABLES / f"{table}.csv"], self.folder)
        return self.run_json("calibrate", f"{table}.csv", *words)

    def convert_row(self, table, row):
        header = (TABLES / f"{table}.csv").read_text().splitlines()[0]
        self.write("row.csv", f"{header}\n{row}\n")
        return converted_tables.convert([self.folder / "row.csv"], self.folder / "out")

    def test_every_table_is_converted_and_priced(self):
        self.assertEqual(sorted(EXPECTED), sorted(path.stem for path in TABLES.glob("*.csv")))
        for table, (rows, priced, error, within_10) in EXPECTED.items():
            with self.subTest(table):
                self.assertIn(f"bench/run tables {TABLES / table}.csv -o FOLDER", self.refuse("calibrate", TABLES / f"{table}.csv"))
                scores = self.calibrate(table)
                self.assertEqual([scores["rows"], scores["priced"], len(converted_tables.rows_of(TABLES / f"{table}.csv"))],
                                 [priced, priced, rows])
                if error:
                    self.assertLess(scores["time"]["mape"], error)
                if within_10:
                    self.assertGreaterEqual(scores["memory"]["within_10"], within_10)

    def test_rows_become_columns(self):
        for table, row, expected in CONVERTED:
            with self.subTest(row):
                self.convert_row(table, row)
                (converted,) = converted_tables.rows_of(self.folder / "out/row.csv")
                self.assertEqual({name: converted.get(name, "") for name in expected}, expected)

    def test_rows_that_cannot_be_expressed_are_left_out(self):
        for table, row, reason in REFUSED:
            with self.subTest(row):
                self.assertIn(f"row.csv: line 2 is left out: {reason}", self.convert_row(table, row))
                self.assertEqual(converted_tables.rows_of(self.folder / "out/row.csv"), [])
        own = self.write("own.csv", "model,step_time\nllama-3-8b,1\n")
        self.assertIn("own.csv: line 1: no table of vTrain", converted_tables.start(self.folder / own, "-o", self.folder / "out").stderr)

    def test_tables_of_one_configuration_per_model_compare_precisions(self):
        scores = self.calibrate("megatron_bridge")
        self.assertEqual(scores["groups"][0]["group"], "model nemotron-3-super, device gb300, release 2026-08")
        self.assertGreater(scores["time"]["pairs_in_order"], 0.8)
        self.assertEqual(self.calibrate("megatron_bridge", "--group-by", "precision,samples,device")["groups"][0]["rows"], 2)

    def test_two_constants_of_one_node(self):
        for names in ("host_launch,flops_efficiency", "auto"):
            fitted = self.calibrate("a100_single_node", "--fit", names)["fitted"]
            self.assertEqual(len(fitted["constants"]), 2, names)
            self.assertLess(fitted["mape"], 0.1)
            self.assertLess(fitted["cross_validated_mape"], 0.1)

    def test_fitted_constants_come_before_those_of_the_table(self):
        fitted = self.calibrate("a100_multi_node", "--fit", "network_efficiency", "-o", "machine.yaml")
        (constant,) = fitted["fitted"]["constants"]
        self.assertNotAlmostEqual(constant["value"], 0.5, delta=0.001)  # that of the table
        again = self.run_json("calibrate", "a100_multi_node.csv", "--machine", "machine.yaml")
        self.assertAlmostEqual(again["time"]["mape"], fitted["time"]["mape"], delta=1e-3)


if __name__ == "__main__":
    program.main()
