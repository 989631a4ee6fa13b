"""What updates a stage: any optimizer of torch, on the rank's thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from penstock import Error
from penstock.torch.arguments import in_code_of
from penstock.torch.devices import keep_until_read
from penstock.torch.engine import engine
from penstock.torch.optimizers import AdamW
from penstock.torch.weights import states
from penstock.torch.weights.weights import StageWeights

#: Takes a list of a stage's parameters, or of pairs (name, parameter); see takes_names.
MakeOptimizer = Callable[[list[Any]], torch.optim.Optimizer]

_SETTINGS = ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")


def takes_names(make: MakeOptimizer) -> bool:
    """Returns whether the first argument of an optimizer's factory is called named_parameters."""
    try:
        arguments = inspect.signature(make).parameters
    except (TypeError, ValueError):  # of C functions
        return False
    return next(iter(arguments), None) == "named_parameters"


class StageOptimizer:
    """Connects a stage's gradients to its optimizer."""

    def __init__(self, weights: StageWeights, make: MakeOptimizer | None, is_sharded: bool) -> None:
        """``is_sharded``: whether replicas divide the states of optimizers (ZeRO)."""
        self._weights = weights
        #: By name, what the stage updates of its parameters: flat ranges, and the first element of
        #: each. None: all, whole.
        self._shard: dict[str, tuple[torch.Tensor, int]] | None = None
        self._names = [name for name, _ in weights.parameters]
        self._native: Any = None
        self._is_stale = True  # whether the native update has to get the state's tensors
        self._is_loaded = False  # whether the optimizer has loaded another state
        self._groups: list[int] = []  # parameters by group, as the native update has them
        self._stage = weights.stage
        self.optimizer: torch.optim.Optimizer | None = None
        if make is None or not weights.masters:
            return
        parameters: list[Any] = list(weights.updated)
        if takes_names(make):
            parameters = list(zip(self._names, weights.updated, strict=True))
        with in_code_of("optimizer"):
            self.optimizer = make(parameters)
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise Error(f"optimizer returned {type(self.optimizer).__name__}, not a torch.optim.Optimizer")
        if is_sharded and type(self.optimizer) is not AdamW:
            kind = type(self.optimizer)
            raise Error(
                f"optimizer: {kind.__module__}.{kind.__qualname__} cannot be divided among the "
                "replicas (zero): use penstock.torch.AdamW, or zero=0"
            )
        if type(self.optimizer) is AdamW:
            self._native = engine.FusedAdamW()
            self.optimizer.register_load_state_dict_post_hook(self._forget)

    def bind(self, parts: Any) -> None:
        """Makes this the update of the stage."""
        if self._native is not None:
            parts.update_by_adamw(self._native)
        else:
            parts.update_by_function(self._update, self._names)

    def set_shard(self, updated: list[tuple[str, torch.Tensor, int]]) -> None:
        """Declares which parts of the parameters the stage updates: name, values, first element."""
        self._shard = {name: (values, begin) for name, values, begin in updated}
        self._is_stale = True

    def part(self) -> states.Part:
        """Returns what this replica has of the optimizer's state."""
        assert self.optimizer is not None
        names, part = self._names_by_id(), states.Part({}, {})
        parameters = [each for group in self.optimizer.param_groups for each in group["params"]]
        for number, parameter in enumerate(parameters):
            if state := self.optimizer.state.get(parameter):
                _, begin = (self._shard or {}).get(names[id(parameter)], (parameter, 0))
                part.state[number] = state
                part.places[number] = list(parameter.shape), begin
        return part

    @property
    def is_native(self) -> bool:
        """Whether the update runs without Python, so that begin_run does something."""
        return self._native is not None

    def begin_run(self) -> None:
        """Prepares the native update for the steps whose settings follow by add_settings."""
        assert self.optimizer is not None
        vars(self.optimizer)["_opt_called"] = True  # else torch's schedulers warn
        self._refuse_unsupported(self.optimizer)
        groups = [len(group["params"]) for group in self.optimizer.param_groups]
        if self._is_stale or groups != self._groups:
            self._groups = groups
            self._bind_state(self.optimizer)
        self._native.begin_run()

    def add_settings(self) -> None:
        """Passes the optimizer's settings of the next step to the native update."""
        assert self.optimizer is not None
        for index, group in enumerate(self.optimizer.param_groups):
            beta1, beta2 = group["betas"]
            self._native.add_settings(index, float(group["lr"]), beta1, beta2, group["eps"], group["weight_decay"])

    def watch(self) -> Any:
        """Returns a watch that notices whether the native update needs other settings."""
        assert self.optimizer is not None
        watch, groups = engine.Watch(), self.optimizer.param_groups
        watch.add_item(vars(self.optimizer), "param_groups", groups)
        watch.add_size(groups)
        watch.add_size(self.optimizer._optimizer_step_pre_hooks)
        watch.add_size(self.optimizer._optimizer_step_post_hooks)
        for group in groups:
            watch.add_size(group["params"])
            for key in ("params", *_SETTINGS):
                watch.add_item(group, key, group[key])
            for value in (group["lr"], *group["betas"]):
                if isinstance(value, torch.Tensor):
                    watch.add_content(value)
        return watch

    def _refuse_unsupported(self, optimizer: torch.optim.Optimizer) -> None:
        """Refuses what the native update would silently ignore."""
        hooks = [*optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values()]
        for hook in hooks:
            called = getattr(hook, "__qualname__", type(hook).__qualname__)
            raise Error(
                f"stage {self._stage}: penstock.torch.AdamW has the hook {called}, which its "
                "update does not call: use torch.optim.AdamW"
            )
        for index, group in enumerate(optimizer.param_groups):
            for option in ("amsgrad", "maximize"):
                if group[option]:
                    raise Error(
                        f"stage {self._stage}: parameter group {index} of penstock.torch.AdamW has "
                        f"{option}=True: use torch.optim.AdamW for it"
                    )

    def _forget(self, _: torch.optim.Optimizer) -> None:
        self._is_stale = self._is_loaded = True

    def _names_by_id(self) -> dict[int, str]:
        pairs = zip(self._names, self._weights.updated, strict=True)
        return {id(parameter): name for name, parameter in pairs}

    def _bind_state(self, optimizer: torch.optim.Optimizer) -> None:
        """Creates the state that torch would create, and passes its tensors on."""
        names = self._names_by_id()
        for index, group in enumerate(optimizer.param_groups):
            if any(id(parameter) not in names for parameter in group["params"]):
                raise Error(
                    f"stage {self._stage}: parameter group {index} of the optimizer has a tensor "
                    "that the stage does not train: pass only parameters that the function got"
                )
        self._native.clear()
        for group in optimizer.param_groups:
            parts = []  # name, what the stage updates of the parameter, and its state
            for parameter in group["params"]:
                name, place = names[id(parameter)], (parameter.detach(), 0)
                if self._shard is not None and name not in self._shard:
                    optimizer.state.pop(parameter, None)  # of whole parameters that were loaded
                    continue
                if self._shard is not None:
                    place = self._shard[name]
                state = optimizer.state[parameter]
                self._prepare_state(state, name, parameter.shape, *place)
                parts.append((name, place[0], state))
            self._native.add_group(
                [name for name, _, _ in parts],
                [values for _, values, _ in parts],
                [state["exp_avg"] for _, _, state in parts],
                [state["exp_avg_sq"] for _, _, state in parts],
                [state["step"] for _, _, state in parts],
            )
        self._is_stale = self._is_loaded = False

    def _prepare_state(self, state: dict[str, Any], name: str, shape: torch.Size, values: torch.Tensor, begin: int) -> None:
        """Creates the state of a parameter, or of a part of it, or takes it from a loaded one.

        Several replicas may have loaded the same tensors, so it copies them.
        """
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=values.device)
            state["exp_avg"] = torch.zeros_like(values)
            state["exp_avg_sq"] = torch.zeros_like(values)
        elif self._is_loaded:
            state["step"] = state["step"].to(values.device, copy=True)
            for key in ("exp_avg", "exp_avg_sq"):
                own = states.slice_of(state[key], values, begin, shape)
                if own is None:
                    raise Error(
                        f"stage {self._stage}: the optimizer's state of '{name}' has the shape "
                        f"{list(state[key].shape)}, but the parameter has {list(shape)}: load the "
                        "state of this model"
                    )
                state[key] = own.to(values.device, copy=True)

    def _update(self, gradients: list[torch.Tensor | None]) -> None:
        """Called on the rank's thread with a step's gradients, which the engine then clears.

        As in torch, parameters that no output depends on have no gradient and are not updated.
        """
        with torch.no_grad():
            masters = self._weights.masters
            if self.optimizer is None:
                of_all = zip(masters, gradients, self._weights.is_first, strict=True)
                for master, gradient, is_first in of_all:
                    # Each stage that shares it has its whole gradient.
                    if gradient is not None and is_first:
                        before = master.grad
                        if before is None:
                            master.grad = gradient.clone()
                        else:
                            master.grad = before + gradient
                            keep_until_read(before)
                        engine.keep_for_caller(master.grad)
                return
            for master, gradient in zip(masters, gradients, strict=True):
                master.grad = gradient
            self.optimizer.step()
            for master in masters:
                master.grad = None
