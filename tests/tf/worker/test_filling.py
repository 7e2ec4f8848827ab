from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.filling import fill_caches
from xttsbench.worker.ladder import fixed

CALLS = [0]


def _counted(index: Any) -> Any:
    CALLS[0] += 1
    return index


def _rows(count: int = 40) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).map(lambda i: tf.numpy_function(_counted, [i], tf.int64))


class Told:
    """A channel that keeps what it is told."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}
        self.notes: list[str] = []

    def phase(self, name: str) -> None: ...

    def part(self, field: str, value: Any) -> None:
        self.parts[field] = value

    def note(self, text: str) -> None:
        self.notes.append(text)


class OfBench:
    def __init__(self) -> None:
        self.channel = Told()


def _filled(dataset: tf.data.Dataset, window_s: float = 20.0) -> Told:
    bench = OfBench()
    spec = TrialSpec(trial_id="t", kind="ladder", target="t", window_s=window_s)
    fill_caches(spec, Loaded("dataset", dataset, None), bench)  # type: ignore[arg-type]
    return bench.channel


@pytest.mark.parametrize(
    "make",
    [
        lambda: _rows().cache().batch(8),
        lambda: _rows().cache().repeat().batch(8).prefetch(2),
        lambda: _rows().batch(8).cache().repeat(),
        lambda: _rows().cache().shuffle(10).repeat().batch(7),
        lambda: _rows().map(lambda i: tf.fill((16, 2), i)).cache().repeat(),
    ],
)
def test_a_second_pass_calls_nothing(make: Any) -> None:
    dataset = make()
    CALLS[0] = 0
    told = _filled(dataset)
    assert told.parts["cache_filled"] is True
    assert CALLS[0] == 40
    for number, _ in enumerate(dataset):
        if number > 8:
            break
    assert CALLS[0] == 40
    assert told.notes[0].startswith("the cache was filled before anything was measured")


def test_a_dataset_without_a_cache_is_not_touched() -> None:
    CALLS[0] = 0
    told = _filled(_rows().batch(8))
    assert (CALLS[0], told.parts, told.notes) == (0, {}, [])


def test_a_cache_of_something_endless_is_not_filled() -> None:
    told = _filled(tf.data.Dataset.range(8).repeat().cache())
    assert told.parts == {}


def test_a_cache_that_takes_too_long_is_told_so() -> None:
    told = _filled(_rows(10_000_000).cache().repeat().batch(2), window_s=0.01)
    assert told.parts["cache_filled"] is False
    assert "first epoch" in told.notes[0]


def test_a_part_of_the_data_with_a_cache_is_filled_once_and_begins_anew_in_each_epoch() -> None:
    """Of a million elements and for ever; what the trial of an arm reads then is the same ten again and again."""
    dataset = _rows(10**6).repeat().batch(5)
    spec = TrialSpec(trial_id="t", kind="arm", target="t", fix="cache@MapDataset/_4", source_limit=10, window_s=20.0)
    loaded, _ = fixed(Loaded("dataset", dataset, None), None, spec)
    CALLS[0] = 0
    bench = OfBench()
    fill_caches(spec, loaded, bench)  # type: ignore[arg-type]
    assert bench.channel.parts["cache_filled"] is True
    assert CALLS[0] == 10
    for _ in range(3):
        assert [batch.tolist() for batch in loaded.dataset.as_numpy_iterator()] == 2 * [
            [0, 1, 2, 3, 4],
            [5, 6, 7, 8, 9],
        ]
    assert CALLS[0] == 10


def test_all_of_the_data_are_read_where_no_limit_is_given_or_the_trial_times_nothing() -> None:
    dataset = _rows(40).batch(8)
    for spec in (
        TrialSpec(trial_id="t", kind="arm", target="t"),
        TrialSpec(trial_id="t", kind="elements", target="t", source_limit=10),
    ):
        assert fixed(Loaded("dataset", dataset, None), None, spec)[0].dataset is dataset
