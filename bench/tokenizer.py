"""Our tokenizers against the tokenizers package, on one thread each.

Usage: tokenizer.py ENCODE_TEXTS [--rounds N] [--kind NAME...]. Trains a vocabulary of each kind on part of Debian's
fortunes, and encodes fortunes that neither side has seen: each round has other ones, and the two take turns at being
first. The package gets them as one batch without offsets, its fastest call. Prints megabytes per second of processor
time, which other work on the machine does not change much, and the median and the range of the rounds' ratios.
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


PART_BYTES = 150_000


def parts_of(text):
    """The documents of a text, in lists of about PART_BYTES."""
    parts, size = [[]], 0
    for document in text:
        parts[-1].append(document)
        size += len(document.encode())
        if size > PART_BYTES:
            parts.append([])
            size = 0
    return parts[:-1]


def fortunes():
    folder = pathlib.Path("/usr/share/games/fortunes")
    files = sorted(path for path in folder.iterdir() if "." not in path.name)
    text = "\n%\n".join(path.read_text(errors="replace") for path in files)
    return [document for document in text.split("\n%\n") if document.strip()]


def processor_seconds(process):
    """The processor time of a process, in steps of nanoseconds."""
    return int(pathlib.Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) * 1e-9


def ours(process, part):
    """Returns the seconds that our encoder takes and its number of tokens."""
    begin = processor_seconds(process)
    for document in part:
        raw = document.encode()
        process.stdin.write(struct.pack("<Q", len(raw)) + raw)
    process.stdin.flush()
    lines = [process.stdout.readline().split() for _ in part]
    return processor_seconds(process) - begin, sum(int(line[1]) for line in lines)


def theirs(tokenizer, part):
    begin = time.process_time()
    encoded = tokenizer.encode_batch_fast(part, add_special_tokens=False)
    seconds = time.process_time() - begin
    return seconds, sum(len(each.ids) for each in encoded)


def measure(program, folder, parts):
    """Returns the bytes of the parts, and the seconds per part of the package and of ours. The first part fills caches."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    sizes, seconds = [], ([], [])
    with subprocess.Popen([program, str(folder), "--time"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for number, part in enumerate(parts):
            sides = [lambda part=part: theirs(tokenizer, part), lambda part=part: ours(process, part)]
            results = [None, None]
            for side in ((0, 1), (1, 0))[number % 2]:
                results[side] = sides[side]()
            assert results[0][1] == results[1][1], "different tokens"
            sizes.append(sum(len(document.encode()) for document in part))
            for side in (0, 1):
                seconds[side].append(results[side][0])
        process.stdin.close()
    return sizes[1:], seconds[0][1:], seconds[1][1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--kind", nargs="+", default=KINDS)
    options = parser.parse_args()
    parts = parts_of(fortunes())[:options.rounds + 1]
    print(f"{len(parts) - 1} rounds of about {PART_BYTES / 1e6} MB of text, one thread, MB/s")
    print(f"{'kind':10} {'tokenizers':>11} {'penstock':>9} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tokenizers_agree.train(folder, options.kind)
        for kind in options.kind:
            sizes, package, own = measure(options.program, folder / kind, parts)
            ratios = [one / other for one, other in zip(package, own)]
            speeds = [statistics.median(size / second for size, second in zip(sizes, side)) / 1e6 for side in (package, own)]
            print(f"{kind:10} {speeds[0]:11.2f} {speeds[1]:9.2f} {statistics.median(ratios):6.1f} "
                  f"({min(ratios):.1f} to {max(ratios):.1f})", flush=True)


if __name__ == "__main__":
    sys.exit(main())
