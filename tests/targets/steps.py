"""Steps with one fault each: what the ops, the batch size, the precision and the last batch show."""

import gc

import keras
import tensorflow as tf


def _rows(count, batch, width=32, **how):
    data = tf.data.Dataset.from_tensor_slices(tf.random.stateless_normal([count, width], [1, 2]))
    return data.batch(batch, **how).prefetch(2)


def _layers(count, width):
    return [tf.Variable(tf.random.stateless_normal([width, width], [seed, 3]) / width**0.5) for seed in range(count)]


def plain_training():
    """Forward, loss, backward and a hand-written update, each on lines of its own, in one tf.function."""
    layers = _layers(4, 256)

    @tf.function
    def train(batch):
        with tf.GradientTape() as tape:
            hidden = batch
            for layer in layers:
                hidden = tf.nn.relu(tf.matmul(hidden, layer))
            loss = tf.reduce_mean(hidden**2)
        gradients = tape.gradient(loss, layers)
        for layer, gradient in zip(layers, gradients, strict=True):
            layer.assign_sub(1e-4 * gradient)
        return loss

    return _rows(4096, 256, 256).repeat(), train


def plain_training_through_xla():
    """The same, compiled by XLA."""
    dataset, train = plain_training()
    return dataset, tf.function(train.python_function, jit_compile=True)


def keras_model(jit_compile=False):
    """Dense layers without a line of the user's in the step."""
    model = keras.Sequential([keras.layers.Dense(256, activation="relu", name="wide"), keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=jit_compile)
    dataset = tf.data.Dataset.from_tensors((tf.ones([256, 256]), tf.ones([256, 1]))).repeat()
    return dataset.prefetch(2), model


def many_tiny_ops():
    """launch-bound: some hundred ops on a handful of numbers, so that half the batch takes as long."""
    scale = tf.Variable(1.0)

    @tf.function
    def train(batch):
        total = tf.reduce_mean(batch, axis=1)
        for number in range(400):
            total = tf.tanh(total * scale + number)
        scale.assign_add(1e-9 * tf.reduce_mean(total))
        return total

    return tf.data.Dataset.from_tensors(tf.ones([8, 4])).repeat().prefetch(2), train


def refuses_half_a_batch():
    """Only whole batches: half of one raises."""

    @tf.function
    def train(batch):
        tf.debugging.assert_equal(tf.shape(batch)[0], 16)
        return tf.reduce_sum(batch)

    return _rows(320, 16).repeat(), train


def collects_garbage():
    """host-stall: Python's garbage is collected by hand in every step, over many live objects."""
    kept = [{"number": number, "list": [number]} for number in range(200_000)]

    @tf.function
    def train(batch):
        return tf.reduce_sum(tf.tanh(batch))

    def step(batch):
        gc.collect()
        return train(batch), len(kept)

    return _rows(320, 16).repeat(), step
