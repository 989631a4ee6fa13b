"""Hooks of modules, which compiled steps would not call."""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn

from penstock import Error

#: Hooks that only the backward of whole modules calls. A capture calls forward hooks, like any other code.
MODULE_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_torch: Any = importlib.import_module("torch.nn.modules.module")
#: Hooks of all modules of the process; likewise.
FORWARD_HOOKS = (_torch._global_forward_hooks, _torch._global_forward_pre_hooks)
BACKWARD_HOOKS = (_torch._global_backward_hooks, _torch._global_backward_pre_hooks)


def refuse_hooks(module: nn.Module, index: int) -> None:
    """Raises Error for hooks, which compiled steps would not call."""

    def refuse(name: str, hook: object) -> None:
        called = getattr(hook, "__qualname__", type(hook).__qualname__)
        raise Error(
            f"stage {index}: {name} has the hook {called}, which compiled steps do not call: "
            "remove it, or move what it computes into forward"
        )

    for hook in (hook for hooks in BACKWARD_HOOKS for hook in hooks.values()):
        refuse("torch.nn.modules.module, for all modules,", hook)
    for name, each in module.named_modules():
        if type(each).__name__ == "OptimizedModule":
            raise Error(
                f"stage {index}: module '{name or 'stage'}' is a result of torch.compile, but the "
                "engine compiles stages itself: pass the original module"
            )
        if {kind.__name__ for kind in type(each).__mro__} & {"DistributedDataParallel", "FullyShardedDataParallel"}:
            raise Error(
                f"stage {index}: module '{name or 'stage'}' is a {type(each).__name__}, whose "
                "communication compiled steps would leave out: pass the module that it wraps"
            )
        for kind in MODULE_HOOKS:
            for hook in getattr(each, kind, {}).values():
                refuse(f"module '{name or type(each).__name__}'", hook)
    for name, parameter in module.named_parameters():
        hooks = (parameter._backward_hooks or {}, getattr(parameter, "_post_accumulate_grad_hooks", None) or {})
        for hook in (hook for each in hooks for hook in each.values()):
            refuse(f"parameter '{name}'", hook)
