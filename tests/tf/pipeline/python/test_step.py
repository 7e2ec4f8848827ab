"""What the Python of a step does that one graph of it would leave out or do once."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import queue
import subprocess
import threading
import time
from pathlib import Path
from time import sleep

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.pipeline.python.step_effects import trace_time_effects

WEIGHT = tf.Variable(1.0)
DEVICE = threading.Event()
WAITING: queue.Queue[int] = queue.Queue()
FILE = Path("losses.txt")


def trains(batch):
    WEIGHT.assign_add(tf.reduce_sum(batch))
    return WEIGHT * 2.0


LOG: list[float] = []
WEIGHTS = [tf.Variable(1.0), tf.Variable(2.0)]


class Trainer:
    """A step as a method, with variables, an optimizer and a count of Python's."""

    def __init__(self) -> None:
        self.weight = tf.Variable(1.0)
        self.optimizer = tf.keras.optimizers.SGD()
        self.seen = tf.keras.metrics.Mean()
        self.steps = 0

    def trains(self, batch):
        with tf.GradientTape() as tape:
            loss = self.weight * batch
        self.optimizer.apply_gradients([(tape.gradient(loss, self.weight), self.weight)])
        self.seen.update_state(loss)
        return loss

    def counts(self, batch):
        self.steps += 1
        return self.trains(batch)


def assigns(batch):
    for weight in WEIGHTS:
        weight.assign_sub(0.1 * tf.reduce_mean(batch))
    return _loss(batch)


def _loss(batch):
    losses = []
    losses.append(tf.reduce_sum(batch))  # a list of its own is made anew by every step
    return tf.add_n(losses) + tf.random.normal([])


def logs(batch):
    return _logged(_loss(batch))


def _logged(loss):
    LOG.append(loss)
    return loss


def draws(batch):
    return batch * np.random.normal()


def sleeps(batch):
    loss = trains(batch)
    time.sleep(0.01)
    return loss


def sleeps_further_down(batch):
    return _slow(trains(batch))


def _slow(loss):
    sleep(0.01)
    return loss


def waits_for_an_event(batch):
    DEVICE.wait(0.01)
    return trains(batch)


def takes_from_a_queue(batch):
    return trains(batch) + WAITING.get()


def writes_a_line(batch):
    loss = trains(batch)
    with open("losses.txt", "a") as file:
        file.write("one\n")
    return loss


def opens_a_path(batch):
    with FILE.open("a") as file:
        file.write("one\n")
    return trains(batch)


def writes_text(batch):
    FILE.write_text("one")
    return trains(batch)


def saves(batch):
    np.save("batch.npy", np.zeros(3))
    return trains(batch)


def dumps(batch):
    json.dump({}, FILE)
    return trains(batch)


def starts_a_program(batch):
    subprocess.run(["true"], check=False)
    return trains(batch)


def renames(batch):
    os.replace("a", "b")
    return trains(batch)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (logs, "calls append() of the captured list 'LOG'"),
        (Trainer().counts, "sets 'steps'"),
        (draws, "draws random numbers (np.random"),
        (sleeps, "calls sleep(), which waits"),
        (sleeps_further_down, "calls sleep(), which waits"),
        (waits_for_an_event, "calls wait(), which waits"),
        (takes_from_a_queue, "calls get(), which waits"),
        (writes_a_line, "opens a file to write"),
        (opens_a_path, "opens a file to write"),
        (writes_text, "calls write_text(), which writes"),
        (saves, "calls save(), which writes"),
        (dumps, "calls dump(), which writes"),
        (starts_a_program, "calls run() of subprocess, which another program hears"),
        (renames, "calls replace(), which writes"),
    ],
)
def test_what_a_graph_would_leave_out(step, words: str) -> None:
    why = trace_time_effects(step)
    assert why is not None
    assert words in why
    assert "test_step.py:" in why


class Summed:
    def __init__(self) -> None:
        self.writer = tf.summary.create_noop_writer()
        self.mean = tf.keras.metrics.Mean()

    def step(self, batch):
        with self.writer.as_default():
            tf.summary.scalar("loss", trains(batch), step=0)
        self.mean.update_state(batch)
        return self.mean.result()


def collects(batch):
    array = tf.TensorArray(tf.float32, size=2)
    array = array.write(0, tf.reduce_sum(batch)).write(1, 0.0)
    return tf.reduce_sum(array.stack()) + tf.constant({"a": 1.0}.get("a"))


def joins(batch):
    name = os.path.join("a", "b").replace("a", "b")
    with tf.name_scope(name):
        return trains(batch)


@dataclasses.dataclass(frozen=True)
class Settings:
    scale: float = 1.0


def replaces_a_setting(batch):
    return trains(batch) * dataclasses.replace(Settings(), scale=2.0).scale


def reads_a_table(batch):
    with open(__file__) as file, gzip.open("wax", "rb") as other:
        return trains(batch) + float(len(file.readline()) + len(other.readline()))


IN_GRAPHS_TOO = (
    assigns, Trainer().trains, tf.reduce_sum, print, trains, Summed().step, collects, joins, replaces_a_setting,
    reads_a_table,
)  # fmt: skip


@pytest.mark.parametrize("step", IN_GRAPHS_TOO)
def test_what_a_graph_does_as_well(step) -> None:
    assert trace_time_effects(step) is None
