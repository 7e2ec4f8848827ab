"""A dataset made of a generator, handed to a tf.data service whose worker is a process of its own.

The reports: ``from_generator(...)`` that the tf.data service distributes ends in an error of the worker, where there is
no such Python function, and lookups do not find what a table holds. tensorflow/tensorflow#50252,
tensorflow/tensorflow#70541
"""

import subprocess
import sys

import numpy as np
import tensorflow as tf

ROWS = 512
WORKER = (
    "import sys, tensorflow as tf\n"
    "from tensorflow.data.experimental import service\n"
    "config = service.WorkerConfig(dispatcher_address=sys.argv[1], heartbeat_interval_ms=100)\n"
    "worker = service.WorkerServer(config)\n"
    "print('ready', flush=True)\n"
    "sys.stdin.read()\n"
)
SERVERS = []


def rows():
    for number in range(ROWS):
        yield np.full(64, number, np.float32)


def make():
    dispatcher = tf.data.experimental.service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = subprocess.Popen([sys.executable, "-c", WORKER, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    worker.stdout.readline()
    SERVERS.extend((dispatcher, worker))  # for as long as this process lives: the worker ends with its input
    elements = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec(64, tf.float32))
    shared = tf.data.experimental.service.distribute("parallel_epochs", dispatcher.target)
    return elements.apply(shared).batch(32)
