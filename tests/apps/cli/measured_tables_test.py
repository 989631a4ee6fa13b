"""calibrate on some rows of each table of other systems that it recognizes (docs/measured.md)."""
import pathlib

import program

TABLES = pathlib.Path(__file__).parents[2] / "planning/calibrate/tables"

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


class MeasuredTablesTest(program.CommandTest):
    def calibrate(self, table, *words):
        return self.run_json("calibrate", TABLES / f"{table}.csv", *words)

    def test_every_table_is_recognized_and_priced(self):
        self.assertEqual(sorted(EXPECTED), sorted(path.stem for path in TABLES.glob("*.csv")))
        for table, (rows, priced, error, within_10) in EXPECTED.items():
            with self.subTest(table):
                scores = self.calibrate(table)
                self.assertEqual([scores["rows"], scores["priced"]], [rows, priced])
                if error:
                    self.assertLess(scores["time"]["mape"], error)
                if within_10:
                    self.assertGreaterEqual(scores["memory"]["within_10"], within_10)

    def test_tables_of_one_configuration_per_model_compare_precisions(self):
        scores = self.calibrate("megatron_bridge")
        self.assertEqual(scores["groups"][0]["group"], "model nemotron-3-super, device gb300, release 2026-08")
        self.assertGreater(scores["time"]["pairs_in_order"], 0.8)
        self.assertEqual(self.calibrate("megatron_bridge", "--group-by", "precision,samples,device")["groups"][0]["rows"], 2)
        (refused,) = scores["refused"]
        self.assertIn("DeepSeekV4 Flash", refused["reason"])

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
        again = self.calibrate("a100_multi_node", "--machine", "machine.yaml")
        self.assertAlmostEqual(again["time"]["mape"], fitted["time"]["mape"], delta=1e-3)


if __name__ == "__main__":
    program.main()
