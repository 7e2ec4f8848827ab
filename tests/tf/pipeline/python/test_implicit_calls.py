"""State and randomness behind calls that no call in the source shows."""

from __future__ import annotations

import functools
import random
import sqlite3
import zipfile

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from xttsbench.pipeline.python.state import python_state

pytestmark = pytest.mark.tf


class Base:
    made = 0

    def __init__(self):
        self.calls = 0

    def load(self, x):
        self.calls += 1
        return x + self.calls

    def plain(self, x):
        return x


class Derived(Base):
    def load(self, x):
        return super().load(x)

    def plain(self, x):
        return super().plain(x)

    def of_the_class(self, x):
        type(self).made += 1
        return x + self.made

    def by_name(self, x):
        return self._one_of("load")(x)

    def _one_of(self, name):
        return getattr(self, "load") if name else None  # noqa: B009 - as people write it

    def in_dictionary(self, x):
        vars(self)["calls"] = x
        return x


class Several:
    """Calls one of its methods by a name that is put together."""

    def __init__(self, kind):
        self.kind = kind
        self.seen = []

    def __call__(self, x):
        return getattr(self, f"_{self.kind}")(x)

    def _kept(self, x):
        self.seen.append(x)
        return x

    read = property(lambda self: len)


def in_globals(x):
    globals()["LAST"] = x
    return x


TOTAL = np.zeros(3)
ROWS = sqlite3.connect(":memory:").execute("select 1")
NORMAL = scipy.stats.norm(0, 1)


def adds_up(x):
    np.add(TOTAL, x, TOTAL)
    return TOTAL.sum()


def fetches(x):
    return x + ROWS.fetchone()[0]


def archived(x):
    return ARCHIVE.read(str(x))


ARCHIVE = zipfile.ZipFile.__new__(zipfile.ZipFile)


STATEFUL = (
    Derived().load, Derived().of_the_class, Derived().by_name, Derived().in_dictionary, Several("kept"), in_globals,
    adds_up, fetches,
)  # fmt: skip


@pytest.mark.parametrize("function", STATEFUL)
def test_state_is_found(function):
    assert python_state(function).state is not None


@pytest.mark.parametrize("function", [Derived().plain, archived, lambda x: np.add(TOTAL, x)])
def test_nothing_is_made_up(function):
    found = python_state(function)
    assert (found.state, found.random) == (None, None)


def test_a_librarys_own_random_functions():
    assert python_state(lambda x: x + NORMAL.rvs()).random is not None
    assert python_state(lambda x: x + scipy.stats.norm.rvs()).random is not None
    assert python_state(lambda x: x + scipy.stats.norm.pdf(x)).random is None


def counted(calls, x):
    calls[0] += 1
    return x + calls[0]


def test_what_is_bound_to_a_partial_counts_within_tensorflows_wrappers_too():
    for function in (
        functools.partial(counted, [0]),
        tf.autograph.experimental.do_not_convert(functools.partial(counted, [0])),
    ):
        assert python_state(function).state is not None


def test_a_memo_of_what_was_drawn_counts_within_tensorflows_wrappers_too():
    @functools.lru_cache
    def drawn(x):
        return x + random.random()

    for function in (drawn, tf.autograph.experimental.do_not_convert(drawn)):
        assert "memo" in python_state(function).state


class RandomAccess:
    """Has a name that says something else than it does."""

    def __call__(self, x):
        return x * 2


READER = RandomAccess()


def read(x):
    return READER(x)


@pytest.mark.parametrize("function", [lambda x: np.random.default_rng(int(x)).normal(), read])
def test_a_seed_from_the_element_and_a_name_are_not_random(function):
    assert python_state(function).random is None
