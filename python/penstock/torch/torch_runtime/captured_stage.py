"""A stage of torch's runtime, captured by the engine: graphs for F, I and W, as long as they compute what the code says."""

from __future__ import annotations

import dataclasses
import types
import weakref
from typing import Any

import torch
from torch import nn

import penstock
from penstock import Error
from penstock.torch.arguments import LossFn
from penstock.torch.batch.batches import Arguments, Structure
from penstock.torch.capture.compiled import explain_difference, reversed_values, with_other_values
from penstock.torch.capture.foreign import Trained
from penstock.torch.capture.memory_uses import MemoryUses
from penstock.torch.capture.stage_code import StageCode, compile_stage
from penstock.torch.devices import autocast_setting, forked_random
from penstock.torch.engine import engine
from penstock.torch.guards.guards import Guards
from penstock.torch.guards.numbers import Numbers
from penstock.torch.mesh import dtensors
from penstock.torch.model import Model
from penstock.torch.processes.processes import Processes
from penstock.torch.torch_runtime.piece_code import Piece
from penstock.torch.torch_runtime.stage_group import StageGroup
from penstock.torch.weights.weights import StageWeights

_MOST = 8  # programs of earlier shapes and values


@dataclasses.dataclass(eq=False)
class Program:
    """The graphs of a stage for one shape of its inputs."""

    number: int  # of the capture, which all processes of the stage count
    built: Any  # the engine's
    guards: Guards
    outputs: Structure
    slots: int
    #: By tensor of the inputs and targets: its slot.
    inputs: list[int]
    received: int  # how many of the inputs another stage has sent
    #: The inputs for which I computes gradients.
    differentiated: list[int]
    #: By output of a stage but the last: the slot of its gradient; -1 if nothing reads it.
    gradients: list[int]
    results: list[torch.Tensor]  # examples of the outputs
    #: What the last results of F are the new values of.
    buffers: list[torch.Tensor]
    pieces: dict[str, Piece]
    #: By the program of the backward: F and B of a pair, or None if they run one after the other.
    pairs: weakref.WeakKeyDictionary[Program, Piece | None] = dataclasses.field(default_factory=weakref.WeakKeyDictionary)


