"""Functions of pipelines in which something is planted: order that matters, randomness, state over epochs.

Each maker returns a new function, or generator, with state of its own, as a fresh process would have it. What it takes
and gives is one ``int64``. They are written in as many of the ways in which people write such things as we could think
of, and some do nothing wrong at all.
"""

from __future__ import annotations

import functools
import itertools
import random
import threading

import numpy as np
import tensorflow as tf

LATE = 100_000
"""Calls after which what comes late begins: no look at a shortened dataset gets there."""


def pure():
    return lambda x: np.int64(x * 3 + 1)


def scratch():
    """Changes only what the call itself made."""

    def load(x):
        kept = {"x": x}
        kept["x"] = kept["x"] * 2
        found = [int(kept["x"])]
        found.append(1)
        return np.int64(sum(found))

    return load


def table_read():
    """Reads a list that nobody changes."""
    table = [number * 7 for number in range(1000)]
    return lambda x: np.int64(table[int(x) % 1000])


def pure_transforms():
    """A list of functions that compute from their arguments alone."""
    transforms = [lambda x: x + 1, lambda x: x * 2]

    def load(x):
        for transform in transforms:
            x = transform(x)
        return np.int64(x)

    return load


class Pure:
    """An object whose attributes are set once."""

    def __init__(self):
        self._build()

    def _build(self):
        self.scale = 3

    def __getitem__(self, x):
        return x * self.scale

    @property
    def offset(self):
        return self.scale + 1


def pure_object():
    rows = Pure()
    return lambda x: np.int64(rows[x] + rows.offset)


@functools.lru_cache(maxsize=10_000)
def _squared(x):
    return x * x


def pure_memo():
    return lambda x: np.int64(_squared(int(x)))


def counter_nonlocal():
    calls = 0

    def count(x):
        nonlocal calls
        calls += 1
        return np.int64(x + 1000 * calls)

    return count


def counter_list():
    calls = []

    def count(x):
        calls.append(int(x))
        return np.int64(x + 1000 * len(calls))

    return count


def counter_itertools():
    calls = itertools.count()
    return lambda x: np.int64(x + 1000 * next(calls))


class Counts:
    """Counts in every way that an object can be asked for something."""

    def __init__(self):
        self.calls = 0

    def __getitem__(self, x):
        self.calls += 1
        return x + 1000 * self.calls

    @property
    def number(self):
        self.calls += 1
        return self.calls

    def __len__(self):
        self.calls += 1
        return self.calls

    def __iter__(self):
        self.calls += 1
        yield self.calls

    def __enter__(self):
        self.calls += 1
        return self.calls

    def __exit__(self, *_):
        return None

    def __add__(self, x):
        self.calls += 1
        return x + 1000 * self.calls

    def __contains__(self, x):
        self.calls += 1
        return self.calls % 2 == 0

    def __call__(self, x):
        self.calls += 1
        return x + 1000 * self.calls


def counter_getitem():
    rows = Counts()
    return lambda x: np.int64(rows[x])


def counter_property():
    rows = Counts()
    return lambda x: np.int64(x + 1000 * rows.number)


def counter_len():
    rows = Counts()
    return lambda x: np.int64(x + 1000 * len(rows))


def counter_iter():
    rows = Counts()
    return lambda x: np.int64(x + 1000 * sum(rows))


def counter_with():
    rows = Counts()

    def load(x):
        with rows as number:
            return np.int64(x + 1000 * number)

    return load


def counter_operator():
    rows = Counts()
    return lambda x: np.int64(rows + x)


def counter_contains():
    rows = Counts()
    return lambda x: np.int64(x + (5000 if x in rows else 0))


def counter_object():
    rows = Counts()

    def load(x):
        return np.int64(rows(x))

    return load


def counter_in_list():
    """The second of several transforms is the one that counts."""
    transforms = [abs, Pure(), Counts()]

    def load(x):
        for transform in transforms[2:]:
            x = transform(x)
        return np.int64(x)

    return load


def counter_in_function_list():
    count = counter_nonlocal()
    transforms = [lambda x: x + 1, count]

    def load(x):
        for transform in transforms:
            x = transform(x)
        return np.int64(x)

    return load


def counter_in_dict():
    count = counter_nonlocal()
    by_name = {"first": lambda x: x, "count": count}
    return lambda x: np.int64(by_name["count"](x))


def counter_mapped():
    count = counter_nonlocal()
    return lambda x: np.int64(next(map(count, [x])))


def counter_applied():
    """Given to a library, which calls it."""
    count = counter_nonlocal()
    return lambda x: np.int64(functools.reduce(lambda _, y: count(y), [x], 0))


def counter_vectorised():
    count = np.vectorize(counter_nonlocal(), otypes=[np.int64])
    return lambda x: np.int64(count([x])[0])


def counter_partial():
    def count(calls, x):
        calls[0] += 1
        return np.int64(x + 1000 * calls[0])

    return functools.partial(count, [0])


def counter_default():
    def count(x, calls=[0]):  # noqa: B006 - as people write it
        calls[0] += 1
        return np.int64(x + 1000 * calls[0])

    calls = [0]
    return lambda x: count(x, calls)


def counter_array():
    calls = np.zeros(1, np.int64)

    def count(x):
        np.add(calls, 1, out=calls)
        return np.int64(x + 1000 * calls[0])

    return count


def counter_locked():
    calls, lock = {"n": 0}, threading.Lock()

    def count(x):
        with lock:
            calls["n"] += 1
            return np.int64(x + 1000 * calls["n"])

    return count


def running_sum():
    total = {"sum": 0}

    def add(x):
        total["sum"] += int(x)
        return np.int64(total["sum"])

    return add


