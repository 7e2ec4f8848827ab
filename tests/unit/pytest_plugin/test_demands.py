from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xttsbench.errors import UsageError
from xttsbench.pytest_plugin.gates import Demands, judged, too_severe
from xttsbench.pytest_plugin.options import Saved
from xttsbench.records.report import Finding


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
        ({"max_regression": "5"}, "got '5'"),
        ({"max_regression": "-5%"}, "got '-5%'"),
        ({"max_regression": "a lot"}, "got 'a lot'"),
    ],
)
def test_demands_that_cannot_be_are_refused(changes: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = dict.fromkeys(
        ("max_regression", "min_throughput", "max_step_time_s", "min_utilization", "fail_on")
    )
    with pytest.raises(UsageError, match=words):
        Demands.of(**(given | {"diagnose": True} | changes))


@pytest.mark.parametrize("value", [0.05, "0.05", "5%", " 5 %"])
def test_a_share_is_a_number_or_a_percentage(value: float | str) -> None:
    assert Demands.of(False, value, None, None, None, None).max_regression == pytest.approx(0.05)


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
    assert too_severe(Demands(fail_on="critical"), report) == [
        "fail_on='critical': slow-map (critical): about slow-map"
    ]
    assert len(too_severe(Demands(fail_on="info"), report)) == 2
    assert too_severe(Demands(), report) == too_severe(Demands(fail_on="info"), None) == []
