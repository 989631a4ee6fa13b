"""What all processes of a run must have in common, and the line that names what differs, and where."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from penstock import Error
from penstock.torch.batch.batches import Checked, Layout, Structure
from penstock.torch.mesh.means import tokens_of
from penstock.torch.mesh.planes import Plane

_MOST_ELEMENTS = 16_384  # of a tensor that a batch's checksum reads
_MOST_SHOWN = 3  # differences in one error
ABSENT = "absent"


@dataclasses.dataclass(frozen=True)
class Digest:
    """A value that is too long to be sent or shown."""

    code: int

    @staticmethod
    def of(content: bytes) -> Digest:
        return Digest(zlib.crc32(content))


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a process says about one thing, such as a stage: plain values by name.

    A fact that only others have differs, too.
    """

    what: str  # begins the error: "stage 1: "
    remedy: str  # ends it
    values: Mapping[str, Any]
    among: Any = None  # processes agree that say the same here


def compare(of_all: Sequence[Sequence[Facts]]) -> None:
    """Raises Error unless processes that have facts about the same thing agree.

    Args:
        of_all: by process, the facts that each has sent to all, so that all raise the same error.
    """
    groups: dict[tuple[str, str, Any], dict[int, Facts]] = {}
    for process, facts in enumerate(of_all):
        for each in facts:
            groups.setdefault((each.what, each.remedy, each.among), {})[process] = each
    for (what, remedy, _), by_process in groups.items():
        names = dict.fromkeys(name for each in by_process.values() for name in each.values)
        found = [text for name in names if (text := _difference(name, {p: f.values for p, f in by_process.items()}))]
        if found:
            more = f" (and {len(found) - _MOST_SHOWN} more)" if len(found) > _MOST_SHOWN else ""
            raise Error(f"{what}{'; '.join(found[:_MOST_SHOWN])}{more}: {remedy}")


def _difference(name: str, by_process: Mapping[int, Mapping[str, Any]]) -> str:
    """Returns the values of a fact by processes; "" if they are equal."""
    holders: list[tuple[Any, list[int]]] = []
    for process, values in by_process.items():
        value = values.get(name, ABSENT)
        same = next((processes for other, processes in holders if other == value), None)
        if same is None:
            holders.append((value, [process]))
        else:
            same.append(process)
    if len(holders) == 1:
        return ""
    if any(isinstance(value, Digest) for value, _ in holders):
        return f"{name} differ between {' and '.join(_processes(each) for _, each in holders)}"
    first, *others = (f"{value} on {_processes(processes)}" for value, processes in holders)
    return f"{name} is {first}, but {', and '.join(others)}"


