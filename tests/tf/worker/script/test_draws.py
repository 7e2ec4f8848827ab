"""Random numbers of a step: op by op and in a graph the same, step after step, and none of them twice."""

from __future__ import annotations

import pytest
import tensorflow as tf
from tensorflow.python.framework import random_seed

from xttsbench.worker.script.draws import StepDraws


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> StepDraws:
    monkeypatch.setattr(random_seed, "get_seed", random_seed.get_seed)  # put back behind the test
    tf.random.set_seed(3)  # kernels of other tests keep no count
    found = StepDraws(7)
    found.install()
    return found


def noise() -> tf.Tensor:
    return tf.concat([tf.random.normal((2,)), tf.random.uniform((2,)), tf.random.normal((2,))], 0)


def drawn(draws: StepDraws, step: object, traces: int = 0) -> list[list[float]]:
    found = []
    for number in range(3):
        draws.next_step()
        outside = tf.random.normal(())
        for _ in range(0 if number else traces):
            draws.next_trace()
        found.append([float(outside), *step().numpy().tolist()])
    return found


def test_op_by_op_and_in_a_graph_they_are_the_same(draws: StepDraws) -> None:
    eager = drawn(draws, noise)
    tf.random.set_seed(3)
    assert drawn(draws, tf.function(noise), traces=1) == eager
    assert len({value for step in eager for value in step}) == 3 * 7, "none comes twice"


def test_a_seed_of_the_script_s_own_stays_its_own(draws: StepDraws) -> None:
    draws.next_step()
    first = float(tf.random.normal((), seed=5))
    tf.random.set_seed(3)
    for _ in range(4):
        tf.random.normal(())
    assert float(tf.random.normal((), seed=5)) == first
