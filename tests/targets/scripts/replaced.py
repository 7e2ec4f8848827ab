"""Loops whose step an emulated accelerator replaces: ARGS are how the step is written, and how many steps there are.

Each step that really runs takes 50 ms and is counted; every fifth batch is a smaller one.
"""

import sys
import time

import tensorflow as tf
from tensorflow import keras

HOW, STEPS = sys.argv[1], int(sys.argv[2])
ran = []


def batch(index):
    rows = tf.where(index % 5 == 4, 2, 4)
    return tf.ones([rows, 8]) * tf.cast(index, tf.float32), tf.ones([rows, 1])


def count(value):
    ran.append(None)
    time.sleep(0.05)
    return value


def counted(value):
    return tf.ensure_shape(tf.numpy_function(count, [value], tf.float32), value.shape)


dataset = tf.data.Dataset.range(STEPS).map(batch).prefetch(1)


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(counted(x))


strategy = tf.distribute.OneDeviceStrategy("CPU:0") if HOW == "strategy" else tf.distribute.get_strategy()
with strategy.scope():
    model = Model()
    model(tf.ones([4, 8]))
    optimizer = keras.optimizers.SGD(1e-4)
ran.clear()
losses = []


def take_step(x, y):
    with tf.GradientTape() as tape:
        predicted = model(x)
        loss = tf.reduce_mean((predicted - y) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss, predicted


class Trainer:
    """A step that is spread over methods."""

    def gradients(self, x, y):
        with tf.GradientTape() as tape:
            self.loss = tf.reduce_mean((model(x) - y) ** 2)
        return tape.gradient(self.loss, model.trainable_variables)

    def step(self, x, y):
        optimizer.apply_gradients(zip(self.gradients(x, y), model.trainable_variables, strict=True))
        return self.loss


compiled = tf.function(take_step)
if HOW in ("function", "op_by_op"):
    step = compiled if HOW == "function" else take_step
    for x, y in dataset:
        loss, predicted = step(x, y)
        assert predicted.shape[0] == x.shape[0]
        losses.append(float(loss))
elif HOW == "written_out":
    for x, y in dataset:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients, norm = tf.clip_by_global_norm(gradients, 1.0)
        if len(losses) % 2 == 0:
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        loss = loss.numpy()
        losses.append(float(loss))
elif HOW == "methods":
    trainer = Trainer()
    for x, y in dataset:
        losses.append(float(trainer.step(x, y)))
elif HOW == "strategy":
    for x, y in strategy.experimental_distribute_dataset(dataset):
        losses.append(float(strategy.run(take_step, args=(x, y))[0]))
elif HOW == "on_batch":
    model.compile("sgd", "mse", jit_compile=False, run_eagerly=True)
    for x, y in dataset:
        losses.append(float(model.train_on_batch(x, y)))
elif HOW == "anew":
    for x, y in dataset:
        losses.append(float(tf.function(take_step)(x, y)[0]))
elif HOW == "fit":
    model.compile("sgd", "mse", jit_compile=False)
    history = model.fit(dataset, epochs=2, verbose=0)
    losses = [None] * 2 * STEPS
elif HOW == "in_graph":

    @tf.function
    def train():
        for x, y in dataset:
            take_step(x, y)

    train()
elif HOW == "library":
    source = "def step(x, y):\n  with tf.GradientTape():\n    return take_step(x, y)[0]"
    exec(source)
    for x, y in dataset:
        losses.append(float(step(x, y)))
elif HOW == "shapes":
    for (x,) in tf.data.Dataset.range(1, 90).map(lambda index: (tf.ones([index, 8]),)):
        losses.append(float(tf.reduce_sum(compiled(x, x[:, :1])[1] * x)))
elif HOW == "raises":
    for x, y in dataset:
        if compiled(x, y)[0] < 0.001:
            break
        losses.append(0.0)
elif HOW == "stops":
    model.compile("sgd", "mse")
    model.fit(dataset, verbose=0, callbacks=[keras.callbacks.EarlyStopping("loss")])
print("steps", len(losses), "ran", len(ran), "different", len(set(losses)), flush=True)
