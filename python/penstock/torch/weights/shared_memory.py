"""Memory that several stages have: what one stage changes during a step, no other one may read.

Ranks run at the same time and microbatches overlap, so the order of the accesses would depend on
the schedule, or on chance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import nn

from penstock import Error
from penstock.torch.mesh.dtensors import part_of
from penstock.torch.weights.loss_tensors import LossTensors

#: A tensor of a stage: the stage's number, and what the tensor is ("buffer 'm'").
Place = tuple[int, str]
_FOREIGN = "a tensor that it does not own"


@dataclasses.dataclass(frozen=True)
class Accesses:
    """What the stages of a process access during a step, as far as others may have the memory."""

    #: Pairs of tensors of different stages that overlap in memory, among the modules of the process.
    overlaps: tuple[tuple[Place, Place], ...]
    #: The tensors that stages of the process read or change, and those that they change.
    accessed: frozenset[Place]
    changed: frozenset[Place]


def check_parameters(stages: Sequence[Iterable[tuple[str, nn.Parameter]]]) -> None:
    """Raises Error if trained parameters overlap in memory without being the same one.

    ``stages``: the parameters of each stage, by name.
    """
    trained = [
        ((stage, f"parameter '{name}'"), parameter)
        for stage, named in enumerate(stages)
        for name, parameter in named
        if parameter.requires_grad
    ]
    for one, other in _overlapping(trained):
        raise Error(
            f"{_names(one, other)} are different parameters in the same memory, which would be updated for both: give each "
            "memory of its own (clone()), or register one parameter in both places, which ties them"
        )


def storages(modules: Sequence[nn.Module | None], loss: LossTensors) -> frozenset[int]:
    """Returns the addresses of the memory of all stages' tensors."""
    named = [each for stage, module in enumerate(modules) for each in _named(module, loss if stage == len(modules) - 1 else None)]
    return frozenset(tensor.untyped_storage().data_ptr() for _, tensor in named if _address(tensor))


def accesses(
    modules: Sequence[nn.Module | None],
    loss: LossTensors,
    used: Mapping[int, tuple[list[torch.Tensor], list[torch.Tensor]]],
    *,
    has_updates: bool,
) -> Accesses:
    """Returns what this process knows about the memory that stages share.

    Args:
        used: by stage of this process, the tensors that its code reads, and those that it changes.
        has_updates: whether steps change trained parameters.
    """
    places: list[tuple[Place, torch.Tensor]] = []
    accessed, changed = set[Place](), set[Place]()
    for stage, module in enumerate(modules):
        named = _named(module, loss if stage == len(modules) - 1 else None)
        own = [((stage, what), tensor) for what, tensor in named]
        places += own
        if stage not in used:
            continue
        read, written = used[stage]
        trained = {place for place, tensor in own if tensor.requires_grad}
        changed.update(_touched(own, written), trained if has_updates else ())
        accessed.update(_touched(own, read), trained)
        # A capture refuses gradients of other stages' weights if an output depends on them.
        others = [*(each for each in read if not each.requires_grad), *written]
        foreign = [tensor for tensor in others if not _touched(own, [tensor])]
        places += [((stage, _FOREIGN), tensor) for tensor in foreign]
        accessed.add((stage, _FOREIGN))
    overlaps = tuple((one, other) for one, other in _overlapping(places) if one[0] != other[0])
    return Accesses(overlaps, frozenset(accessed | changed), frozenset(changed))


def _touched(own: list[tuple[Place, torch.Tensor]], tensors: Iterable[torch.Tensor]) -> set[Place]:
    """Returns the places whose memory the tensors have."""
    storages: dict[int, list[torch.Tensor]] = {}
    for each in tensors:
        storages.setdefault(each.untyped_storage().data_ptr(), []).append(each)
    return {
        place
        for place, tensor in own
        if _address(tensor)
        for other in storages.get(tensor.untyped_storage().data_ptr(), ())
        if _have_common_bytes(tensor, other)
    }


def refuse_updated(module: nn.Module, stage: int, read: list[torch.Tensor], changed: list[torch.Tensor], why: str) -> None:
    """Raises Error if the code reads a buffer that it updates: computed again, the values would be other ones.

    ``why``: what computes them again.
    """
    own = [((stage, what), tensor) for what, tensor in _named(module, None)]
    for _, what in sorted(_touched(own, read) & _touched(own, changed)):
        raise Error(
            f"stage {stage}: forward reads {what}, which it updates, so {why} would compute with the value of a later "
            "microbatch: leave it out, or pass the value with the batch"
        )


