"""Processes that run a case: forks of a server that has imported torch and Megatron once."""

from __future__ import annotations

import dataclasses
import faulthandler
import functools
import importlib
import multiprocessing
import os
import pathlib
import pickle
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from typing import Any

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_SITES = [os.environ.get("PENSTOCK_MEGATRON"), *map(str, (_ROOT / "build").glob("readers-venv/lib/python3*/site-packages"))]
_PATHS = [str(pathlib.Path(__file__).parent), *(site for site in _SITES if site)]
sys.path.extend(_PATHS)
os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), *_PATHS])  # of the server

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tiny_gpt"])
_LIMIT_S = 150


#: Options that a reference runs without.
OFF: dict[str, Any] = {"frees": False, "fused": False, "timers": False, "combined": False}


class Failed(Exception):
    """A process of a case failed."""


def run(case: Any, function: str = "tiny_gpt.train", arguments: tuple[Any, ...] = ()) -> list[Any]:
    """Runs a function of a module of this folder in each process of a case. Returns what each returned."""
    with tempfile.TemporaryDirectory(prefix="penstock-megatron-") as folder:
        processes = [CONTEXT.Process(target=_run, args=(case, rank, folder, function, arguments)) for rank in range(case.world)]
        for process in processes:
            process.start()
        failed: list[str] = []
        try:
            for process in processes:
                process.join(10 if failed else _LIMIT_S)
                texts = [path.read_text() for path in pathlib.Path(folder).glob("error*")]
                failed += [text for text in texts if text and text not in failed]
        finally:
            for process in processes:
                process.kill()
                process.join()
        results = [pathlib.Path(folder, f"result{rank}") for rank in range(case.world)]
        if failed or not all(result.exists() for result in results):
            raise Failed("\n".join(failed) or "a process hangs or was killed")
        return [pickle.loads(result.read_bytes()) for result in results]  # noqa: S301


def _run(case: Any, rank: int, folder: str, function: str, arguments: tuple[Any, ...]) -> None:
    import tiny_gpt

    module, _, name = function.rpartition(".")
    faulthandler.dump_traceback_later(_LIMIT_S - 10, file=pathlib.Path(folder, f"error{rank}-hangs").open("w"), exit=True)
    try:
        tiny_gpt.initialize(case, rank, folder)
        target: Callable[..., Any] = getattr(importlib.import_module(module), name)
        result = target(case, *arguments)
        tiny_gpt.finish()
        pathlib.Path(folder, f"part{rank}").write_bytes(pickle.dumps(result))
        pathlib.Path(folder, f"part{rank}").rename(pathlib.Path(folder, f"result{rank}"))
    except BaseException:
        pathlib.Path(folder, f"error{rank}").write_text(traceback.format_exc())
        os._exit(1)  # without waiting for peers


def _union(parts: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
    return {name: value for part in parts for name, value in part.items()}


@functools.lru_cache
def reference(case: Any) -> dict[str, Any]:
    """Returns the merged results of a case by Megatron's own schedule."""
    return merged(case)


def merged(case: Any, function: str = "tiny_gpt.train", arguments: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Runs a case. Returns the losses of the last pipeline rank, and gradients and parameters of all ranks."""
    results = run(case, function, arguments)
    total = dict(results[-1])
    total["gradients"] = [_union(result["gradients"][step] for result in results) for step in range(case.steps)]
    total["parameters"] = _union(result["parameters"] for result in results)
    return total


def alone(case: Any) -> Any:
    """Returns the case on one pipeline rank by Megatron's own schedule."""
    return dataclasses.replace(case, schedule="", pp=1, vp=1, layout="", delays=False, mutation="", **OFF)


def pipelined(case: Any) -> Any:
    """Returns the case by Megatron's own 1F1B on as many pipeline ranks."""
    return dataclasses.replace(alone(case), pp=case.pp, frees=case.frees)


def differences(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, float]:
    """Returns the largest differences: of numbers relative to 1, of tensors relative to their largest value."""
    worst = {kind: _numbers(found[kind], expected[kind]) for kind in ("losses", "evaluations", "norms")}
    worst["gradients"] = max(
        (_tensors(one, two) for one, two in zip(found["gradients"], expected["gradients"], strict=True)), default=0.0
    )
    worst["parameters"] = _tensors(found["parameters"], expected["parameters"])
    return worst


def _numbers(found: list[Any], expected: list[Any]) -> float:
    assert len(found) == len(expected) and [each is None for each in found] == [each is None for each in expected], (
        found,
        expected,
    )
    return max(
        (abs(one - two) / max(1, abs(two)) for one, two in zip(found, expected, strict=True) if one is not None), default=0.0
    )


def _tensors(found: dict[Any, Any], expected: dict[Any, Any]) -> float:
    worst = 0.0
    missing = expected.keys() - found.keys()
    assert not missing, f"no stage has {sorted(missing)[:3]}"
    for name, value in found.items():
        wanted = expected.get(name)
        if wanted is None:  # the head's copy of a tied embedding
            wanted = expected[(*name[:-1], "embedding.word_embeddings.weight")]
        worst = max(worst, float((value.double() - wanted.double()).abs().max() / wanted.double().abs().max().clamp(min=1e-30)))
    return worst