def seen_before():
    """Rows that came before become another value."""
    seen = set()

    def mark(x):
        again = int(x) in seen
        seen.add(int(x))
        return np.int64(x + (10_000 if again else 0))

    return mark


def late_curriculum():
    calls = itertools.count()
    return lambda x: np.int64(x + (1 if next(calls) > LATE else 0))


class Schedule:
    """What a callback tells the epoch; nobody does during a look at the data."""

    def __init__(self):
        self.epoch = 0

    def on_epoch_end(self, epoch):
        self.epoch = epoch + 1

    def __call__(self, x):
        return np.int64(x + self.epoch)


def epoch_attribute():
    return Schedule().__call__


def epoch_list():
    epoch = [0]

    def on_epoch_end(number):
        epoch[0] = number + 1

    def load(x):
        return np.int64(x + epoch[0])

    load.callback = on_epoch_end
    return load


def trained(epochs):
    """A training with its pipeline: what its own loop changes between epochs is what its function reads."""
    scale, seen = 1, []

    def load(x):
        return np.int64(x * scale)

    def grown(x):
        return np.int64(x + len(seen))

    for _ in range(epochs):
        scale *= 2
        seen.append(scale)
    return load, grown


def loop_variable():
    return trained(0)[0]


def loop_list():
    return trained(0)[1]


CURRENT = {"epoch": 0}


def on_epoch_end(number):
    CURRENT["epoch"] = number + 1


def epoch_global():
    return lambda x: np.int64(x + CURRENT["epoch"])


def epoch_variable():
    epoch = tf.Variable(0, dtype=tf.int64)
    return lambda x: np.int64(x + epoch.numpy())


def noise_numpy():
    return lambda x: np.int64(x * 1000 + np.random.randint(1000))


def noise_python():
    return lambda x: np.int64(x * 1000 + random.randrange(1000))


def noise_own():
    drawing = np.random.default_rng(0)
    return lambda x: np.int64(x * 1000 + drawing.integers(1000))


class RandomShift:
    def __call__(self, x):
        return x * 1000 + random.randrange(1000)


def noise_composed():
    transforms = [Pure().__getitem__, RandomShift()]

    def load(x):
        for transform in transforms:
            x = transform(x)
        return np.int64(x)

    return load


def noise_seldom():
    """One row in two hundred is another one: a look may well miss it."""
    return lambda x: np.int64(-x if random.random() < 0.005 else x)


@functools.lru_cache(maxsize=100_000)
def _drawn(key, x):
    return x * 1000 + random.randrange(1000)


def memo_of_noise():
    """Drawn once for each row, and kept in this process."""
    key = object()
    return lambda x: np.int64(_drawn(key, int(x)))


def loop_over_range(function, rows):
    def generate():
        for number in range(rows):
            yield function(number)

    return generate


def loop_over_list(function, rows):
    items = list(range(rows))

    def generate():
        for item in items:
            made = function(item)
            yield made

    return generate


def loop_with_places(function, rows):
    items = [7 * number for number in range(rows)]

    def generate():
        for place, item in enumerate(items):
            yield function(item) + place

    return generate


def loop_over_pairs(function, rows):
    def generate():
        for first, second in zip(range(rows), reversed(range(rows)), strict=True):
            yield function(first) + 1000 * second

    return generate


def loop_that_skips(function, rows):
    def generate():
        for number in range(rows):
            if number % 7 == 3:
                continue
            yield function(number)

    return generate


def loop_that_returns(function, rows):
    def generate():
        for number in itertools.count():
            if number >= rows:
                return
            yield function(number)

    return generate


def loop_that_sums(function, rows):
    """What one round leaves to the next is a part of the element."""

    def generate():
        total = 0
        for number in range(rows):
            total += number
            yield function(number) + 1000 * total

    return generate


def loop_of_two(function, rows):
    """Two elements of a round."""

    def generate():
        for number in range(rows // 2):
            yield function(number)
            yield function(number + rows)

    return generate


def loop_in_seeded_order(function, rows):
    def generate():
        order = np.random.default_rng(3).permutation(rows)
        for number in order:
            yield function(int(number))

    return generate


def loop_in_drawn_order(function, rows):
    def generate():
        for number in np.random.permutation(rows):
            yield function(int(number))

    return generate


LOOPS = {
    "range": loop_over_range,
    "list": loop_over_list,
    "enumerate": loop_with_places,
    "zip": loop_over_pairs,
    "skips": loop_that_skips,
    "returns": loop_that_returns,
    "sums": loop_that_sums,
    "two": loop_of_two,
    "seeded": loop_in_seeded_order,
    "drawn": loop_in_drawn_order,
}
"""Generators that pass numbers through a function; the last one in another order in each epoch."""
HARMLESS = (pure, scratch, table_read, pure_transforms, pure_object, pure_memo)
STATE = (
    counter_nonlocal, counter_list, counter_itertools, counter_getitem, counter_property, counter_len, counter_iter,
    counter_with, counter_operator, counter_contains, counter_object, counter_in_list, counter_in_function_list,
    counter_in_dict, counter_mapped, counter_applied, counter_vectorised, counter_partial, counter_default,
    counter_array, counter_locked, running_sum, seen_before, late_curriculum, noise_own,
)  # fmt: skip
"""What one call does is felt by the next."""
EPOCH = (epoch_attribute, epoch_list, epoch_global, epoch_variable, loop_variable, loop_list)
"""Somebody else changes from time to time what they read."""
RANDOM = (noise_numpy, noise_python, noise_composed, noise_seldom)
MEMO = (memo_of_noise,)
