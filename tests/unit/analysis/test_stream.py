import numpy as np
import pytest

from xttsbench.analysis.stream import WINDOW, Stream, oscillation
from xttsbench.records.machine import Signal


def fed(values, column="gpu0_utilization", interval_s=0.1):
    stream = Stream(("t_s", column), (column,), interval_s)
    for at, value in enumerate(values):
        stream.take({"t_s": at * interval_s} | ({} if value is None else {column: float(value)}))
    return stream


def square(n, period, low=0.1, high=0.9):
    return np.where(np.arange(n) % period < period / 2, high, low)


def test_sums_are_of_what_was_read_and_gaps_are_no_zeros():
    stream = fed([0.5, None, None, 0.1])
    assert stream.signals() == {"gpu0_utilization": Signal(readings=2, mean=0.3, lowest=0.1, highest=0.5)}
    assert stream.window("gpu0_utilization") == [0.5, 0.5, 0.5, 0.1]
    assert stream.number("gpu0_utilization") == 0.1
    assert stream.number("gpu0_power_w") is None


def test_nothing_grows_with_time():
    stream = fed(np.zeros(3 * WINDOW))
    assert len(stream.window("gpu0_utilization")) == WINDOW
    assert stream.window("gpu0_utilization", 3) == [0, 0, 0]
    assert stream.readings == 3 * WINDOW


def test_an_oscillation_has_its_period_in_seconds_and_is_reported_once():
    stream = fed(square(200, 16))
    assert stream.search("gpu0_utilization")
    assert stream.oscillations["gpu0_utilization"].period_s == pytest.approx(1.6, rel=0.02)
    assert not stream.search("gpu0_utilization")


def test_it_begins_ends_and_changes():
    stream = fed(square(WINDOW, 16))
    stream.search("gpu0_utilization")
    for at in range(WINDOW):
        stream.take({"t_s": 100 + at * 0.1, "gpu0_utilization": float(square(WINDOW, 40)[at])})
    assert stream.search("gpu0_utilization")
    assert stream.oscillations["gpu0_utilization"].period_s == pytest.approx(4.0, rel=0.05)
    for at in range(WINDOW):
        stream.take({"t_s": 200 + at * 0.1, "gpu0_utilization": 0.5})
    assert stream.search("gpu0_utilization")
    assert not stream.oscillations


def test_samples_that_are_finer_and_come_late_fill_the_window_at_the_interval():
    stream = Stream(("t_s", "gpu0_utilization"), ("gpu0_utilization",), 0.1)
    for start in range(0, 1500, 75):  # of 20 ms each, 75 of them every 1.5 s
        values = square(1500, 80)[start : start + 75]
        stream.take_samples("gpu0_utilization", [((start + n) * 0.02, float(value)) for n, value in enumerate(values)])
        stream.take({"t_s": start * 0.02, "gpu0_utilization": float(values.mean())})
    assert len(stream.window("gpu0_utilization")) == 299
    assert stream.window("gpu0_utilization")[:16] == pytest.approx([0.9] * 8 + [0.1] * 8)
    assert stream.search("gpu0_utilization")
    assert stream.oscillations["gpu0_utilization"].period_s == pytest.approx(1.6, rel=0.02)


def test_samples_rarer_than_the_readings_are_held():
    stream = Stream(("t_s", "gpu0_utilization"), ("gpu0_utilization",), 0.1)
    stream.take_samples("gpu0_utilization", [(0.05, 0.2), (0.35, 0.8), (0.45, 0.5)])
    assert stream.window("gpu0_utilization") == [0.2, 0.2, 0.2, 0.8]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("gpu0_utilization", np.full(300, 0.97)),
        ("gpu0_utilization", np.random.default_rng(1).random(300)),
        ("cpu_share", 0.02 + square(300, 10, 0.0, 0.02)),  # what wakes up once a second, these readings included
        ("storage_read_bytes_per_s", square(300, 10, 0, 4096)),
        ("cpu_share", square(40, 10)),
    ],
)
def test_noise_ticks_and_short_series_are_none(column, values):
    assert oscillation(column, values, 0.1, 30.0) is None
