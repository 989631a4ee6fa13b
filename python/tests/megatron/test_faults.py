"""Faults that the comparisons with one rank must find, so that they prove something."""

from __future__ import annotations

import pytest
import worlds
from tiny_gpt import Case

V = {"pp": 2, "vp": 2, "microbatches": 4}
OVERLAP = {"dp": 2, "overlap": True, "bucket": 4000, "steps": 3}


def changes(case: Case) -> bool:
    """Whether a fault changes a loss or a gradient, or is an error."""
    expected = worlds.reference(worlds.alone(case))
    try:
        found = worlds.merged(case, "runs.mutated")
    except worlds.Failed:
        return True
    if [each is None for each in found["losses"]] != [each is None for each in expected["losses"]]:
        return True
    return max(worlds.differences(found, expected).values()) > 1e-5


@pytest.mark.parametrize(
    "case",
    [
        Case("zbv", **V, **OVERLAP, mutation="ready_at_the_last_input"),
        Case("zbv", **V, mutation="tied_sum_is_omitted"),
        Case("zb-h1", pp=2, mutation="weights_are_dropped"),
        Case("zbv", **V, mutation="state_has_no_view"),
        Case("zbv", **V, mutation="group_has_no_view"),
        Case("zbv", **V, keep=True, mutation="embedding_is_not_copied"),
        Case("zbv", **V, per_token=True, mutation="losses_stay"),
    ],
    ids=lambda case: case.mutation,
)
def test_faults_are_found(case: Case) -> None:
    assert changes(case)


def test_without_a_fault_nothing_changes() -> None:
    assert not changes(Case("zbv", **V, mutation="none"))
    assert not changes(Case("zbv", **V, **OVERLAP, mutation="none"))
