"""Faulty targets, one for each way to go wrong; the tests name them, pytest does not collect them."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import tensorflow as tf

not_callable = 7


def ready():
    return tf.data.Dataset.from_tensors(tf.ones([8, 16])).repeat().prefetch(2)


def light_step():
    weights = tf.Variable(tf.ones([16, 16]))

    @tf.function
    def step(batch):
        weights.assign_add(1e-9 * tf.matmul(batch, batch, transpose_a=True))
        return tf.reduce_sum(weights)

    return step


def good():
    return ready(), light_step()


def good_dataset():
    return ready()


def maps_in_turn():
    return tf.data.Dataset.range(100_000).map(lambda i: tf.fill([8, 16], tf.cast(i, tf.float32))), light_step()


def takes_a_size(size):
    return tf.data.Dataset.from_tensors(tf.ones([size, 16])).repeat()


def at_step(number, act, pause_s=0.0):
    """The good target, whose step calls ``act`` in its call of that number (from 1)."""
    train, count = light_step(), [0]

    def step(batch):
        count[0] += 1
        if count[0] == number:
            act()
        if pause_s:
            time.sleep(pause_s)
        return train(batch)

    return ready(), step


def prints():
    print("[bold red]not markup[/] {not json}", flush=True)
    os.write(1, b'{"rows": "as_is", "columns": {}}\n{"done": true}\n')
    return at_step(5, lambda: print("printed in a step", flush=True))


def prints_escapes():
    print("\x1b[31mred\x1b[0m [bold]bold[/bold]\nanother line", flush=True)
    raise ValueError("[red]\x1b[31mescape\x1b[0m[/red] and\nnewline")


def _raise(error):
    raise error


def raises_at_once():
    raise RuntimeError("no data today")


def raises_later(number=200):
    return at_step(number, lambda: _raise(ValueError("label 17 is out of range")))


def raises_in_the_input():
    def load(index):
        if index == 40:
            raise OSError("record 40 is broken")
        return np.float32(index)

    rows = tf.data.Dataset.range(1000).map(lambda i: tf.numpy_function(load, [i], tf.float32))
    return rows, lambda batch: None


def raises_deep():
    def load(_):
        raise RuntimeError("every record is broken")

    return tf.data.Dataset.range(1000).map(lambda i: tf.numpy_function(load, [i], tf.float32))


def exits_politely():
    return at_step(30, lambda: sys.exit(7))


def exits_while_built():
    sys.exit(7)


def exits_hard():
    return at_step(60, lambda: os._exit(3), pause_s=0.02)


def kills_itself():
    return at_step(60, lambda: os.kill(os.getpid(), signal.SIGKILL), pause_s=0.02)


def kills_itself_leaving_a_fork():
    """A forked worker keeps every descriptor of the trial open, its pipe to the parent among them."""

    def act():
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    return at_step(60, act, pause_s=0.02)


def out_of_memory():
    return at_step(20, lambda: _raise(MemoryError()))


def out_of_memory_while_built():
    raise MemoryError("cannot allocate 1 TiB")


def tensorflow_out_of_memory():
    return at_step(20, lambda: _raise(tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")))


def hangs_in_the_step():
    return at_step(60, lambda: time.sleep(600), pause_s=0.02)


def hangs_while_built():
    time.sleep(600)


def hangs_in_the_input():
    return tf.data.Dataset.range(5).map(lambda i: tf.numpy_function(_sleep, [i], tf.int64))


def _sleep(number):
    time.sleep(600)
    return number


def never_ends():
    return at_step(-1, lambda: None, pause_s=0.02)


def never_ends_with_a_child(pids):
    """Writes ``trial grandchild`` to the file ``pids``; runs until it is killed."""
    child = subprocess.Popen(["sleep", "600"])
    with open(f"{pids}.new", "w", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {child.pid}")
    os.replace(f"{pids}.new", pids)
    return never_ends()


def leaves_things_behind(pids):
    """A thread that is no daemon and a child process; the target itself is fine."""
    threading.Thread(target=time.sleep, args=(600,)).start()
    child = subprocess.Popen(["sleep", "600"])
    with open(pids, "w", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {child.pid}")
    return ready()


def returns_nothing():
    return None


def returns_a_generator():
    return (number for number in range(3))


def pair_without_dataset():
    return [1, 2, 3], light_step()


def pair_without_step():
    return ready(), "step"


def triple():
    return ready(), light_step(), 3


def uncompiled_model():
    return ready(), tf.keras.Sequential([tf.keras.layers.Dense(1)])


def empty():
    return tf.data.Dataset.range(0)


def empty_with_a_step():
    return tf.data.Dataset.range(0), light_step()


def nan_batches():
    return tf.data.Dataset.from_tensors(tf.constant([[1.0, float("nan")]] * 8)).repeat(), lambda batch: None


def step_of_two():
    pairs = tf.data.Dataset.from_tensors((tf.ones([4, 2]), tf.zeros([4]))).repeat()
    return pairs, lambda features, labels: tf.reduce_sum(features) + tf.reduce_sum(labels)
