"""An engine that was built for another version of torch is refused before it is loaded, when it could end the process."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

import penstock

MAJOR, MINOR = map(int, torch.__version__.split(".")[:2])


@pytest.mark.parametrize("built", [f"{MAJOR}.{MINOR}.9", f"{MAJOR}.{MINOR - 1}.0", f"{MAJOR}.{MINOR + 1}.0", f"{MAJOR + 1}.{MINOR}.0"])
def test_only_the_minor_version_of_torch_that_the_engine_was_built_for(tmp_path: pathlib.Path, built: str) -> None:
    package = tmp_path / "penstock"
    shutil.copytree(pathlib.Path(penstock.__file__).parent, package, copy_function=os.symlink)
    version = package / "torch" / "torch_version.txt"
    assert version.read_text() == torch.__version__.split("+")[0]
    version.unlink()
    version.write_text(built)
    command = [sys.executable, "-B", "-c", "import penstock.torch.engine"]
    run = subprocess.run(command, text=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    if built.startswith(f"{MAJOR}.{MINOR}."):
        assert run.returncode == 0, run.stderr
    else:
        [line] = [line for line in run.stderr.splitlines() if line.startswith("penstock._core.Error: ")]
        assert f"built for torch {built}, which does not work with torch {torch.__version__}: with torch installed, run pip install" in line
