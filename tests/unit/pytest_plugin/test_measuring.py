from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from xttsbench.errors import UsageError
from xttsbench.pytest_plugin.gates import Demands, Saved, judged, limit, regression, share, too_severe
from xttsbench.records.report import Finding

BEFORE = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2]


def near(middle: float, noise: float = 0.005) -> list[float]:
    return [middle * (1 + noise * step) for step in (-1.0, -0.5, 0.0, 0.4, 0.8, 0.3)]


@pytest.mark.parametrize(
    ("now", "noise", "decision"),
    [
        (near(50), 0.0, "failed"),
        (near(88), 0.0, "failed"),
        (near(100), 0.0, "passed"),
        (near(130), 0.0, "passed"),
        (near(95), 0.0, "undecided"),
        (near(90, noise=0.2), 0.0, "undecided"),
        # What two sessions differ by may be all that there is to a small difference.
        (near(90), 0.05, "undecided"),
        (near(50), 0.05, "failed"),
    ],
)
def test_a_regression_is_told_from_the_whole_interval(now: list[float], noise: float, decision: str) -> None:
    gate = regression(now, BEFORE, most=0.05, source="0001_x.json", session_noise=noise)
    assert gate.decision == decision
    assert gate.interval is not None
    assert f"{gate.interval.low:.3f} to {gate.interval.high:.3f}; 6 processes against 6" in gate.sentence
    assert "0001_x.json" in gate.sentence


def test_its_interval_is_the_confidence_sequence_with_what_is_known_of_the_noise() -> None:
    """Between processes on either side, and 3 % of three degrees of freedom besides."""
    now = near(97, noise=0.03)
    gate = regression(now, BEFORE, most=0.05, source="s", session_noise=0.0)
    logs = np.log(BEFORE), np.log(now)
    variance = (2 * sum(6 * own.var() for own in logs) + 3 * 0.03**2) / (10 + 3)
    factor = (20 * np.sqrt(601)) ** (2 / 14)
    reach = np.sqrt(13 * (factor - 1) / (1 - factor / 601) * variance / 6)
    middle = logs[1].mean() - logs[0].mean()
    assert gate.interval is not None
    assert (gate.interval.low, gate.interval.high) == pytest.approx((np.exp(middle - reach), np.exp(middle + reach)))


def test_one_process_on_a_side_decides_nothing() -> None:
    gate = regression([10.0], BEFORE, most=0.05, source="s")
    assert (gate.decision, gate.interval) == ("undecided", None)
    assert "two processes on each side; here 1 processes against 6" in gate.sentence


@pytest.mark.parametrize(
    ("limits", "decision"),
    [
        ({"floor": 90.0}, "passed"),
        ({"floor": 110.0}, "failed"),
        ({"floor": 100.1}, "undecided"),
        ({"ceiling": 90.0}, "failed"),
        ({"ceiling": 110.0}, "passed"),
        ({"ceiling": 100.1}, "undecided"),
    ],
)
def test_a_limit_passes_or_fails_only_where_the_whole_interval_does(limits: dict[str, float], decision: str) -> None:
    gate = limit("min_throughput", BEFORE, unit=" samples/s", **limits)
    assert gate.decision == decision
    assert gate.record()["interval"] == gate.interval.model_dump()  # type: ignore[union-attr]
    assert "samples/s" in gate.sentence


@pytest.mark.parametrize(("values", "words"), [([], "it was not measured"), ([1.0], "needs two processes, here is 1")])
def test_what_is_not_known_of_processes_is_undecided(values: list[float], words: str) -> None:
    gate = limit("min_utilization", values, floor=0.5)
    assert gate.decision == "undecided"
    assert words in gate.sentence


def test_an_idle_device_fails_a_floor() -> None:
    assert limit("min_utilization", [0.0, 0.0, 0.0], floor=0.5).decision == "failed"


def found(**changes: Any) -> dict[str, Any]:
    return {
        "fingerprint": "f1",
        "accelerator": {"kind": "real", "label": "real device"},
        "per_process": {"throughput_per_s": [50.0, 51.0, 50.5], "step_time_s": [0.1, 0.1], "utilization": None},
    } | changes


def told(saved: Saved | str | None) -> tuple[str, str]:
    (gate,) = judged(Demands(max_regression=0.05), found(), saved, 0.0)
    return gate.decision, gate.sentence


def before(**changes: Any) -> Saved:
    return Saved("0001.json", found(per_process={"throughput_per_s": [100.0, 101.0, 100.5]}, **changes))


def test_a_saved_run_is_compared_by_its_processes() -> None:
    assert told(before())[0] == "failed"


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (None, "no saved run is named; give --benchmark-compare"),
        ("0001.json has no test of this name", "0001.json has no test of this name"),
        (before(fingerprint="f2"), "another machine or TensorFlow (f2, here f1)"),
        (before(accelerator={"kind": "emulated", "label": "10 ms"}), "another accelerator"),
        (Saved("old.json", found(per_process={})), "does not hold the throughput of each process"),
        (Saved("old.json", found(per_process={"throughput_per_s": ["1", -2]})), "does not hold the throughput"),
        (Saved("other.json", {}), "another machine"),
    ],
)
def test_what_is_not_comparable_is_not_compared(saved: Saved | str | None, words: str) -> None:
    decision, sentence = told(saved)
    assert decision == "not compared"
    assert words in sentence


def test_every_limit_is_held_and_none_that_was_not_given() -> None:
    assert judged(Demands(), found(), None, 0.0) == []
    gates = judged(Demands(min_throughput=40, max_step_time_s=0.05, min_utilization=0.9), found(), None, 0.0)
    assert {gate.name: gate.decision for gate in gates} == {
        "min_throughput": "passed",
        "max_step_time_s": "failed",
        "min_utilization": "undecided",
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fail_on": "fatal"}, "one of info, warning, critical; got 'fatal'"),
        ({"fail_on": "critical", "diagnose": False}, "diagnose=True"),
    ],
)
def test_demands_that_cannot_be_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Demands(**({"diagnose": True} | changes))


@pytest.mark.parametrize("value", [0.05, "0.05", "5%", " 5 %"])
def test_a_share_is_a_number_or_a_percentage(value: float | str) -> None:
    assert share(value, "max_regression") == pytest.approx(0.05)


@pytest.mark.parametrize("value", ["5", "-5%", "a lot"])
def test_anything_else_is_no_share(value: str) -> None:
    with pytest.raises(UsageError, match=f"got '{value}'"):
        share(value, "max_regression")


def test_limiting_findings_that_are_severe_enough_fail() -> None:
    findings = [
        Finding(rule=rule, severity=severity, limiting=limiting, title=f"about {rule}")
        for rule, severity, limiting in (
            ("slow-map", "critical", True),
            ("no-prefetch", "warning", True),
            ("ugly", "critical", False),
        )
    ]
    report: Any = SimpleNamespace(findings=findings)
    assert too_severe(Demands(diagnose=True, fail_on="critical"), report) == [
        "fail_on='critical': slow-map (critical): about slow-map"
    ]
    assert len(too_severe(Demands(diagnose=True, fail_on="info"), report)) == 2
    assert too_severe(Demands(), report) == too_severe(Demands(diagnose=True, fail_on="info"), None) == []
