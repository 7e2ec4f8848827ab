"""The pace of a pipeline in closed form, by its bounds, and against a simulation that knows nothing of the model."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.analysis.simulator import Part, Resource, Simulation, simulate
from xttsbench.throughput.pace import Consumer, Machine, Thread, Work, pace, period_s, production_times_s

MACHINE = Machine(processors=64, pool_threads=64)


def thread(name, seconds, **fields):
    return Thread(spread=(Work(name, seconds),), **fields)


def ahead(name, seconds, **fields):
    """A prefetch of several batches, and a consumer that only takes."""
    return Thread(inputs=(thread(name, seconds, ready=2.0, **fields),))


def model(parts, *, elements, spread_s, at_once_s, pool, step_s):
    """What the simulation is told, as the model takes it: seconds for a batch instead of an element."""

    def work(name, seconds, lock_s=0.0):
        return Work(name, seconds * elements, lock_s=lock_s * elements, pool_s=seconds * elements)

    before = ()
    for number, part in enumerate(parts):
        calls = ()
        if part.calls_s is not None:
            calls = (work(f"calls {number}", part.calls_s, part.calls_s if part.locked else 0.0),)
        stage = Thread(
            spread=(work(f"thread {number}", part.spread_s),),
            calls=calls,
            parallelism=part.buffer if calls else 1,
            ready=part.buffer / elements,
            elements=elements,
            inputs=before,
        )
        before = (stage,)
    last = Thread(
        spread=(work("taking", spread_s),), at_once=(Work("batch", at_once_s, pool_s=at_once_s),), inputs=before
    )
    return pace(last, Consumer(alone_s=step_s), Machine(64, pool)).period_s


def test_without_a_prefetch_input_and_step_take_turns():
    found = pace(thread("map", 0.03), Consumer(alone_s=0.05), MACHINE)
    assert found.period_s == pytest.approx(0.08)


def test_with_a_prefetch_the_slower_of_the_two_sets_the_pace():
    assert pace(ahead("map", 0.03), Consumer(alone_s=0.05), MACHINE).period_s == pytest.approx(0.05)
    slow = pace(ahead("map", 0.07), Consumer(alone_s=0.05), MACHINE)
    assert slow.period_s == pytest.approx(0.07)
    assert slow.limited_by == "map"
    assert pace(ahead("map", 0.03), Consumer(alone_s=0.05), MACHINE).limited_by == "step"


def test_ops_of_one_thread_add_up_and_the_most_costly_is_named():
    both = Thread(spread=(Work("read", 0.01), Work("map", 0.02)), ready=2.0)
    found = pace(Thread(inputs=(both,)), Consumer(), MACHINE)
    assert (found.period_s, found.limited_by) == (pytest.approx(0.03), "map")


def test_parallel_calls_wait_for_the_thread_that_feeds_them():
    # A call holds its slot while its element is made: (5 + 10) / 2 = 7.5 ms, not 5; measured on TensorFlow 2.21.
    fed = Thread(spread=(Work("make", 0.005),), calls=(Work("map", 0.010),), parallelism=2, ready=2.0)
    assert pace(Thread(inputs=(fed,)), Consumer(), MACHINE).period_s == pytest.approx(0.0075)
    many = Thread(spread=(Work("make", 0.005),), calls=(Work("map", 0.010),), parallelism=8, ready=8.0)
    assert pace(Thread(inputs=(many,)), Consumer(), MACHINE).period_s == pytest.approx(0.005)


def test_a_small_buffer_overlaps_only_with_what_it_holds():
    # 8 elements of 8 ms by 4 calls beside a step of 32 ms: 4 of the 8 are ready after it. Measured: 41.6 ms.
    calls = Thread(calls=(Work("map", 0.064),), parallelism=4, ready=0.5, elements=8)
    assert pace(Thread(inputs=(calls,)), Consumer(alone_s=0.032), MACHINE).period_s == pytest.approx(0.040)


def test_calls_are_bounded_by_the_threads_of_the_pool():
    calls = Thread(calls=(Work("map", 0.064, pool_s=0.064),), parallelism=8, ready=8.0)
    found = pace(Thread(inputs=(calls,)), Consumer(), Machine(64, 2))
    assert (found.period_s, found.limited_by) == (pytest.approx(0.032), "thread pool")


def test_functions_and_step_share_one_interpreter_lock():
    # 5 ms of input and 10 ms of the step's own Python: measured 15.6 ms.
    stage = Thread(spread=(Work("python", 0.005, lock_s=0.005, pool_s=0.005),), ready=2.0)
    found = pace(Thread(inputs=(stage,)), Consumer(alone_s=0.010, lock_s=0.010), MACHINE)
    assert (found.period_s, found.limited_by) == (pytest.approx(0.015), "interpreter lock")


def test_input_and_step_share_the_processors():
    calls = Thread(calls=(Work("map", 0.06, cpu_s=0.06),), parallelism=4, ready=4.0)
    found = pace(Thread(inputs=(calls,)), Consumer(alone_s=0.03, cpu_s=0.05), Machine(2, 64))
    assert (found.period_s, found.limited_by) == (pytest.approx(0.055), "processors")


def test_threads_that_wait_for_the_lock_do_nothing_else():
    # Two threads, half of each call under the lock: mean value analysis by hand gives 3 / 4 of a call per call.
    calls = Thread(calls=(Work("map", 0.006, lock_s=0.003, pool_s=0.006),), parallelism=8, ready=8.0)
    assert pace(Thread(inputs=(calls,)), Consumer(), Machine(64, 2)).period_s == pytest.approx(0.00375)


def test_a_free_input_leaves_the_step():
    found = pace(Thread(), Consumer(alone_s=0.02, handoff_s=0.001), MACHINE)
    assert (found.period_s, found.limited_by) == (pytest.approx(0.021), "step")


def test_inputs_in_turn_add_up_and_inputs_together_do_not():
    two = (thread("a", 0.02, ready=2.0), thread("b", 0.03, ready=2.0))
    assert pace(Thread(inputs=two), Consumer(), MACHINE).period_s == pytest.approx(0.03)
    assert pace(Thread(inputs=two, in_turn=True), Consumer(), MACHINE).period_s == pytest.approx(0.05)


@pytest.mark.parametrize(("pools", "share"), [((64,), 0.95), ((2, 4, 8, 16), 0.93)], ids=["plenty", "scarce"])
def test_nearly_every_pipeline_is_within_a_tenth_of_the_simulation(pools, share):
    rng = random.Random(7)
    errors = []
    for _ in range(300):
        parts = [
            Part(
                rng.choice([0.0, rng.uniform(0.0005, 0.01)]),
                rng.choice([1, 2, 4, 8]),
                rng.choice([None, rng.uniform(0.001, 0.02)]),
                rng.random() < 0.2,
            )
            for _ in range(rng.randint(0, 3))
        ]
        setting = {
            "elements": rng.choice([1, 2, 4, 8]),
            "spread_s": rng.choice([0.0, rng.uniform(0.0005, 0.01)]),
            "at_once_s": rng.uniform(0.001, 0.01),
            "pool": rng.choice(pools),
            "step_s": rng.choice([0.0, rng.uniform(0.001, 0.08)]),
        }
        errors.append(abs(model(parts, **setting) / simulate(parts, **setting) - 1))
    assert np.median(errors) < 0.01
    assert np.quantile(errors, share) < 0.10


@given(
    cost=st.floats(0.001, 1.0),
    lock=st.floats(0.0, 1.0),
    step=st.floats(0.0, 1.0),
    calls=st.integers(1, 16),
    pool=st.integers(1, 16),
    ready=st.floats(0.0, 4.0),
)
def test_more_of_anything_is_never_slower_and_never_beats_the_bounds(cost, lock, step, calls, pool, ready):
    def period(calls=calls, pool=pool, ready=ready, processors=4.0):
        work = Work("map", cost, cpu_s=cost / 2, lock_s=lock * cost, pool_s=cost)
        stage = Thread(calls=(work,), parallelism=calls, ready=ready, elements=4.0)
        return pace(Thread(inputs=(stage,)), Consumer(alone_s=step), Machine(processors, pool)).period_s

    given_s = period()
    assert given_s >= max(step, cost / calls, cost / pool, lock * cost, cost / 8) - 1e-12
    slack = given_s * (1 + 1e-9)
    assert period(calls=calls + 1) <= slack
    assert period(pool=pool + 1) <= slack
    assert period(ready=ready + 1) <= slack
    assert period(processors=5.0) <= slack


# Who waits for the lock when a batch is handed over


def calling(at_once_s, *, calls=8, parallelism=1):
    """A prefetch of a map whose calls wait 1 ms in all, and want the lock for ``at_once_s`` as they begin."""
    work = Work("map", 0.001, lock_s=at_once_s, at_once_s=at_once_s, calls=calls)
    return Thread(inputs=(Thread(calls=(work,), parallelism=parallelism, ready=2.0),))


@pytest.mark.parametrize(
    ("parallelism", "waits_s"),
    [
        (1, 0.0004 / 8 / 2),  # half of the steps wait for the one call that runs
        (2, 0.0004 / 8),
        (8, 0.0004 / 2),  # for all of them
        (32, 0.0004 / 2),  # there are no more than 8
    ],
)
def test_a_step_waits_for_the_lock_of_the_calls_that_begin_as_it_takes_a_batch(parallelism, waits_s):
    step = Consumer(alone_s=0.02, handoff_s=0.001)
    assert pace(calling(0.0), step, MACHINE).period_s == pytest.approx(0.021)
    found = pace(calling(0.0004, parallelism=parallelism), step, MACHINE)
    assert (found.period_s, found.limited_by) == (pytest.approx(0.021 + waits_s), "step")


def test_a_call_keeps_the_lock_from_the_step_for_a_switch_interval_at_most():
    held = Thread(inputs=(Thread(spread=(Work("map", 0.05, lock_s=0.05, at_once_s=0.05),), ready=2.0),))
    assert pace(held, Consumer(alone_s=0.1), MACHINE).period_s == pytest.approx(0.1 + 0.005 / 2)


def test_calls_one_after_the_other_hand_the_lock_over_one_at_a_time():
    in_turn = Thread(inputs=(Thread(spread=(Work("map", 0.004, lock_s=0.004, at_once_s=0.004, calls=4),), ready=2.0),))
    assert pace(in_turn, Consumer(alone_s=0.1), MACHINE).period_s == pytest.approx(0.1 + 0.001 / 2)


def test_what_the_step_runs_itself_and_what_nobody_waits_for_keeps_no_lock_from_it():
    own = Thread(spread=(Work("map", 0.01, lock_s=0.01, at_once_s=0.01),))
    assert pace(own, Consumer(alone_s=0.02), MACHINE).period_s == pytest.approx(0.03)
    assert pace(calling(0.0004), Consumer(), MACHINE).period_s == pytest.approx(0.001)


def simulated(production_s, rest_s, ahead):
    """Waits of a consumer behind a buffer, by events: a producer that needs room, and a consumer that needs a batch."""
    simulation, room, items = Simulation(), Resource(ahead), Resource(0)
    waits: list[float] = []

    def producer():
        for seconds in production_s:
            yield "take", room
            yield "wait", float(seconds)
            yield "release", items

    def consumer():
        for seconds in rest_s:
            asked = simulation.now
            yield "take", items
            yield "release", room
            waits.append(simulation.now - asked)
            yield "wait", float(seconds)

    simulation.start(producer())
    simulation.start(consumer())
    simulation.run(lambda: len(waits) == len(rest_s))
    return np.array(waits)


def every_sixteenth(count=160):
    return np.where(np.arange(count) % 16 == 0, 0.08, 0.0005)


def test_a_burst_costs_what_the_buffer_does_not_last_for():
    # 80 ms every 16 batches beside steps of 8 ms: one batch in store hides 8 ms of it, so 72 ms are waited for.
    step = np.full(160, 0.008)
    assert period_s(every_sixteenth(), step, 1) == pytest.approx((16 * 0.008 + 0.072) / 16, rel=0.01)
    assert period_s(every_sixteenth(), step, 16) == pytest.approx(0.008, rel=0.01)


TIMES = st.lists(st.floats(0.0, 0.1), min_size=5, max_size=40)


@given(TIMES, st.floats(0.001, 0.05), st.integers(1, 8))
def test_more_room_is_never_slower_and_never_beats_the_slower_of_the_two(times, step, ahead):
    production, rest = np.array(times), np.full(len(times), step)
    now = period_s(production, rest, ahead)
    assert period_s(production, rest, ahead + 1) <= now * (1 + 1e-9)
    assert max(production.mean(), step) * (1 - 1e-9) <= now <= (production.mean() + step) * (1 + 1e-9)


@settings(deadline=None)
@given(TIMES, st.floats(0.001, 0.05), st.integers(1, 6))
def test_the_recurrence_is_what_a_simulation_by_events_does(times, step, ahead):
    production, rest = np.array(times * 6), np.full(len(times) * 6, step)
    waits = simulated(production, rest, ahead)
    first = len(times) * 4
    seen = float((waits + rest)[first:].mean())
    assert period_s(np.array(times), rest[: len(times)], ahead) == pytest.approx(seen, rel=0.25, abs=0.1 / first)


@pytest.mark.parametrize("seed", range(5))
def test_what_a_larger_buffer_gives_is_told_from_the_waits_behind_a_small_one(seed):
    """Rare, random bursts: the input's times are read from the waits alone, and the larger buffer is then simulated."""
    rng = np.random.default_rng(seed)
    production = np.where(rng.random(600) < 0.05, 0.15, 0.004)
    rest = np.full(600, 0.016)
    small = simulated(production, rest, 1)
    read = production_times_s(small, rest, 1, float(production.mean()))
    assert read.mean() == pytest.approx(production.mean(), rel=0.05)
    assert period_s(read, rest, 1) == pytest.approx(float((small + rest).mean()), rel=0.03)
    large = float((simulated(production, rest, 32) + rest).mean())
    assert period_s(read, rest, 32) == pytest.approx(large, rel=0.1)
