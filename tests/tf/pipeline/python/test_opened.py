"""Generators in two parts: the same elements in the same order, epoch after epoch, and those that stay whole."""

import csv
import functools
import itertools
import random

import numpy as np
import pytest

from xttsbench.pipeline.python.opened import Opened, compiled, made_of
from xttsbench.pipeline.python.split import CannotSplitError

ITEMS = ["a", "bb", "ccc", "dddd"]


def work(item):
    return np.full(3, len(str(item)), np.float32)


def pairs(item):
    return [(item, k) for k in range(len(item))]


def plain(items=ITEMS):
    for item in items:
        yield work(item)


def tuples():
    for number, (item, label) in enumerate(zip(ITEMS, [1, 2, 3, 4], strict=True)):
        features = work(item)
        features = features * number
        yield features, label


def shuffled():
    order = list(range(len(ITEMS)))
    random.Random(3).shuffle(order)
    for index in order:
        yield work(ITEMS[index]), index


def drawn_before():
    rng = np.random.default_rng(1)
    for index in rng.permutation(len(ITEMS)):
        yield work(ITEMS[index])


def drawn_inside():
    rng = np.random.default_rng(1)
    for _ in range(5):
        signal = rng.normal(size=8)
        spectrum = np.abs(np.fft.rfft(signal))
        yield spectrum.astype("float32"), int(rng.integers(0, 10))


def without_end():
    rng = np.random.default_rng(1)
    while True:
        noise = rng.normal(size=4)
        yield np.sort(noise), rng.integers(9)


def counted():
    count = 0
    for item in ITEMS:
        features = work(item)
        yield features + count, count
        count += len(item)


def leaves_out():
    for item in ITEMS:
        features = work(item)
        if features[0] == 2:
            continue
        yield features


def conditional():
    for item in ITEMS:
        features = work(item)
        if features[0] > 1:
            yield features
            yield -features


def ends_early(limit=3):
    for number, item in enumerate(ITEMS):
        if number >= limit:
            break
        yield work(item)


def nested():
    for item in ITEMS:
        for part, k in pairs(item):
            yield work(part) * k


def epochs():
    rng = random.Random(5)
    for epoch in range(3):
        order = list(ITEMS)
        rng.shuffle(order)
        for item in order:
            yield work(item) + epoch


def for_ever():
    order = list(ITEMS)
    while True:
        random.Random(1).shuffle(order)
        for item in order:
            yield work(item)


def in_file(path):
    with open(path) as file:
        header = next(csv.reader(file))
        for row in csv.reader(file):
            yield work(len(row)), len(header)


def opened_inside(path):
    for k in range(3):
        with open(path) as file:
            text = file.read()
            yield work(text) + k


def delegating():
    yield from (work(item) for item in ITEMS if item != "bb")


def many():
    for item in ITEMS:
        yield from (work(part) for part, _ in pairs(item))


def tried():
    for item in ITEMS:
        try:
            features = work({"bb": 1}[item])
        except KeyError:
            continue
        yield features


def with_helper():
    scale = 2.0

    def helper(item):
        return work(item) * scale

    for item in ITEMS:
        yield helper(item)


class Data:
    def __init__(self, items):
        self.__items = items
        self.rng = np.random.default_rng(2)

    def __len__(self):
        return len(self.__items)

    def __getitem__(self, index):
        return work(self.__items[index])

    def __iter__(self):
        for index in range(len(self)):
            yield self[index]

    def __call__(self):
        for index in self.rng.permutation(len(self.__items)):
            yield self.__work(index), index

    def __work(self, index):
        return work(self.__items[index])


class Shuffled(Data):
    """Draws when it is iterated, not when its iterator is made."""

    def __iter__(self):
        for index in self.rng.permutation(len(self)):
            yield self[index]


def mapped():
    yield from map(work, ITEMS)


def augmented():
    rng = random.Random(4)
    for item in ITEMS:
        features = work(item)
        if rng.random() < 0.5:
            features = features[::-1] * 2
        yield features


def closure(items):
    def samples():
        for item in items:
            yield work(item)

    return samples


OPENED = {
    "plain": lambda: plain,
    "arguments": lambda: functools.partial(plain, ["x", "yy"]),
    "lambda": lambda: lambda: plain(["x", "yy"]),
    "expression": lambda: lambda: (work(item) for item in ITEMS if len(item) > 1),
    "closure": lambda: closure(["q", "rr"]),
    "factory of closures": lambda: closure(["q", "rr"]),
    "tuples": lambda: tuples,
    "shuffled": lambda: shuffled,
    "drawn before": lambda: drawn_before,
    "drawn inside": lambda: drawn_inside,
    "without end": lambda: without_end,
    "counted": lambda: counted,
    "leaves out": lambda: leaves_out,
    "conditional": lambda: conditional,
    "ends early": lambda: ends_early,
    "nested": lambda: nested,
    "epochs": lambda: epochs,
    "for ever": lambda: for_ever,
    "in a file": lambda: functools.partial(in_file, __file__),
    "opened inside": lambda: functools.partial(opened_inside, __file__),
    "delegating": lambda: delegating,
    "many": lambda: many,
    "tried": lambda: tried,
    "helper": lambda: with_helper,
    "callable object": lambda: Data(ITEMS),
    "iterable object": lambda: lambda: iter(Data(ITEMS)),
    "iterable object that draws": lambda: made_again(Shuffled(ITEMS)),
    "mapped": lambda: mapped,
    "augmented": lambda: augmented,
    "method": lambda: Data(ITEMS).__call__,
}


