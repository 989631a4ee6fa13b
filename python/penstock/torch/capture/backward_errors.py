"""Where the user's code calls an op whose backward cannot be captured."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch

from penstock import Error
from penstock.torch.user_code import innermost

_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')


def with_line(error: Exception, stage: int, capture: Callable[[], Any]) -> Exception:
    """Returns the error of a capture with the line of the forward op whose backward failed.

    Captures again, with torch's anomaly mode, which notes the line of each op. Errors of forward
    are returned unchanged.
    """
    text = str(error).removeprefix("capture: ")
    if text.startswith("stage "):
        return Error(text)
    for message in _anomalies(capture):
        head, _, trace = message.partition("Traceback of forward call")
        found = re.search(r"Error detected in (\w+?)(Backward\d*)?\b", head)
        if found and trace:
            line = innermost(_FRAME.findall(trace))
            return Error(f"stage {stage}, backward of {found.group(1)}{line}: {text}")
    return Error(f"stage {stage}: {text}")


def _anomalies(capture: Callable[[], Any]) -> list[str]:
    """Returns what torch's anomaly mode warns of while a capture fails."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            with contextlib.suppress(Error, RuntimeError):
                capture()
    return [str(warning.message) for warning in caught]
