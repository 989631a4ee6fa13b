"""What updates a stage: any optimizer of torch, on the rank's thread."""

from __future__ import annotations

import importlib
import inspect
import itertools
import weakref
from collections.abc import Callable, Collection
from typing import Any

import torch

from penstock import Error
from penstock.torch.arguments import in_code_of, shown
from penstock.torch.engine import engine
from penstock.torch.optimizers import AdamW
from penstock.torch.user_code import LIBRARIES
from penstock.torch.weights import accumulate, states
from penstock.torch.weights.weights import StageWeights
from penstock.torch.weights.whole_parameters import WholeParameters

#: Takes a list of a stage's parameters, or of pairs (name, parameter); see takes_names.
MakeOptimizer = Callable[[list[Any]], torch.optim.Optimizer]

_SETTINGS = ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay")
UPDATES = "the kind of an optimizer, or its hooks"  # what makes a Pipeline bind updates to its stages again
_STATE = ("step", "exp_avg", "exp_avg_sq")
_ELEMENTWISE = frozenset(  # the code of steps that update each element by itself
    inspect.unwrap(getattr(torch.optim, name).step).__code__
    for name in ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD")
)
# Hooks of all optimizers of the process.
_torch: Any = importlib.import_module("torch.optim.optimizer")
_ALL_HOOKS = (_torch._global_optimizer_pre_hooks, _torch._global_optimizer_post_hooks)


def takes_names(make: MakeOptimizer) -> bool:
    """Returns whether the first argument of an optimizer's factory is called named_parameters."""
    try:
        arguments = inspect.signature(make).parameters
    except (TypeError, ValueError):  # of C functions
        return False
    return next(iter(arguments), None) == "named_parameters"


