"""Costs: what actions take in time and memory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from penstock import _core
from penstock.actions import STAGE_COSTS, Records, records
from penstock.arguments import checked, count, former_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from penstock.schedule_data import Schedule

#: A number for all stages, or one number per stage.
PerStage: TypeAlias = "float | Sequence[float] | npt.NDArray[Any]"


class Common(TypedDict, total=False):
    """What all costs take; ``Costs`` describes each keyword."""

    comm: float | str
    bandwidth: float
    message_bytes: float
    activation_bytes: float
    topology: Sequence[Mapping[str, Any]]
    collectives: Mapping[str, Any]
    overlap: str | float
    transfers: str
    launch: float | str
    slow_rank: Mapping[int, float]
    offload_sharing: int
    microbatch_lengths: Sequence[float]
    prices: Mapping[str, float]
    time_unit: str


class StageFields(Common, total=False):
    """What else costs per stage and layer take; ``Costs.per_stage`` describes each keyword."""

    forward: PerStage
    backward_input: PerStage
    backward_weight: PerStage
    backward: PerStage
    recompute: PerStage
    step: PerStage
    unshard: PerStage
    reduce: PerStage
    message_scale: PerStage
    activation: PerStage
    activation_after_i: PerStage
    input_activation: PerStage
    gathered: PerStage
    weights: PerStage
    version: PerStage
    gradients: PerStage
    optimizer: PerStage
    workspace: PerStage


_KEYS = [cost for cost in _core.stage_costs() if cost.in_files]
_MEMORY = {cost.name for cost in _KEYS if cost.is_memory}
_FIELDS = {"backward", *(cost.name for cost in _KEYS)}


@checked
class Costs:
    """The times and memory of actions. Immutable; fits any schedule until it is used with one.

    Build one by ``uniform``, ``per_stage``, ``per_layer``, ``of_model`` or ``load``. All take these
    keywords:

    - ``comm``: latency of a message between two ranks, in units of time (default 0).
    - ``bandwidth``: of every link between ranks, in bytes per unit of time; needs ``message_bytes``.
    - ``message_bytes``: size of the tensor of a whole microbatch between two stages.
    - ``topology``: levels of links instead of ``comm`` and ``bandwidth``, each a mapping with
      ``level`` (its name), ``ranks``, ``latency``, ``bandwidth``, ``links`` and ``duplex``, as in
      configurations of ``penstock simulate``.
    - ``collectives``: replicas and links from which the times of UNSHARD and REDUCE_GRAD follow, a
      mapping as in configurations.
    - ``activation_bytes``: size of the activations of one rank and microbatch; memory is then in
      bytes.
    - ``launch``: time that every action which computes takes in addition.
    - ``slow_rank``: ranks that take longer, each with its factor: ``{3: 1.2}``.
    - ``offload_sharing``: consecutive ranks that share a link to the slower pool.
    - ``microbatch_lengths``: relative lengths of the microbatches, repeated if there are fewer.
    - ``overlap``: of a forward and a backward that run together: ``"max"``, ``"sum"`` or a factor.
    - ``transfers``: ``"asynchronous"``, ``"blocking"`` or ``"batched"``.
    - ``prices``: of actions that passes add, such as ``{"step": 0.5}``
      (``penstock schedules --passes`` lists the keys).
    - ``time_unit``: ``"s"`` if times are seconds, which reports then show as such.
    """

    __slots__ = ("_fields",)
    _fields: _core.ScenarioCosts

    def __init__(self) -> None:
        """The default: F, I and W take 1 each, messages no time."""
        self._fields = _core.ScenarioCosts.parse("cost: 1")

    @classmethod
    def uniform(
        cls,
        forward: float = 1,
        backward_input: float = 1,
        backward_weight: float = 1,
        *,
        kept_for_weight: float = 1,
        **common: Unpack[Common],
    ) -> Costs:
        """Returns the same costs for every stage.

        Times are of one rank's share of a microbatch: with two stages per rank, each takes half.
        Memory is in activations of one rank and microbatch; I keeps the part
        ``kept_for_weight`` of it for W.

        Raises:
            Error: a value is negative or not finite, or a keyword does not fit the others.
        """
        cost = {
            "forward": forward,
            "backward_input": backward_input,
            "backward_weight": backward_weight,
            "kept_for_weight": kept_for_weight,
        }
        return cls._parse({"cost": [_number(name, value) for name, value in cost.items()]}, common)

    @classmethod
    def per_stage(cls, *, memory_in_bytes: bool = False, **fields: Unpack[StageFields]) -> Costs:
        """Returns costs that differ by stage: ``per_stage(forward=[1, 1.5], activation=[2, 1])``.

        Each of these is a number or an array of shape ``(stages,)``, at least one an array. They
        are of one action, so of one sequence slice where there are slices.

        - Times: ``forward``, ``backward_input``, ``backward_weight`` (default 1), ``backward`` (of
          a whole B; default: the sum of I and W), ``recompute`` (default: ``forward``), ``step``,
          ``unshard`` and ``reduce`` (default 0).
        - Memory: ``activation`` (default 1), ``activation_after_i`` (the part that W reads; default
          all), ``input_activation``, ``gathered``, ``weights``, ``version``, ``gradients``,
          ``optimizer`` and ``workspace`` (default 0). In bytes with ``memory_in_bytes``.
        - ``message_scale``: size of the stage's output relative to ``message_bytes`` (default 1).

        Raises:
            Error: arrays differ in length, or a value is negative or not finite.
        """
        own, common = _split(fields)
        return cls._parse({"stage_costs": _entries(own, memory_in_bytes)}, common)

    @classmethod
    def per_layer(cls, layers: int | Sequence[int], *, memory_in_bytes: bool = False, **fields: Unpack[StageFields]) -> Costs:
        """Returns costs of a model's layers, which fit any number of stages.

        ``layers`` has the number of consecutive layers of each group. The others are as of
        ``per_stage``, for one layer and a whole microbatch. Layers are divided among the stages as
        evenly as possible, longer stages first.

        Raises:
            Error: as ``per_stage``.
        """
        own, common = _split(fields)
        groups = [count("layers", each, 1) for each in np.atleast_1d(layers).tolist()]
        entries = _entries({"layers": groups, **own}, memory_in_bytes)
        for entry, group in zip(entries, groups, strict=True):
            entry["layers"] = group
        return cls._parse({"layer_costs": entries}, common)

    @classmethod
    @former_names(data="data_parallel")
    def of_model(
        cls,
        model: str | os.PathLike[str],
        device: str | os.PathLike[str] = "h100",
        *,
        nodes: str | None = None,
        precision: str | None = None,
        micro_batch_size: int | None = None,
        sequence: int | None = None,
        tensor: int | None = None,
        data_parallel: int | None = None,
        expert: int | None = None,
        zero: int | None = None,
        flops_efficiency: float | None = None,
        bandwidth_efficiency: float | None = None,
        hidden_communication: float | None = None,
        **common: Unpack[Common],
    ) -> Costs:
        """Returns what the stages of a published model take on a device, in seconds and bytes.

        Args:
            model: a name of ``penstock.models()``, or a ``config.json`` of Hugging Face.
            device: a name of ``penstock.devices()``, or a YAML file with its peaks.
            nodes: nodes and devices per node (``"8x8"``; default ``"1x8"``).
            precision: ``"bf16"`` (default) or ``"f32"``.
            micro_batch_size: samples per microbatch (default 1).
            sequence: tokens per sample (default 4096).
            tensor: devices that divide each layer.
            data_parallel: replicas of the pipeline.
            expert: replicas that divide the experts.
            zero: what replicas divide: 1 optimizer state, 2 and gradients, 3 and weights.
            flops_efficiency: part of the peak FLOP/s that kernels reach.
            bandwidth_efficiency: part of the peak bandwidth.
            hidden_communication: part of the communication of ``tensor``, ``context`` and ``expert`` that
                compute hides.

        Raises:
            Error: a name is unknown, a file cannot be read, or a value is out of range. What does
                not fit a schedule is refused where the costs are used.
        """
        given = {
            "device": os.fspath(device),
            "nodes": nodes,
            "precision": precision,
            "micro_batch_size": micro_batch_size,
            "sequence": sequence,
            "tensor": tensor,
            "data_parallel": data_parallel,
            "expert": expert,
            "zero": zero,
            "flops_efficiency": flops_efficiency,
            "bandwidth_efficiency": bandwidth_efficiency,
            "hidden_communication": hidden_communication,
        }
        request = {name: value for name, value in given.items() if value is not None}
        return cls._parse({"model": os.fspath(model), **request}, common)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Costs:
        """Reads costs from a configuration of ``penstock simulate``; ignores which schedules it names.

        Raises:
            Error: the file cannot be read, or a key is unknown or has a wrong value.
        """
        return cls._of(_core.ScenarioCosts.load(os.fspath(path)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file that ``load`` and ``penstock simulate SCHEDULE FILE.yaml`` read.

        Raises:
            Error: the file cannot be written.
        """
        self._fields.save(os.fspath(path))

    def to_yaml(self) -> str:
        """Returns what ``save`` writes."""
        return self._fields.text()

    @classmethod
    def from_yaml(cls, text: str) -> Costs:
        """Returns the costs of a configuration's text. Raises ``Error`` as ``load``."""
        return cls._of(_core.ScenarioCosts.parse(text))

    def stages(self, schedule: Schedule) -> Records:
        """Returns what each stage of the schedule takes: ``STAGE_COSTS``, shape ``(stages,)``.

        Raises:
            Error: the costs do not fit the schedule.
        """
        return records(self._fields.stages(schedule._frozen()).rows(), STAGE_COSTS)

    @property
    def time_unit(self) -> str:
        """``"s"``, or empty for the unit of the costs."""
        return self._fields.time_unit

    @property
    def memory_unit(self) -> str:
        """``"B"``, or empty for activations of one rank's share of one microbatch."""
        return self._fields.memory_unit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Costs) and self.to_yaml() == other.to_yaml()

    def __hash__(self) -> int:
        return hash(self.to_yaml())

    def __repr__(self) -> str:
        first, *rest = self.to_yaml().strip().splitlines()
        return f"<penstock.Costs {first}{' ...' if rest else ''}>"

    def __copy__(self) -> Costs:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Costs:
        return self

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Costs.from_yaml, (self.to_yaml(),)

    @classmethod
    def _of(cls, fields: _core.ScenarioCosts) -> Costs:
        made = cls.__new__(cls)
        made._fields = fields
        return made

    @classmethod
    def _parse(cls, source: dict[str, Any], common: Mapping[str, Any]) -> Costs:
        return cls._of(_core.ScenarioCosts.of_fields(as_fields({**source, **_keys(**common)})))


