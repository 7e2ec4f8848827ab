"""Python functions that keep no state, however much they look like it: none of them may stop a fix."""

from __future__ import annotations

import functools
import threading
import time

import numpy as np
import pytest

from xttsbench.pipeline.purity.state import python_state

pytestmark = pytest.mark.tf

TABLE = np.zeros((5, 4))
OTHER_TABLE = np.ones((5, 4))
VECTOR = np.ones(8)
TOTAL = VECTOR.sum
WEIGHTS = {"a": 1}
LOCK = threading.Lock()
OWN = threading.local()
NO_SOURCE: dict[str, object] = {}
exec("def pure(x):\n  y = []\n  y.append(x)\n  return y\n", NO_SOURCE)


class Odd:
    """An object that cannot be looked at."""

    def __getattribute__(self, name):
        raise RuntimeError(name)


ODD = Odd()


class Augment:
    def __init__(self):
        self.weights = np.ones(3)

    def pure(self, x):
        return x * self.weights.sum() + self.helped(x)

    def helped(self, x):
        own = self.weights * 2
        own[0] = 1
        return own


def fill(array):
    array[0] = 1
    return array


def either_table(x):
    chosen = TABLE if x > 3 else OTHER_TABLE
    if x > 5:
        chosen = VECTOR
    return chosen.sum() + TOTAL()


def at_an_odd_object(x):
    return ODD.thing + x


def local_objects(x):
    out, table = [], {}
    table[1] = 2
    out.append(x)
    row = TABLE[int(x)].copy()
    row += 1
    row[0] = 3
    scaled = VECTOR
    scaled = scaled * 2
    scaled += 1
    weight = WEIGHTS["a"]
    weight += 1
    return np.stack(out) * weight


def own_generator(x):
    draw = np.random.default_rng(int(x))
    return draw.normal()


def fills_its_own(x):
    return fill(np.zeros(3))


def counts_inside(x):
    count = 0

    def counted():
        nonlocal count
        count += 1

    counted()
    return count


@functools.lru_cache
def remembered(x):
    return x * 2


def busy(x):
    end = time.perf_counter() + 0.001
    while time.perf_counter() < end:
        pass
    time.sleep(0.0)
    return x


def locks_and_prints(x):
    with LOCK:
        OWN.buffer = x
    print(x)
    with open("/dev/null", "w") as file:
        file.write("x")
    return np.append(VECTOR, x)


def sorted_and_zipped(x):
    order = sorted(WEIGHTS)
    order.sort()
    pairs = list(zip(TABLE, VECTOR, strict=False))
    pairs.append((x, x))
    return sum(float(value) for _, value in pairs)


@pytest.mark.parametrize(
    "function",
    [
        local_objects,
        either_table,
        at_an_odd_object,
        own_generator,
        fills_its_own,
        counts_inside,
        remembered,
        lambda x: remembered(int(x)),
        busy,
        locks_and_prints,
        sorted_and_zipped,
        Augment().pure,
        lambda x: x + VECTOR[0],
        functools.partial(local_objects),
        NO_SOURCE["pure"],
        np.sqrt,
        len,
    ],
)
def test_what_is_no_cause_for_alarm(function):
    found = python_state(function)
    assert (found.state, found.random) == (None, None)