def _processes(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"process {numbers[0]}"
    return f"processes {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def checksum(tensor: torch.Tensor) -> int:
    """Returns a checksum of a tensor's values, which equal tensors of all processes have."""
    whole = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if whole.numel() == 0:
        return 0
    size = whole.numel() * whole.element_size()
    return zlib.crc32((ctypes.c_char * size).from_address(whole.data_ptr()))


def sampled(tensor: torch.Tensor) -> torch.Tensor:
    """Returns at most `_MOST_ELEMENTS` of a tensor's elements, of the same indices for each tensor of its shape."""
    if tensor.numel() <= _MOST_ELEMENTS:
        return tensor
    # A step that shares no factor with a row's length visits all columns: one of them may be constant.
    step = -(-tensor.numel() // _MOST_ELEMENTS)
    while any(math.gcd(step, size) > 1 for size in tensor.shape[1:]):
        step += 1
    if tensor.is_contiguous():
        return tensor.view(-1)[::step]
    indices = torch.arange(0, tensor.numel(), step, device=tensor.device)
    return tensor[torch.unravel_index(indices, tensor.shape)]


@dataclasses.dataclass(frozen=True)
class Sums:
    """What processes compare of a batch."""

    samples: int
    tensors: tuple[list[int], list[int]]  # a checksum of each, of inputs and of targets
    constants: tuple[list[str], list[str]]
    factors: int  # a checksum

    def facts(self, call: str, kinds: Any, plane: Plane) -> Facts:
        """Returns what planes of a mesh compare. ``kinds``: the shapes of the inputs and the targets."""
        remedy = "pass the same batch on the planes of a mesh, divided along dimension 1 of all targets for its context dimension"
        values: dict[str, Any] = {"the number of samples": self.samples}
        tokens = tokens_of([sizes for sizes, _ in kinds[1]]) if plane.contexts > 1 else None
        return Facts(f"{call}: ", remedy, {**values, **_shapes(kinds, tokens)}, plane.process)

    def values_of(self, call: str, kinds: Any, plane: Plane) -> Facts:
        """Returns what planes compare that have the same part of the batch."""
        values: dict[str, Any] = _shapes(kinds, None) | {
            f"the values of tensor {n} of the {name}": Digest(code)
            for name, each in zip(("inputs", "targets"), self.tensors, strict=True)
            for n, code in enumerate(each)
        }
        remedy = "pass the same batch on all planes of a tensor group"
        return Facts(f"{call}: ", remedy, values, (plane.process, plane.context_place))


def _shapes(kinds: Any, tokens: int | None) -> dict[str, str]:
    """Returns the shapes of inputs and targets, without dimension 1 where it has ``tokens``."""
    return {
        f"the shape of tensor {n} of the {name}": str(["tokens" if i == 1 and size == tokens else size for i, size in enumerate(sizes)])
        for name, each in zip(("inputs", "targets"), kinds, strict=True)
        for n, (sizes, _) in enumerate(each)
    }


def sums_of(batch: Checked) -> Sums:
    """Returns what other processes need for `compare_batches`."""

    def codes(tensors: list[torch.Tensor]) -> list[int]:
        return [checksum(sampled(each)) for each in tensors]

    return Sums(
        batch.layout.samples,
        (codes(batch.inputs), codes(batch.targets)),
        (_constants(batch.layout.inputs), _constants(batch.layout.targets)),
        0 if batch.factors is None else checksum(batch.factors),
    )


def facts_of_batches(sums: Sequence[Sums], kinds: Sequence[Any], plane: Plane | None) -> list[Facts]:
    """Returns what planes of a mesh compare of batches."""
    if plane is None:
        return []
    calls = ["step"] if len(sums) == 1 else [f"steps: batch {number}" for number in range(len(sums))]
    triples = list(zip(calls, sums, kinds, strict=True))
    return [
        *(of.facts(call, each, plane) for call, of, each in triples),
        *(of.values_of(call, each, plane) for call, of, each in triples),
    ]


def _constants(structure: Structure | None) -> list[str]:
    plain = (bool, int, float, str, type(None))
    values = [each[0] for each in (structure.constants if structure else ()) if each is not None]
    return [repr(each) if isinstance(each, plain) else type(each).__name__ for each in values]


def compare_batches(
    kinds: Sequence[Sequence[Any]], sums: Sequence[Sequence[Sums]], readers: Sequence[Sequence[int]], layout: Layout
) -> None:
    """Raises Error if processes were given other values of one of the batches; see `compare_batch`.

    ``kinds`` and ``sums`` are by process and batch.
    """
    for number in range(len(sums[0])):
        call = "step" if len(sums[0]) == 1 else f"steps: batch {number}"
        compare_batch(call, [each[number] for each in kinds], [each[number] for each in sums], readers, layout)


def compare_batch(
    call: str, kinds: Sequence[Any], sums: Sequence[Sums], readers: Sequence[Sequence[int]], layout: Layout
) -> None:
    """Raises Error if processes were given other values of one batch.

    A process that does not read the inputs, or the targets, may have been given tensors of other shapes in place of them.

    Args:
        call: begins the error: "step".
        kinds: by process, the shapes of the inputs and of the targets (`shapes.kinds_of`).
        sums: by process.
        readers: the processes that read inputs, and the processes that read targets.
        layout: of this process's batch, for the names of its tensors.
    """
    remedy = "pass the same batch on every process, in the same order (samplers with the same seed)"
    compare([[Facts(f"{call}: ", remedy, {"the number of samples": each.samples})] for each in sums])
    for which, name in enumerate(("inputs", "targets")):
        wanted = kinds[readers[which][0]][which]
        paths = _paths((layout.inputs, layout.targets)[which], name, len(wanted))
        facts: list[list[Facts]] = [[] for _ in kinds]
        for process, of_process in enumerate(sums):
            if kinds[process][which] == wanted:
                values: dict[str, Any] = {
                    path: Digest(code) for path, code in zip(paths, of_process.tensors[which], strict=True)
                }
                for number, text in enumerate(of_process.constants[which]):
                    values[f"constant {number} of the {name}"] = text
                facts[process] = [Facts(f"{call}: ", remedy, values)]
        compare(facts)
    compare([[Facts(f"{call}: ", remedy, {"the weights of microbatches": Digest(each.factors)})] for each in sums])


def _paths(structure: Structure | None, name: str, tensors: int) -> list[str]:
    """Returns how a caller reaches each tensor: "inputs['mask']"."""
    if structure is None or structure.constants.count(None) != tensors:  # another process reads others
        return [f"tensor {number} of the {name}" for number in range(tensors)]
    numbered = pytree.tree_unflatten(list(range(len(structure.constants))), structure.spec)
    paths = [name + pytree.keystr(path) for path, _ in pytree.tree_leaves_with_path(numbered)]
    return [path for path, constant in zip(paths, structure.constants, strict=True) if constant is None]
