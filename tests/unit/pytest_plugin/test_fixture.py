from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xttsbench.errors import XttsbenchError
from xttsbench.pytest_plugin.fixture import Replay, hand_in, replay_steps

STEPS = [0.1, 0.25, 1e-9, 3.0]


class Item:
    """A test, as far as it matters here."""

    def __init__(self, **options: Any) -> None:
        self.stash: dict[Any, Any] = {}
        self.own = pytest.mark.benchmark(**options).mark if options else None
        self.added: list[pytest.Mark] = []

    def get_closest_marker(self, _: str) -> pytest.Mark | None:
        return self.own

    def add_marker(self, decorator: pytest.MarkDecorator, append: bool) -> None:
        assert not append  # or the test's own is the closest one still
        self.added.append(decorator.mark)


class Benchmark:
    """pytest-benchmark's fixture: ``seen`` is what it makes of the durations that its clock gives."""

    has_error = False
    stats: Any = None

    def __init__(self, item: Item, seen: Any = list) -> None:
        self.timer = item.added[0].kwargs["timer"]
        self.seen = seen

    def pedantic(self, target: Any, *, rounds: int, iterations: int) -> None:
        data = []
        for _ in range(rounds):
            start = self.timer()
            target()
            data.append((self.timer() - start) / iterations)
        self.stats = SimpleNamespace(stats=SimpleNamespace(data=self.seen(data)))


def test_the_steps_come_back_exactly_and_the_test_s_own_options_stay() -> None:
    item: Any = Item(group="loaders", min_rounds=3)
    replay_steps(item)
    assert {**item.added[0].kwargs, "timer": None} == {"group": "loaders", "min_rounds": 3, "timer": None}
    benchmark = Benchmark(item)
    hand_in(benchmark, item, STEPS)
    assert benchmark.stats.stats.data == STEPS
    assert not benchmark.has_error


@pytest.mark.parametrize("seen", [lambda data: data[1:], lambda data: [time / 1e3 for time in data], lambda _: None])
def test_a_version_that_makes_something_else_of_them_is_refused(seen: Any) -> None:
    item: Any = Item()
    replay_steps(item)
    benchmark = Benchmark(item, seen)
    with pytest.raises(XttsbenchError, match=r"pytest-benchmark [\d.]+ did not take the steps as its rounds"):
        hand_in(benchmark, item, STEPS)
    assert benchmark.has_error


def test_the_clock_runs_on_where_there_is_nothing_to_replay() -> None:
    clock = Replay()
    first, second = clock(), clock()
    assert second >= first > 0
