"""The kinds that run a changed step beside the one as given: half a batch, other precision."""

from __future__ import annotations

import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import classify, load_target
from xttsbench.targets.spec import parse_target
from xttsbench.worker.step_variants import (
    enough,
    halved,
    run_beside,
    run_half_batch,
    run_mode,
    run_precision,
    under_policy,
)
from xttsbench.worker.trial import step_of

STEPS = Path(__file__).parents[2] / "targets" / "steps.py"


@pytest.fixture
def ran(bench):
    """``ran(kind, name)``: the record of a short trial of a target."""

    def run(kind, name):
        spec = TrialSpec(trial_id="0", kind=kind, target=f"{STEPS}:{name}", steps=6, window_s=20.0)
        loaded = load_target(parse_target(spec.target), {})
        {"batch": run_half_batch, "precision": run_precision}[kind](spec, loaded, step_of(loaded), bench)
        return bench.channel.record()

    return run


def test_half_of_everything_that_has_the_batch_s_rows():
    ragged = tf.ragged.constant([[1], [2, 3], [], [4]])
    batch = {"x": tf.reshape(tf.range(8), [4, 2]), "n": tf.constant(4), "words": ragged, "table": tf.ones([3, 2])}
    half = halved(batch)
    np.testing.assert_array_equal(half["x"], [[0, 1], [2, 3]])
    assert int(half["n"]) == 4
    assert half["words"].to_list() == [[1], [2, 3]]
    assert half["table"].shape == (3, 2), "another first dimension: not of the batch"
    assert halved(tf.ones([5, 2])).shape == (2, 2)


@pytest.mark.parametrize("batch", [tf.ones([1, 4]), tf.constant(3.0), ()])
def test_nothing_to_halve(batch):
    assert halved(batch) is None


def test_half_a_batch_beside_the_whole(ran):
    record = ran("batch", "plain_training")
    given, half = record.segment("step_only"), record.segment("half-batch")
    assert given.steps >= 6
    assert half.steps >= 6
    assert set(given.columns["batch_size"]) == {256}
    assert set(half.columns["batch_size"]) == {128}
    assert record.notes == ()


def test_a_step_that_refuses_half_a_batch_says_so(ran):
    record = ran("batch", "refuses_half_a_batch")
    assert record.segments == ()
    (note,) = record.notes
    assert note.startswith("half-batch: not applicable: the step refuses half a batch: InvalidArgumentError: ")
    assert "Graph execution error" not in note


def test_mixed_precision_of_a_keras_model(ran):
    before = keras.config.dtype_policy().name
    record = ran("precision", "keras_model")
    assert record.segment("mixed_bfloat16").steps >= 6
    assert record.segment("step_only").steps >= 6
    assert keras.config.dtype_policy().name == before


def test_a_step_without_layers_does_not_follow_the_policy(ran):
    record = ran("precision", "plain_training")
    assert record.segment("mixed_bfloat16") is None
    assert record.notes == ("mixed_bfloat16: not applicable: the step does not follow Keras's policy",)


def test_the_policy_is_put_back_when_the_target_raises():
    def build():
        with under_policy("mixed_bfloat16"):
            raise RuntimeError(keras.config.dtype_policy().name)

    with pytest.raises(RuntimeError, match="mixed_bfloat16"):
        build()
    assert keras.config.dtype_policy().name == "float32"


@pytest.mark.parametrize("kind", [run_half_batch, run_precision])
def test_without_a_step_there_is_nothing_to_change(kind, bench):
    spec = TrialSpec(trial_id="0", kind="batch", target="a.py:b")
    with pytest.raises(TargetError, match="no step"):
        kind(spec, None, None, bench)


@pytest.fixture(autouse=True)
def compiled_again():
    yield
    tf.config.run_functions_eagerly(False)


def spec(kind="graph", **changes):
    return TrialSpec(**{"trial_id": "0", "kind": kind, "target": "t:t", "steps": 16, "window_s": 20.0} | changes)


