"""Random numbers of a step: op by op and in a graph the same, step after step, and none of them twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf
from tensorflow.python.framework import random_seed
from tensorflow.python.ops import gen_random_ops

from xttsbench.worker.script.again.elements import _STATELESS, StepDraws


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[[], StepDraws]:
    monkeypatch.setattr(random_seed, "get_seed", random_seed.get_seed)  # put back behind the test
    for name in _STATELESS:
        monkeypatch.setattr(gen_random_ops, name, getattr(gen_random_ops, name))

    def make() -> StepDraws:
        found = StepDraws()
        found.install()
        return found

    return make


def noise() -> tf.Tensor:
    whole = tf.cast(tf.random.uniform((2,), maxval=1_000_000, dtype=tf.int32), tf.float32)
    drawn = tf.random.normal((2,)), tf.random.uniform((2,)), tf.random.normal((2,)), tf.random.truncated_normal((2,))
    return tf.concat([*drawn, whole], 0)


def drawn(draws: StepDraws, step: Callable[[], tf.Tensor], traces: int = 0) -> list[list[float]]:
    found = []
    for number in range(3):
        draws.next_step()
        outside = tf.random.normal(())
        for _ in range(0 if number else traces):
            draws.next_trace()
        found.append([float(outside), *step().numpy().tolist()])
        tf.random.set_seed(number)  # forgets how many numbers each op has drawn, as TensorFlow does at other times too
    return found


def test_op_by_op_and_in_a_graph_they_are_the_same(made: Callable[[], StepDraws]) -> None:
    eager = drawn(made(), noise)
    assert drawn(made(), tf.function(noise), traces=1) == eager
    assert len({value for step in eager for value in step}) == 3 * 11, "none comes twice"


def test_a_seed_of_the_script_s_own_stays_its_own(made: Callable[[], StepDraws]) -> None:
    tf.random.set_seed(3)
    before = float(tf.random.normal((), seed=5))
    draws = made()
    draws.next_step()
    tf.random.set_seed(3)
    assert float(tf.random.normal((), seed=5)) == before
