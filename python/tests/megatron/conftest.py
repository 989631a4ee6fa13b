"""These tests need megatron-core, out of the readers' environment."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import worlds  # noqa: E402, F401  # finds megatron-core

collect_ignore_glob = [] if importlib.util.find_spec("megatron") is not None else ["test_*.py"]
