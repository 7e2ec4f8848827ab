"""State and randomness of Python functions, read from their code: what is found, and what is no cause for alarm."""

from __future__ import annotations

import collections
import functools
import io
import itertools
import queue
import random
import threading
import time

import numpy as np
import pytest

from xttsbench.pipeline.python.state import python_state

pytestmark = pytest.mark.tf

TABLE = np.zeros((5, 4))
VECTOR = np.ones(8)
WEIGHTS = {"a": 1}
SEEN: list[int] = []
FOLLOWING = iter(range(9))
COUNTS = itertools.count()
DRAWN = np.random.default_rng(1)
GROUPS: dict[int, list[int]] = collections.defaultdict(list)
FILE = io.StringIO("abc")
WAITING: queue.Queue[int] = queue.Queue()
CALLS = 0


def sets_a_global(x):
    global CALLS  # noqa: PLW0603 the fault
    CALLS += 1
    return x


def appends(x):
    SEEN.append(x)
    return x


def appends_by_another_name(x):
    mine = SEEN
    mine.append(x)
    return x


def fills_a_memo(x):
    if x not in WEIGHTS:
        WEIGHTS[x] = x
    return WEIGHTS[x]


def changes_a_row(x):
    row = TABLE[int(x)]
    row += 1
    return row


def writes_a_row(x):
    row = TABLE[int(x)].reshape(-1)
    row[0] = 1
    return row


def appends_to_an_element(x):
    GROUPS[int(x)].append(x)
    return x


def seeds_all(x):
    np.random.seed(int(x))
    return np.random.rand()


def into_shared_memory(x):
    return np.add(x, 1, out=VECTOR)


def within_a_comprehension(x):
    return [SEEN.append(i) for i in range(3)]


def takes_in_a_loop(x):
    for one in FOLLOWING:
        return one + x


def default_that_stays(x, seen=[]):  # noqa: B006 the fault
    seen.append(x)
    return x


def fill(array):
    array[0] = 1
    return array


def fills_what_is_shared(x):
    return fill(TABLE)


def closure():
    count = 0

    def counted(x):
        nonlocal count
        count += 1
        return x

    return counted


def watched(function):
    calls = []

    @functools.wraps(function)
    def wrapper(*arguments):
        calls.append(1)
        return function(*arguments)

    return wrapper


@watched
def decorated(x):
    return x


class Augment:
    def __init__(self):
        self.count = 0
        self.weights = np.ones(3)
        self.draw = np.random.RandomState(0)

    def counted(self, x):
        self.count += 1
        return x

    def through_another(self, x):
        return self.counted(x)

    def drawn(self, x):
        return self.draw.rand()

    def __call__(self, x):
        self.last = x
        return x


AUGMENT = Augment()
NO_SOURCE: dict[str, object] = {}
exec("S = []\ndef appends(x):\n  S.append(x)\n  return x\ndef stores(x):\n  S[0] = x\n", NO_SOURCE)


STATEFUL = (
    sets_a_global, appends, appends_by_another_name, fills_a_memo, changes_a_row, writes_a_row, appends_to_an_element,
    seeds_all, into_shared_memory, within_a_comprehension, takes_in_a_loop, default_that_stays, fills_what_is_shared,
    closure(), decorated, AUGMENT.counted, AUGMENT.through_another, AUGMENT.drawn, AUGMENT, functools.partial(appends),
    lambda x: x + next(COUNTS), lambda x: x + next(FOLLOWING), lambda x: FILE.read(1), lambda x: WAITING.get(),
    lambda x: x + DRAWN.normal(), NO_SOURCE["appends"], NO_SOURCE["stores"],
)  # fmt: skip


@pytest.mark.parametrize("function", STATEFUL)
def test_state_is_found(function):
    assert python_state(function).state is not None


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + np.random.rand(),
        lambda x: x + random.random(),
        lambda x: np.random.default_rng().normal(),
        lambda x: random.Random().random(),
        lambda x: x + time.time(),
    ],
)
def test_random_numbers_are_no_state(function):
    found = python_state(function)
    assert found.state is None
    assert found.random is not None


def test_a_captured_generator_is_both():
    assert python_state(AUGMENT.drawn).random is not None
    assert python_state(AUGMENT.drawn).state is not None


def test_the_sentence_names_function_line_and_object():
    line = appends.__code__.co_firstlineno + 1
    assert (
        python_state(appends).state == f"appends() at test_state.py:{line} calls append() of the captured list 'SEEN'"
    )


def test_lambdas_on_one_line_are_told_apart():
    pure, stateful = (lambda x: x + 1), (lambda x: SEEN.append(x + 1))  # fmt: skip
    assert python_state(pure).state is None
    assert python_state(stateful).state is not None


def test_functions_that_call_one_another_end():
    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    assert python_state(even).state is None


OTHER_TABLE = np.ones((5, 4))
TOTAL = VECTOR.sum
LOCK = threading.Lock()
OWN = threading.local()
exec("def pure(x):\n  y = []\n  y.append(x)\n  return y\n", NO_SOURCE)


class Odd:
    """An object that cannot be looked at."""

    def __getattribute__(self, name):
        raise RuntimeError(name)


ODD = Odd()


class QuietAugment:
    def __init__(self):
        self.weights = np.ones(3)

    def pure(self, x):
        return x * self.weights.sum() + self.helped(x)

    def helped(self, x):
        own = self.weights * 2
        own[0] = 1
        return own


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


HARMLESS = (
    local_objects, either_table, at_an_odd_object, own_generator, fills_its_own, counts_inside, remembered,
    lambda x: remembered(int(x)), busy, locks_and_prints, sorted_and_zipped, QuietAugment().pure,
    lambda x: x + VECTOR[0], functools.partial(local_objects), NO_SOURCE["pure"], np.sqrt, len,
)  # fmt: skip


@pytest.mark.parametrize("function", HARMLESS)
def test_what_is_no_cause_for_alarm(function):
    found = python_state(function)
    assert (found.state, found.random) == (None, None)
