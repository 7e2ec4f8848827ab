"""``fit`` of Keras 2 under MultiWorkerMirroredStrategy; python ranks_fit.py CASE STEPS: the last rank has the fault."""

import json
import os
import sys
import time

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf

CASE, STEPS = sys.argv[1], int(sys.argv[2])
cluster = json.loads(os.environ["TF_CONFIG"])
INDEX, RANKS = cluster["task"]["index"], len(cluster["cluster"]["worker"])
PLANTED = INDEX == RANKS - 1
BATCH = 8

strategy = tf.distribute.MultiWorkerMirroredStrategy()


def read(number):
    if CASE == "fit-slow-read" and PLANTED:
        time.sleep(0.01)
    return number


def make(context):
    numbers = tf.data.Dataset.range(STEPS // 2 * BATCH * RANKS)
    if CASE != "fit-same-data":
        numbers = numbers.shard(context.num_input_pipelines, context.input_pipeline_id)
    numbers = numbers.map(lambda n: tf.ensure_shape(tf.numpy_function(read, [n], tf.int64), []))
    data = numbers.repeat(2).map(lambda n: (tf.random.stateless_normal([64], [n, 7]), tf.constant([1.0])))
    return data.batch(BATCH).prefetch(2)


class Logging(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if CASE == "fit-slow-callback" and PLANTED:
            time.sleep(0.03)


with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(64), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
# Of data whose number of batches is not known Keras 2 wants the steps, and takes as many of them in each epoch.
data = strategy.distribute_datasets_from_function(make)
model.fit(data, epochs=2, steps_per_epoch=STEPS // 2, verbose=0, callbacks=[Logging()])
print("done", INDEX, flush=True)