class StageOptimizer:
    """Connects a stage's gradients to its optimizer.

    An AdamW of this package updates without Python, on the tensors of its own state, unless it has
    hooks or options that only torch's code follows.
    """

    def __init__(self, weights: StageWeights, make: MakeOptimizer | None, is_sharded: bool) -> None:
        """``is_sharded``: whether replicas divide the states of optimizers (ZeRO)."""
        self._weights, self._is_sharded = weights, is_sharded
        #: By name, what the stage updates of its parameters: flat ranges, and the first element of
        #: each. None: all, whole.
        self._shard: dict[str, tuple[torch.Tensor, int]] | None = None
        self._names = [name for name, _ in weights.parameters]
        self._wholes: WholeParameters | None = None  # of an optimizer that needs whole tensors, where the planes of a mesh divide some
        self._native = engine.FusedAdamW()
        #: Whether the stage that was compiled last updates without Python.
        self.is_bound_native = False
        self._is_bound = False
        self._used: Collection[str] = ()  # the parameters that have a gradient in the steps of a run
        self._is_stale = True  # whether the native update has to get the state's tensors
        self._bound: dict[int, torch.Tensor] = {}  # the state's tensors that it has, by id
        self._places: Any = None  # notices other groups, parameters and tensors of the state
        self._stage = weights.stage
        self.optimizer: torch.optim.Optimizer | None = None
        self._make: MakeOptimizer | None = None
        self._once = {id(parameter) for parameter in weights.updated}  # what it has ever trained
        if make is None or not weights.trains:
            return
        self._make = make
        self._set(self._made())

    def make_whole(self) -> None:
        """Makes an optimizer that `needs_wholes` again, over whole parameters. All ranks of the groups that divide them call it."""
        self._wholes = WholeParameters(self._weights)
        self._wholes.gather([None] * len(self.known))
        self._once = {id(parameter) for parameter in self.known}
        self._set(self._made())

    def _made(self) -> torch.optim.Optimizer:
        assert self._make is not None
        make = self._make
        parameters = self.named() if takes_names(make) else list(self.known)
        with in_code_of("optimizer"):
            made = make(parameters)
        if not isinstance(made, torch.optim.Optimizer):
            raise Error(f"optimizer returned {type(made).__name__}, not a torch.optim.Optimizer")
        return made

    @property
    def known(self) -> list[torch.nn.Parameter]:
        """What the optimizer knows the stage's parameters by."""
        return self._weights.updated if self._wholes is None else self._wholes.parameters

    def named(self) -> list[tuple[str, torch.nn.Parameter]]:
        """Returns the names of the stage's parameters, and what the optimizer knows them by."""
        return list(zip(self._names, self.known, strict=True))

    @property
    def has_wholes(self) -> bool:
        """Whether it updates whole tensors in place of this process's parts."""
        return self._wholes is not None

    @property
    def needs_wholes(self) -> bool:
        """Whether its optimizer was made over parts of parameters, but may need whole tensors."""
        optimizer, weights = self.optimizer, self._weights
        if optimizer is None or self._wholes is not None or not weights.divided:
            return False
        # Hooks see plain parts of parameters as they are, as in torch, but not parts of DTensors.
        has_hooks = any(map(bool, _hooks(optimizer))) and bool(weights.whole_of)
        return has_hooks or not _is_elementwise(optimizer)

    def replace(self, other: object) -> None:
        """Updates by another optimizer from now on.

        Raises:
            Error: the stage has none, or this one has other tensors than the stage's.
        """
        where = f"optimizers: stage {self._stage}"
        if self.optimizer is None:
            raise Error(f"{where} trains nothing in this process, so it has no optimizer: leave None there")
        if not isinstance(other, torch.optim.Optimizer):
            raise Error(f"{where} has {shown(other)}, not a torch.optim.Optimizer: set lr=0 to update nothing")
        self._refuse_foreign(other)
        self._set(other)

    def _set(self, optimizer: torch.optim.Optimizer) -> None:
        if self._is_sharded and type(optimizer) is not AdamW:
            kind = type(optimizer)
            raise Error(
                f"optimizer: {kind.__module__}.{kind.__qualname__} cannot be divided among the "
                "replicas (zero): use penstock.torch.AdamW, or zero=0"
            )
        self.optimizer, self._is_stale = optimizer, True
        if type(optimizer) is AdamW:
            own = weakref.ref(self)  # the optimizer may outlive the Pipeline

            def forget(loaded: torch.optim.Optimizer) -> None:
                if stepper := own():
                    stepper._forget(loaded)

            optimizer.register_load_state_dict_post_hook(forget)

    def refuse_parts(self) -> None:
        """Raises Error for an optimizer that has parts of parameters, but may need whole tensors."""
        if self.needs_wholes:
            kind, name = type(self.optimizer), next(iter(self._weights.divided))
            raise Error(
                f"optimizers: stage {self._stage}: {kind.__module__}.{kind.__qualname__}, or a hook of its step, may need whole tensors, but "
                f"has parts of '{name}', which the planes of mesh divide: make it, with its hooks, in the function that Pipeline gets as "
                "optimizer, whose parameters are whole then"
            )

    def check(self, weights: StageWeights) -> None:
        """Raises Error if the optimizer does not know a parameter that the stage would train."""
        if self.optimizer is None:
            return
        known = {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}
        parts = dict(zip(map(id, self.known), self._weights.updated, strict=True))
        known |= {id(parts[each]) for each in known if each in parts}
        unknown = [f"'{name}'" for (name, _), own in zip(weights.parameters, weights.own, strict=True) if id(own) not in known]
        if unknown:
            raise Error(
                f"stage {self._stage}: the optimizer does not know the parameter {', '.join(unknown)}, which was added or "
                "replaced: call add_param_group with it, or make a new Pipeline"
            )

    def follow(self, weights: StageWeights) -> None:
        """Updates other weights from now on, which `check` has accepted."""
        self._weights, self._is_stale = weights, True
        if self._wholes is not None:
            self._wholes = WholeParameters(weights, self._wholes)
        self._names = [name for name, _ in weights.parameters]

    def bind(self, parts: Any) -> None:
        """Makes this the update of a stage that is compiled."""
        self._is_bound, self.is_bound_native = True, self.is_native
        if self.is_native:
            parts.update_by_adamw(self._native)
        else:
            parts.update_by_function(self._update, self._names)

    @property
    def is_bound_otherwise(self) -> bool:
        """Whether the compiled stage updates in Python what now updates without it, or vice versa."""
        return self._is_bound and self.is_bound_native != self.is_native

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
    def weights(self) -> StageWeights:
        return self._weights

    @property
    def is_native(self) -> bool:
        """Whether the next update runs without Python, as that of a stage which trains nothing."""
        if not self._weights.trains:
            return True
        return type(self.optimizer) is AdamW and self._wholes is None and not self._needs_python(self.optimizer)

    def begin_run(self, used: Collection[str]) -> None:
        """Prepares the update for the steps whose settings follow by add_settings.

        ``used``: the parameters that have a gradient in these steps.
        """
        is_same, self._used = used == self._used, used
        if not self.is_native:
            self._is_stale = True
            return
        if self.optimizer is None:
            return
        vars(self.optimizer)["_opt_called"] = True  # else torch's schedulers warn
        if self._is_stale or not is_same or not self._places.is_unchanged():
            self._bind_state(self.optimizer)
        self._native.begin_run()

    def add_settings(self) -> None:
        """Passes the optimizer's settings of the next step to the native update."""
        if not self.is_native or self.optimizer is None:
            return
        for index, group in enumerate(self.optimizer.param_groups):
            beta1, beta2 = group["betas"]
            self._native.add_settings(index, float(group["lr"]), beta1, beta2, group["eps"], group["weight_decay"])

    def watch(self) -> Any:
        """Returns a watch that notices whether the update has to be prepared again."""
        watch = engine.Watch()
        if self.optimizer is not None:
            watch.add_class(self.optimizer)
        if type(self.optimizer) is not AdamW:
            return watch
        for kind in AdamW.__mro__[:-1]:
            watch.add_keys(kind, {"step"})
            if "step" in vars(kind):
                watch.add_item(kind, "step", vars(kind)["step"])
        watch.add_keys(vars(self.optimizer), {"step"})
        if "step" in vars(self.optimizer):
            watch.add_item(vars(self.optimizer), "step", vars(self.optimizer)["step"])
        for hooks in _hooks(self.optimizer):
            watch.add_size(hooks)
        for group in self.optimizer.param_groups:
            for key in _SETTINGS:
                watch.add_item(group, key, group.get(key))
            for value in (group["lr"], *group["betas"]):
                if isinstance(value, torch.Tensor):
                    watch.add_content(value)
        if self._places is not None:
            watch.add_watch(self._places)
        return watch

    def _needs_python(self, optimizer: torch.optim.Optimizer) -> bool:
        has_options = any(
            group["amsgrad"] or group["maximize"] or not group.get("decoupled_weight_decay", True) for group in optimizer.param_groups
        )
        return has_options or any(_hooks(optimizer)) or not _has_own_step(optimizer)

    def refuse_in_shards(self) -> None:
        """Raises Error for what only torch's code follows if the stage has parts of its parameters."""
        if self.optimizer is None or self.is_native or not self._is_sharded:
            return
        for hook in (hook for hooks in _hooks(self.optimizer) for hook in hooks.values()):
            called = getattr(hook, "__qualname__", type(hook).__qualname__)
            raise Error(
                f"stage {self._stage}: penstock.torch.AdamW has the hook {called}, which the update of "
                "weights in shards does not call: remove it, or use zero=0"
            )
        raise Error(
            f"stage {self._stage}: penstock.torch.AdamW has amsgrad, maximize, decoupled_weight_decay=False, or another step, which "
            "the update of weights in shards does not follow: undo it, or use zero=0"
        )

    def _refuse_foreign(self, optimizer: torch.optim.Optimizer) -> None:
        names = self._names_by_id()
        for index, group in enumerate(optimizer.param_groups):
            if any(id(parameter) not in names and id(parameter) not in self._once for parameter in group["params"]):
                raise Error(
                    f"stage {self._stage}: parameter group {index} of the optimizer has a tensor "
                    "that the stage does not train: pass only parameters that the function got"
                )

    def _forget(self, optimizer: torch.optim.Optimizer) -> None:
        # Others may have loaded the same tensors, so all are copied.
        if optimizer is self.optimizer:
            self._is_stale = True
            self._bound.clear()

    def _names_by_id(self) -> dict[int, str]:
        return {id(parameter): name for name, parameter in self.named()}

    def _bind_state(self, optimizer: torch.optim.Optimizer) -> None:
        """Creates the state that torch would create, and passes its tensors on."""
        self._refuse_foreign(optimizer)
        names, bound = self._names_by_id(), dict[int, torch.Tensor]()
        self._places = places = engine.Watch()
        places.add_item(vars(optimizer), "param_groups", optimizer.param_groups)
        places.add_item(vars(optimizer), "state", optimizer.state)
        places.add_members(optimizer.param_groups)
        self._native.clear()
        for group in optimizer.param_groups:
            places.add_item(group, "params", group["params"])
            places.add_members(group["params"])
            parts = []  # name, what the stage updates of the parameter, and its state
            for parameter in group["params"]:
                if id(parameter) not in names:  # It was removed or frozen.
                    continue
                name, place = names[id(parameter)], (parameter.detach(), 0)
                if self._shard is not None and name not in self._shard:
                    optimizer.state.pop(parameter, None)  # of whole parameters that were loaded
                    continue
                if self._shard is not None:
                    place = self._shard[name]
                state = optimizer.state[parameter]
                self._prepare_state(state, name, parameter.shape, *place)
                places.add_members(state)
                bound.update({id(state[key]): state[key] for key in _STATE})
                parts.append((name, place[0], state))
            parts = [each for each in parts if each[0] in self._used]
            self._native.add_group(
                [name for name, _, _ in parts],
                [values for _, values, _ in parts],
                [state["exp_avg"] for _, _, state in parts],
                [state["exp_avg_sq"] for _, _, state in parts],
                [state["step"] for _, _, state in parts],
            )
        places.add_members(optimizer.state)
        self._bound, self._is_stale = bound, False

    def _prepare_state(self, state: dict[str, Any], name: str, shape: torch.Size, values: torch.Tensor, begin: int) -> None:
        """Creates the state of a parameter, or of a part of it, or copies another one's tensors.

        The copies have the layout of ``values``, as the fused kernel requires.
        """
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=values.device)
            state["exp_avg"] = torch.zeros_like(values)
            state["exp_avg_sq"] = torch.zeros_like(values)
            return
        for key in _STATE:
            if key not in state:
                raise Error(
                    f"stage {self._stage}: the optimizer's state of '{name}' has no '{key}': clear it, or load a whole one"
                )
        if id(state["step"]) not in self._bound:
            state["step"] = torch.as_tensor(state["step"]).detach().reshape(()).to(values.device, torch.float32, copy=True)
        for key in ("exp_avg", "exp_avg_sq"):
            if id(state[key]) in self._bound and state[key].shape == values.shape:
                continue
            own = states.slice_of(state[key], values, begin, shape)
            if own is None:
                raise Error(
                    f"stage {self._stage}: the optimizer's state of '{name}' has the shape {list(state[key].shape)}, but the "
                    f"parameter has {list(shape)}: load the state of this model"
                )
            state[key] = torch.empty_like(values).copy_(own)

    def _update(self, gradients: list[torch.Tensor | None]) -> None:
        """Called on the rank's thread with a step's gradients, which the engine then clears.

        As in torch, parameters that no output depends on have no gradient and are not updated.
        """
        gradients = [each if name in self._used else None for name, each in zip(self._names, gradients, strict=True)]
        with torch.no_grad():
            masters = self._weights.masters
            if self.optimizer is None:
                of_all = zip(masters, gradients, self._weights.is_first, strict=True)
                for master, gradient, is_first in of_all:
                    # Each stage that shares it has its whole gradient.
                    if gradient is not None and is_first:
                        accumulate.add(master, gradient)
                return
            if self._wholes is not None:
                masters, gradients = self._wholes.parameters, self._wholes.gather(gradients)
            for master, gradient in zip(masters, gradients, strict=True):
                master.grad = gradient
            self.optimizer.step()
            for master in masters:
                master.grad = None
            if self._wholes is not None:
                self._wholes.give_back()


def _hooks(optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
    return (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks, *_ALL_HOOKS)


def _is_elementwise(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an update of an element depends on no other element, so that parts of a tensor are updated as the whole.

    Only the classes of torch that do so are known to; all others, also ones derived of these with methods of their own, are taken to
    need whole tensors.
    """
    derived = itertools.takewhile(lambda kind: not kind.__module__.startswith("torch.optim."), type(optimizer).__mro__)
    if any(not name.startswith("__") and name != "step" for kind in derived for name in vars(kind)):  # torch sets step in all classes
        return False
    return inspect.unwrap(type(optimizer).step).__code__ in _ELEMENTWISE and _has_own_step(optimizer)


def _has_own_step(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its ``step`` is torch's, perhaps in wrappers of torch, such as the one of a scheduler."""
    step: Any = getattr(optimizer.step, "__func__", optimizer.step)
    while step is not None:
        code = getattr(step, "__code__", None)
        if code is None or not code.co_filename.startswith(LIBRARIES):
            return False
        step = getattr(step, "__wrapped__", None)
    return True
