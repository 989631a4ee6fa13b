"""The order of the collectives of stages. Processes of a group that call other ones would wait for each other forever."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.torch.capture.collectives import Call
from penstock.torch.engine import engine
from penstock.torch.mesh.planes import Plane
from penstock.torch.processes.sameness import Facts

_REMEDY = "the planes of a mesh run the same code: call the same collectives in the same order on all of them"
# The start of a collective in the text of a graph, or a whole one: its name, a reduction, and the number of its group.
_NODE = re.compile(r'penstock::(c10d_\w+?)(_start)?\((?:[^"\n]*"(\w+)")?[^)\n]*?(\d+)\)')


def of_calls(calls: Mapping[int, Iterable[Call]]) -> list[Facts]:
    """Returns what processes compare of the calls of captured stages, by stage of the model."""
    return [_facts(stage, [f"{call.name} {call.reduction} {call.dimensions}" for call in of]) for stage, of in calls.items()]


def of_graphs(texts: Mapping[int, str], plane: Plane) -> list[Facts]:
    """Returns what processes compare of compiled stages, whose graphs may have another order than the code."""
    facts = []
    for stage, text in texts.items():
        found = [each for each in _NODE.findall(text) if not each[0].endswith("_wait")]
        facts.append(_facts(stage, [f"{name} {reduction} {_dimensions(group, plane)}" for name, _, reduction, group in found]))
    return facts


def _dimensions(group: str, plane: Plane) -> str | None:
    return plane.dimensions_of(engine.name_of_group(int(group)))


def _facts(stage: int, lines: list[str]) -> Facts:
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]
    values: dict[str, Any] = {"the sequence of its collectives": f"{len(lines)} calls ({digest})"}
    return Facts(f"stage {stage}: ", _REMEDY, values)