class BuffersByShape:
    """Refuses buffers that a stage updates for some shapes, and reads for others.

    The backward of such a shape would read what a later microbatch has written.
    """

    def __init__(self) -> None:
        # By stage, then by shape: what its code reads, and what it changes.
        self._of_stages: dict[int, list[tuple[set[Place], set[Place]]]] = {}

    def add(self, module: nn.Module, stage: int, read: list[torch.Tensor], changed: list[torch.Tensor]) -> None:
        own = [((stage, what), tensor) for what, tensor in _named(module, None)]
        now = _touched(own, read), _touched(own, changed)
        earlier = self._of_stages.setdefault(stage, [])
        for before in earlier:
            for (reads, changes), (_, of_other) in ((now, before), (before, now)):
                for _, what in sorted(reads & of_other - changes):
                    raise Error(
                        f"stage {stage}: forward reads {what}, which it updates for some shapes of a batch but not for "
                        "others, so a microbatch may read the value of a later one: update it for all shapes, or for none"
                    )
        if now not in earlier:
            earlier.append(now)


def check(of_all: Sequence[Accesses]) -> None:
    """Raises Error if a stage changes memory that another one reads or changes.

    ``of_all``: by process. All processes find the same.
    """
    accessed = frozenset[Place]().union(*(each.accessed for each in of_all))
    changed = frozenset[Place]().union(*(each.changed for each in of_all))
    for one, other in sorted({pair for each in of_all for pair in each.overlaps}):
        if one in accessed and other in accessed and (one in changed or other in changed):
            writers = sorted({place[0] for place in (one, other) if place in changed})
            does = f"stage {writers[0]} changes" if len(writers) == 1 else f"stages {writers[0]} and {writers[1]} change"
            raise Error(
                f"{_names(one, other)} share memory that {does} during a step, in an order that depends on the schedule: "
                "give each stage a copy (copy.deepcopy), or keep it unchanged (eval mode, track_running_stats=False)"
            )


def _named(module: nn.Module | None, loss: LossTensors | None) -> list[tuple[str, torch.Tensor]]:
    """Returns what each tensor of a stage is, and the tensor. ``loss``: of the last stage."""
    if module is None:
        return []
    of_loss = (*loss.parameters, *loss.state) if loss else ()
    return [
        *((f"parameter '{name}'", part_of(each)) for name, each in module.named_parameters()),
        *((f"buffer '{name}'", part_of(each)) for name, each in module.named_buffers()),
        *((f"'{name}'", each) for name, each in of_loss),
    ]


def _names(one: Place, other: Place) -> str:
    return f"{one[1]} of stage {one[0]} and {other[1]} of stage {other[0]}"


def _address(tensor: torch.Tensor) -> int:
    """Returns where the memory begins; 0 without memory."""
    if tensor.layout != torch.strided or tensor.is_meta or nn.parameter.is_lazy(tensor) or tensor.numel() == 0:
        return 0
    try:
        return tensor.data_ptr()
    except RuntimeError:  # a subclass such as DTensor
        return 0


def _end(tensor: torch.Tensor) -> int:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()


def _overlapping(places: Iterable[tuple[Place, torch.Tensor]]) -> Iterator[tuple[Place, Place]]:
    """Yields pairs of places whose tensors are different objects with common bytes.

    The same tensor of two stages counts, too, unless it is trained, which ties the stages.
    """
    with_memory = [(place, tensor) for place, tensor in places if _address(tensor)]
    with_memory.sort(key=lambda each: (str(each[1].device), each[1].data_ptr()))
    open_ones: list[tuple[Place, torch.Tensor]] = []
    for place, tensor in with_memory:
        open_ones = [each for each in open_ones if each[1].device == tensor.device and _end(each[1]) > tensor.data_ptr()]
        for other, before in open_ones:
            is_tied = before is tensor and tensor.requires_grad
            if not is_tied and place != other and _have_common_bytes(before, tensor):
                first, second = sorted((other, place))
                yield first, second
        open_ones.append((place, tensor))


def _have_common_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    begin, end = max(one.data_ptr(), other.data_ptr()), min(_end(one), _end(other))
    if begin >= end or (one.is_contiguous() and other.is_contiguous()):
        return begin < end
    begin = min(one.data_ptr(), other.data_ptr())
    touched = torch.zeros(max(_end(one), _end(other)) - begin, dtype=torch.bool, device="cpu")
    views = [
        touched.as_strided(
            (*each.shape, each.element_size()),
            (*(stride * each.element_size() for stride in each.stride()), 1),
            each.data_ptr() - begin,
        )
        for each in (one, other)
    ]
    views[0].fill_(True)
    return bool(views[1].any())
