from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.records.base import Estimate
from xttsbench.reporting import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (27.3, "27.3 s"),
        (0.0042, "4.20 ms"),
        (0.00031, "310 µs"),
        (2.5e-8, "25.0 ns"),
        (0.0, "0 s"),
        (0.9996, "1.00 s"),
        (0.999, "999 ms"),
        (-0.0024, "-2.40 ms"),
        (200.0, "3 min 20 s"),
        (7500.0, "2 h 5 min"),
        (-200.0, "-3 min 20 s"),
    ],
)
def test_duration_takes_the_unit_that_fits(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@given(st.floats(1e-9, 119.0))
def test_duration_keeps_three_significant_digits(seconds: float) -> None:
    value, unit = units.duration(seconds).split()
    scale = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(value) * scale == pytest.approx(seconds, rel=0.0051)
    assert 1 <= float(value) < 1000


def test_an_interval_is_in_the_unit_and_to_the_decimals_of_its_estimate() -> None:
    wide = Estimate(estimate=0.0042, low=0.00095, high=1.25)
    assert units.duration_interval(wide) == "4.20 ms (0.95 to 1,250.00)"
    assert units.percent_interval(Estimate(estimate=0.641, low=0.6, high=0.68)) == "64.1 % (60.0 to 68.0)"
    assert units.ratio_interval(Estimate(estimate=1.0031, low=0.9954, high=1.011)) == "1.003x (0.995 to 1.011)"
    assert units.ratio_interval(Estimate(estimate=2.016, low=1.9, high=2.2)) == "2.02x (1.90 to 2.20)"
    assert units.rate_interval(Estimate(estimate=467.2, low=453, high=481)) == "467 /s (453 to 481)"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.641, "64.1 %"), (0.0, "0.0 %"), (0.0004, "<0.1 %"), (0.0006, "0.1 %"), (-0.0001, ">-0.1 %"), (1.0, "100.0 %")],
)
def test_a_small_share_does_not_print_as_nothing(share: float, text: str) -> None:
    assert units.percent(share) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1536, "1.50 KiB"), (1024**2 - 1, "1.00 MiB"), (2**33, "8.00 GiB")]
)
def test_size(count: int, text: str) -> None:
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(12345, "12,345"), (12345.6, "12,300"), (0.0123, "0.0123"), (1.5, "1.50"), (0.0, "0"), (1e-12, "1.00e-12")],
)
def test_number(value: float, text: str) -> None:
    assert units.number(value) == text


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("wait_s", 0.0042, ("wait", "4.20 ms")),
        ("wait_s_per_step", 0.0042, ("wait per step", "4.20 ms")),
        ("held_bytes_per_batch", 2048, ("held per batch", "2.00 KiB")),
        ("read_bytes_per_s", 2048, ("read", "2.00 KiB/s")),
        ("samples_per_s", 120.0, ("samples", "120 /s")),
        ("buffer_bytes", 2048, ("buffer", "2.00 KiB")),
        ("cost_share", 0.5, ("cost share", "50.0 %")),
        ("calls", 16, ("calls", "16")),
        ("pinned", False, ("pinned", "no")),
        ("wait_s", None, ("wait", "not measured")),
    ],
)
def test_the_unit_moves_from_the_name_to_the_number(name: str, value: object, expected: tuple[str, str]) -> None:
    assert units.named(name, value) == expected


def test_parts_of_a_whole_add_up_and_the_largest_is_as_it_is_said_elsewhere() -> None:
    shares = [0.44149, 0.39251, 0.03949, 0.03149, 0.02549, 0.06951, 0.00002]
    said = units.percents(shares)
    assert sum(round(10 * float(one.removesuffix(" %"))) for one in said[:-1]) == 1000
    assert (said[0], said[-1]) == (units.percent(shares[0]), "<0.1 %")
    assert units.percents([0.0, 1.0]) == ["0.0 %", "100.0 %"]
    assert units.percents([]) == []
