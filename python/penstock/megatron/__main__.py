"""Runs an unmodified script of Megatron-LM's with a schedule of ours.

torchrun ... -m penstock.megatron SCHEDULE[,OPTION=VALUE...] SCRIPT.py ARGUMENTS... [--penstock-record FOLDER]

SCHEDULE is a name (zbv), with options (zb-auto,costs=measured.yaml), or a CSV file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import runpy
import sys

from penstock import Error
from penstock.megatron.installation import install
from penstock.megatron.training import wrap_pretrain

_RECORD = "--penstock-record"


def main() -> None:
    """Takes the schedule off the command line and runs the script."""
    words, record = _without_record(sys.argv[1:])
    if len(words) < 2 or words[0].startswith("-"):
        sys.exit((__doc__ or "").strip())
    schedule, script, *rest = words
    if not os.path.isfile(script):
        sys.exit(f"penstock.megatron: there is no script {script}")
    sys.argv = [script, *rest]
    sys.path[0] = os.path.dirname(os.path.abspath(script))  # as python does for a script
    try:
        installation = install(schedule, record=record)
        if importlib.util.find_spec("megatron.training") is not None:
            with contextlib.suppress(ImportError):  # a script that needs Megatron-LM's training loop reports what is missing
                wrap_pretrain(installation)
    except Error as error:
        sys.exit(f"penstock.megatron: {error}")
    runpy.run_path(script, run_name="__main__")


def _without_record(words: list[str]) -> tuple[list[str], str | None]:
    """Returns the command line without the option of this module, and the option's value."""
    left, record = [], None
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.partition("=")
        if name != _RECORD:
            left.append(word)
            continue
        record = value if equals else next(remaining, None)
        if not record:
            sys.exit(f"penstock.megatron: {_RECORD} needs a folder")
    return left, record


if __name__ == "__main__":
    main()
