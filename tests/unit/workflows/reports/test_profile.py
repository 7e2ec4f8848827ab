"""XProf's verdict beside ours: where they differ, why."""

from __future__ import annotations

import pytest

from xttsbench.records.readings import XProfVerdict
from xttsbench.workflows.reports.profile import difference


def said(says, share=0.9):
    return XProfVerdict(says=says, input_share=share)


@pytest.mark.parametrize(("says", "bottleneck"), [("input", "input"), ("not input", "compute"), ("not input", "host")])
def test_the_same_answer_needs_no_reason(says, bottleneck):
    assert difference(said(says), bottleneck, measured=0.9, profiled=0.9, slowed=1.0) is None


@pytest.mark.parametrize(
    ("says", "share", "bottleneck", "measured", "profiled", "slowed", "words"),
    [
        ("nothing", None, "input", 0.9, 0.9, 1.0, "found no step"),
        ("input", 0.9, "inconclusive", 0.9, 0.9, 1.0, "nothing to hold against"),
        ("not input", 0.0, "inconclusive", None, 0.9, 1.0, "nothing to hold against"),
        ("perhaps input", 0.0, "compute", 0.0, 0.0, 1.0, "cannot tell"),
        ("perhaps input", 0.0, "input", 0.9, 0.9, 1.0, "next() takes 90% of it"),
        ("input", 0.4, "compute", 0.02, 0.4, 1.5, "a step took 1.5 times as long; over all steps"),
        ("input", 0.07, "dispatch", 0.08, 0.07, 1.0, "from 5% of waiting on, here 7%"),
        ("not input", 0.01, "input", 0.4, 0.4, 1.0, "no event of higher rank"),
        ("not input", 0.01, "input", None, None, None, "no event of higher rank"),
    ],
)
def test_a_difference_has_its_reason(says, share, bottleneck, measured, profiled, slowed, words):
    found = difference(said(says, share), bottleneck, measured=measured, profiled=profiled, slowed=slowed)
    assert words in found
