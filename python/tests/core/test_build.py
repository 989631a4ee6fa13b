"""How the build finds torch: it asks pip's interpreter."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
CMAKE = ROOT / "cmake"


def found(pattern: str, file: str) -> list[str]:
    """Returns what the group of a pattern matches in a file of the project."""
    return re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)


RANGE = found(r"find_package\(Torch (\S+) REQUIRED\)", "CMakeLists.txt")[0]
OLDEST, TOO_NEW = RANGE.split("...<")
PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(finds LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH "{CMAKE}")
set(SKBUILD 2)
include(InstalledTorch)
message("installed: ${{installed_torch}}.")
set(CMAKE_FIND_LIBRARY_PREFIXES lib)
set(CMAKE_FIND_LIBRARY_SUFFIXES .so)
find_package(Torch {RANGE} REQUIRED)
message("includes: ${{Torch_INCLUDE_DIR}}.")
"""
# What pip's isolated build does to an interpreter.
ISOLATION = """
import sys
sys.path = [each for each in sys.path if "python3" in each and "site-packages" not in each]
"""


def make_torch(parent: pathlib.Path, version: str = f"{OLDEST}.0+cu130") -> pathlib.Path:
    torch = parent / "torch"
    (torch / "include" / "ATen").mkdir(parents=True)
    (torch / "lib").mkdir()
    (torch / "include" / "ATen" / "ATen.h").touch()
    for name in ("torch_cpu", "torch_python", "c10"):
        (torch / "lib" / f"lib{name}.so").touch()
    (torch / "__init__.py").touch()
    (torch / "version.py").write_text(f"__version__ = '{version}'\n")
    return torch


@pytest.fixture
def isolated(tmp_path: pathlib.Path) -> dict[str, str]:
    """The environment of a build that pip isolates from installed packages."""
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "sitecustomize.py").write_text(ISOLATION)
    return {**os.environ, "PYTHONPATH": str(overlay), "PYTHONNOUSERSITE": "1"}


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> pathlib.Path:
    """A virtual environment; returns its folder of packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    return next((tmp_path / "venv" / "lib").glob("python3*/site-packages"))


def configure(python: pathlib.Path | str, folder: pathlib.Path, given: dict[str, str]) -> subprocess.CompletedProcess[str]:
    (folder / "CMakeLists.txt").write_text(PROJECT)
    command = ["cmake", f"-DPython_EXECUTABLE={python}", "-S", folder, "-B", folder / "build"]
    return subprocess.run(command, text=True, capture_output=True, env=given)


def test_torch_of_the_environment_and_of_a_pth_file(
    tmp_path: pathlib.Path, environment: pathlib.Path, isolated: dict[str, str]
) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    assert "installed: ." in configure(python, tmp_path, isolated).stderr
    elsewhere = make_torch(tmp_path / "elsewhere")
    (environment / "image.pth").write_text(str(elsewhere.parent))
    for given in (isolated, dict(os.environ)):
        assert f"includes: {elsewhere}/include." in configure(python, tmp_path, given).stderr
    # The build folder is kept, but follows the interpreter.
    own = make_torch(environment)
    assert f"includes: {own}/include." in configure(python, tmp_path, isolated).stderr


def test_torch_of_the_user(tmp_path: pathlib.Path, isolated: dict[str, str]) -> None:
    base = os.path.realpath(sys.executable)
    given = {**isolated, "PYTHONUSERBASE": str(tmp_path / "user")}
    asked = [base, "-c", "import site; print(site.getusersitepackages())"]
    site = subprocess.run(asked, text=True, capture_output=True, env=given, check=True).stdout
    torch = make_torch(pathlib.Path(site.strip()))
    assert f"includes: {torch}/include." in configure(base, tmp_path, given).stderr


def test_a_torch_without_headers_fails_the_build(tmp_path: pathlib.Path, environment: pathlib.Path, isolated: dict[str, str]) -> None:
    torch = make_torch(environment)
    (torch / "include" / "ATen" / "ATen.h").unlink()
    failed = configure(tmp_path / "venv" / "bin" / "python", tmp_path, isolated)
    assert failed.returncode != 0
    text = " ".join(failed.stderr.split())
    assert "Torch_ROOT" in text and "PENSTOCK_ENGINE=OFF" in text


@pytest.mark.parametrize("version", ["2.5.1", "1.13.1+cpu", f"{TOO_NEW}.0", f"{TOO_NEW}.0.dev20270101+cu132", "3.0.0a0+git123abc"])
def test_a_torch_that_is_not_tested_fails_the_build_in_one_line(
    tmp_path: pathlib.Path, environment: pathlib.Path, isolated: dict[str, str], version: str
) -> None:
    torch = make_torch(environment, version)
    failed = configure(tmp_path / "venv" / "bin" / "python", tmp_path, isolated)
    assert failed.returncode != 0
    [line] = [line for line in failed.stderr.splitlines() if "does not work with Penstock" in line]
    assert f"torch {re.match('[0-9]+([.][0-9]+)*', version)[0]} in {torch} " in line  # type: ignore[index]
    assert f"install torch>={OLDEST},<{TOO_NEW}" in line and "Torch_ROOT" in line and "PENSTOCK_ENGINE=OFF" in line


def test_pip_the_build_and_the_matrix_name_the_same_versions_of_torch() -> None:
    assert found(r'^torch = \["torch(.*)"\]$', "pyproject.toml") == [f">={OLDEST},<{TOO_NEW}"]
    tested = found(r"^(?:torch_versions=\")?torch==(\d+[.]\d+)", "tools/setup.sh")
    number = [int(each.split(".")[1]) for each in (OLDEST, TOO_NEW)]
    assert tested == [f"2.{minor}" for minor in range(*number)]
    measured = found(r"^[|] (\d+[.]\d+)[.]\d+ [|]", "docs/versions.md")
    assert set(measured) <= set(tested)
