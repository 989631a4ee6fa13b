"""released.py: says whether the released module of the playground is older than its sources; exit code 1 if it is.
released.py --write MODULE: releases a module that tools/playground has compiled from them.

The module is in the tree because its compiler takes 600 MB. `sources.txt` has the digest of each file that it is made of.
"""
import gzip
import hashlib
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[2]
MODULE, LIST = HERE / "playground_module.wasm.gz", HERE / "sources.txt"
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


def digests():
    files = {path for folder in folders() for ending in ("cpp", "h", "def") for path in folder.rglob(f"*.{ending}")}
    return {str(path.relative_to(SOURCE)): hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in sorted(files)}


def changed():
    """The sources that differ from the released ones."""
    released = dict(line.split() for line in LIST.read_text().splitlines()) if LIST.exists() and MODULE.exists() else {}
    now = digests()
    return sorted(name for name in now.keys() | released.keys() if now.get(name) != released.get(name))


def write(module):
    packed = gzip.compress(pathlib.Path(module).read_bytes(), 9, mtime=0)
    if len(packed) > MOST_BYTES:
        sys.exit(f"{module}: {len(packed)} bytes compressed, above {MOST_BYTES}: too large for the tree")
    MODULE.write_bytes(packed)
    LIST.write_text("".join(f"{name} {digest}\n" for name, digest in digests().items()))


def main():
    if sys.argv[1:2] == ["--write"]:
        return write(sys.argv[2])
    names = changed()
    if names:
        sys.exit(f"the released module is older than {len(names)} of its sources ({', '.join(names[:3])}, ...): "
                 "tools/playground --release")


main()
