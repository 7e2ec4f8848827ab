"""The rungs of the modes: the step as given and in a mode take turns in one process, on the same batches."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import classify, load_target
from xttsbench.targets.spec import parse_target
from xttsbench.worker.beside import run_beside
from xttsbench.worker.mode import run_mode
from xttsbench.worker.trial import step_of

STEPS = Path(__file__).parents[2] / "targets" / "steps.py"


@pytest.fixture(autouse=True)
def compiled_again():
    yield
    tf.config.run_functions_eagerly(False)


def spec(rung="graph", **changes):
    return TrialSpec(**{"trial_id": "0", "rung": rung, "target": "t:t", "steps": 16, "window_s": 20.0} | changes)


@pytest.mark.parametrize("mode", ["graph", "xla", "eager"])
def test_rounds_of_both_on_the_same_batches(bench, mode):
    path = list(sys.path)
    try:
        loaded = load_target(parse_target(f"{STEPS}:many_tiny_ops"), {})
    finally:
        sys.path[:] = path
    run_mode(spec(mode), loaded, step_of(loaded), bench)
    record = bench.channel.record()
    given, other = record.segment("step_only"), record.segment(mode)
    rounds = [mark.round for mark in record.rounds]
    assert rounds == [*range(len(rounds))]
    assert len(rounds) == 4
    assert given.columns["round"] == other.columns["round"]
    assert given.columns["batch"] == other.columns["batch"]
    assert record.segment("warm_up").steps >= 4
    for mark in record.rounds:
        assert mark.canary_before_ns > 0
        for segment in (given, other):
            starts = [
                start
                for start, number in zip(*(segment.columns[name] for name in ("start_ns", "round")), strict=True)
                if number == mark.round
            ]
            assert mark.start_ns <= min(starts) <= max(starts) < mark.end_ns
    # The order is turned round from one round to the next.
    first = [given.columns["start_ns"][given.columns["round"].index(n)] for n in rounds]
    second = [other.columns["start_ns"][other.columns["round"].index(n)] for n in rounds]
    assert [one < two for one, two in zip(first, second, strict=True)] == [True, False, True, False]


def test_an_eager_turn_leaves_the_next_one_compiled(bench):
    ran = []

    @tf.function
    def compiled(batch):
        ran.append("traced" if tf.inside_function() else "op by op")
        return batch + 1

    loaded = classify((tf.data.Dataset.from_tensors(tf.ones([2])).repeat(4), compiled), "t")
    run_mode(spec("eager", steps=8), loaded, compiled, bench)
    record = bench.channel.record()
    assert record.segment("step_only").steps == record.segment("eager").steps == 8
    # The step as given runs its Python once, however often the eager one has run in between.
    assert ran.count("traced") == 1
    assert ran.count("op by op") == 4 + 1 + 8


def test_a_step_of_seconds_has_one_round(bench):
    def step(batch):
        time.sleep(0.3)

    batches = [tf.ones([2])]
    run_beside(spec(window_s=0.2), bench, (step, batches), (step, batches), "graph")
    record = bench.channel.record()
    assert len(record.rounds) == 1
    assert record.segment("step_only").steps == record.segment("graph").steps == 1


@pytest.mark.measured
def test_a_known_ratio_is_found_in_each_round(bench):
    def waits(seconds):
        return lambda batch: time.sleep(seconds)

    batches = [tf.ones([2])] * 2
    run_beside(spec(steps=20), bench, (waits(0.03), batches), (waits(0.01), batches), "xla")
    record = bench.channel.record()
    for number in range(4):
        given, other = (
            sum(
                wall
                for wall, own in zip(*(record.segment(name).columns[c] for c in ("wall_ns", "round")), strict=True)
                if own == number
            )
            for name in ("step_only", "xla")
        )
        assert 1.5 < given / other < 6


def test_what_is_measured_later_in_the_process_has_rounds_of_its_own(bench):
    batches = [tf.ones([2])]
    for name in ("mixed_bfloat16", "tf32"):
        run_beside(spec(steps=8), bench, (tf.identity, batches), (tf.identity, batches), name)
    assert [mark.round for mark in bench.channel.record().rounds] == [*range(8)]


def test_without_a_step_there_are_no_modes(bench):
    with pytest.raises(TargetError, match="no modes"):
        run_mode(spec(), None, None, bench)
