"""Figures of AMD Primus's simulator (primus_figures.json), for configurations whose schedules it generates correctly.

A row has the class, pp_size, vpp_size, micro_batches, further keys, [fwd, bwd, wgrad] times, the step time and the memory.
"""
import json
import pathlib

import program

FIGURES = json.loads(pathlib.Path(__file__).with_name("primus_figures.json").read_text())
CLASSES = "primus.core.pipeline_parallel.scheduler.algorithms."


class PrimusTest(program.CommandTest):
    def test_figures_match_those_of_primus(self):
        self.assertGreater(len(FIGURES), 250)
        for times in ([1000, 1000, 1000], [1000, 1200, 801]):
            chosen = [row for row in FIGURES if row[5] == times]
            entries = [{"name": str(number), "class": CLASSES + row[0], "pp_size": row[1], "vpp_size": row[2],
                        "micro_batches": row[3], **row[4]} for number, row in enumerate(chosen)]
            config = dict(zip(("fwd_time", "bwd_time", "wgrad_time"), times), schedulers=entries)
            for row, ours in zip(chosen, self.run_rows("simulate", self.write("a.yaml", json.dumps(config))), strict=True):
                if row[0].endswith("Heuristic"):  # ours is another search within the same memory
                    self.assertLessEqual(ours["makespan"], row[6], row)
                    self.assertLessEqual(ours["peak_memory"], row[4].get("max_mem", row[3]), row)
                    continue
                self.assertEqual(ours["makespan"], row[6], row)
                if "Interleaved" not in row[0]:  # whose memory Primus overestimates
                    self.assertEqual(ours["peak_memory"], row[7], row)


if __name__ == "__main__":
    program.main()
