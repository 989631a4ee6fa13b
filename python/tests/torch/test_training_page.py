"""The examples of docs/python-training.md run."""

from __future__ import annotations

import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "python-training.md"


def test_examples_of_the_page_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 11
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)  # noqa: S102
    assert (tmp_path / "step.html").exists()
