"""Steps: op by op, traced or compiled again, reading, logging, saving, collecting garbage, Python inside."""

from __future__ import annotations

import gc

import numpy as np
import tensorflow as tf
from parts import ENDLESS, WIDTH, block, busy_step, light_step, network, ready, spin


def eager_training(tuned=False):
    """A training step of a small network, op by op."""
    step, _ = network()  # the fault
    return ready(), tf.function(step) if tuned else step


def eager_and_reads_its_loss(tuned=False):
    """The same, and it fetches the loss at every step."""
    inner, _ = network()  # the fault
    losses = []

    def step(batch):
        losses.append(float(inner(batch)))  # the fault

    return ready(), tf.function(inner) if tuned else step


def python_number_as_argument(tuned=False):
    """Another Python number at every step: another trace."""
    count, weights = [0], tf.Variable(tf.ones([WIDTH, WIDTH]) * 0.01)

    @tf.function
    def train(batch, number):
        for _ in range(4):
            batch = tf.tanh(tf.matmul(batch, weights) + tf.cast(number, tf.float32))
        return tf.reduce_sum(batch)

    def step(batch):
        count[0] += 1
        return train(batch, tf.constant(count[0]) if tuned else count[0])  # the fault

    return ready(), step


def function_made_anew(tuned=False):
    """The tf.function is made inside the step."""
    weights = tf.Variable(tf.ones([WIDTH, WIDTH]) * 0.01)

    def train(batch):
        return tf.reduce_sum(tf.tanh(tf.matmul(batch, weights)))

    once = tf.function(train)

    def step(batch):
        return once(batch) if tuned else tf.function(train)(batch)  # the fault

    return ready(), step


def _lengths():
    return tf.data.Dataset.range(ENDLESS).map(lambda i: tf.ones([4, 16 + (i * 37) % 499, WIDTH])).prefetch(2)


def traced_for_every_length(tuned=False):
    """499 lengths, each traced for itself."""
    weights = tf.Variable(tf.ones([WIDTH, WIDTH]) * 0.01)

    def train(batch):
        for _ in range(6):
            batch = tf.tanh(batch @ weights)
        return tf.reduce_mean(batch)

    signature = [tf.TensorSpec([None, None, WIDTH])] if tuned else None
    return _lengths(), tf.function(train, input_signature=signature)  # the fault


def compiled_for_every_length(tuned=False):
    """XLA compiles for each of many lengths, while the trace count stays low."""
    weights = tf.Variable(tf.ones([WIDTH, WIDTH]) * 0.01)

    def train(batch):
        for _ in range(4):
            batch = tf.tanh(batch @ weights)
        return tf.reduce_mean(batch)

    return _lengths(), tf.function(train, jit_compile=not tuned, reduce_retracing=True)  # the fault


def logs_every_step(tuned=False):
    """Text is put together in Python after each step."""
    train, count = busy_step(256, 2), [0]

    def step(batch):
        loss = train(batch)
        count[0] += 1
        if not tuned or count[0] % 50 == 0:
            sum(len(f"{number}: {number * 0.5:.3f}") for number in range(15_000))  # the fault
        return loss

    return ready(), step


def saves_every_tenth(tuned=False):
    """Every tenth step the loop writes a file for a while."""
    train, count = busy_step(256, 2), [0]

    def save():
        for _ in range(40):
            block(0.002)

    def step(batch):
        loss = train(batch)
        count[0] += 1
        if count[0] % (500 if tuned else 10) == 0:
            save()  # the fault
        return loss

    return ready(), step


def collects_garbage(tuned=False):
    """``gc.collect()`` at every tenth step, with many objects alive."""
    train, kept, count = busy_step(256, 2), [[number] for number in range(20_000)], [0]

    def step(batch):
        loss = train(batch)
        count[0] += 1
        if count[0] % 10 == 0 and not tuned:
            gc.collect()  # the fault
        return loss, len(kept)

    return ready(), step


def sums_its_history(tuned=False):
    """The mean of all losses so far is computed anew at each step: the longer the training, the slower the step."""
    train, history = light_step(), [0.0] * 20_000
    total = [0.0]

    def step(batch):
        loss = train(batch)
        history.extend([1.0] * 400)
        total[0] = total[0] + 400 if tuned else sum(value * 1.0 for value in history)  # the fault
        return loss

    return ready(), step


def python_inside_the_step(tuned=False):
    """A ``numpy_function`` in the compiled step."""

    def normalise(batch):
        spin(0.004)  # the fault
        return batch / np.float32(2)

    inner = light_step()

    @tf.function
    def step(batch):
        half = batch / 2 if tuned else tf.ensure_shape(tf.numpy_function(normalise, [batch], tf.float32), [8, WIDTH])
        return inner(half)

    return ready(), step


def chain_that_xla_fuses(tuned=False):
    """A long chain of elementwise ops over much memory."""
    start = tf.Variable(tf.random.stateless_normal([1_000_000], [1, 1]))

    @tf.function(jit_compile=tuned)
    def step(batch):
        values = start + tf.reduce_mean(batch)
        for number in range(24):
            values = values * 1.0001 + 0.5 * number - values * 0.1  # the fault
        return tf.reduce_sum(values)

    return ready(), step


def keras_run_eagerly(tuned=False):
    """A Keras model that was left in ``run_eagerly``."""
    keras = tf.keras
    layers = [keras.layers.Dense(16, activation="relu") for _ in range(4)]
    model = keras.Sequential([keras.Input([WIDTH]), *layers, keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", run_eagerly=not tuned)  # the fault
    batch = (tf.ones([8, WIDTH]), tf.zeros([8, 1]))
    return tf.data.Dataset.from_tensors(batch).repeat().prefetch(2), model
