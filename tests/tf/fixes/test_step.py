from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.step.rewrite import fixed_step
from xttsbench.records.fix import Fix
from xttsbench.step.modes import keras_step


def _step(weights: tf.Variable) -> Any:
    def step(batch: tf.Tensor) -> tf.Tensor:
        weights.assign_sub(0.1 * tf.reduce_mean(batch, axis=0))
        return tf.reduce_sum(weights)

    return step


@pytest.mark.parametrize("name", ["step:graph", "step:xla"])
def test_a_compiled_step_trains_as_before_and_is_one_call(name: str) -> None:
    ours, theirs = tf.Variable(tf.ones([4])), tf.Variable(tf.ones([4]))
    given, changed = _step(ours), fixed_step(_step(theirs), Fix(name))
    for number in range(3):
        batch = tf.fill([2, 4], float(number))
        assert float(given(batch)) == pytest.approx(float(changed(batch)), rel=1e-6)
    assert changed.experimental_get_tracing_count() == 1


def test_a_keras_model_leaves_eager_mode() -> None:
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
    eager: list[bool] = []
    inner = model.train_step

    def watched(data: Any) -> Any:
        eager.append(tf.executing_eagerly())
        return inner(data)

    model.train_step = watched
    batch = (tf.ones([2, 4]), tf.zeros([2, 1]))
    keras_step(model)(batch)
    fixed_step(keras_step(model), Fix("step:graph"), model)(batch)
    assert eager == [True, False]


@pytest.mark.parametrize("eager", [True, False])
def test_a_keras_model_loses_xla_and_nothing_else(eager: bool) -> None:
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", run_eagerly=eager, jit_compile=not eager)
    step = fixed_step(keras_step(model), Fix("step:no-xla"), model)
    assert (model.run_eagerly, model.jit_compile) == (eager, False)
    assert float(step((tf.ones([2, 4]), tf.zeros([2, 1])))["loss"]) > 0


def test_a_step_of_tf_functions_is_left_to_where_they_are_made() -> None:
    step = tf.function(lambda batch: batch)
    assert fixed_step(step, Fix("step:no-xla")) is step


def test_without_a_step_or_a_name_it_says_so() -> None:
    with pytest.raises(InvalidInputError, match="has no step"):
        fixed_step(None, Fix("step:graph"))
    with pytest.raises(InvalidInputError, match="no fix named 'step:faster'"):
        fixed_step(lambda batch: batch, Fix("step:faster"))
