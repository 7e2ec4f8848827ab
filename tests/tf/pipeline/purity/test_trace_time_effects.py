"""What a training step does in Python that a graph of it would not, and what it may do."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.pipeline.purity.state import trace_time_effects

pytestmark = pytest.mark.tf

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


@pytest.mark.parametrize("step", [assigns, Trainer().trains, tf.reduce_sum, print])
def test_what_a_graph_does_as_well(step) -> None:
    assert trace_time_effects(step) is None


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (logs, "calls append() of the captured list 'LOG'"),
        (Trainer().counts, "sets 'steps'"),
        (draws, "draws random numbers (np.random"),
    ],
)
def test_what_a_graph_would_do_once(step, words: str) -> None:
    why = trace_time_effects(step)
    assert why is not None
    assert words in why
    assert "test_trace_time_effects.py:" in why
