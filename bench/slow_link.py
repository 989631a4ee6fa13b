"""Training over a slow link between two machines, against the simulator's prediction.

The machines are network name spaces, whose packets pass through this program: it forwards each after its time on a link
of the given bandwidth and a latency. The prediction uses the costs that the run has measured, and the median time of a
transfer as latency. Needs root, iproute2, unshare and Open MPI.
"""
import argparse
import collections
import contextlib
import fcntl
import json
import multiprocessing
import os
import pathlib
import select
import statistics
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
ADDRESSES = ("10.78.0.1", "10.78.0.2")
NETWORK = "10.78.0.0/24"
MTU = 60000
SHAPE = ("dim=256", "layers=8", "heads=4", "hidden=688", "sequence=128", "vocabulary=256", "microbatches=8", "ranks=2")
# One rank per replica, which computes each stage for all microbatches before the next, so a stage's weights are gathered
# once for its forwards and once for its backwards.
REPLICAS = ("dim=256", "layers=8", "heads=4", "hidden=688", "sequence=128", "vocabulary=256", "microbatches=16", "ranks=1",
            "schedule=looped-bfs", "chunks=8", "parallel.data=2")
# Sends messages at once rather than after the receiver has asked for them, which takes another round trip.
MCA = {"btl_tcp_if_include": NETWORK, "oob_tcp_if_include": NETWORK, "btl_tcp_eager_limit": 8 << 20,
       "btl_tcp_rndv_eager_limit": 8 << 20}


def run(command):
    return subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout


def open_tun(name):
    """Creates a network device whose packets this program reads and writes."""
    set_interface, tun_without_header = 0x400454CA, 0x1001
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, set_interface, struct.pack("16sH22x", name.encode(), tun_without_header))
    return device


class Direction:
    """Packets on their way from one device to another."""

    def __init__(self, source, target, latency, bandwidth):
        self.source, self.target, self.latency, self.bandwidth = source, target, latency, bandwidth
        self.free = 0.0  # when the link has sent all packets so far
        self.packets = collections.deque()

    def read(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = os.read(self.source, 65536)
                self.free = max(self.free, time.monotonic()) + len(packet) / self.bandwidth
                self.packets.append((self.free + self.latency, packet))

    def write(self):
        while self.packets and self.packets[0][0] <= time.monotonic():
            with contextlib.suppress(BlockingIOError):  # a full device drops packets, as any link
                os.write(self.target, self.packets.popleft()[1])


def forward(devices, latency, bandwidth):
    first, second = devices
    directions = [Direction(first, second, latency, bandwidth), Direction(second, first, latency, bandwidth)]
    while True:
        due = [direction.packets[0][0] for direction in directions if direction.packets]
        wait = max(0.0, min(due) - time.monotonic()) if due else 1.0
        select.select(devices, [], [], wait)
        for direction in directions:
            direction.read()
            direction.write()


class Machines:
    """Two name spaces with a core each, connected by a link."""

    def __init__(self, folder, latency, bandwidth):
        self.names = [f"slowlink{os.getpid()}{letter}" for letter in "ab"]
        self.folder = folder
        devices = []
        for name, address in zip(self.names, ADDRESSES):
            run(f"ip netns add {name}")
            devices.append(open_tun(name[-15:]))
            run(f"ip link set {name[-15:]} netns {name}")
            run(f"ip -n {name} addr add {address}/24 dev {name[-15:]}")
            run(f"ip -n {name} link set {name[-15:]} mtu {MTU} txqueuelen 10000 up")
            run(f"ip -n {name} link set lo up")
            for buffer in ("tcp_rmem", "tcp_wmem"):  # more than the link holds
                subprocess.run(["ip", "netns", "exec", name, "sysctl", "-q", f"net.ipv4.{buffer}=4096 4194304 16777216"],
                               check=True)
        self.forwarder = multiprocessing.Process(target=forward, args=(devices, latency, bandwidth), daemon=True)
        self.forwarder.start()
        agent = folder / "agent"
        other = self.names[1]
        agent.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {other} taskset -c 1 unshare --uts sh -c "hostname {other}; $*"\n')
        agent.chmod(0o755)
        (folder / "hosts").write_text("".join(f"{address} slots=1\n" for address in ADDRESSES))

    def mpirun(self, *words):
        options = ["--hostfile", str(self.folder / "hosts"), "--mca", "plm_rsh_agent", str(self.folder / "agent")]
        for key, value in MCA.items():
            options += ["--mca", key, str(value)]
        command = ["mpirun", "--quiet", "--allow-run-as-root", "--bind-to", "none", "-n", "2", *options, *words]
        return ["ip", "netns", "exec", self.names[0], "taskset", "-c", "0", "unshare", "--uts", "sh", "-c",
                f'hostname {self.names[0]}; exec "$@"', "sh", *command]

    def end(self):
        self.forwarder.terminate()
        for name in self.names:
            for process in run(f"ip netns pids {name}").split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), 9)
            run(f"ip netns delete {name}")


