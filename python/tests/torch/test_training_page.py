"""The examples of docs/python-training.md run, and its table of arguments is what Pipeline declares."""

from __future__ import annotations

import inspect
import pathlib
import re

import pytest

import penstock.torch as pt
from penstock.torch.arguments import rules_of

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "python-training.md"


def test_examples_of_the_page_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 11
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)  # noqa: S102
    assert (tmp_path / "step.html").exists()


def test_the_table_of_arguments_is_what_the_signature_and_its_help_say() -> None:
    rules, rows = rules_of(pt.Pipeline.__init__), ["| argument | values | default | |", "| --- | --- | --- | --- |"]
    for name, each in inspect.signature(pt.Pipeline).parameters.items():
        found = re.search(rf"^    {name}: (.*?)(?=^    \w+: |\n\n)", inspect.getdoc(pt.Pipeline) or "", re.MULTILINE | re.DOTALL)
        assert found is not None
        values = rules[name].wanted if name in rules else ""
        default = "" if each.default is each.empty else f"`{getattr(each.default, '__name__', repr(each.default))}`"
        rows.append(f"| `{name}` | {values} | {default} | {' '.join(found[1].split()).replace('``', '`')} |")
    table = "\n".join(rows)
    assert table in PAGE.read_text(), f"the page's table should be:\n{table}"
