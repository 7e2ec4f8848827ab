"""The rungs that run a changed step beside the one as given: half a batch, other precision."""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import load_target
from xttsbench.targets.spec import parse_target
from xttsbench.worker.half_batch import halved, run_half_batch
from xttsbench.worker.precision import run_precision, under_policy
from xttsbench.worker.trial import step_of

STEPS = Path(__file__).parents[2] / "targets" / "steps.py"


@pytest.fixture
def ran(bench):
    """``ran(rung, name)``: the record of a short trial of a target."""

    def run(rung, name):
        spec = TrialSpec(trial_id="0", rung=rung, target=f"{STEPS}:{name}", steps=6, window_s=20.0)
        path = list(sys.path)
        try:
            loaded = load_target(parse_target(spec.target), {})
            {"batch": run_half_batch, "precision": run_precision}[rung](spec, loaded, step_of(loaded), bench)
        finally:
            sys.path[:] = path
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
    record = ran("batch", "many_tiny_ops")
    given, half = record.segment("step_only"), record.segment("half-batch")
    assert given.steps >= 6
    assert half.steps >= 6
    assert set(given.columns["batch_size"]) == {8}
    assert set(half.columns["batch_size"]) == {4}
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


@pytest.mark.parametrize("rung", [run_half_batch, run_precision])
def test_without_a_step_there_is_nothing_to_change(rung, bench):
    spec = TrialSpec(trial_id="0", rung="batch", target="a.py:b")
    with pytest.raises(TargetError, match="no step"):
        rung(spec, None, None, bench)
