"""A distributed loop on two logical devices whose input is late. Usage: mirrored.py [STEPS]."""

import sys
import time

import numpy as np
import tensorflow as tf

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
tf.random.set_seed(1)
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def read(index):
    time.sleep(0.02)
    return np.random.default_rng(int(index)).normal(size=(32, 64)).astype("float32")


dataset = tf.data.Dataset.range(steps).map(
    lambda index: tf.ensure_shape(tf.numpy_function(read, [index], tf.float32), (32, 64))
)
with strategy.scope():
    weights = tf.Variable(tf.random.normal((64, 64), seed=1))


@tf.function
def train_step(batch):
    def replica(part):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(part @ weights) - part))
        mean = tf.distribute.get_replica_context().all_reduce("mean", tape.gradient(loss, weights))
        weights.assign_sub(0.01 * mean)
        return loss

    return strategy.reduce("mean", strategy.run(replica, args=(batch,)), axis=None)


for batch in strategy.experimental_distribute_dataset(dataset.unbatch().batch(32)):
    loss = train_step(batch)
print("loss", repr(float(loss)))
