"""Experts against eager and compiled PyTorch, and grouped matmuls against dense ones, on one thread.

All contenders stay alive and run in turns of half a second, so that a drifting machine affects them alike. Prints
medians over the turns.
"""
import argparse
import pathlib
import statistics
import subprocess

TURNS = 7
SIZES = {"dim": 256, "hidden": 512, "experts": 16, "top_k": 2, "heads": 4}


class Contender:
    """A process that runs what it reads and prints milliseconds."""

    def __init__(self, *words):
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args} ended: exit code {self.process.wait()}")
        return float(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(args, tokens, dtype):
    ours = Contender(args.speed, tokens, *SIZES.values(), dtype)
    options = [word for name, value in SIZES.items() for word in (f"--{name}", value)]
    peer = Contender(args.peer_python, pathlib.Path(__file__).with_name("moe_peer.py"), "--tokens", tokens, "--dtype", dtype,
                     *options)
    parts = [(ours, "grouped"), (ours, "dense"), (ours, "stage"), (peer, "loop"), (peer, "grouped"), (peer, "compiled")]
    times = [[] for _ in parts]
    for turn in range(args.turns + 1):
        for (contender, what), series in zip(parts, times):
            time = contender.run(what)
            if turn > 0:  # the first one compiles
                series.append(time)
    for contender in (ours, peer):
        contender.close()
    return [statistics.median(series) for series in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speed", required=True)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--turns", type=int, default=TURNS)
    # Without instructions for bf16, the peers take minutes.
    has_bf16 = "avx512_bf16" in pathlib.Path("/proc/cpuinfo").read_text()
    parser.add_argument("--dtypes", nargs="+", choices=("f32", "bf16"), default=("f32", "bf16") if has_bf16 else ("f32",))
    parser.add_argument("--tokens", nargs="+", type=int, default=(256, 1024, 4096))
    args = parser.parse_args()
    print(f"{SIZES['experts']} experts, top {SIZES['top_k']}, dim {SIZES['dim']}, hidden {SIZES['hidden']}; milliseconds of "
          "forward and backward on one thread")
    print(f"{'tokens':>7} {'dtype':>6} | {'grouped':>8} {'dense':>8} {'rate':>6} | {'stage':>8} {'loop':>8} {'grouped':>8} "
          f"{'compiled':>8} | {'eager/ours':>10} {'compiled/ours':>13}")
    for dtype in args.dtypes:
        for tokens in args.tokens:
            grouped, dense, stage, loop, eager, compiled = measure(args, tokens, dtype)
            print(f"{tokens:>7} {dtype:>6} | {grouped:8.2f} {dense:8.2f} {dense / grouped:6.2f} | {stage:8.2f} {loop:8.2f} "
                  f"{eager:8.2f} {compiled:8.2f} | {min(loop, eager) / stage:10.2f} {compiled / stage:13.2f}", flush=True)


if __name__ == "__main__":
    main()
