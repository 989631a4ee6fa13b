"""The Python package. Run by unittest with the package installed."""
import copy
import pathlib
import pickle
import tempfile
import unittest

import numpy as np

import penstock


class ScheduleTest(unittest.TestCase):
    def test_generates_validates_and_simulates(self):
        schedule = penstock.schedule("1f1b", ranks=4, microbatches=8)
        self.assertEqual((schedule.ranks, schedule.stages, schedule.microbatches, len(schedule)), (4, 4, 8, 64))
        self.assertEqual(schedule.validate(), [])
        run = schedule.simulate()
        self.assertEqual(run.makespan, 33)  # (m + p - 1)(F + I + W)
        self.assertAlmostEqual(run.bubble, 3 / 11)
        self.assertEqual(run.peak_memory, 4)

    def test_refuses_in_one_line(self):
        with self.assertRaisesRegex(penstock.Error, "1f1b") as caught:
            penstock.schedule("1f1c")
        self.assertNotIn("\n", str(caught.exception))
        self.assertIsInstance(caught.exception, ValueError)
        with self.assertRaisesRegex(TypeError, "no option 'chunk'"):
            penstock.schedule("zbv", chunk=2)
        with self.assertRaises(penstock.Error):
            penstock.schedule("zbv", ranks=0)

    def test_lanes_are_arrays(self):
        schedule = penstock.schedule("zbv", ranks=2, microbatches=3)
        lane = schedule.lanes[0]
        self.assertEqual(lane.dtype, penstock.ACTION)
        self.assertEqual(penstock.OPS[lane["op"][0]], "F")
        self.assertEqual(sorted(set(lane["microbatch"])), [0, 1, 2])
        faults = schedule.validate()
        schedule.lanes[0] = lane[1:]
        self.assertEqual(faults, [])
        self.assertNotEqual(schedule.validate(), [])
        schedule.lanes[0] = lane
        self.assertEqual(schedule.validate(), [])
        with self.assertRaises(IndexError):
            schedule.lanes[2]

    def test_times_are_arrays(self):
        schedule = penstock.schedule("1f1b", ranks=2, microbatches=3)
        run = schedule.simulate(cost=(1, 1, 2), comm=0.5)
        times = run.times(1)
        self.assertEqual(times.shape, (6, 2))
        self.assertEqual(times[0].tolist(), [1.5, 2.5])
        del run
        self.assertEqual(times[0].tolist(), [1.5, 2.5])
        self.assertTrue(np.all(np.diff(times[:, 0]) > 0))

    def test_costs_by_stage(self):
        schedule = penstock.schedule("gpipe", ranks=2, microbatches=1)
        costs = schedule.costs()
        stages = costs.stages
        stages[1].forward = 5
        costs.stages = stages
        self.assertEqual(schedule.simulate(costs).makespan, 1 + 5 + 2 + 2)
        with self.assertRaises(TypeError):
            schedule.simulate(costs, comm=1)

    def test_csv_pickle_and_copy(self):
        for name in ("interleaved", "dualpipe", "seq1f1b", "pipedream"):
            options = {"slices": 2} if name == "seq1f1b" else {}
            schedule = penstock.schedule(name, ranks=4, microbatches=8, **options)
            self.assertEqual(pickle.loads(pickle.dumps(schedule)), schedule)
            self.assertEqual(copy.deepcopy(schedule), schedule)
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "a.csv"
                schedule.to_csv(path)
                self.assertEqual(penstock.from_csv(path).to_csv(), schedule.to_csv())
        with self.assertRaises(ValueError):
            penstock._schedule._restore(b"123")

    def test_reports(self):
        schedule = penstock.schedule("zbv", ranks=2, microbatches=4)
        with tempfile.TemporaryDirectory() as folder:
            for ending in ("html", "svg", "trace.json"):
                path = pathlib.Path(folder) / f"a.{ending}"
                schedule.report(path, comm=0.1)
                self.assertGreater(path.stat().st_size, 1000)
            with self.assertRaisesRegex(penstock.Error, ".html"):
                schedule.report(pathlib.Path(folder) / "a.gif")
        self.assertIn("<svg", schedule._repr_html_())


if __name__ == "__main__":
    unittest.main()
