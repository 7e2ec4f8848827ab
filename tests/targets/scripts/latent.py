"""A step written out in its loop that draws random numbers and runs op by op. Usage: latent.py FILE."""

import sys
from pathlib import Path

import tensorflow as tf

tf.random.set_seed(22)
rows = tf.random.normal((640, 16), seed=1)
dataset = tf.data.Dataset.from_tensor_slices(rows).batch(32)
encoder = tf.Variable(tf.random.normal((16, 8), seed=2) * 0.2)
decoder = tf.Variable(tf.random.normal((4, 16), seed=3) * 0.2)
losses = []
for _ in range(8):
    for batch in dataset:
        with tf.GradientTape() as tape:
            mean, spread = tf.split(batch @ encoder, 2, axis=1)
            drawn = mean + tf.exp(0.5 * spread) * tf.random.normal((32, 4))
            again = tf.tanh(drawn @ decoder)
            prior = tf.reduce_mean(tf.square(mean) + tf.exp(spread) - spread - 1.0)
            loss = tf.reduce_mean(tf.square(again - batch)) + 0.01 * prior
        gradients = tape.gradient(loss, [encoder, decoder])
        encoder.assign_sub(0.1 * gradients[0])
        decoder.assign_sub(0.1 * gradients[1])
    losses.append(float(loss))
Path(sys.argv[1]).write_text("\n".join(map(str, losses)))