def train(given, folder, name, launcher, *words):
    command = [given.program, "train", str(ROOT / "bench" / "train.yaml"), "--json", f"steps={given.steps}",
               f"folder={folder}", f"data.path={folder / 'text'}", f"name={name}", *words]
    result = subprocess.run(launcher(*command) if launcher else command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(result.stderr)
    return json.loads(result.stdout[result.stdout.index("{"):])


def compare_schedules(given, folder, machines):
    schedules = {
        "1f1b": ("schedule=1f1b", "chunks=1"),
        "interleaved, v=2": ("schedule=interleaved", "chunks=2"),
        "zbv": ("schedule=zbv", "chunks=2"),
        "zb-auto for this latency": ("schedule=zb-auto", "chunks=1", f"pipeline.cost={given.cost}",
                                     f"pipeline.comm={given.comm}"),
        "v-auto for this latency": ("schedule=v-auto", "chunks=2", f"pipeline.cost={given.cost}",
                                    f"pipeline.comm={given.comm}"),
    }
    print(f"{' '.join(SHAPE)}\n"
          f"{'ms per step':26} {'threads':>9} {'slow link':>10} {'predicted':>10} {'difference':>11}   of each run", flush=True)
    runs = collections.defaultdict(list)  # by schedule
    for repeat in range(given.repeats):
        for number, (name, words) in enumerate(schedules.items()):
            fast = train(given, folder, f"fast-{number}-{repeat}", None, *SHAPE, *words)
            slow = train(given, folder, f"slow-{number}-{repeat}", machines.mpirun, *SHAPE, *words)
            runs[name].append((fast["step_time"], slow["step_time"], slow["predicted_step_time"],
                               slow["predicted_step_time"] / slow["step_time"] - 1))
    for name, results in runs.items():
        fast, measured, predicted, difference = (statistics.median(column) for column in zip(*results))
        differences = [result[-1] for result in results]
        print(f"{name:26} {fast * 1e3:9.1f} {measured * 1e3:10.1f} {predicted * 1e3:10.1f} {difference:+11.1%}"
              f"   {min(differences):+.1%} to {max(differences):+.1%}", flush=True)


def compare_sharding(given, folder, machines):
    print(f"{' '.join(REPLICAS)}\n{'ms per step of two replicas':34} {'slow link':>10} {'of zero=0':>10}", flush=True)
    rates = collections.defaultdict(list)  # by ZeRO stage
    for repeat in range(given.repeats):
        for zero in range(4):
            run = train(given, folder, f"zero-{zero}-{repeat}", machines.mpirun, *REPLICAS, f"parallel.zero={zero}")
            rates[zero].append(run["step_time"])
    whole = statistics.median(rates[0])
    for zero, times in rates.items():
        time_of_step = statistics.median(times)
        print(f"{f'zero={zero}':34} {time_of_step * 1e3:10.1f} {whole / time_of_step:10.2f}", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--program", required=True)
    options.add_argument("--latency", type=float, default=0.01, help="seconds, one way")
    options.add_argument("--bandwidth", type=float, default=100e6, help="bytes per second")
    options.add_argument("--steps", type=int, default=25)
    options.add_argument("--repeats", type=int, default=5, help="runs of each schedule, in turn; medians are printed")
    options.add_argument("--only", choices=("schedules", "sharding"))
    options.add_argument("--cost", default="1,1,1", help="F,I,W that the constructed schedule assumes")
    options.add_argument("--comm", default="1", help="latency that it assumes, in the unit of --cost")
    given = options.parse_args()
    print(f"link of {given.bandwidth / 1e6:g} MB/s and {given.latency * 1e3:g} ms one way")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        # Short, because the held-out loss of all of it is computed over the link.
        (folder / "text").write_text("".join(f"line {number * number} of {number}\n" for number in range(600)))
        machines = Machines(folder, given.latency, given.bandwidth)
        try:
            if given.only != "sharding":
                compare_schedules(given, folder, machines)
            if given.only != "schedules":
                compare_sharding(given, folder, machines)
        finally:
            machines.end()


if __name__ == "__main__":
    main()
