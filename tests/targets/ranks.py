"""A custom loop of ranks under MultiWorkerMirroredStrategy, with the fault that its arguments plant on one rank.

python ranks.py CASE [STEPS]; the last rank of TF_CONFIG has the fault. A step takes 20 ms of an emulated accelerator.
"""

import fcntl
import json
import os
import signal
import sys
import time

import tensorflow as tf

CASE, STEPS = sys.argv[1], int(sys.argv[2])
cluster = json.loads(os.environ["TF_CONFIG"])
INDEX, RANKS = cluster["task"]["index"], len(cluster["cluster"]["worker"])
PLANTED = INDEX == RANKS - 1
LOCK = os.path.join(os.environ["RANKS_FOLDER"], "shared.lock")
EPOCHS, BATCH = 2, 8

strategy = tf.distribute.MultiWorkerMirroredStrategy()


def read(number):
    if CASE == "slow-read" and PLANTED:
        time.sleep(0.01)
    if CASE == "shared-file" and not PLANTED:
        with open(LOCK, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
    return number


def hold():
    file = open(LOCK, "a")  # noqa: SIM115 - held until the process ends
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def generate(first, by):
    for number in range(first, 1_000_000, by):
        if CASE == "slow-generator" and PLANTED:
            time.sleep(0.01)
        yield number


def make(context):
    count, own = context.num_input_pipelines, context.input_pipeline_id
    if CASE == "slow-generator":
        numbers = tf.data.Dataset.from_generator(
            lambda: generate(own, count), output_signature=tf.TensorSpec([], tf.int64)
        )
    else:
        batches = STEPS // EPOCHS
        numbers = tf.data.Dataset.range(batches * BATCH * count)
        if CASE != "same-data":
            numbers = numbers.shard(count, own)
        if CASE in ("uneven-shard", "ended-early") and PLANTED:
            numbers = numbers.take(batches * BATCH // 2)
    if CASE in ("slow-read", "shared-file"):
        numbers = numbers.map(lambda n: tf.ensure_shape(tf.numpy_function(read, [n], tf.int64), []))
    data = numbers.map(lambda n: (n, tf.random.stateless_normal([64], [n, 7])))
    return data.batch(BATCH).prefetch(2)


def wait(seconds):
    time.sleep(seconds)
    return 0.0


with strategy.scope():
    weights = tf.Variable(tf.zeros([64, 1]))


@tf.function
def train(batch):
    def one(batch):
        _, features = batch
        seconds = tf.constant(0.06 if CASE == "slow-step" and PLANTED else 0.02, tf.float64)
        device = tf.numpy_function(wait, [seconds], tf.float64)
        with tf.control_dependencies([device]), tf.GradientTape() as tape:
            loss = tf.reduce_sum((tf.matmul(features, weights) - 1.0) ** 2) / BATCH
        gradient = tape.gradient(loss, weights)
        weights.assign_sub(0.001 * tf.distribute.get_replica_context().all_reduce("sum", gradient))

    strategy.run(one, args=(batch,))


def log(step):
    time.sleep(0.03)
    return step


def save():
    time.sleep(0.6)


if CASE == "ended-early":  # each rank iterates its own data: nobody asks the others whether they have some left
    data = make(tf.distribute.InputContext(RANKS, INDEX, RANKS))
else:
    data = strategy.distribute_datasets_from_function(make)
held = None
step = 0
for _epoch in range(EPOCHS):
    for batch in data:
        train(batch)
        step += 1
        if PLANTED and CASE == "slow-callback":
            log(step)
        if PLANTED and CASE == "slow-checkpoint" and step % 15 == 0:
            save()
        if PLANTED and CASE == "dies" and step == STEPS // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if PLANTED and CASE == "shared-file" and step == STEPS // 2:
            held = hold()
        if PLANTED and CASE == "waits-elsewhere" and step == STEPS // 2:
            held = os.read(os.pipe()[0], 1)
        if step >= STEPS:
            break
    if step >= STEPS:
        break
print("done", INDEX, step, flush=True)
