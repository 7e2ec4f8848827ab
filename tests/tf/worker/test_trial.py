"""What an emulated accelerator stands for: the step of a Keras model, but no other step beside a dataset."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.tf.worker.conftest import Kept
from xttsbench.records.trial import TrialRecord, TrialSpec
from xttsbench.targets.load import classify
from xttsbench.worker.bench import step_of
from xttsbench.worker.failure import StepRaisedError
from xttsbench.worker.trial import run_kind

RAN: list[None] = []


def count(value: Any) -> Any:
    RAN.append(None)
    return value


def counted(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(count, [x], tf.float32), [4, None])


class Undecided(Kept):
    """A channel at whose end nobody decides after a round."""

    def decided(self) -> bool:
        return False


class Model(keras.Model):
    """Counts how often it is trained."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = keras.Sequential([keras.Input([width]), keras.layers.Dense(1)])

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.dense(counted(x))


def measured(target: Any) -> TrialRecord:
    channel, loaded = Undecided(), classify(target, "t")
    spec = TrialSpec(
        trial_id="0", kind="ladder", target="t:t", steps=20, window_s=0.5, emulated_ms=(5.0,), rounds=2, min_steps=4
    )
    RAN.clear()
    run_kind(spec, loaded, step_of(loaded), channel)
    return channel.record()


def model(width: int) -> Model:
    made = Model(width)
    made.compile("sgd", "mse", jit_compile=False)
    return made


DATASET = tf.data.Dataset.from_tensors((tf.ones([4, 8]), tf.ones([4, 1]))).repeat()


def test_a_model_is_stepped_once_and_then_waited_for() -> None:
    record = measured((DATASET, model(8)))
    assert len(RAN) == 1
    assert (
        {"as_is", "input_only"} <= {segment.name for segment in record.segments} <= {"as_is", "input_only", "between"}
    )
    assert min(record.segment("as_is").columns["emulated_ns"]) >= 5_000_000
    assert (record.target_kind, record.anatomy) == ("dataset+model", None)


def test_a_model_that_does_not_take_the_batches_is_told() -> None:
    with pytest.raises(StepRaisedError, match="step\\(batch\\) of step 0"):
        measured((DATASET, model(9)))


def test_any_other_step_runs_and_is_followed_by_the_wait() -> None:
    record = measured((DATASET, lambda batch: counted(batch[0])))
    as_is = record.segment("as_is")
    assert len(RAN) >= as_is.steps
    assert min(as_is.columns["emulated_ns"]) >= 5_000_000
    assert record.segment("step_only") is not None
