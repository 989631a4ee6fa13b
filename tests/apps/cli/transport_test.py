"""penstock train with transport: c10d and transport: mpi on the test device: data of the device moves between processes
by its backend of c10d or by MPI, and a run has the bits of one on threads.

PENSTOCK_TEST_DEVICE is the library of tests/engine/device, and PENSTOCK_TEST_MPI the one by which MPI accesses its memory.
"""
import os
import unittest

import jobs
import program

DEVICE = os.environ.get("PENSTOCK_TEST_DEVICE", "")
MPI = os.environ.get("PENSTOCK_TEST_MPI", "")
ENVIRONMENT = {"LD_PRELOAD": DEVICE}
TRANSPORTS = ("transport=c10d", "transport=mpi") if MPI else ("transport=c10d",)


@unittest.skipUnless(DEVICE, "a build without the engine")
class TransportTest(jobs.JobTest):
    def words(self, name, *more):
        return super().words(name, "device=test_device", *more)

    def on_device(self, processes, *words):
        return self.finish(self.begin_on_device(processes, *words))

    def begin_on_device(self, processes, *words):
        command = [program.PROGRAM, *words] if processes == 1 else self.mpirun_words(processes, *words)
        if processes > 1:
            libraries = f"{MPI}:{DEVICE}" if "transport=mpi" in words else DEVICE
            command[1:1] = ["-x", f"LD_PRELOAD={libraries}"]
        return self.begin_job(command, env=ENVIRONMENT if processes == 1 else None)

    def test_gives_the_bits_of_threads(self):
        cases = [(2, ("ranks=4", "clip=0.5", "precision=bf16")),
                 (4, ("schedule=zbv", "ranks=2", "layers=8", "parallel.data=2", "parallel.zero=3")),
                 (2, ("ranks=1", "parallel.data=2", "parallel.zero=1")),
                 (2, ("ranks=4", "shard_vocabulary=true", "vocabulary=301")),
                 (2, ("schedule=dualpipev", "ranks=2", "layers=4"))]
        for number, (processes, options) in enumerate(cases):
            with self.subTest(options):
                for count, transport in (1, "transport=host"), *((processes, each) for each in TRANSPORTS):
                    result = self.on_device(count, *self.words(f"{transport}-{number}", *options, transport))
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertEqual(result.stderr, "")
                for transport in TRANSPORTS:
                    self.assertEqual(self.results(f"transport=host-{number}"), self.results(f"{transport}-{number}"))

    def test_experts_of_several_processes_agree_with_threads(self):
        options = "model.name=qwen3_moe", "model.experts=4", "model.top_k=2", "parallel.data=2", "parallel.expert=2", "ranks=1"
        losses = []
        for processes, transport in (1, "transport=host"), *((2, each) for each in TRANSPORTS):
            result = self.on_device(processes, *self.words(transport, *options, transport))
            self.assertEqual(result.returncode, 0, result.stderr)
            losses.append([step[1] for step in self.results(transport)[0]])
        for of_step in zip(*losses, strict=True):
            for loss in of_step:
                self.assertAlmostEqual(loss, of_step[0], places=3)

    def test_a_killed_process_ends_the_others_with_one_line(self):
        for transport in TRANSPORTS:
            with self.subTest(transport):
                job = self.begin_on_device(2, *self.words(transport, "ranks=2", "steps=100000", transport))
                self.wait_for_steps(job, transport)
                jobs.kill(self.ranks()[1])
                result = self.finish(job)
                self.assertNotEqual(result.returncode, 0)
                self.assertRegex(self.one_error(result), r"process 1 on \S+")

    def test_what_it_cannot_do_is_refused(self):
        for words, message in ((("device=cpu",), "device is cpu"), (("device=cuda",), "cuda"),
                               (("transport=nccl",), "host, c10d, mpi")):
            with self.subTest(words):
                result = self.on_device(2, *self.words("a", "ranks=2", "transport=c10d", *words))
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(message, self.one_error(result))

    def test_an_mpi_that_cannot_access_devices_is_refused(self):
        words = self.words("a", "ranks=2", "transport=mpi")
        command = self.mpirun_words(2, *words)
        command[1:1] = ["-x", f"LD_PRELOAD={DEVICE}"]
        result = self.finish(self.begin_job(command))
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(self.one_error(result), "transport: mpi: this MPI cannot access memory of devices: use one")


if __name__ == "__main__":
    program.main()
