"""Writes the metrics of a training run for TensorBoard: ``python -m penstock.tensorboard RUN_FOLDER [-o FOLDER]``."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

_PER_RANK = ("busy", "rank_bubble", "peak_activation_bytes")


def _scalars(line: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yields the tags and values of a line; null is a number that is not finite."""
    for name in ("loss", "lr", "grad_norm", "bubble", "tokens_per_second", "held_out_loss"):
        if name in line:
            yield name, float("nan") if line[name] is None else line[name]
    for name in _PER_RANK:
        for rank, value in enumerate(line.get(name, [])):
            yield f"{name}/rank{rank}", value


def write(run: pathlib.Path, folder: pathlib.Path) -> int:
    """Writes an event file with every complete line of the run's metrics. Returns the number of lines.

    The file replaces what earlier event files of the folder show: its first record has TensorBoard drop their steps.
    """
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    metrics = run / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines(keepends=True) if line.endswith("\n")]
    end = max((line.get("seconds", 0) for line in lines), default=0)
    began = metrics.stat().st_mtime - end  # as if the run had never stopped
    seconds = 0.0
    writer = EventFileWriter(str(folder))
    writer.add_event(Event(wall_time=began, step=0, session_log=SessionLog(status=SessionLog.START)))
    for line in lines:
        seconds = line.get("seconds", seconds)
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in _scalars(line)]
        writer.add_event(Event(wall_time=began + seconds, step=line["step"], summary=Summary(value=values)))
    writer.close()
    return len(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m penstock.tensorboard", description="Writes the metrics of a run as an event file.")
    parser.add_argument("run", metavar="RUN_FOLDER", type=pathlib.Path, help="the folder of the run, with its metrics.jsonl")
    parser.add_argument("-o", "--output", metavar="FOLDER", type=pathlib.Path, help="where the event file goes (default: RUN_FOLDER)")
    given = parser.parse_args()
    folder = given.output or given.run
    try:
        print(f"wrote {write(given.run, folder)} lines to {folder}; show them with: tensorboard --logdir {folder}")
    except ImportError:
        sys.exit("penstock.tensorboard: event files need the package tensorboard: pip install tensorboard")
    except (OSError, ValueError) as error:
        sys.exit(f"penstock.tensorboard: {error}")


if __name__ == "__main__":
    main()
