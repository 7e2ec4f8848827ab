"""The waiter on a fake clock, whose sleeps are late (or early) by known amounts."""

from __future__ import annotations

import statistics
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.probes import clock
from xttsbench.probes.clock import MAX_SPIN_NS, MAX_SPIN_SHARE, EmulatedAccelerator, Waiter, canary_ns

MS = 1_000_000
READ_NS = 100


class FakeTime:
    """A clock that costs 100 ns to read, and sleeps that end ``late_ns`` after what was asked."""

    def __init__(self, *late_ns: int) -> None:
        self.now_ns = 10**9
        self.late_ns = late_ns or (0,)
        self.sleeps: list[float] = []
        self.reads = 0

    def clock(self) -> int:
        self.reads += 1
        self.now_ns += READ_NS
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_ns += round(seconds * 1e9) + self.late_ns[len(self.sleeps) % len(self.late_ns)]
        self.sleeps.append(seconds)

    def waiter(self) -> Waiter:
        return Waiter(clock=self.clock, sleep=self.sleep)


def test_calibration_takes_the_lower_decile_of_the_lateness() -> None:
    fake = FakeTime(*(n * 10_000 for n in range(1, 31)))
    waiter = fake.waiter()
    waiter.calibrate(sleeps=30)
    assert waiter.lateness_ns == pytest.approx(40_000, abs=2 * READ_NS)


def test_a_calibrated_wait_ends_on_time_where_the_plain_sleep_is_late() -> None:
    fake = FakeTime(60_000)
    plain = fake.waiter().wait(5 * MS)
    waiter = fake.waiter()
    waiter.calibrate()
    calibrated = waiter.wait(5 * MS)
    assert calibrated - 5 * MS < 5 * READ_NS < plain - 5 * MS


def test_early_calibration_never_means_less_than_asked() -> None:
    fake = FakeTime(500_000)
    waiter = fake.waiter()
    waiter.calibrate()
    fake.late_ns = (0,)  # sleeps are suddenly exact: half a millisecond too early
    assert waiter.wait(10 * MS) >= 10 * MS


def test_a_deadline_that_is_over_is_not_slept_for() -> None:
    fake = FakeTime()
    waiter = fake.waiter()
    assert waiter.wait(0) <= 3 * READ_NS
    assert fake.sleeps == []


def test_a_negative_wait_is_refused() -> None:
    with pytest.raises(ValueError, match="-7"):
        FakeTime().waiter().wait(-7)


@given(
    duration_ns=st.integers(min_value=0, max_value=200 * MS),
    lateness_ns=st.integers(min_value=0, max_value=2 * MS),
    late_ns=st.lists(st.integers(min_value=0, max_value=3 * MS), min_size=1, max_size=5),
)
def test_never_too_short_and_hardly_spun(duration_ns: int, lateness_ns: int, late_ns: list[int]) -> None:
    fake = FakeTime(*late_ns)
    waiter = fake.waiter()
    waiter.lateness_ns = lateness_ns
    before_ns, reads = fake.now_ns, fake.reads
    waited_ns = waiter.wait(duration_ns)
    assert duration_ns <= waited_ns <= duration_ns + max(late_ns) + 5 * READ_NS
    assert waited_ns <= fake.now_ns - before_ns
    # Every read of the clock beside the sleeps is spinning.
    spun_ns = (fake.reads - reads - len(fake.sleeps)) * READ_NS
    assert spun_ns <= min(MAX_SPIN_NS, MAX_SPIN_SHARE * duration_ns) + 5 * READ_NS


def test_the_real_wait_leaves_the_processor_alone() -> None:
    waiter = Waiter()
    waiter.calibrate()
    cpu_ns, start_ns = time.thread_time_ns(), time.perf_counter_ns()
    waited_ns = [waiter.wait(5 * MS) for _ in range(60)]
    wall_ns = time.perf_counter_ns() - start_ns
    assert min(waited_ns) >= 5 * MS
    assert (time.thread_time_ns() - cpu_ns) / wall_ns < 0.15


def test_it_replays_its_times_round_and_round_and_never_ends_early():
    accelerator = EmulatedAccelerator([2.0, 6.0, 4.0])
    waited = [accelerator.compute() for _ in range(30)]
    for offset, ms in enumerate((2.0, 6.0, 4.0)):
        own = waited[offset::3]
        assert min(own) >= ms * 1e6
        assert statistics.median(own) < ms * 1e6 + 1e6


def test_the_canary_is_the_fastest_of_five_passes_of_the_same_work(monkeypatch) -> None:
    canary_ns()  # the first call makes its numbers
    work, passes = [], iter([0, 900, 1_000, 1_500, 2_000, 2_400, 3_000, 3_900, 4_000, 4_700])
    add, sort = np.add, np.sort
    monkeypatch.setattr(clock.np, "add", lambda *args, **kwargs: work.append(args[0].nbytes) or add(*args, **kwargs))
    monkeypatch.setattr(
        clock.np, "sort", lambda values: work.append((values.size, values[:9].tobytes())) or sort(values)
    )
    monkeypatch.setattr(clock.time, "perf_counter_ns", lambda: next(passes))
    assert canary_ns() == 400
    assert len(work) == 10
    assert work[0] >= 8 * 2**20  # more than a core's own cache
    assert set(work) == set(work[:2])  # numbers that were sorted in place would sort faster the next time
