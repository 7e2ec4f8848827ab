import mmap

import numpy as np
import pytest

from xttsbench.analysis.running import MOST_STRETCHES, UNSEEN, Histogram, Running, drift_of, memory_of, rows_since
from xttsbench.records.rows import RowMemory, StepRow
from xttsbench.records.watch import Stretch

MS = 1_000_000


def memory(rows=64):
    made = RowMemory(mmap.mmap(-1, RowMemory.size_bytes(rows)))
    return made, made.segment("as_is")


def feed(running, walls_ms, *, why=lambda start, end: None, rss=None, **columns):
    """Add steps of these durations, one after another."""
    made, segment = memory(len(walls_ms) + 1)
    at = running.steps * 100 * MS
    for index, wall in enumerate(walls_ms):
        own = {name: values[index] for name, values in columns.items()}
        wall_ns = round(wall * MS)
        wait = own.pop("wait_ns", 0)
        segment.append(
            StepRow(at, wall_ns, wait_ns=wait, step_ns=wall_ns - wait, batch_size=4, batch_elements=8, **own)
        )
        at += wall_ns
    running.add(rows_since(made.ring("as_is"), 0)[0], why, rss)


def test_rows_are_read_once_each_and_those_that_were_overwritten_are_counted():
    made, segment = memory(8)
    for number in range(5):
        segment.append(StepRow(number, 10 * MS))
    steps, lost = rows_since(made.ring("as_is"), 3)
    assert (len(steps), lost) == (2, 0)
    assert steps.wall_s.tolist() == [0.01, 0.01]
    for number in range(5, 30):
        segment.append(StepRow(number, 20 * MS))
    steps, lost = rows_since(made.ring("as_is"), 5)
    # The oldest place of a full ring may be the one that is being written.
    assert (len(steps), lost) == (7, 18)
    assert made.ring("other") is None


def test_memory_of_a_million_steps_is_that_of_a_thousand():
    running = Running()
    for _ in range(1000):
        feed(running, [1.0] * 50)
    assert running.steps == 50_000
    assert len(running.stretches) <= MOST_STRETCHES
    assert sum(one.steps for one in running.stretches) == 50_000
    assert sum(one.wall_s for one in running.stretches) == pytest.approx(50.0)
    assert running.quantiles_s["median"] == pytest.approx(0.001, rel=0.01)


def test_quantiles_are_those_of_the_steps_within_a_class():
    times = np.random.default_rng(1).lognormal(-5, 1, 10_000)
    histogram = Histogram()
    histogram.add(times)
    for share in (0.05, 0.5, 0.99):
        assert histogram.quantile(share) == pytest.approx(float(np.quantile(times, share)), rel=0.02)


def test_steps_that_stall_are_counted_by_what_they_had_in_common():
    walls = [10.0] * 200
    gc_ns, wait_ns, traces, epoch = [0] * 200, [0] * 200, [0] * 200, [0] * 100 + [1] * 100
    for at in (20, 60, 140):
        walls[at], gc_ns[at] = 60.0, 45 * MS
    walls[100], wait_ns[100] = 110.0, 100 * MS
    walls[150], wait_ns[150] = 50.0, 40 * MS
    walls[170], traces[170] = 300.0, 1
    walls[180] = 90.0
    running = Running()
    feed(
        running, walls, why=lambda start, end: "saving (a.py:3)",
        gc_ns=gc_ns, wait_ns=wait_ns, traces=traces, epoch=epoch,
    )  # fmt: skip
    stalls = running.stalls
    assert stalls.count == 7
    found = {one.what: one for one in stalls.causes}
    assert found["Python's garbage collection"].count == 3
    assert found["Python's garbage collection"].lost_s == pytest.approx(0.150, rel=0.02)
    assert found["waiting for input at the begin of an epoch"].first_step == 100
    assert found["waiting for input"].last_step == 150
    assert found["tracing or compiling"].slowest_s == pytest.approx(0.3)
    assert found["saving (a.py:3)"].count == 1
    assert stalls.causes[0].what == "tracing or compiling"
    assert stalls.share_of_time == pytest.approx(stalls.lost_s / (sum(walls) / 1e3))


def test_a_stall_that_no_sample_saw_belongs_to_the_rhythm_that_it_completes():
    running, seen = Running(), {9, 29, 39, 59, 79}
    walls = [10.0] * 100
    for at in range(9, 100, 10):
        walls[at] = 40.0
    ends = np.cumsum(walls) / 1e3

    def why(start_s, end_s):
        number = int(np.searchsorted(ends, end_s - 1e-6))
        return "saving (a.py:3)" if number in seen else None

    feed(running, walls, why=why)
    (cause,) = running.stalls.causes
    assert (cause.what, cause.count, cause.every_steps) == ("saving (a.py:3)", 10, 10.0)


def test_stalls_at_random_have_no_rhythm_and_stay_unseen():
    running = Running()
    walls = [10.0] * 300
    for at in (13, 44, 47, 120, 170, 255, 256):
        walls[at] = 60.0
    feed(running, walls)
    (cause,) = running.stalls.causes
    assert (cause.what, cause.every_steps) == (UNSEEN, None)


def test_a_few_steps_that_trace_are_charged_against_the_run_and_not_against_themselves():
    running = Running()
    feed(running, [10.0] * 50)
    feed(running, [210.0, 210.0], traces=[1, 1], trace_ns=[50 * MS, 50 * MS])
    assert running.stretches[-1].compile_s == pytest.approx(0.4, rel=0.02)
    assert running.stretches[-1].compiling_steps == 2


def stretch(number, wall_s, wait_s=0.0, rss=None, steps=100):
    return Stretch(
        start_s=number, end_s=number + 1, steps=steps, samples=steps, wall_s=wall_s, wait_s=wait_s,
        step_s=wall_s - wait_s, compile_s=0.0, outside_s=0.0, cpu_s=0.0, gc_s=0.0, sync_s=0.0, traces=0,
        xla_compiles=0, compiling_steps=0, slowest_s=wall_s / steps, rss_bytes=rss,
    )  # fmt: skip


def test_drift_is_named_with_its_side_and_noise_is_none():
    rng = np.random.default_rng(3)
    noise = rng.normal(0, 0.01, 60)
    steady = [stretch(at, 1.0 + noise[at]) for at in range(60)]
    assert drift_of(steady) is None
    rising = [stretch(at, 1.0 + noise[at] + 0.01 * at, wait_s=0.2 + 0.01 * at) for at in range(60)]
    found = drift_of(rising)
    assert found.side == "input"
    assert found.change == pytest.approx(0.59 / 1.3, rel=0.1)
    assert drift_of(steady[:3]) is None


def test_memory_that_fills_up_is_no_growth_and_one_that_goes_on_is():
    mb = 1 << 20
    filling = [stretch(at, 1.0, rss=(500 + min(at, 20) * 10) * mb) for at in range(60)]
    assert memory_of(filling).bytes_per_step is None
    leaking = [stretch(at, 1.0, rss=(500 + at * 10) * mb) for at in range(60)]
    assert memory_of(leaking).bytes_per_step == pytest.approx(10 * mb / 100)
    assert memory_of([stretch(0, 1.0)]) is None
