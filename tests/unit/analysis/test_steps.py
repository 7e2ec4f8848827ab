"""The cut after the warm-up and the check of what is left."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from tests.unit.analysis.noise import ar1
from xttsbench.analysis.steps import batches_per_epoch, measured, mser, never_alone, steady, steady_state, steps_of
from xttsbench.records.trial import RoundMark, Segment


def test_times_are_in_seconds_and_counts_as_they_are(build) -> None:
    steps = build.steps(wait_s=[0.1, 0.2], step_s=0.3, gap_s=0.05, cpu_s=1.5, batch_size=[4, 8], shape_id=[0, 1])
    assert len(steps) == 2
    assert steps.wall_s.tolist() == pytest.approx([0.45, 0.55])
    assert steps.wait_s.tolist() == pytest.approx([0.1, 0.2])
    assert steps.start_s.tolist() == pytest.approx([0.0, 0.45])
    assert steps.cpu_s.tolist() == [1.5, 1.5]
    assert steps.batch_size.tolist() == [4, 8]
    assert steps.shape_id.dtype == np.int64


def test_the_known_warm_up_is_cut_off_and_the_clock_starts_after_it(build) -> None:
    steps = steps_of(build.segment(step_s=[5.0, 4.0, 1.0, 2.0], warmup=2))
    assert steps.step_s.tolist() == [1.0, 2.0]
    assert steps.start_s.tolist() == [0.0, 1.0]


def test_an_empty_segment_gives_no_steps(build) -> None:
    assert len(steps_of(Segment(name="as_is"))) == 0
    assert len(steps_of(build.segment(step_s=[1.0], warmup=1))) == 0


@pytest.mark.parametrize(
    ("idle", "kept"),
    [((True, False), [0.1]), ((False, False), [0.1, 0.5]), ((None, None), [0.1, 0.5]), ((), [0.1, 0.5])],
)
def test_the_step_alone_beside_a_working_input_does_not_count(build, idle, kept) -> None:
    marks = tuple(RoundMark(round=n, start_ns=0, end_ns=1, input_idle=still) for n, still in enumerate(idle))
    segments = [build.segment(name, step_s=[0.1, 0.5], round=[0, 1]) for name in ("as_is", "step_only")]
    trial = build.trial("ladder", *segments, rounds=marks)
    assert measured(trial, "step_only").step_s.tolist() == kept
    assert measured(trial, "as_is").step_s.tolist() == [0.1, 0.5]
    assert never_alone(trial) == (idle == (False, False))


def test_a_compiling_step_is_charged_with_its_excess_over_the_clean_median(build) -> None:
    steps = build.steps(step_s=[0.1, 0.1, 0.3, 0.9, 0.2], traces=[0, 0, 0, 1, 0], trace_s=[0, 0, 0, 0.05, 0])
    # Clean: 0.1, 0.1, 0.2, 0.3 -> median 0.15.
    assert steps.compile_s.tolist() == pytest.approx([0, 0, 0, 0.75, 0])
    assert steps.working_s.tolist() == pytest.approx([0.1, 0.1, 0.3, 0.15, 0.2])


def test_xla_compilation_counts_like_tracing(build) -> None:
    steps = build.steps(step_s=[0.1, 0.1, 0.1, 0.5], xla_compiles=[0, 0, 0, 2])
    assert steps.compiling.tolist() == [False, False, False, True]
    assert steps.compile_s.tolist() == pytest.approx([0, 0, 0, 0.4])


def test_the_clocks_are_the_least_that_a_compiling_step_is_charged_with(build) -> None:
    steps = build.steps(step_s=[0.1, 0.1, 0.1, 0.12], traces=[0, 0, 0, 1], trace_s=0.03, xla_s=[0, 0, 0, 0.04])
    assert steps.compile_s.tolist() == pytest.approx([0, 0, 0, 0.07])


@pytest.mark.parametrize("clean", [0, 1, 2])
def test_with_fewer_than_three_clean_steps_only_the_clocks_count(build, clean: int) -> None:
    traces = np.array([1, 1, 1, 1])
    traces[:clean] = 0
    steps = build.steps(step_s=[0.1, 0.1, 0.5, 0.5], traces=traces, trace_s=0.2)
    assert steps.compile_s.tolist() == pytest.approx(np.where(traces, np.minimum(0.2, [0.1, 0.1, 0.5, 0.5]), 0))


def test_compilation_is_never_more_than_the_step_nor_negative(build) -> None:
    steps = build.steps(step_s=[0.1, 0.1, 0.1, 0.05, 0.02], traces=[0, 0, 0, 1, 1], trace_s=[0, 0, 0, 0, 9.0])
    assert steps.compile_s.tolist() == pytest.approx([0, 0, 0, 0, 0.02])


def test_outside_is_what_no_function_device_wait_or_accelerator_accounts_for(build) -> None:
    steps = build.steps(step_s=[1.0] * 4, calls_s=0.4, emulated_s=0.2, device_s=0.1)
    assert steps.outside_s.tolist() == pytest.approx([0.3] * 4)


def test_compilation_inside_the_calls_is_not_taken_off_twice(build) -> None:
    inside = build.steps(step_s=[0.2, 0.2, 0.2, 1.0], calls_s=[0.1, 0.1, 0.1, 0.9], traces=[0, 0, 0, 1])
    assert inside.outside_s.tolist() == pytest.approx([0.1] * 4)
    # Compilation of 0.8 s of which the calls hold 0.1: the other 0.7 are not the host's work.
    outside = build.steps(step_s=[0.2, 0.2, 0.2, 1.0], calls_s=0.1, traces=[0, 0, 0, 1])
    assert outside.outside_s.tolist() == pytest.approx([0.1, 0.1, 0.1, 0.2])


def test_outside_is_never_negative(build) -> None:
    steps = build.steps(step_s=[0.1] * 3, calls_s=5.0, device_s=0.2)
    assert steps.outside_s.tolist() == [0.0] * 3


def test_slicing_and_masking_keep_all_columns_together(build) -> None:
    steps = build.steps(step_s=[1.0, 2.0, 3.0, 4.0], wait_s=[0.1, 0.2, 0.3, 0.4], epoch=[0, 0, 1, 1])
    later, masked = steps[1:3], steps[np.array([True, False, False, True])]
    assert (later.step_s.tolist(), later.wait_s.tolist(), later.epoch.tolist()) == ([2, 3], [0.2, 0.3], [0, 1])
    assert masked.step_s.tolist() == [1, 4]
    assert all(len(values) == 2 for values in masked.columns.values())
    assert len(steps) == 4


def state_of(steps):
    """The steady state of steps on batches of one length."""
    return steady_state(steps, np.ones(len(steps)))


def test_the_batches_of_an_epoch_are_counted_over_all_that_was_drawn(build) -> None:
    """22 batches, of which three rounds of the target as it is drew eight each: 24 steps in three epochs."""
    drawn = np.arange(66)
    parts = {"as_is": drawn % 22 < 8, "input_only": (drawn % 22 >= 8) & (drawn % 22 < 20)}
    live = [build.segment(name, step_s=0.1, epoch=drawn[at] // 22, batch=drawn[at] % 22) for name, at in parts.items()]
    memory = build.segment("step_only", step_s=[0.1] * 90, epoch=np.arange(90) // 3, batch=-1)
    assert batches_per_epoch(build.trial("ladder", *live, memory)) == 20
    assert batches_per_epoch(build.trial("ladder", live[0])) == 8
    endless = build.segment(step_s=[0.1] * 4, batch=[0, 1, 2, 3])
    assert batches_per_epoch(build.trial("ladder", endless, memory)) == math.inf
    assert batches_per_epoch(build.trial("ladder")) == math.inf


def test_the_batches_of_a_script_are_counted_by_its_rows(build) -> None:
    epochs = np.repeat([0, 1, 2], [12, 30, 9])
    assert batches_per_epoch(build.trial("script", build.segment(step_s=0.1, epoch=epochs, batch=-1))) == 30


def test_the_steady_state_leaves_out_a_slow_beginning(build) -> None:
    rng = np.random.default_rng(3)
    step = build.noisy(0.01, 200, rng)
    step[:20] += 0.05
    kept, found = steady(build.steps(step_s=step))
    assert found.steady
    assert found.cut >= 20
    assert len(kept) == 200 - found.cut
    assert kept.step_s.tolist() == pytest.approx(step[found.cut :].tolist(), abs=1e-9)


def test_recurring_compilation_is_kept_and_does_not_move_the_cut(build) -> None:
    rng = np.random.default_rng(4)
    step = build.noisy(0.01, 200, rng)
    traces = np.zeros(200)
    traces[:60:5] = 1
    without = steady(build.steps(step_s=step))[1]
    kept, found = steady(build.steps(step_s=step + 0.5 * traces, traces=traces))
    assert found.steady
    assert abs(found.cut - without.cut) <= 5
    assert kept.compile_s.sum() > 0


@pytest.mark.parametrize("warm_up", [0, 30, 60, 100])
def test_a_step_change_is_cut_where_it_ends(warm_up: int) -> None:
    rng = np.random.default_rng(warm_up)
    steps = 0.01 * rng.lognormal(0, 0.05, 240)
    steps[:warm_up] *= 1.5
    state = state_of(steps)
    assert warm_up <= state.cut <= warm_up + 20
    assert state.steady
    assert state.reason is None


def test_the_cut_is_the_minimum_of_the_squared_standard_error() -> None:
    values = np.random.default_rng(1).normal(size=200) + np.linspace(3, 0, 200) ** 2
    medians = np.median(values.reshape(-1, 5), axis=1)
    by_hand = [np.var(medians[d:]) / (medians.size - d) for d in range(medians.size // 2 + 1)]
    assert mser(values) == 5 * int(np.argmin(by_hand))


@pytest.mark.parametrize("n", [0, 1, 4, 9, 20, 237])
def test_a_constant_series_is_not_cut(n: int) -> None:
    assert mser(np.full(n, 0.1)) == 0


def test_at_most_half_is_cut() -> None:
    steps = np.geomspace(1, 1e-3, 200)
    assert mser(np.log(steps)) == 100


def test_one_stall_in_the_steady_state_does_not_move_the_cut() -> None:
    steps = np.random.default_rng(2).lognormal(0, 0.02, 240)
    before = mser(np.log(steps))
    steps[60] = 1000
    assert abs(mser(np.log(steps)) - before) <= 10


def test_drift_is_no_steady_state_and_says_so() -> None:
    state = state_of(np.linspace(1, 1.5, 240) * np.random.default_rng(0).lognormal(0, 0.02, 240))
    assert not state.steady
    assert re.match(
        r"the step time rose by \d+% of the median step over \d+ steps in a row, the length of batches considered ",
        state.reason,
    )


def test_three_percent_is_the_limit_of_the_drift() -> None:
    assert state_of(np.linspace(1, 1.02, 240)).steady
    assert not state_of(np.linspace(1, 1.04, 240)).steady


def unsteady(rng, steps: int, noise: float, *, drift: float = 0.0, memory: float = 0.0) -> float:
    """Share of simulated runs over batches of unequal length that are told to be unsteady."""
    told = []
    for _ in range(100):
        elements = rng.integers(100, 1000, steps)
        noises = ar1(memory, steps, rng) * np.sqrt(1 - memory**2)
        time_s = (0.01 + 4e-5 * elements) * np.exp(noise * noises) * np.linspace(1, 1 + drift, steps)
        told.append(not steady_state(time_s, elements).steady)
    return float(np.mean(told))


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("steps", [21, 60, 240])
def test_a_steady_run_is_steady_however_noisy_and_whatever_its_lengths(steps: int, noise: float) -> None:
    """Halves of 21 steps with a noise of 16 % differ by more than 3 % in four runs of five."""
    rng = np.random.default_rng(steps)
    assert unsteady(rng, steps, noise) <= 0.03
    assert unsteady(rng, steps, noise, memory=0.5) <= 0.05


@pytest.mark.parametrize(
    ("steps", "noise", "drift", "found"), [(400, 0.02, 0.05, 0.9), (400, 0.1, 0.1, 0.8), (40, 0.02, 0.1, 0.9)]
)
def test_a_drift_is_found_where_the_noise_lets_it(steps: int, noise: float, drift: float, found: float) -> None:
    assert unsteady(np.random.default_rng(1), steps, noise, drift=drift) >= found


def test_few_steps_are_not_cut_by_value() -> None:
    rng = np.random.default_rng(2)
    assert {state_of(rng.lognormal(0, 0.1, 60)).cut for _ in range(40)} == {0}


def test_the_longest_round_tells_whether_it_is_steady_and_what_lies_before_it_is_no_warm_up(build) -> None:
    rng = np.random.default_rng(3)
    ramp = np.concatenate([np.full(20, 0.06), np.full(180, 0.01)]) * rng.lognormal(0, 0.02, 200)
    rounds = np.repeat([0, 1], [60, 200])
    _, last = steady(build.steps(step_s=np.concatenate([np.full(60, 0.5), ramp]), round=rounds))
    assert (last.cut, last.steady) == (0, True)
    first, found = steady(build.steps(step_s=np.concatenate([ramp, np.full(60, 0.5)]), round=rounds[::-1] ^ 1))
    assert found.steady
    assert 20 <= found.cut == 260 - len(first) <= 40
    _, short = steady(build.steps(step_s=ramp, round=np.arange(200) // 10))
    assert short.cut >= 20


@pytest.mark.parametrize("n", [0, 1, 7, 19])
def test_a_short_series_is_labelled(n: int) -> None:
    state = state_of(np.ones(n))
    assert (state.cut, state.steady) == (0, False)
    assert state.reason is not None
    assert f"only {n} steps" in state.reason


def test_a_step_of_no_time_is_taken_as_one_tick() -> None:
    steps = np.ones(100)
    steps[50] = 0.0
    assert state_of(steps).steady
