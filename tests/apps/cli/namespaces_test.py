"""Two machines, made of network name spaces: mpirun starts a process on each, and their link fails.

Needs the rights to create network name spaces (root), iproute2, and unshare.
"""
import os
import shutil
import subprocess
import time

import jobs
import program

ADDRESSES = ("10.77.0.1", "10.77.0.2")
NETWORK = "10.77.0.0/24"
PROCESS_TIMEOUT = 5  # seconds, instead of 20
# mpirun notices 7 to 9 s after the last packet.
KEEPALIVE = {"oob_tcp_keepalive_time": 2, "oob_tcp_keepalive_intvl": 1, "oob_tcp_keepalive_probes": 7}


def run(command, check=True):
    return subprocess.run(command.split(), check=check, capture_output=True, text=True)


class NamespacesTest(jobs.JobTest):
    def setUp(self):
        super().setUp()
        for tool in ("ip", "unshare"):
            if shutil.which(tool) is None:
                self.skipTest(f"there is no program {tool}")
        self.machines = [f"penstock{os.getpid()}{letter}" for letter in "ab"]
        allowed = run(f"ip netns add {self.machines[0]}", check=False)
        if allowed.returncode != 0:
            self.skipTest(f"this user may not create network name spaces: {allowed.stderr.strip()}")
        self.addCleanup(self.remove, self.machines[0])
        run(f"ip netns add {self.machines[1]}")
        self.addCleanup(self.remove, self.machines[1])
        self.connect()
        self.write("hosts", "".join(f"{address} slots=1\n" for address in ADDRESSES))
        # What mpirun starts in place of ssh: agent ADDRESS COMMAND...
        agent = self.folder / "agent"
        other = self.machines[1]
        agent.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {other} unshare --uts '
                         f'sh -c "hostname {other}; $*"\n', encoding="utf-8")
        agent.chmod(0o755)

    def end_processes(self, machine):
        for pid in run(f"ip netns pids {machine}").stdout.split():
            jobs.kill(int(pid))

    def remove(self, machine):
        self.end_processes(machine)
        run(f"ip netns delete {machine}")

    def connect(self):
        """Connects the machines by a virtual cable, whose ends are called cable."""
        first, second = self.machines
        run(f"ip -n {first} link add cable type veth peer name cable netns {second}")
        for machine, address in zip(self.machines, ADDRESSES):
            run(f"ip -n {machine} addr add {address}/24 dev cable")
            run(f"ip -n {machine} link set cable up")
            run(f"ip -n {machine} link set lo up")

    def begin_run(self, name, *more):
        first = self.machines[0]
        command = self.mpirun_words(2, *self.words(name, "ranks=2", *more))
        mca = {"plm_rsh_agent": self.folder / "agent", "btl_tcp_if_include": NETWORK,
               "oob_tcp_if_include": NETWORK, **KEEPALIVE}
        options = ["--hostfile", "hosts", "-x", "PENSTOCK_PROCESS_TIMEOUT"]
        for key, value in mca.items():
            options += ["--mca", key, str(value)]
        command[1:1] = options
        return self.begin_job(["ip", "netns", "exec", first, "unshare", "--uts", "sh", "-c",
                               f'hostname {first}; exec "$@"', "sh", *command],
                              env={"PENSTOCK_PROCESS_TIMEOUT": str(PROCESS_TIMEOUT)})

    def test_gives_the_bits_of_threads(self):
        self.run_ok(*self.words("threads", "ranks=2"))
        result = self.finish(self.begin_run("a"))
        self.assertEqual(result.returncode, 0, result.stderr)
        for rank, machine in enumerate(self.machines):
            self.assertIn(f"pipeline {rank}, process {rank} on {machine}", result.stdout)
        self.assertEqual(self.results("a"), self.results("threads"))

    def expect_loss(self, break_link):
        job = self.begin_run("a", "steps=1000000", "checkpoint.every=1")
        self.wait_for_steps(job, "a")
        run(break_link)
        begin = time.monotonic()
        job.wait(PROCESS_TIMEOUT + 40)
        print(f"{break_link}: ended after {time.monotonic() - begin:.1f} s")
        self.end_processes(self.machines[1])  # they cannot know yet that mpirun has ended
        result = self.finish(job)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(f"process 1 on {self.machines[1]} is gone: ", self.one_error(result))
        self.run_ok("checkpoint", self.folder / "runs" / "a", "--verify")

    def test_a_link_that_is_cut(self):
        self.expect_loss(f"ip -n {self.machines[1]} link set cable down")

    def test_a_link_that_drops_all_packets(self):
        # They go to a network card that does not exist. Unlike tc's netem, every kernel has this.
        self.expect_loss(f"ip -n {self.machines[1]} neigh replace {ADDRESSES[0]} "
                         "lladdr 02:00:00:00:00:99 nud permanent dev cable")


if __name__ == "__main__":
    program.main()