@pytest.mark.parametrize("mode", ["graph", "xla", "eager"])
def test_rounds_of_both_on_the_same_batches(bench, mode):
    loaded = load_target(parse_target(f"{STEPS}:plain_training"), {})
    run_mode(spec(mode), loaded, step_of(loaded), bench)
    record = bench.channel.record()
    given, other = record.segment("step_only"), record.segment(mode)
    rounds = [mark.round for mark in record.rounds]
    assert rounds == [*range(len(rounds))]
    assert 4 <= len(rounds) <= 12
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
    assert [one < two for one, two in zip(first, second, strict=True)] == [not n % 2 for n in rounds]


def noting():
    """A compiled step, a target of it, and how its Python runs each time."""
    ran = []

    @tf.function
    def compiled(batch):
        ran.append("traced" if tf.inside_function() else "op by op")
        return batch + 1

    loaded = classify((tf.data.Dataset.from_tensors(tf.ones([2])).repeat(4), compiled), "t")
    return compiled, loaded, ran


def test_an_eager_turn_leaves_the_next_one_compiled(bench):
    compiled, loaded, ran = noting()
    run_mode(spec("eager", steps=8), loaded, compiled, bench)
    record = bench.channel.record()
    steps = record.segment("eager").steps
    assert record.segment("step_only").steps == steps >= 8
    # The step as given runs its Python once, however often the eager one has run in between.
    assert ran.count("traced") == 1
    assert ran.count("op by op") == 4 + 1 + steps


def test_two_modes_share_the_rounds_and_each_runs_as_its_name_says(bench):
    compiled, loaded, ran = noting()
    run_mode(spec("xla", also="eager", steps=8), loaded, compiled, bench)
    record = bench.channel.record()
    steps = {name: record.segment(name).steps for name in ("step_only", "xla", "eager")}
    assert len(set(steps.values())) == 1
    assert record.segment("step_only").columns["round"] == record.segment("eager").columns["round"]
    assert ran.count("op by op") == 4 + 1 + steps["eager"], "neither the step as given nor XLA's runs op by op"
    assert sum(record.segment("warm_up").columns["xla_compiles"]) == 1


def test_a_step_of_seconds_has_one_round(bench):
    def step(batch):
        time.sleep(0.3)

    batches = [tf.ones([2])]
    run_beside(spec(window_s=0.2), bench, (step, batches), {"graph": (step, batches)})
    record = bench.channel.record()
    assert len(record.rounds) == 1
    assert record.segment("step_only").steps == record.segment("graph").steps == 1


def test_beside_one_graph_the_ratio_has_to_be_twice_as_sure():
    ratios = [0.05, 0.11, 0.03, 0.13]  # standard error 0.024
    assert enough(ratios, 2.0)
    assert not enough(ratios, 2.0, 0.02)


@pytest.mark.parametrize(
    ("log_ratios", "windows", "is_enough"),
    [
        ([0.3], 0.5, False),
        ([0.3], 2.1, True),  # a step of many seconds
        ([0.3, 0.3, 0.3], 1.5, False),
        ([0.3, 0.31, 0.29, 0.3], 2.0, True),
        ([0.3, 0.3, 0.31], 2.1, True),
        ([0.9, -0.3, 0.5, 0.1], 2.0, False),
        ([0.9, -0.3, 0.5, 0.1], 6.1, True),
        ([-0.9, 0.3, -0.5, -0.1], 2.0, False),
    ],
)
def test_rounds_that_differ_by_much_are_followed_by_more(log_ratios, windows, is_enough):
    assert enough(log_ratios, windows) is is_enough


@pytest.mark.measured
def test_a_known_ratio_is_found_in_each_round(bench):
    def waits(seconds):
        return lambda batch: time.sleep(seconds)

    batches = [tf.ones([2])] * 2
    run_beside(spec(steps=20), bench, (waits(0.03), batches), {"xla": (waits(0.01), batches)})
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
        run_beside(spec(steps=8), bench, (tf.identity, batches), {name: (tf.identity, batches)})
    rounds = [mark.round for mark in bench.channel.record().rounds]
    assert 8 <= len(rounds) <= 24
    assert rounds == [*range(len(rounds))]


def test_without_a_step_there_are_no_modes(bench):
    with pytest.raises(TargetError, match="no modes"):
        run_mode(spec(), None, None, bench)
