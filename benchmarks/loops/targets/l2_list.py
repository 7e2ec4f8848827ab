"""A list of arrays that are in memory: no step waits for its batch, but Python runs each one op by op."""

import numpy as np
import tensorflow as tf

draw = np.random.default_rng(2)
batches = [(draw.normal(size=(32, 64)).astype(np.float32), draw.normal(size=(32, 1))) for _ in range(200)]
weights = [tf.Variable(tf.random.normal([64, 64], stddev=0.1, seed=layer)) for layer in range(30)]
last = tf.Variable(tf.random.normal([64, 1], stddev=0.1, seed=31))


def train(images, targets):
    """One step of gradient descent, through thirty small layers."""
    with tf.GradientTape() as tape:
        hidden = images
        for matrix in weights:
            hidden = hidden + tf.nn.relu(hidden @ matrix)
        loss = tf.reduce_mean((hidden @ last - targets.astype(np.float32)) ** 2)
    for variable, gradient in zip([*weights, last], tape.gradient(loss, [*weights, last]), strict=True):
        variable.assign_sub(1e-6 * gradient)
    return loss


for epoch in range(20):
    for images, targets in batches:
        loss = train(images, targets)
    print(f"epoch {epoch}: {float(loss):.3f}")
