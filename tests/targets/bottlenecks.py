"""One target for each bottleneck, each of which really has it."""

import time

import numpy as np
import tensorflow as tf


def _slow_row(index):
    time.sleep(0.004)
    return np.full([16], float(index), np.float32)


def _light_step():
    weights = tf.Variable(tf.ones([16, 16]))

    @tf.function
    def step(batch):
        weights.assign_add(1e-6 * tf.matmul(batch, batch, transpose_a=True))
        return tf.reduce_sum(weights)

    return step


def _busy_step(size, times):
    """A compiled step of plain matrix products: all of it is the device's own work."""
    weights = tf.Variable(tf.random.normal([size, size], seed=1) / size)

    @tf.function
    def step(batch):
        product = tf.eye(size) * tf.reduce_mean(batch)
        for _ in range(times):
            product = tf.matmul(product, weights)
        weights.assign_add(1e-9 * product)
        return tf.reduce_sum(product)

    return step


def _ready(shape=(8, 16)):
    return tf.data.Dataset.from_tensors(tf.ones(shape)).repeat().prefetch(2)


def starved_by_python():
    """input: 8 x 4 ms of sleep for each batch, behind a step of under a millisecond."""
    rows = tf.data.Dataset.range(1_000_000).map(
        lambda i: tf.ensure_shape(tf.numpy_function(_slow_row, [i], tf.float32), [16])
    )
    return rows.batch(8).prefetch(2), _light_step()


def starved_by_ops():
    """input: a sequential, stateful map of TensorFlow ops."""

    def load(index):
        noise = tf.random.normal([220, 220]) + tf.cast(index, tf.float32)
        for _ in range(6):
            noise = tf.linalg.l2_normalize(tf.matmul(noise, noise))
        return noise[0, :16]

    return tf.data.Dataset.range(1_000_000).map(load).batch(8).prefetch(1), _light_step()


def eager_step():
    """dispatch: a training step of a small network, op by op."""
    layers = [tf.Variable(tf.random.normal([16, 16], seed=i) * 0.1) for i in range(10)]

    def step(batch):
        with tf.GradientTape() as tape:
            hidden = batch
            for layer in layers:
                hidden = tf.nn.relu(tf.matmul(hidden, layer) + 0.1)
            loss = tf.reduce_mean(hidden**2)
        for layer, gradient in zip(layers, tape.gradient(loss, layers), strict=True):
            layer.assign_sub(0.01 * gradient)
        return loss

    return _ready(), step


def eager_step_that_reads_its_loss():
    """dispatch: the same, and it cannot be traced as it stands, since it fetches the loss."""
    dataset, inner = eager_step()
    losses = []

    def step(batch):
        losses.append(float(inner(batch)))

    return dataset, step


def slow_device():
    """compute: an opaque step that sleeps, with an ugly loader that keeps up."""
    rows = tf.data.Dataset.range(1_000_000).map(lambda i: tf.numpy_function(_slow_row, [i], tf.float32))
    return rows.batch(4).prefetch(4), lambda batch: time.sleep(0.03)


def busy_device():
    """compute: matrix products on a ready input."""
    return _ready(), _busy_step(512, 6)


def retraces():
    """compile: a Python number as an argument, another one at every step."""
    count = [0]
    weights = tf.Variable(tf.ones([16, 16]))

    @tf.function
    def train(batch, number):
        for _ in range(4):
            batch = tf.tanh(tf.matmul(batch, weights) + float(number))
        return tf.reduce_sum(batch)

    def step(batch):
        count[0] += 1
        return train(batch, count[0])

    return _ready(), step


def retraced_closure():
    """compile: the tf.function is made anew at every step."""
    weights = tf.Variable(tf.ones([16, 16]))

    def step(batch):
        @tf.function
        def train(inner):
            return tf.reduce_sum(tf.tanh(tf.matmul(inner, weights)))

        return train(batch)

    return _ready(), step


def xla_for_every_length():
    """compile: XLA compiles for each of many lengths while the trace count stays low."""
    lengths = tf.data.Dataset.range(1_000_000).map(lambda i: tf.ones([4, 16 + (i * 37) % 499, 16]))
    weights = tf.Variable(tf.ones([16, 16]) * 0.01)

    @tf.function(jit_compile=True, reduce_retracing=True)
    def train(batch):
        hidden = batch
        for _ in range(4):
            hidden = tf.tanh(hidden @ weights)
        return tf.reduce_mean(hidden)

    return lengths.prefetch(2), train


def checkpoints():
    """host: every tenth step the loop writes a file for a while."""
    train, count = _busy_step(256, 4), [0]

    def step(batch):
        loss = train(batch)
        count[0] += 1
        if count[0] % 10 == 0:
            save()
        return loss

    def save():
        end = time.monotonic() + 0.08
        while time.monotonic() < end:
            time.sleep(0.002)

    return _ready(), step


def logs_every_step():
    """host: text is put together in Python after each step."""
    train = _busy_step(256, 4)

    def step(batch):
        loss = train(batch)
        return sum(len(f"{number}: {number * 0.5:.3f}") for number in range(15_000)), loss

    return _ready(), step


def shares_the_cores():
    """contention: the input computes on all cores, and so does the step."""

    def load(index):
        noise = tf.random.stateless_normal([420, 420], [index, 0])
        for _ in range(7):
            noise = tf.linalg.l2_normalize(tf.matmul(noise, noise))
        return noise[0, :16]

    dataset = tf.data.Dataset.range(1_000_000).map(load, num_parallel_calls=tf.data.AUTOTUNE).batch(4)
    return dataset.prefetch(tf.data.AUTOTUNE), _busy_step(640, 12)


def copies_to_the_device():
    """transfer: a large batch is copied to the GPU for a step that hardly looks at it."""
    dataset = tf.data.Dataset.from_tensors(tf.zeros([256, 1024, 256])).repeat().prefetch(2)

    @tf.function
    def step(batch):
        with tf.device("/GPU:0"):
            return tf.reduce_sum(batch[:1])

    return dataset, step
