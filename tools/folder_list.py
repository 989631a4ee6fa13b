#!/usr/bin/env python3
"""tools/folder_list.py FLAG...   prints the paths of the folders of src that have one of the flags; with -FLAG, the folders
that are targets and lack it. src/folders.txt lists them; check-folders and docs-site read it by this module.

tools/folder_list.py --pages [ROOT]   writes src/WING/README.md for each wing, with a table of its folders.
"""
import dataclasses
import pathlib
import sys


@dataclasses.dataclass
class Folder:
    name: str  # as includes name it: "schedule/text"
    wing: str
    flags: set[str]
    allowed: list[str] | None  # other folders that it may include; None: its parent folder's
    holds: str
    path: str  # below src: "schedules/schedule/text"


@dataclasses.dataclass
class Wing:
    name: str
    purpose: str
    folders: list[Folder]


def read(root):
    """Returns the wings of src/folders.txt below the root."""
    wings = []
    for line in (pathlib.Path(root) / "src/folders.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        (first, *flags), *columns = line.split("|")[0].split(), *map(str.strip, line.split("|")[1:])
        if first == "wing":
            wings.append(Wing(flags[0], columns[0], []))
            continue
        wing = wings[-1]
        allowed = None if not columns[0] else [] if columns[0] == "-" else columns[0].split()
        path = first if first.split("/")[0] == wing.name else f"{wing.name}/{first}"
        wing.folders.append(Folder(first, wing.name, set(flags), allowed, columns[1], path))
    return wings


def folders(root):
    """Returns the folders of all wings, in order."""
    return [folder for wing in read(root) for folder in wing.folders]


def pages(root):
    """Returns, by path below the root, the page of each wing."""
    return {f"src/{wing.name}/README.md": page(wing) for wing in read(root)}


def page(wing):
    """Returns the page of a wing, which GitHub shows below the list of its files."""
    rows = ["| folder | holds | includes |", "| --- | --- | --- |"]
    for folder in wing.folders:
        needs = "".join(f" (needs {library})" for flag, library in LIBRARIES.items() if flag in folder.flags)
        rows.append(f"| `{folder.name}` | {folder.holds}{needs} | {', '.join(f'`{each}`' for each in folder.allowed or ())} |")
    return PAGE.format(name=wing.name, purpose=wing.purpose, rows="\n".join(rows))


LIBRARIES = {"torch": "libtorch", "mpi": "MPI", "cuda": "CUDA"}
PAGE = """# {name}

{purpose}. [architecture.md](../../docs/architecture.md#{name}) says how the wings work together.

{rows}

*includes*: other folders that this one may include, in addition to its subfolders and their neighbors; an empty cell stands for the folders in its parent's row.
`tools/folder_list.py --pages` writes this page from [folders.txt](../folders.txt); `tools/check-folders` refuses other includes and an outdated page.
"""


def main():
    root = pathlib.Path(__file__).resolve().parents[1]
    if sys.argv[1:2] == ["--pages"]:
        root = pathlib.Path(*sys.argv[2:3] or [root])
        for path, text in pages(root).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return
    wanted = {flag for flag in sys.argv[1:] if not flag.startswith("-")}
    without = {flag[1:] for flag in sys.argv[1:] if flag.startswith("-")}
    for folder in folders(root):
        if (not wanted or wanted & folder.flags) and not without & folder.flags and (wanted or "/" not in folder.name):
            print(folder.path)


if __name__ == "__main__":
    main()
