"""What `validate` accepts, training runs: schedules with one action dropped, repeated, moved or swapped."""
import pathlib
import random

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
RUN = ("dim=16", "heads=2", "sequence=16", "batch=1", "steps=2", "microbatches=4", "ranks=2", "sample=0", "watchdog=30",
       "pipeline.csv=mutant.csv")
TRAINED_EACH = 4  # of the accepted mutants of one schedule


def mutants(lanes):
    """All schedules with one change of one action, by what was changed."""
    for rank, lane in enumerate(lanes):
        def changed(what, new, rank=rank):
            return f"rank {rank}: {what}", [new if r == rank else other for r, other in enumerate(lanes)]
        for i, action in enumerate(lane):
            rest = lane[:i] + lane[i + 1:]
            yield changed(f"drop {action}", rest)
            yield changed(f"repeat {action}", lane[:i] + [action] + lane[i:])
            for to in {0, i + 1, i + 2, len(rest)}:
                yield changed(f"move {action} to {to}", rest[:to] + [action] + rest[to:])
            if i + 1 < len(lane):
                yield changed(f"swap {action}", lane[:i] + [lane[i + 1], action] + lane[i + 2:])


class MutantsTest(program.CommandTest):
    def lanes_of(self, *words):
        self.run_ok("schedule", *words, "--ranks", 2, "--microbatches", 4, "-o", "whole.csv")
        return [line.split(",") for line in (self.folder / "whole.csv").read_text().splitlines()]

    def write_lanes(self, lanes):
        self.write("mutant.csv", "".join(",".join(lane) + "\n" for lane in lanes))

    def train(self, what, *words):
        result = self.start("train", ENGLISH, *RUN, *words)
        text = (self.folder / "mutant.csv").read_text()
        self.assertEqual(result.returncode, 0, f"{what} {words}: {result.stderr}\n{text}")

    def test_accepted_mutants_train(self):
        self.require_engine()
        draw = random.Random(1)
        for passes, words in (("sharding,optimizer", ("parallel.data=2", "parallel.zero=3")),
                              ("reduce-grad,optimizer,communication", ("parallel.data=2", "parallel.zero=2"))):
            lanes = self.lanes_of("1f1b", "--pass", passes)
            every = list(mutants(lanes))
            draw.shuffle(every)
            trained = 0
            for what, changed in every:
                if trained == TRAINED_EACH:
                    break
                self.write_lanes(changed)
                if self.start("validate", "mutant.csv").returncode == 0:
                    self.train(what, *words)
                    trained += 1
            self.assertEqual(trained, TRAINED_EACH)

    def test_what_a_step_lacks_is_refused(self):
        lanes = self.lanes_of("1f1b", "--pass", "sharding,optimizer")
        for lacking in ("REDUCE_GRAD", "STEP"):  # files of earlier torch lack the last RESHARD
            cell = next(cell for cell in reversed(lanes[0]) if cell.endswith(lacking))
            self.write_lanes([[each for each in lane if each != cell] for lane in lanes])
            result = self.start("validate", "mutant.csv")
            self.assertEqual(result.returncode, 1, lacking)
            self.assertIn(cell, result.stdout + result.stderr)

    def test_actions_of_shards_need_shards(self):
        self.require_engine()
        for passes, key in (("sharding", "parallel.zero=3"), ("reduce-grad", "parallel.zero=2")):
            self.write_lanes(self.lanes_of("1f1b", "--pass", passes))
            self.assertIn(key, self.refuse("train", ENGLISH, *RUN))

    def test_weights_may_be_gathered_without_reducing(self):
        self.require_engine()
        lanes = self.lanes_of("1f1b", "--pass", "sharding")
        self.write_lanes([[cell for cell in lane if not cell.endswith("REDUCE_GRAD")] for lane in lanes])
        self.train("without REDUCE_GRAD", "parallel.data=2", "parallel.zero=3")


if __name__ == "__main__":
    program.main()
