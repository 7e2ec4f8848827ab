"""Random streams of the processes: unlike one another, and the same again for the same state and number."""

from __future__ import annotations

import random

import numpy as np
import pytest

from xttsbench.fixes.pool import work


@pytest.fixture(autouse=True)
def undisturbed():
    numpy_state, python_state = np.random.get_state(), random.getstate()
    yield
    np.random.set_state(numpy_state)
    random.setstate(python_state)
    work._worker.clear()


def draws(number, words):
    work.seed_worker(number, words)
    return np.random.randint(2**31), random.getrandbits(32)


def test_each_process_draws_other_numbers_and_the_same_again():
    words = work.global_digest()
    first, second = draws(0, words), draws(1, words)
    assert len({*first, *second}) == 4
    assert draws(0, words) == first


def test_the_words_follow_the_state_and_leave_it_as_it_is():
    np.random.seed(1)
    before = work.global_digest()
    assert work.global_digest() == before
    np.random.random()
    assert work.global_digest() != before


@pytest.mark.parametrize("kind", ["Random", "RandomState", "PCG64", "MT19937", "Philox", "SFC64"])
def test_a_generator_in_each_process_has_a_stream_of_its_own(kind):
    def first_draw(number, state):
        work.seed_worker(number, work.digest(0))
        generator = work.restored_generator(kind, work.digest(state))
        return float(generator.random_sample() if kind == "RandomState" else generator.random())

    assert first_draw(0, 5) == first_draw(0, 5)
    assert len({first_draw(0, 5), first_draw(1, 5), first_draw(0, 6)}) == 3
