from __future__ import annotations

import pytest

from xttsbench.reporting.contents import describe


def told(run, unmeasured: dict[str, str]) -> list[tuple[str, ...]]:
    lines = describe(run.report.model_copy(update={"unmeasured": unmeasured})).unmeasured
    return [(line.label, line.value) for line in lines]


def test_entries_of_a_list_that_share_a_reason_stand_in_one_line(starving) -> None:
    reasons = {f"findings.{index}.equivalent": "not compared" for index in range(12)}
    reasons |= {"arms[0].effect": "no time", "arms[1].effect": "no time"}
    assert told(starving, reasons) == [("findings.*.equivalent", "not compared"), ("arms.*.effect", "no time")]


def test_different_reasons_are_not_thrown_together(starving) -> None:
    reasons = {"arms.1.effect": "it ended", "arms.2.effect": "it ran out of memory", "arms.3.effect": "it ended"}
    assert told(starving, reasons) == [("arms.*.effect", "it ended"), ("arms.*.effect", "it ran out of memory")]


def test_numbers_that_are_no_index_stay(starving) -> None:
    reasons = {
        "oscillation.p99_over_p50": "few",
        "trials.ladder (block 1)": "no time",
        "trials.fix thread-pool:32": "x",
    }
    assert told(starving, reasons) == list(reasons.items())


def gain(run, **changes) -> str:
    finding = run.report.findings[0].model_copy(update=changes)
    return describe(run.report.model_copy(update={"findings": (finding,)})).findings[0].gain


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "predicted 2.02x (1.96 to 2.08); verified 1.940x (1.901 to 1.979); same elements as before"),
        ({"verified_speedup": None, "equivalent": None}, "predicted 2.02x (1.96 to 2.08); not yet verified"),
        ({"predicted_speedup": None, "equivalent": None}, "verified 1.940x (1.901 to 1.979)"),
        ({"predicted_speedup": None, "verified_speedup": None, "equivalent": None}, ""),
        ({"predicted_speedup": None, "verified_speedup": None, "equivalent": False}, "THE FIX CHANGES THE DATA"),
    ],
)
def test_a_gain_says_what_was_measured_and_no_more(starving, changes, text: str) -> None:
    assert gain(starving, **changes) == text