class CapturedStage:
    """The programs of a stage. Steps that are captured are computed by them, gradients included."""

    def __init__(self, module: nn.Module, index: int, stages: int, loss: LossFn, group: StageGroup, *, compiled: bool) -> None:
        """``compiled``: whether torch.compile compiles the graphs. Raises Error for a module that cannot be captured."""
        self.is_last = index == stages - 1
        self._index, self._compiled, self._group = index, compiled, group
        schedule = penstock.schedule("1f1b", ranks=stages, microbatches=1)
        given = _arguments([module if each == index else None for each in range(stages)], loss if self.is_last else None)
        self._model = Model(given, schedule, Processes(engine.Processes(), index, stages, plane=group.plane))
        self._programs: list[tuple[Any, Program]] = []
        self._captures = 0
        self._checked: set[int] = set()  # ids of programs that fit since the step began

    @property
    def _weights(self) -> StageWeights:
        weights = self._model.weights[self._index]
        assert weights is not None
        return weights

    def begin_step(self) -> None:
        """Has programs be compared with what their code reads now, before their next use."""
        self._checked.clear()

    def program(self, args: tuple[Any, ...], kwargs: dict[str, Any], target: Any) -> tuple[Program, list[torch.Tensor]]:
        """Returns a program for these inputs and targets, and the tensors that it takes.

        Raises Error if the stage cannot be captured.
        """
        structure, inputs = Structure.of(Arguments(args, kwargs) if kwargs else args)
        targets: list[torch.Tensor] = []
        of_target = None
        if self.is_last:
            of_target, targets = Structure.of(target)
        tensors = [*inputs, *targets]
        if any(map(dtensors.is_dtensor, tensors)):
            raise Error(f"stage {self._index} takes a DTensor, which graphs do not take: pass to_local()")
        kinds = [(each.shape, each.stride(), each.dtype, each.device) for each in tensors]
        key = structure, of_target, kinds, autocast_setting(self._model.devices[self._index])
        if self._model.follow_modules():
            self._model.mark_captured()
            self._programs.clear()
        program = self._found(key)
        if program is None:
            received = len(inputs) - len(Structure.of(kwargs)[1])
            program = self._group.alike(
                f"stage {self._index}",
                lambda: self._capture(structure, of_target, inputs, targets, received),
                lambda of: of.pieces.values(),
            )
        self._programs = [*self._programs, (key, program)][-_MOST:]  # the last ones were used last
        self._checked.add(id(program))
        return program, tensors

    def _found(self, key: Any) -> Program | None:
        """Takes a program out of the list, if all processes of the stage have it and it computes what their code says."""
        index = next((each for each, (of, program) in enumerate(self._programs) if of == key and self._fits(program)), None)
        program = None if index is None else self._programs.pop(index)[1]
        if program is not None and id(program) in self._checked:
            return program
        number = None if program is None else program.number
        return program if all(each == number for each in self._group.gather(number)) else None

    def pair(self, program: Program, backward: CapturedStage, of_backward: Program) -> Piece | None:
        """Returns a piece for F of this stage and B of another one, on slots of both; None if it hides no collectives."""
        if of_backward not in program.pairs:
            described = program.built.pair(of_backward.built, backward is self)
            piece = None if described is None else self._piece(described, self, backward)
            program.pairs[of_backward] = piece if self._group.is_same(piece) else None
        return program.pairs[of_backward]

    def _piece(self, described: Any, *stages: CapturedStage) -> Piece:
        """Returns a piece with parameters of stages, which trains DTensors in place of their own parts."""
        weights = [each._weights for each in dict.fromkeys(stages)]
        piece = Piece(described, [parameter for each in weights for _, parameter in each.parameters], self._compiled)
        wholes = {part: whole for each in weights for part, whole in each.whole_of.items()}
        piece.trained = [wholes.get(id(each), each) for each in piece.trained]
        return piece

    def outputs(self, program: Program, tensors: list[torch.Tensor]) -> Any:
        """Returns what the module returns."""
        return program.outputs.fill(dtensors.join(tensors, program.outputs.forms, self._group.plane))

    def _fits(self, program: Program) -> bool:
        return id(program) in self._checked or program.guards.is_unchanged()

    def _capture(self, structure: Structure, of_target: Structure | None, inputs: Any, targets: Any, received: int) -> Program:
        """Captures the code twice, which has to be the same, and compiles the second capture."""
        self._captures += 1
        guards = Guards(*self._model.reads(), Numbers())
        with forked_random(self._model.devices[self._index]):
            guards.begin()
            examples = self._examples(inputs, received)
            others = with_other_values(1, reversed_values((examples, targets)))
            first, _ = self._build(guards, structure, of_target, others, captures_only=True)
            guards.settle()
            built, code = self._build(guards, structure, of_target, (examples, targets), captures_only=False)
            guards.finish()
        difference = first.difference(built)
        if difference is not None:
            _, op, is_in_values = difference
            raise Error(f"stage {self._index}: {explain_difference(op, is_in_values)}")
        assert code.outputs is not None
        if not self.is_last and code.outputs.forms:
            raise Error(f"stage {self._index} returns a DTensor, which captured stages do not pass on: return to_local()")
        slots, of_inputs, of_outputs, buffers = built.ports()
        described = dict(zip("FIW", built.pieces(), strict=True))
        pieces = {name: self._piece(each, self) for name, each in described.items()}
        differentiated = [index for index, each in enumerate(examples) if each.requires_grad]
        of_slots = [slot for slot, _ in of_inputs], received, differentiated, [slot for slot, _ in of_outputs], built.example_outputs()
        return Program(self._captures, built, guards, code.outputs, slots, *of_slots, buffers, pieces)

    def _examples(self, inputs: list[torch.Tensor], received: int) -> list[torch.Tensor]:
        """Returns examples of inputs. The first ones were received from another stage, which gets their gradients."""
        examples = [each.detach() for each in inputs]
        for each in examples[: received if self._index > 0 else 0]:
            each.requires_grad_(each.is_floating_point())
        return examples

    def _build(
        self, guards: Guards, structure: Structure, of_target: Structure | None, examples: Any, *, captures_only: bool
    ) -> tuple[Any, StageCode]:
        code = StageCode(self._model, self._index, structure, of_target)
        code.guards, code.trained = guards, Trained(self._model.parameters())
        code.uses, code.names = MemoryUses(()), {id(each): name for name, each in self._weights.parameters}
        parts = engine.StageParts()
        parts.functions = engine.StageFunctions(code.forward, code.loss if self.is_last else None, code.judge)
        parts.parameters, parts.state = self._weights.parameters, self._weights.state
        parts.inputs, parts.targets = examples
        return compile_stage(code, lambda: engine.StagePieces(parts, self._index == 0, self.is_last, captures_only)), code


def _arguments(stages: list[nn.Module | None], loss: LossFn) -> Any:
    """Returns the arguments of a Pipeline that computes gradients as autograd does."""
    return types.SimpleNamespace(
        stages=stages, loss=loss, loss_weight=None, outputs=True, optimizer=None, lr_scheduler=None, clip_grad_norm=0.0,
        skip_nonfinite=False, exact=True, threads=None, seed=0, data_parallel=1, zero=0, precision=None,
        gradient_dtype=torch.float32, recompute={"hold": "all", "hold_for_weight": "all"}, offload=None, timeout=300.0,
        device=None, device_graphs=False, device_parts=False, transport="tcp", gather_again=False,
    )  # fmt: skip
