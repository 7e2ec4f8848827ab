"""Targets with nothing to mend: no finding may be limiting."""

import numpy as np
import tensorflow as tf


def compiled_and_prefetched():
    """A parallel, prefetched input of little cost and a compiled step that takes its time."""
    dataset = tf.data.Dataset.range(1_000_000).map(
        lambda i: tf.random.stateless_normal([64], [i, 0]), num_parallel_calls=tf.data.AUTOTUNE
    )
    weights = tf.Variable(tf.random.normal([512, 512], seed=1) / 512)

    @tf.function
    def step(batch):
        product = tf.eye(512) * tf.reduce_mean(batch)
        for _ in range(8):
            product = tf.matmul(product, weights)
        weights.assign_add(1e-9 * product)
        return tf.reduce_sum(product)

    return dataset.batch(16).prefetch(tf.data.AUTOTUNE), step


def keras_model():
    """A compiled Keras model on data in memory."""
    keras = tf.keras
    model = keras.Sequential(
        [keras.Input([128]), *[keras.layers.Dense(1024, activation="relu") for _ in range(4)], keras.layers.Dense(1)]
    )
    model.compile(optimizer="sgd", loss="mse")
    rows = np.random.default_rng(0).normal(size=(512, 128)).astype(np.float32)
    # Batched once, in memory: putting 256 rows together takes a tenth of this step on a slow processor.
    batches = rows.reshape(2, 256, 128)
    return tf.data.Dataset.from_tensor_slices((batches, batches[..., :1])).repeat().prefetch(2), model


def dataset_only():
    """A dataset for an emulated accelerator: it is ready long before."""
    return tf.data.Dataset.range(1_000_000).map(lambda i: tf.fill([32], i)).batch(8).prefetch(2)
