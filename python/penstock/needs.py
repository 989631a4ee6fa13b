"""What parts of the package need beside it."""

from __future__ import annotations

import importlib

_HOW = {
    "torch": "run pip install torch, then pip install .[torch] in the folder of Penstock",
}


def needs(part: str, *packages: str) -> None:
    """Raises ModuleNotFoundError with one line if a package that a part needs is not installed."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as missing:
            if missing.name != package:
                raise
            how = _HOW.get(package, f"run pip install {package}")
            raise ModuleNotFoundError(f"{part} needs {package}, which is not installed: {how}", name=package) from None
