"""released.py: says whether the released module of the playground is older than its sources; exit code 1 if it is.
released.py --write MODULE: releases a module that tools/playground has compiled from them.

The module is in the tree because its compiler takes 600 MB. `sources.sha256` has the digest of what it is made of.
"""
import gzip
import hashlib
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[2]
MODULE, DIGEST = HERE / "playground_module.wasm.gz", HERE / "sources.sha256"
MOST_BYTES = 1_500_000  # of the compressed module


def folders():
    """The folders that src/folders.txt marks with `browser`, with their subfolders."""
    wing, found = "", []
    for line in (SOURCE / "folders.txt").read_text().splitlines():
        words = line.split("|")[0].split()
        if words[:1] == ["wing"]:
            wing = words[1]
        elif words and not line.startswith("#") and "browser" in words[1:]:
            found += [path for path in (SOURCE / wing / words[0], SOURCE / words[0]) if path.is_dir()][:1]
    return found


def digest():
    """The digest of the sources' names and contents."""
    files = {path for folder in folders() for ending in ("cpp", "h", "def") for path in folder.rglob(f"*.{ending}")}
    every = hashlib.sha256()
    for path in sorted(files):
        every.update(f"{path.relative_to(SOURCE)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return every.hexdigest()


def write(module):
    packed = gzip.compress(pathlib.Path(module).read_bytes(), 9, mtime=0)
    if len(packed) > MOST_BYTES:
        sys.exit(f"{module}: {len(packed)} bytes compressed, above {MOST_BYTES}: too large for the tree")
    MODULE.write_bytes(packed)
    DIGEST.write_text(digest() + "\n")


def main():
    if sys.argv[1:2] == ["--write"]:
        return write(sys.argv[2])
    if not MODULE.exists() or DIGEST.read_text().strip() != digest():
        sys.exit("the released module is older than its sources: tools/playground --release")


main()
