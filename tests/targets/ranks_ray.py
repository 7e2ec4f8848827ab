"""Two tasks of Ray train under MultiWorkerMirroredStrategy, each watched; the last one's input is slow: OUT."""

import json
import os
import socket
import sys

import ray


@ray.remote(num_cpus=1)
def train(index, config, out):
    os.environ["TF_CONFIG"] = json.dumps({**config, "task": {"type": "worker", "index": index}})
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    import time

    import tensorflow as tf

    import xttsbench

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def read(number):
        if index == 1:
            time.sleep(0.03)
        return number

    def make(context):
        data = tf.data.Dataset.range(800).shard(2, context.input_pipeline_id)
        data = data.map(lambda n: tf.ensure_shape(tf.numpy_function(read, [n], tf.int64), []))
        return data.map(lambda n: (n, tf.random.stateless_normal([64], [n, 7]))).batch(8).prefetch(2)

    with strategy.scope():
        weights = tf.Variable(tf.zeros([64, 1]))
    watched = xttsbench.watched(strategy.distribute_datasets_from_function(make), out=out, quiet=True)

    @tf.function
    def step(batch):
        def one(batch):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((tf.matmul(batch[1], weights) - 1.0) ** 2) / 8
            gradient = tape.gradient(loss, weights)
            weights.assign_sub(0.001 * tf.distribute.get_replica_context().all_reduce("sum", gradient))

        strategy.run(one, args=(batch,))

    for batch in watched:
        step(batch)
        time.sleep(0.02)
    return watched.finish().steps


sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
workers = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
for one in sockets:
    one.close()
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20)
ray.get([train.remote(index, {"cluster": {"worker": workers}}, sys.argv[1]) for index in range(2)])
ray.shutdown()
