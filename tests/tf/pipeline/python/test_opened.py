"""Generators in two parts: the same elements in the same order, epoch after epoch; what has another form is refused."""

# ruff: noqa: PLW0120, PLW0603, PLW2901, SIM108, SIM113 - as strangers write them

import dataclasses
import functools
import itertools
import random
import re

import numpy as np
import pytest

from xttsbench.pipeline.python.opened import compiled
from xttsbench.pipeline.python.split import CannotOpenError

ITEMS = ["a", "bb", "ccc", "dddd"]
LABELS = [1, 2, 3, 4]


def work(item):
    return np.full(3, len(str(item)), np.float32)


def plain(items=ITEMS):
    for item in items:
        yield work(item)


def tuples():
    for number, (item, label) in enumerate(zip(ITEMS, reversed(LABELS), strict=True), 5):
        features = work(item)
        features = features * number
        yield features, label


def shuffled():
    order = list(range(len(ITEMS)))
    random.Random(3).shuffle(order)
    for index in order:
        yield work(ITEMS[index]), index


def branches(least=2):
    for item in ITEMS:
        item = item.strip()
        if len(item) < least:
            features = work(item)
        else:
            features = work(item) * 2
        parts = []
        for k in range(len(item)):
            parts.append(features + k)
        try:
            label = {"bb": 1}[item]
        except KeyError:
            label = 0
        yield np.stack([one for one in parts]), label


def nested():
    for item in ITEMS:
        for part, k in [(item, k) for k in range(len(item))]:
            yield work(part) * k


def epochs():
    rng = random.Random(5)
    scale = [1.0, 2.0]
    for epoch in range(3):
        order = list(ITEMS)
        rng.shuffle(order)
        for item in order:
            yield work(item) * scale[1] + epoch


def for_ever():
    order = list(ITEMS)
    while True:
        random.Random(1).shuffle(order)
        for item in order:
            yield work(item)


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

    def rows(self):
        while True:
            order = self.rng.permutation(len(self.__items))
            for index in order:
                yield self.__work(index)

    def __work(self, index):
        return work(self.__items[index])


def closure(items):
    def samples():
        for item in items:
            yield work(item)

    return samples


OPENED = {
    "plain": lambda: plain,
    "arguments": lambda: functools.partial(plain, ["x", "yy"]),
    "lambda": lambda: lambda: plain(ITEMS),
    "closure": lambda: closure(["q", "rr"]),
    "zip and enumerate": lambda: tuples,
    "shuffled list": lambda: shuffled,
    "branches": lambda: branches,
    "nested": lambda: nested,
    "epochs": lambda: epochs,
    "for ever": lambda: for_ever,
    "sequence": lambda: Data(ITEMS).__iter__,
    "shuffled by a generator of the object": lambda: Data(ITEMS),
    "again and again": lambda: Data(ITEMS).rows,
}


@pytest.mark.parametrize("name", OPENED)
def test_the_elements_and_their_order_are_the_same_in_every_epoch(name):
    original, cut = OPENED[name](), compiled(OPENED[name]())
    for _ in range(3):
        expected = list(itertools.islice(original(), 12))
        items = list(itertools.islice(cut.items(), 12))
        made = [cut.body(**values) for values in reversed(items)]  # in any order
        np.testing.assert_equal(made[::-1], expected)


def running_mean():
    mean = 0.0
    for item in ITEMS:
        mean = 0.9 * mean + work(item).mean()
        yield np.float32(mean)


def kept_from_before():
    for item in ITEMS:
        if len(item) != 2:
            base = work(item)
        yield base + len(item)


def read_afterwards():
    for item in ITEMS:
        features = work(item)
        yield features
    print(features)


def counted():
    count = 0
    for item in ITEMS:
        yield work(item) + count
        count += 1


def buffered():
    batch = []
    for item in ITEMS:
        batch.append(work(item))
        yield np.stack(batch)


def reused():
    buffer = np.zeros(3, np.float32)
    for item in ITEMS:
        buffer[:] = len(item)
        yield np.tanh(buffer)


def changes_items():
    for row in [np.zeros(2), np.ones(2)]:
        row += 1
        yield row


def stops():
    for item in ITEMS:
        features = work(item)
        if features[0] > 2:
            return
        yield features


def leaves_out():
    for item in ITEMS:
        if len(item) == 2:
            continue
        yield work(item)


def conditional():
    for item in ITEMS:
        if len(item) > 1:
            yield work(item)


def twice():
    for item in ITEMS:
        yield work(item)
        yield -work(item)


def caught():
    try:
        for item in ITEMS:
            yield work({"a": 1}[item])
    except KeyError:
        pass


def in_a_file():
    with open(__file__) as file:
        for line in file:
            yield work(line)


def while_loop():
    while True:
        yield work("a")


def or_else():
    for item in ITEMS:
        yield work(item)
    else:
        print("done")


def delegating():
    yield from map(work, ITEMS)


def sent():
    for item in ITEMS:
        answer = yield work(item)
        print(answer)


seen, cache = [], {}


def remembers():
    for item in ITEMS:
        seen.append(item)
        yield work(item) + len(seen)


def memoised():
    for item in ITEMS:
        yield memo(item)


def memo(item):
    if item not in cache:
        cache[item] = work(item)
    return cache[item]


