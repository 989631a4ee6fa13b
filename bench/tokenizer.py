"""Our tokenizers against the tokenizers package, on one thread each.

Usage: tokenizer.py ENCODE_TEXTS [--rounds N] [--kind NAME...]. Trains a vocabulary of each kind on part of Debian's
fortunes, and encodes that text by turns. Prints megabytes per second of the faster half of the rounds, and their ratio.
"""
import argparse
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "interop"))
import tokenizers_agree  # noqa: E402  after the environment is set

KINDS = ("gpt2", "llama3", "qwen", "deepseek", "llama2")


def faster_half(times):
    return statistics.mean(sorted(times)[:(len(times) + 1) // 2])


def measure(program, folder, text, rounds):
    """Returns seconds per round of the package and of ours, and the number of tokens."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    raw = text.encode()
    framed = struct.pack("<Q", len(raw)) + raw
    theirs, ours, count = [], [], 0
    with subprocess.Popen([program, str(folder), "--time"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for _ in range(rounds + 1):
            begin = time.perf_counter()
            count = len(tokenizer.encode(text, add_special_tokens=False).ids)
            theirs.append(time.perf_counter() - begin)
            process.stdin.write(framed)
            process.stdin.flush()
            seconds, tokens = process.stdout.readline().split()
            ours.append(float(seconds))
            assert int(tokens) == count, "different tokens"
        process.stdin.close()
    return theirs[1:], ours[1:], count  # the first round fills caches


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kind", nargs="+", default=KINDS)
    options = parser.parse_args()
    text = "\n".join(tokenizers_agree.corpus())
    print(f"{len(text.encode()) / 1e6:.2f} MB of text, one thread, MB/s")
    print(f"{'kind':10} {'tokens':>8} {'tokenizers':>11} {'penstock':>9} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tokenizers_agree.train(folder, options.kind)
        for kind in options.kind:
            theirs, ours, count = measure(options.program, folder / kind, text, options.rounds)
            size = len(text.encode()) / 1e6
            print(f"{kind:10} {count:8} {size / faster_half(theirs):11.2f} {size / faster_half(ours):9.2f} "
                  f"{faster_half(theirs) / faster_half(ours):6.1f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