def made_again(data):
    return lambda: iter(data)


def elements(generator, count=12):
    return list(itertools.islice(generator(), count))


def made(opened, number):
    shared, item = opened.taken(number)
    return made_of(shared.function, (*shared.values, *item), lambda one: one)


def alike(one, other):
    np.testing.assert_equal(other, one)


@pytest.mark.parametrize("name", OPENED)
def test_the_elements_and_their_order_are_the_same_in_every_epoch(name):
    make = OPENED[name]
    original, given = make(), make()
    opened = Opened(given, compiled(given))
    for _ in range(3):
        expected = elements(original)
        numbers = list(itertools.islice(opened.head(), 40))
        assert opened._items, "the head gave no items: it was not opened"
        assert all(shared is not None for _, shared, _ in opened._items.values())
        by_number = {number: made(opened, number) for number in reversed(numbers)}  # in any order
        found = [element for number in numbers for element in by_number[number]][:12]
        assert len(found) == len(expected)
        alike(expected, found)


def running_mean():
    mean = 0.0
    for item in ITEMS:
        mean = 0.9 * mean + work(item).mean()
        yield np.float32(mean)


def buffered():
    batch = []
    for item in ITEMS:
        batch.append(work(item))
        if len(batch) == 2:
            yield np.stack(batch)
            batch = []


def reused():
    buffer = np.zeros(3, np.float32)
    for item in ITEMS:
        buffer[:] = len(item)
        yield work(item) + np.tanh(buffer)


def stops():
    for item in ITEMS:
        features = work(item)
        if features[0] > 2:
            return
        yield features


def caught():
    try:
        for item in ITEMS:
            yield work({"a": 1}[item])
    except KeyError:
        pass


def closed():
    with open(__file__) as file:
        for k in range(3):
            yield work(file) + k


seen = []


def remembers():
    for item in ITEMS:
        seen.append(item)
        yield work(item) + len(seen)


cache = {}


def memo(item):
    if item not in cache:
        cache[item] = work(item)
    return cache[item]


def memoised():
    for item in ITEMS:
        yield memo(item)


def writes(path="/dev/null"):
    for item in ITEMS:
        features = work(item)
        np.save(path, features)
        yield features


def hands_on():
    yield from ITEMS


def same_order():
    order = np.arange(4)
    rng = np.random.default_rng(0)
    while True:
        rng.shuffle(order)
        for k in range(4):
            yield work(ITEMS[order[k]])


def reads_on(path=__file__):
    with open(path) as file:
        for _ in range(3):
            yield work(file.readline())


def chained():
    rng = random.Random(1)
    for item in ITEMS:
        features = work(item)
        if 0 < len(item) - 1 < rng.randrange(4):
            features = -features
        yield features


def sent():
    for item in ITEMS:
        answer = yield work(item)
        if answer:
            return


STAYS = {
    running_mean: "carried",
    buffered: "carried|batch",
    reused: "buffer",
    stops: "ends the loop",
    caught: "caught around",
    closed: "file",
    remembers: "seen",
    memoised: "memo",
    writes: "writes",
    hands_on: "takes time",
    same_order: "order",
    chained: "draws",
    sent: "sent|ends",
}


@pytest.mark.parametrize("generator", STAYS)
def test_a_generator_whose_elements_depend_on_one_another_stays_whole(generator):
    with pytest.raises(CannotSplitError, match=STAYS[generator]):
        compiled(generator)


def test_what_an_argument_of_the_generator_draws_counts_when_it_is_made():
    rng = random.Random(1)

    def drawn():
        while rng.random() < 0.9:
            yield "x"

    with pytest.raises(CannotSplitError, match="draws"):
        compiled(lambda: plain(list(drawn())))


def test_why_a_generator_stays_whole_has_a_place():
    for error in (
        CannotSplitError("it waits", 4),
        CannotSplitError("line 4: it waits"),
        CannotSplitError("f.py:4 waits", 4),
    ):
        assert "4" in error.told("/a/f.py")
    assert CannotSplitError("it waits", 4).told("/a/f.py") == "it waits (f.py:4)"


def test_what_makes_the_generator_is_not_called_where_it_does_more():
    calls = []

    def make():
        calls.append(1)
        return plain()

    with pytest.raises(CannotSplitError, match="calls"):
        compiled(make)
    assert not calls


def test_an_error_of_an_item_is_raised_as_it_was():
    def fails():
        for item in ITEMS:
            yield work(next(iter(())) if item == "ccc" else item)

    opened = Opened(fails, compiled(fails))
    numbers = list(opened.head())
    alike([work("a")], made(opened, numbers[0]))
    with pytest.raises(RuntimeError, match="StopIteration"):
        made(opened, numbers[2])


def test_items_of_epochs_that_were_given_up_are_dropped():
    opened = Opened(plain, compiled(plain))
    for _ in range(30):
        next(opened.head())
    assert len(opened._items) < 12
