"""The Keras step is the one that ``fit`` runs: the same loss, the same weights, the model's own switches."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.step.keras_step import keras_step
from xttsbench.step.xla_metrics import XlaMetrics


def rows(count=5):
    random = np.random.default_rng(0)
    return [
        (random.normal(size=(8, 4)).astype(np.float32), random.normal(size=(8, 1)).astype(np.float32))
        for _ in range(count)
    ]


def compiled_model(*, input_known=True, **options):
    tf.keras.utils.set_random_seed(7)
    layers = [tf.keras.layers.Dense(6, activation="tanh"), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential(([tf.keras.Input([4])] if input_known else []) + layers)
    model.compile(optimizer=tf.keras.optimizers.Adam(0.01), loss="mse", **{"jit_compile": False} | options)
    return model


@pytest.mark.parametrize("options", [{}, {"run_eagerly": True}, {"jit_compile": True}], ids=["graph", "eager", "xla"])
@pytest.mark.parametrize("input_known", [True, False], ids=["built", "deferred"])
def test_losses_and_weights_are_those_of_train_on_batch(options, input_known):
    fitted, stepped = (compiled_model(input_known=input_known, **options) for _ in range(2))
    step, expected = keras_step(stepped), []
    for x, y in rows():
        fitted.reset_metrics()
        expected.append(float(fitted.train_on_batch(x, y)))
        found = step((tf.constant(x), tf.constant(y)))
        # As in an epoch of fit: the mean over the batches so far.
        np.testing.assert_allclose(float(found["loss"]), np.mean(expected), rtol=1e-4)
    for a, b in zip(stepped.get_weights(), fitted.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)
    assert int(stepped.optimizer.iterations) == 5


@pytest.mark.parametrize("eagerly", [True, False])
def test_run_eagerly_is_respected(eagerly):
    seen = []

    class Spy(tf.keras.layers.Layer):
        def call(self, x):
            seen.append(tf.executing_eagerly())
            return x

    model = tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(1), Spy()])
    model.compile(optimizer="sgd", loss="mse", run_eagerly=eagerly, jit_compile=False)
    step = keras_step(model)
    seen.clear()
    for x, y in rows(3):
        step((tf.constant(x), tf.constant(y)))
    assert seen.count(True) == (3 if eagerly else 0)


def test_jit_compile_is_respected():
    metrics = XlaMetrics()
    if not metrics.available:
        pytest.skip(metrics.reason)
    for jit in (False, True):
        before = metrics.read().compiles
        step = keras_step(compiled_model(jit_compile=jit))
        for x, y in rows(2):
            step((tf.constant(x), tf.constant(y)))
        assert (metrics.read().compiles > before) == jit


def test_sample_weights_are_part_of_the_batch():
    fitted, stepped = compiled_model(), compiled_model()
    step = keras_step(stepped)
    x, y = rows(1)[0]
    weight = np.linspace(0.0, 2.0, 8).astype(np.float32)
    found = step((tf.constant(x), tf.constant(y), tf.constant(weight)))
    np.testing.assert_allclose(float(found["loss"]), float(fitted.train_on_batch(x, y, weight)), rtol=1e-4)
