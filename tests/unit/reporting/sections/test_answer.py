"""What was not tried is said before what is left to do, and the budget of the next command fits what is missing."""

from __future__ import annotations

import pytest

from tests.unit.reporting.conftest import estimate
from tests.unit.reporting.sections.test_advice import LOADS, NO_GAIN, OTHER, SAME, cache, fix, report_of, with_findings
from tests.unit.reporting.sections.test_summary import flat, screen

UNTRIED = "there was no time for it within the budget: its cache takes 4 s to fill"


def test_what_was_not_tried_is_said_before_what_is_left() -> None:
    slow = fix(
        "parallel-map", "maps in parallel", "not verified", verified_speedup=estimate(0.8), why="no gain of 2% to be"
    )
    slow = slow.model_copy(update={"decision": "undecided", "semantics": SAME})
    text = flat(screen(report_of(slow, cache("not verified", why=UNTRIED))))
    assert (
        "what to do Not tried for want of time: a cache in memory after map; the next command has more of it. Maps in "
        "parallel was tried: no gain of 2% to be." in text
    )
    assert "What is left" not in text
    assert "yes, bit for bit tried, no gain seen" in text
    map_ = fix("parallel-map", "maps in parallel", "not verified", predicted_speedup=1.4, why=UNTRIED)
    text = flat(screen(report_of(cache("rejected", predicted_speedup=4.8, semantics=OTHER), map_)))
    assert "what to do Not tried for want of time: maps in parallel; the next command has more of it. A cache" in text
    assert "What is left is to make that work itself cheaper." in flat(screen(with_findings(report_of(slow), LOADS)))


@pytest.mark.parametrize(
    ("given", "why", "wanted"),
    [
        ("--budget 200 ", "evidence 15.9; about 1 more round like these would (1 s)", 360),
        ("--budget 160 ", "there was no time for it: its cache takes 206 s to fill", 600),
        ("--budget 110 ", "there was no time for it", 600),
        ("--budget 900 ", "there was no time for it", 1800),
        ("", "there was no time for it", 600),
    ],
)
def test_the_budget_that_is_shown_fits_what_is_missing(given: str, why: str, wanted: int) -> None:
    command = f"xttsbench optimize my_project/data.py:make {given}--out reports/one"
    text = flat(screen(report_of(NO_GAIN, cache("not verified", predicted_speedup=4.8, why=why), command=command)))
    assert f"then xttsbench optimize my_project/data.py:make --budget {wanted} report" in text or "no time" not in why
    tried = cache(
        "not verified", verified_speedup=estimate(3.4, 0.8), decision="likely_faster", why=why, semantics=SAME
    )
    assert f"--budget {wanted} report" in flat(screen(report_of(tried, command=command)))