def outlives():
    global last
    for item in ITEMS:
        last = item
        yield work(item)


def writes(path="/dev/null"):
    for item in ITEMS:
        features = work(item)
        np.save(path, features)
        yield features


def draws():
    for item in ITEMS:
        yield work(item) + np.random.normal(size=3)


def draws_from(rng=np.random.default_rng(1)):  # noqa: B008
    for item in ITEMS:
        yield work(item) + rng.normal(size=3)


def draws_from_its_own():
    rng = np.random.default_rng(1)
    for item in ITEMS:
        yield work(item) + rng.normal(size=3)


def reads_on():
    lines = iter(ITEMS)
    for _ in range(3):
        yield work(next(lines))


def same_order():
    order = np.arange(4)
    rng = np.random.default_rng(0)
    while True:
        rng.shuffle(order)
        for k in range(4):
            yield work(ITEMS[order[k]])


def cleared_behind():
    while True:
        rows = {"a": ITEMS}
        for k in range(4):
            yield work(rows["a"][k])
        rows.clear()


class Shuffles(Data):
    def __init__(self):
        super().__init__(ITEMS)
        self.order = [0, 1, 2, 3]

    def rows(self):
        while True:
            random.shuffle(self.order)
            for index in range(4):
                yield self[self.order[index]]


def over_an_iterator():
    for item in (one for one in ITEMS):
        yield work(item)


def over_views():
    buffer = np.zeros(2)
    for item in map(lambda one: np.copyto(buffer, one) or buffer, range(4)):
        yield item + 1


def over_objects():
    for item in [Data(ITEMS), Data(ITEMS)]:
        yield item[0]


def helped():
    scale = 2.0

    def helper(item):
        return work(item) * scale

    for item in ITEMS:
        scale = scale + 1
        yield helper(item)


def sees_itself():
    for item in ITEMS:
        yield len(locals()), work(item)


REFUSED = {
    running_mean: "'mean' is carried from element to element",
    kept_from_before: "'base' is carried",
    read_afterwards: "'features' is carried .* or used outside",
    counted: "not the last statement",
    buffered: r"append\(\) of the captured 'batch'",
    reused: "stores into the captured 'buffer'",
    changes_items: "'row'",
    stops: "leaves the loop",
    leaves_out: "leaves the loop, or an item out",
    conditional: "not each item gives one element",
    twice: "several places",
    caught: "not each item gives one element",
    in_a_file: "not each item gives one element",
    while_loop: "`for` loop",
    or_else: "not each item gives one element",
    delegating: "do not come from `yield element`",
    sent: "not each item gives one element",
    remembers: "the captured list 'seen'",
    memoised: r"memo\(\) .* stores into the captured dict 'cache'",
    outlives: "'last', which outlives it",
    writes: "which writes",
    draws: "draws random numbers",
    draws_from: "draws from the captured Generator 'rng'",
    draws_from_its_own: "reads 'rng', which is a Generator",
    reads_on: "'lines'",
    same_order: "'order' may be changed while elements are still made",
    cleared_behind: "'rows' may be changed while elements are still made",
    Shuffles().rows: "'self.order' may be changed while elements are still made",
    over_an_iterator: "goes over something that is a generator",
    over_views: "goes over something that is a map",
    over_objects: "goes over something that holds a Data",
    helped: "'scale' is carried",
    sees_itself: "uses locals",
    lambda: (work(item) for item in ITEMS): "source is not known",
    lambda: iter(ITEMS): "no generator of Python's",
}


@pytest.mark.parametrize("generator", REFUSED)
def test_what_has_another_form_is_refused_with_its_line(generator):
    with pytest.raises(CannotOpenError, match=REFUSED[generator]) as caught:
        list(itertools.islice(compiled(generator).items(), 12))
    if generator.__name__ != "<lambda>":
        assert re.search(r"line \d+: |test_opened.py:\d+ ", str(caught.value))


def test_the_line_is_that_of_the_statement():
    line = running_mean.__code__.co_firstlineno + 3
    with pytest.raises(CannotOpenError, match=rf"^line {line}: 'mean'"):
        compiled(running_mean)


def test_what_an_argument_of_the_generator_draws_counts_when_it_is_made():
    rng = random.Random(1)

    def drawn():
        while rng.random() < 0.9:
            yield "x"

    with pytest.raises(CannotOpenError, match="draws"):
        compiled(lambda: plain(list(drawn())))


def test_what_makes_the_generator_is_not_called_where_it_does_more():
    calls = []

    def make():
        calls.append(1)
        return plain()

    with pytest.raises(CannotOpenError, match="calls"):
        compiled(make)
    assert not calls


def test_another_generator_than_was_read_is_an_error():
    cut = dataclasses.replace(compiled(plain), generator=shuffled)
    with pytest.raises(CannotOpenError, match="another generator than was read"):
        next(cut.items())


class Clips:
    def __init__(self):
        self.items, self.factor = ITEMS, 2

    def generate(self):
        for item in self.items:
            yield np.full(3, len(item), np.float32) * self.factor


def test_a_loop_that_calls_nothing_of_the_user_s_may_read_its_object():
    made = compiled(Clips().generate)
    assert (made.reads, made.reads_within_epoch) == (None, None)
