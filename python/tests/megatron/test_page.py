"""docs/megatron.md says what is refused, and why, in the words of the errors."""

from __future__ import annotations

import pathlib

from penstock.megatron.checks import refusals

PAGE = (pathlib.Path(__file__).resolve().parents[3] / "docs/megatron.md").read_text(encoding="utf-8")


def test_the_page_has_each_refusal_with_its_reason() -> None:
    reasons = {**refusals.CONFIG, **refusals.DATA_PARALLEL, **{name: why for name, (_, why) in refusals.VALUES.items()}}
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    for name, reason in reasons.items():
        assert any(f"`{name}`" in row and row.endswith(f"| {reason} |") for row in rows), f"{name}: {reason}"
