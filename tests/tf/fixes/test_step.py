from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.step.rewrite import bucket_edge, fixed_step, padded
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


@pytest.mark.parametrize(
    ("length", "edge"), [(1, 1), (4, 4), (5, 5), (8, 8), (9, 10), (11, 12), (17, 20), (100, 112), (513, 640)]
)
def test_bucket_edges(length: int, edge: int) -> None:
    assert bucket_edge(length) == edge


def test_edges_are_few_and_never_far() -> None:
    lengths = range(1, 5000)
    assert all(length <= bucket_edge(length) <= 1.25 * length for length in lengths)
    assert len({bucket_edge(length) for length in lengths}) < 50


def test_padding_adds_zeros_behind_what_was_there() -> None:
    batch = {"mel": tf.ones([2, 9, 3]), "length": tf.constant([9, 7]), "name": tf.constant([["a"] * 9] * 2)}
    grown = padded(batch)
    assert grown["mel"].shape == [2, 10, 3]
    assert float(tf.reduce_sum(grown["mel"])) == 2 * 9 * 3
    assert grown["length"] is batch["length"]
    assert grown["name"].numpy()[0, -1] == b""


def test_a_padded_step_sees_few_shapes() -> None:
    shapes = set()
    step = fixed_step(lambda batch: shapes.add(tuple(batch.shape)), Fix("step:buckets"))
    for length in range(64, 129):
        step(tf.zeros([2, length]))
    assert {shape[1] for shape in shapes} == {64, 80, 96, 112, 128}


def test_without_a_step_or_a_name_it_says_so() -> None:
    with pytest.raises(InvalidInputError, match="has no step"):
        fixed_step(None, Fix("step:graph"))
    with pytest.raises(InvalidInputError, match="no fix named 'step:faster'"):
        fixed_step(lambda batch: batch, Fix("step:faster"))
