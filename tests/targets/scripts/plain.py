"""A short compiled training whose ARGS say what else it does: see the names in ``EXTRAS``."""

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time

import tensorflow as tf

WHAT, STEPS = sys.argv[1], int(sys.argv[2])
tf.random.set_seed(5)
weight = tf.Variable(tf.ones([8, 1]))


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.nn.dropout(batch, 0.3) @ weight - 1.0) ** 2)
    weight.assign_sub(1e-3 * tape.gradient(loss, weight))
    return loss


def batches():
    return tf.data.Dataset.range(1_000_000).shuffle(100).map(lambda index: tf.random.normal([4, 8])).take(STEPS)


def square(value):
    return value * value


def train():
    return [float(train_step(batch)).hex() for batch in batches()]


def swallow():
    while True:
        with contextlib.suppress(BaseException):
            train()


def workers(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        print("squares", pool.map(square, [1, 2, 3]), flush=True)
    train()


def fork_and_return():
    train()
    if os.fork() == 0:
        train()
    else:
        os.wait()


def die():
    for index, batch in enumerate(batches()):
        train_step(batch)
        time.sleep(0.02)
        if index == 100:
            os.kill(os.getpid(), signal.SIGKILL)


def raises():
    for index, batch in enumerate(batches()):
        train_step(batch)
        if index == 20:
            raise ValueError("by the script")


EXTRAS = {
    "losses": lambda: print(*train()),
    "spawn": lambda: workers("spawn"),
    "fork": lambda: workers("fork"),
    "fork_and_return": fork_and_return,
    "chdir": lambda: (os.chdir("/"), train()),
    "close": lambda: (sys.stdout.close(), train()),
    "thread": lambda: (threading.Thread(target=time.sleep, args=(300,)).start(), train()),
    "exit": lambda: (train(), sys.exit(3)),
    "leave": lambda: (train(), os._exit(4)),
    "atexit": lambda: (atexit.register(print, "goodbye"), train()),
    "hangs": lambda: (atexit.register(time.sleep, 300), train()),
    "swallow": swallow,
    "raise": raises,
    "die": die,
}

if __name__ == "__main__":
    EXTRAS[WHAT]()
