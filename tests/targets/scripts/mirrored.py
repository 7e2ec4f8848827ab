"""MirroredStrategy on two logical CPUs: ``function`` or ``python`` iterates, ``fit`` is Keras's."""

import sys
import time

import tensorflow as tf

HOW = sys.argv[1]
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def slow(index):
    time.sleep(0.008)
    return index


def produce(index):
    index = tf.numpy_function(slow, [index], tf.int64)
    index.set_shape([])
    return tf.ones([4, 8]) * tf.cast(index % 7, tf.float32), tf.ones([4, 1])


dataset = tf.data.Dataset.range(50).map(produce).prefetch(1)
if HOW == "fit":
    import keras

    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
    model.fit(dataset, epochs=2, verbose=0)
    sys.exit(0)

with strategy.scope():
    weight = tf.Variable(tf.ones([8, 1]))


def replica_step(batch):
    features, labels = batch
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((features @ weight - labels) ** 2)
    gradient = tape.gradient(loss, weight)
    tf.distribute.get_replica_context().all_reduce("sum", gradient)
    return loss


@tf.function
def train_step(batch):
    return strategy.reduce("MEAN", strategy.run(replica_step, args=(batch,)), axis=None)


@tf.function
def train_epoch(batches):
    loss = 0.0
    for batch in batches:
        loss = strategy.reduce("MEAN", strategy.run(replica_step, args=(batch,)), axis=None)
    return loss


distributed = strategy.experimental_distribute_dataset(dataset)
for _ in range(2):
    if HOW == "function":
        train_epoch(distributed)
    else:
        for batch in distributed:
            train_step(batch)
print("done", flush=True)