def as_fields(values: Mapping[str, Any]) -> str:
    """Returns the fields of a scenario as JSON.

    Raises:
        Error: a value has no form in JSON.
    """
    texts = []
    for name, value in values.items():
        try:
            texts.append(f"{json.dumps(name)}: {json.dumps(value)}")
        except (TypeError, ValueError) as error:
            raise _core.Error(f"{name}: {str(error).splitlines()[0]}") from None
    return "{" + ", ".join(texts) + "}"


def _split(fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the costs of stages and the keywords that all costs have."""
    own = {name: value for name, value in fields.items() if name in _FIELDS}
    return own, {name: value for name, value in fields.items() if name not in own}


def _keys(
    *,
    comm: float | str | None = None,
    prices: Mapping[str, float] | None = None,
    topology: Sequence[Mapping[str, Any]] | None = None,
    slow_rank: Mapping[int, float] | None = None,
    **others: Any,
) -> dict[str, Any]:
    """Returns the fields of a scenario for the keywords that all costs have."""
    keys: dict[str, Any] = {
        name: _number(name, value) if name in ("message_bytes", "activation_bytes", "bandwidth") and value is not None else value
        for name, value in others.items()
    }
    keys["topology"] = None if topology is None else [dict(level) for level in topology]
    keys["price"] = [f"{key}={_number(key, price)!r}" for key, price in (prices or {}).items()]
    keys["slow_rank"] = [f"{rank}={factor!r}" for rank, factor in (slow_rank or {}).items()]
    if comm is not None:
        keys["comm"] = comm if isinstance(comm, str) else _number("comm", comm)
    return {key: value for key, value in keys.items() if value not in (None, "", [])}


def _number(name: str, value: Any) -> float:
    """Returns a finite number of at least 0."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise _core.Error(f"{name}: {value!r} is not a number") from None
    if not (np.isfinite(number) and number >= 0):
        raise _core.Error(f"{name}: {number} is negative or not finite; give at least 0")
    return number


def _entries(fields: Mapping[str, Any], memory_in_bytes: bool) -> list[dict[str, Any]]:
    """Returns one mapping per stage or group of layers."""
    arrays: dict[str, npt.NDArray[np.float64]] = {}
    for name, value in fields.items():
        try:
            arrays[name] = np.asarray(value, np.float64)
        except (TypeError, ValueError):
            raise _core.Error(f"{name}: give a number or an array of numbers") from None
        if arrays[name].ndim > 1:
            raise _core.Error(f"{name}: shape {arrays[name].shape}; give one dimension")
    lengths = {name: len(array) for name, array in arrays.items() if array.ndim == 1}
    if not lengths:
        raise _core.Error("no array is given; give one value per stage of at least one cost")
    first, count = next(iter(lengths.items()))
    for name, length in lengths.items():
        if length != count:
            raise _core.Error(f"{name} has {length} values, {first} {count}; give equally many")
    entries: list[dict[str, Any]] = [{} for _ in range(count)]
    if memory_in_bytes and "activation" not in arrays:
        raise _core.Error("memory_in_bytes: give activation, in bytes")
    for name, array in arrays.items():
        for index, value in enumerate(np.broadcast_to(array, count)):
            number = _number(f"{name} of entry {index}", value)
            in_bytes = memory_in_bytes and name in _MEMORY
            entries[index][name] = f"{number:.0f} B" if in_bytes else number
    return entries
