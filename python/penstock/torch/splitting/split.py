"""split: the stages of a model that was written as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from penstock import Error
from penstock.arguments import named
from penstock.torch.arguments import shown, whole
from penstock.torch.batch.objects import in_containers
from penstock.torch.hooks import refuse_hooks
from penstock.torch.plain_tensors import require_plain_module
from penstock.torch.preserve import preserved
from penstock.torch.splitting import balance, by_graph, by_layers, proof
from penstock.torch.splitting.modes import modes_of
from penstock.torch.user_code import in_user_code


@named
def split(model: nn.Module, inputs: Any, stages: int | Sequence[str], *, by: str = "even") -> list[nn.Module]:
    """Divides a model into stages that share its parameters and buffers.

    If stages begin at layers that hand one tensor from layer to layer, and read no parameters of
    other stages, each stage runs the model's own code with the other layers left out. Otherwise the
    model is traced by torch.export, and its graph is cut; values that later stages read (skip
    connections, a position table) are carried along the chain. Either way the outputs and the
    gradients of all parameters are compared with the model's, on random inputs. The model stays
    unchanged.

    Stages follow ``train()`` and ``eval()``, their own and the model's. A graph is cut for both, and
    for the mode that the model has; in other combinations, stages raise an Error.

    Args:
        model: on the CPU.
        inputs: of one microbatch: a tensor, a tuple of positional arguments, or a dict of keyword
            arguments. Stages that are cut from a graph take inputs of these shapes only.
        stages: the names of the modules that begin stages 1, 2, ... (``"model.layers.4"``), in the
            order in which they run; or the number of stages, which then begin at layers.
        by: with a number: ``"even"`` for equal numbers of layers, ``"cost"`` for equal measured
            times of forwards.

    Returns:
        The stages. The first takes ``inputs``, and the last returns what the model returns.

    Raises:
        Error: a name is not a module that the model calls, torch.export cannot trace the model, or
            the stages would not train like the model; says where.
    """
    _check_arguments(model, stages, by)
    refuse_hooks(model, 0)
    inputs = in_containers(inputs, "split: inputs")
    with preserved(model), in_user_code("split: the model"):
        if isinstance(stages, int):
            return _split(model, inputs, balance.boundaries(model, inputs, stages, by))
        return _split(model, inputs, list(stages))


def _check_arguments(model: Any, stages: Any, by: Any) -> None:
    if not isinstance(model, nn.Module):
        raise Error(f"split: the model is {shown(model)}: pass a torch.nn.Module")
    require_plain_module("split: the model", model)
    if not isinstance(by, str) or by not in ("even", "cost"):
        raise Error(f"split: by is {shown(by)}: give 'even' or 'cost'")
    if isinstance(stages, int):
        whole(1)("split: stages", stages)
        return
    is_list = isinstance(stages, Sequence) and not isinstance(stages, (str, bytes))
    if not is_list or not all(isinstance(name, str) for name in stages):
        raise Error(
            f"split: stages is {shown(stages)}: give the number of stages, or a list of the names "
            "of the modules that begin stages 1, 2, ..."
        )
    known = dict(model.named_modules())
    for index, name in enumerate(stages):
        if name not in known:
            raise Error(f"split: the model has no module '{name}': choose from model.named_modules()")
        if name in stages[:index]:
            raise Error(f"split: '{name}' begins two stages: name a module once")


def _split(model: nn.Module, inputs: Any, names: Sequence[str]) -> list[nn.Module]:
    modes = modes_of(model, inputs)
    made = by_layers.cut(model, inputs, names, modes)
    why = ""
    if made is not None:
        found = proof.difference(model, made, inputs, modes, runs_model=True)
        if found is None:
            return made
        why = f" (stages of layers do not train like the model {found[0].name}: {found[1]})"
    while True:
        try:
            made, modes = by_graph.cut(model, inputs, names, modes)
        except Error as error:
            raise Error(f"{error}{why}") from error
        found = proof.difference(model, made, inputs, modes, runs_model=False)
        if found is None:
            return made
        mode, different = found
        if mode is modes.known[0]:
            raise Error(
                f"split: {different}: pass a list of stages; code that is not traced, or changes from call to call, cannot be cut"
            )
        modes = modes.without(mode, different)
