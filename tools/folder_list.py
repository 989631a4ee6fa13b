#!/usr/bin/env python3
"""tools/folder_list.py FLAG...   prints the paths of the folders of src that have one of the flags; with -FLAG, the folders
that are targets and lack it. src/folders.txt lists them; check-folders and docs-site read it by this module.
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


def main():
    root = pathlib.Path(__file__).resolve().parents[1]
    wanted = {flag for flag in sys.argv[1:] if not flag.startswith("-")}
    without = {flag[1:] for flag in sys.argv[1:] if flag.startswith("-")}
    for folder in folders(root):
        if (not wanted or wanted & folder.flags) and not without & folder.flags and (wanted or "/" not in folder.name):
            print(folder.path)


if __name__ == "__main__":
    main()
