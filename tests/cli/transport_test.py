"""penstock train with transport: c10d on the test device: data of the device moves between processes by its backend of
c10d, and a run has the bits of one on threads.

PENSTOCK_TEST_DEVICE is the library of tests/device.
"""
import os
import unittest

import jobs
import program

DEVICE = os.environ.get("PENSTOCK_TEST_DEVICE", "")
ENVIRONMENT = {"LD_PRELOAD": DEVICE}


@unittest.skipUnless(DEVICE, "a build without the engine")
class TransportTest(jobs.JobTest):
    def words(self, name, *more):
        return super().words(name, "device=test_device", *more)

    def on_device(self, processes, *words):
        return self.finish(self.begin_on_device(processes, *words))

    def begin_on_device(self, processes, *words):
        command = [program.PROGRAM, *words] if processes == 1 else self.mpirun_words(processes, *words)
        if processes > 1:
            command[1:1] = ["-x", f"LD_PRELOAD={DEVICE}"]
        return self.begin_job(command, env=ENVIRONMENT if processes == 1 else None)

    def test_gives_the_bits_of_threads(self):
        cases = [(2, ("ranks=4", "clip=0.5", "precision=bf16")),
                 (4, ("schedule=zbv", "ranks=2", "layers=8", "parallel.data=2", "parallel.zero=3")),
                 (2, ("ranks=1", "parallel.data=2", "parallel.zero=1")),
                 (2, ("ranks=4", "shard_vocabulary=true", "vocabulary=301")),
                 (2, ("schedule=dualpipev", "ranks=2", "layers=4"))]
        for number, (processes, options) in enumerate(cases):
            with self.subTest(options):
                names = f"threads-{number}", f"c10d-{number}"
                for name, count, more in zip(names, (1, processes), ((), ("transport=c10d",))):
                    result = self.on_device(count, *self.words(name, *options, *more))
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertEqual(result.stderr, "")
                self.assertEqual(self.results(names[0]), self.results(names[1]))

    def test_experts_of_several_processes_agree_with_threads(self):
        options = "model.name=qwen3_moe", "model.experts=4", "model.top_k=2", "parallel.data=2", "parallel.expert=2", "ranks=1"
        losses = []
        for name, processes, more in (("threads", 1, ()), ("c10d", 2, ("transport=c10d",))):
            result = self.on_device(processes, *self.words(name, *options, *more))
            self.assertEqual(result.returncode, 0, result.stderr)
            losses.append([step[1] for step in self.results(name)[0]])
        for ours, theirs in zip(*losses, strict=True):
            self.assertAlmostEqual(ours, theirs, places=3)

    def test_a_killed_process_ends_the_others_with_one_line(self):
        job = self.begin_on_device(2, *self.words("a", "ranks=2", "steps=100000", "transport=c10d"))
        self.wait_for_steps(job, "a")
        jobs.kill(self.ranks()[1])
        result = self.finish(job)
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(self.one_error(result), r"process 1 on \S+")

    def test_what_it_cannot_do_is_refused(self):
        for words, message in ((("device=cpu",), "device is cpu"), (("device=cuda",), "cuda"),
                               (("transport=nccl",), "host, c10d")):
            with self.subTest(words):
                result = self.on_device(2, *self.words("a", "ranks=2", "transport=c10d", *words))
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(message, self.one_error(result))


if __name__ == "__main__":
    program.main()
