from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from xttsbench.pytest_plugin.gates import limit, regression

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


def test_its_interval_is_student_s_with_what_is_known_of_the_noise() -> None:
    """Between processes on either side, and 3 % of three degrees of freedom besides."""
    now = near(97, noise=0.03)
    gate = regression(now, BEFORE, most=0.05, source="s", session_noise=0.0)
    logs = np.log(BEFORE), np.log(now)
    variance = (2 * sum(6 * own.var() for own in logs) + 3 * 0.03**2) / (10 + 3)
    reach = stats.t(13).ppf(0.975) * np.sqrt(variance / 6)
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
