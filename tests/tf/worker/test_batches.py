"""Batches from a live dataset, epoch after epoch, and from memory, round and round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.batches import CachedBatches, LiveBatches, describe, fill_caches, take_batches
from xttsbench.worker.contents import ContentLook, digest
from xttsbench.worker.failure import ExhaustedError
from xttsbench.worker.ladder import fixed


def take(source, count):
    return [(int(source.next()), source.epoch) for _ in range(count)]


def test_batches_are_counted_from_the_begin_of_their_epoch():
    source = LiveBatches(tf.data.Dataset.range(2))
    assert source.batch == -1
    assert [(source.next().numpy(), source.epoch, source.batch) for _ in range(5)] == [
        (0, 0, 0),
        (1, 0, 1),
        (0, 1, 0),
        (1, 1, 1),
        (0, 2, 0),
    ]


def test_batches_in_memory_keep_the_index_that_they_were_given():
    source = CachedBatches([tf.constant(7), tf.constant(8)], [3, 9])
    assert [(int(source.next()), source.batch) for _ in range(3)] == [(7, 3), (8, 9), (7, 3)]
    unknown = CachedBatches([tf.constant(7)])
    unknown.next()
    assert unknown.batch == -1


@pytest.mark.parametrize(("left_open", "closed"), [(0, 4), (3, 1)])
def test_between_turns_the_first_iterators_are_not_closed_at_their_end(left_open, closed):
    found = []

    class Pass:
        """An iterator that its end does not close, as with tf.data: that nobody holds it any more does."""

        def __init__(self):
            self.left = iter(range(2))

        def __iter__(self):
            return self

        def __next__(self):
            return next(self.left)

        def __del__(self):
            found.append("closed")

    class Epochs:
        def __iter__(self):
            return Pass()

    source = LiveBatches(Epochs(), left_open=left_open)
    assert [source.next() for _ in range(9)] == [0, 1] * 4 + [0]
    assert (source.epoch, len(found)) == (4, closed)


def test_shuffling_goes_on_in_the_next_epoch():
    source = LiveBatches(tf.data.Dataset.range(50).shuffle(50, seed=1))
    first, second = ([int(source.next()) for _ in range(50)] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second


def test_an_empty_dataset_is_exhausted_and_does_not_spin():
    source = LiveBatches(tf.data.Dataset.range(0))
    with pytest.raises(ExhaustedError):
        source.next()
    assert source.epoch == 1


def test_a_dataset_that_can_be_read_once_is_exhausted_after_it():
    numbers = iter(range(3))
    dataset = tf.data.Dataset.from_generator(lambda: numbers, output_signature=tf.TensorSpec([], tf.int64))
    source = LiveBatches(dataset)
    assert take(source, 3) == [(0, 0), (1, 0), (2, 0)]
    with pytest.raises(ExhaustedError):
        source.next()


def test_cached_batches_go_round():
    source = CachedBatches([tf.constant(7), tf.constant(8)])
    assert take(source, 5) == [(7, 0), (8, 0), (7, 1), (8, 1), (7, 2)]


def facts(*batches):
    return describe(list(batches))


def padded(lengths, width, *, value=0.0, depth=None):
    """Rows of numbers from 1 on, then ``value`` up to ``width``."""
    shape = (len(lengths), width) if depth is None else (len(lengths), width, depth)
    rows = np.full(shape, value, np.float32)
    random = np.random.default_rng(0)
    for row, length in enumerate(lengths):
        rows[row, :length] = random.uniform(1, 2, size=rows[row, :length].shape)
    return tf.constant(rows)


@pytest.mark.parametrize("value", [0.0, -1.0, -100.0])
@pytest.mark.parametrize("depth", [None, 3])
def test_the_share_of_padding_is_exact(value, depth):
    found = facts(padded([10, 5, 2, 3], 10, value=value, depth=depth))
    assert found.padding_share == pytest.approx(1 - 20 / 40)
    assert found.padding_component == "component 0"


def test_padding_is_pooled_over_the_batches():
    found = facts(padded([10, 4], 10), padded([20, 2], 20))
    assert found.padding_share == pytest.approx(1 - 36 / 60)


def test_the_padded_component_of_a_structure_is_named():
    labels = tf.constant([[1, 2, 3, 4], [5, 6, 7, 8]])
    found = facts({"a": labels, "b": padded([8, 2], 8)})
    assert found.padding_component == "'b'"
    assert found.padding_share == pytest.approx(1 - 10 / 16)


def test_padded_batch_is_recognised():
    lengths = [9, 3, 6, 4]
    dataset = tf.data.Dataset.from_tensor_slices(lengths).map(lambda n: tf.range(1, n + 1)).padded_batch(4)
    found = describe(take_batches(LiveBatches(dataset)))
    assert found.padding_share == pytest.approx(1 - sum(lengths) / (4 * 9))


def test_rows_of_one_length_are_not_padded():
    random = np.random.default_rng(1)
    assert facts(tf.constant(random.normal(size=(8, 20)))).padding_share is None
    assert facts(padded([6, 6, 6], 6)).padding_share is None


@pytest.mark.parametrize(
    "batch",
    [tf.ones([4, 8]), tf.zeros([4, 8]), tf.ones([8]), tf.constant(1.0), tf.ones([1, 9]), tf.constant([["a", "b"]] * 4)],
    ids=["ones", "zeros", "vector", "scalar", "one row", "strings"],
)
def test_constant_and_small_batches_are_not_padded(batch):
    assert facts(batch).padding_share is None


def test_classes_one_hot_are_not_padding():
    one_hot = tf.one_hot([0, 3, 9, 5, 9, 2, 1, 9], 10)
    random = np.random.default_rng(2)
    images = tf.constant(random.normal(size=(8, 12, 12)))
    found = facts((images, one_hot))
    assert found.padding_component != "component 0"


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_are_found_in_every_float_type(dtype, bad):
    good = tf.cast(tf.ones([4, 2]), dtype)
    spoilt = tf.cast(tf.constant([[1.0, 1.0], [1.0, bad]]), dtype)
    assert facts((good, good)).nonfinite == ()
    assert facts((good, good), (good, spoilt)).nonfinite == ("component 1",)


def test_numbers_that_are_large_but_finite_are_not_bad():
    largest = tf.constant([[np.finfo(np.float64).max] * 2] * 2, tf.float64)
    assert facts(largest).nonfinite == ()


def test_integers_hold_no_nan():
    assert facts(tf.constant([[2**31 - 1] * 4] * 2)).nonfinite == ()


def test_bytes_are_told():
    dataset = tf.data.Dataset.from_tensors((tf.ones([4, 8], tf.float16), tf.ones([4], tf.int64))).repeat(3)
    found = describe(take_batches(LiveBatches(dataset)))
    assert found.cached == 3
    assert found.bytes == 3 * (4 * 8 * 2 + 4 * 8)


def test_a_ragged_batch_is_described():
    assert facts(tf.ragged.constant([[1.0, 2.0], [3.0]])).cached == 1


def test_eight_batches_at_most_and_each_of_a_short_dataset_once():
    assert len(take_batches(LiveBatches(tf.data.Dataset.range(100)))) == 8
    assert [int(batch) for batch in take_batches(LiveBatches(tf.data.Dataset.range(3)))] == [0, 1, 2]


def test_half_a_gibibyte_is_enough():
    dataset = tf.data.Dataset.range(8).map(lambda _: tf.zeros([48, 1024, 1024]))  # 192 MiB each
    assert len(take_batches(LiveBatches(dataset))) == 3


def test_nothing_at_all_is_an_error_in_words():
    with pytest.raises(ExhaustedError, match="no element"):
        take_batches(LiveBatches(tf.data.Dataset.range(0)))


BATCHES = {
    "float": tf.range(12.0),
    "half": tf.cast(tf.range(12), tf.float16),
    "bfloat16": tf.cast(tf.range(12), tf.bfloat16),
    "bool": tf.constant([True, False]),
    "scalar": tf.constant(3, tf.int64),
    "string": tf.constant(["a", "bc"]),
    "nested": {"x": tf.range(3), "y": (tf.zeros([2, 2]), tf.constant("z"))},
    "ragged": tf.ragged.constant([[1, 2], [3]]),
    "empty": tf.zeros([0, 4]),
}


@pytest.mark.parametrize("name", BATCHES)
def test_the_same_batch_has_the_same_digest_and_another_one_another(name):
    batch = BATCHES[name]
    assert digest(batch) == digest(tf.nest.map_structure(tf.identity, batch)) > 0
    others = {digest(other) for key, other in BATCHES.items() if key != name}
    assert digest(batch) not in others


def test_a_wrong_value_in_a_long_half_precision_row_and_in_padding_is_seen():
    row = np.zeros([2, 16_000], np.float16)
    wrong = row.copy()
    wrong[1, 15_000] = 1e-4
    assert digest(tf.constant(row)) != digest(tf.constant(wrong))
    wrong[1, 15_000] = -0.0
    assert digest(tf.constant(row)) != digest(tf.constant(wrong))


@pytest.mark.parametrize("place", [0, 4_321, 1 << 19, (1 << 20) - 1])
def test_every_byte_of_a_large_component_counts(place):
    row, wrong = np.zeros(1 << 20, np.float32), np.zeros(1 << 20, np.float32)
    wrong[place] = 1e-30
    assert digest(tf.constant(row)) != digest(tf.constant(wrong))


def test_values_of_a_large_component_that_change_places_are_seen():
    rows = np.arange(512 * 1024, dtype=np.float32).reshape(512, 1024)
    for a, b in ((0, 1), (0, 256), (3, 511)):
        swapped = rows.copy()
        swapped[[a, b]] = rows[[b, a]]
        assert digest(tf.constant(rows)) != digest(tf.constant(swapped))


def test_what_a_fast_run_keeps_is_a_part_of_what_a_slow_one_does_and_no_more_than_there_is_room_for():
    batch, fast, slow = tf.zeros([1024]), ContentLook(held_bytes=40_960), ContentLook(held_bytes=40_960)
    for look, each in ((fast, 50), (slow, 10)):
        for number in range(500):
            look.see(0, number, batch, 0)
            if number % each == each - 1:
                look.digest()
    fast, slow = fast.record(), slow.record()
    assert (fast.seen, slow.seen) == (500, 500)
    assert slow.batches == tuple(range(500))
    assert fast.batches[:11] == (*range(10), 50)
    assert set(range(400, 500, 8)) <= set(fast.batches)


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


def _filled(dataset: tf.data.Dataset, window_s: float = 20.0) -> Told:
    channel = Told()
    spec = TrialSpec(trial_id="t", kind="ladder", target="t", window_s=window_s)
    fill_caches(spec, dataset, channel)  # type: ignore[arg-type]
    return channel


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
    channel = Told()
    fill_caches(spec, loaded.dataset, channel)  # type: ignore[arg-type]
    assert channel.parts["cache_filled"] is True
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
