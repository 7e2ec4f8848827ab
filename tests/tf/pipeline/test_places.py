"""Every op has the line that made it: chains, branches, readers, and datasets made inside traced functions."""

from __future__ import annotations

import copy
import inspect as python_inspect
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from xttsbench.fixes.graph import apply
from xttsbench.fixes.graph.edit import from_graph
from xttsbench.pipeline.places import install, place_of
from xttsbench.pipeline.read import inspect, read_graph

pytestmark = pytest.mark.tf


@pytest.fixture(autouse=True)
def watching():
    end = install()
    yield
    end()


def here():
    """The line of the caller."""
    frame = python_inspect.currentframe().f_back
    return frame.f_lineno


def lines(ops):
    return [(op.op, op.location.line) for op in ops]


def test_each_call_of_a_chain_has_its_own_line_and_file():
    start = here()
    dataset = (
        tf.data.Dataset.range(9)
        .map(lambda x: x + 1)
        .batch(
            2,
        )
        .prefetch(2)
    )
    ops = inspect(dataset).ops
    assert lines(ops) == [
        ("RangeDataset", start + 2),
        ("MapDataset", start + 3),
        ("BatchDatasetV2", start + 4),
        ("PrefetchDataset", start + 7),
    ]
    assert {op.location.file for op in ops} == {__file__}
    assert [op.location.op for op in ops] == [op.name for op in ops]


def numbered(i):
    numbers = tf.data.Dataset.range(i)
    numbers = numbers.map(lambda x: x + i)
    return numbers.batch(2)


def nested(i):
    outer = tf.data.Dataset.range(i)
    return outer.flat_map(numbered)


def first_line(function):
    return python_inspect.getsourcelines(function)[1]


def test_datasets_made_in_traced_functions_have_theirs():
    begin = first_line(numbered)
    expected = [("RangeDataset", begin + 1), ("MapDataset", begin + 2), ("BatchDatasetV2", begin + 3)]
    for dataset in (
        tf.data.Dataset.range(3).interleave(numbered, num_parallel_calls=2),
        tf.data.Dataset.range(3).flat_map(numbered),
        tf.data.Dataset.range(3).flat_map(tf.function(numbered)),
        tf.data.Dataset.range(3).flat_map(tf.autograph.experimental.do_not_convert(numbered)),
    ):
        (outer,) = [op for op in inspect(dataset).ops if op.inner]
        assert lines(outer.inner) == expected
        assert {op.location.file for op in outer.inner} == {__file__}


def test_datasets_inside_datasets_inside_datasets():
    (outer,) = [op for op in inspect(tf.data.Dataset.range(3).flat_map(nested)).ops if op.inner]
    assert lines(outer.inner) == [
        ("RangeDataset", first_line(nested) + 1),
        ("FlatMapDataset", first_line(nested) + 2),
    ]
    assert [line for _, line in lines(outer.inner[1].inner)] == [first_line(numbered) + 1 + n for n in range(3)]


def unknown(ops):
    return [op.op for op in ops if op.location.line is None] + [name for op in ops for name in unknown(op.inner)]


def pairs(x):
    return {"a": x, "b": tf.range(x % 4)}


def built(folder):
    numbers = tf.data.Dataset.range
    path = str(folder / "a.txt")
    (folder / "a.txt").write_text("one\ntwo\n")
    other = numbers(6).batch(2)
    options = tf.data.Options()
    options.deterministic = False
    yield tf.data.TextLineDataset([path], num_parallel_reads=2).skip(1)
    yield tf.data.TFRecordDataset([path])
    yield tf.data.FixedLengthRecordDataset(path, 2)
    yield tf.data.experimental.CsvDataset(path, [tf.string])
    yield tf.data.Dataset.list_files(path)
    yield tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec((), tf.int64)).batch(2)
    yield tf.data.Dataset.zip({"a": numbers(3), "b": (numbers(4).with_options(options), numbers(2))})
    yield numbers(3).concatenate(numbers(4).shuffle(2)).cache().repeat(2)
    yield tf.data.Dataset.choose_from_datasets([numbers(3), numbers(4)], numbers(5).map(lambda x: x % 2))
    yield tf.data.Dataset.sample_from_datasets([numbers(3), numbers(4)], [0.5, 0.5])
    yield numbers(9).map(pairs).padded_batch(2)
    yield numbers(9).map(lambda n: tf.ones([n])).bucket_by_sequence_length(lambda x: tf.shape(x)[0], [3], [2, 2])
    yield numbers(9).group_by_window(lambda x: x % 2, lambda _, w: w.batch(2).map(lambda x: x + 1), window_size=2)
    yield numbers(9).window(3).flat_map(lambda w: w.batch(3))
    yield numbers(9).scan(np.int64(0), lambda s, x: (s + x, s)).take_while(lambda x: x < 9)
    yield numbers(9).map(tf.range).ragged_batch(2).unbatch().batch(4).rebatch(2)
    yield numbers(9).snapshot(str(folder / "snapshot")).enumerate()
    yield numbers(4).flat_map(other.skip)
    yield tf.compat.v1.data.Dataset.range(5).batch(2)
    yield numbers(9).map(lambda x: x).batch(2).apply(tf.data.experimental.copy_to_device("/cpu:0")).prefetch(1)
    yield numbers(9).apply(lambda d: d.take(3)).shard(2, 0)


def test_no_op_of_any_kind_of_pipeline_is_without_a_line(tmp_path):
    for dataset in built(tmp_path):
        ops = inspect(dataset).ops
        assert ops
        assert unknown(ops) == []


def test_the_lines_survive_a_round_trip_and_a_rewrite():
    start = here()
    dataset = tf.data.Dataset.range(9).map(lambda x: x + 1)
    dataset = dataset.batch(2)
    expected = [start + 1, start + 1, start + 2]
    copied = from_graph(read_graph(dataset), dataset.element_spec, source=dataset)
    assert [op.location.line for op in inspect(copied).ops] == expected
    assert [op.location.line for op in inspect(apply(dataset, "parallel-map")).ops] == expected


class Doubled(tf.data.Dataset):
    """A dataset class of a user's own, around a pipeline."""

    def __init__(self, source):
        self._source = source.map(lambda x: x * 2)
        super().__init__(self._source._variant_tensor)

    def _inputs(self):
        return [self._source]

    @property
    def element_spec(self):
        return self._source.element_spec


def test_a_class_of_the_users_own_is_looked_through():
    start = here()
    ops = inspect(Doubled(tf.data.Dataset.range(3)).batch(2)).ops
    assert lines(ops) == [
        ("RangeDataset", start + 1),
        ("MapDataset", first_line(Doubled) + 4),
        ("BatchDatasetV2", start + 1),
    ]
    assert [int(x) for x in Doubled(tf.data.Dataset.range(3))] == [0, 2, 4]


def test_a_graph_that_does_not_fit_the_objects_is_left_unknown():
    batched = tf.data.Dataset.range(9).batch(2).prefetch(1)
    taken = tf.data.Dataset.range(9).take(2).prefetch(1)
    ops = inspect(taken, read_graph(batched)).ops
    assert [op.location.line is None for op in ops] == [True, True, False]


def test_copies_and_threads_keep_their_places():
    made = {}

    def make(number):
        made[number] = tf.data.Dataset.range(number).take(1)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {place_of(dataset) for dataset in made.values()} == {(__file__, first_line(make) + 1)}
    assert place_of(copy.copy(made[3])) == place_of(made[3])


def test_the_end_of_the_last_installation_restores_the_constructor():
    watched = dataset_ops.DatasetV2.__init__
    assert watched.__wrapped__.__doc__ == watched.__doc__
    end = install()
    end()
    end()  # a second call ends nothing else
    assert place_of(tf.data.Dataset.range(1)) is not None
    assert dataset_ops.DatasetV2.__init__ is watched


def test_a_wrapper_put_around_ours_is_left_alone():
    ours = dataset_ops.DatasetV2.__init__

    def theirs(self, *args, **kwargs):
        return ours(self, *args, **kwargs)

    dataset_ops.DatasetV2.__init__ = theirs
    try:
        end = install()
        end()
        assert dataset_ops.DatasetV2.__init__ is theirs
        assert place_of(tf.data.Dataset.range(1)) is not None
    finally:
        dataset_ops.DatasetV2.__init__ = ours


def test_noting_a_place_adds_few_calls_to_those_that_make_a_dataset():
    dataset = tf.data.Dataset.range(3)

    def calls(depth: int = 100) -> int:
        """Functions called to make a dataset, so many functions deep: a count, which no busy machine upsets."""
        if depth:
            return calls(depth - 1)
        counted = 0

        def count(_frame, event, _argument):
            nonlocal counted
            counted += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            dataset.take(2)
        finally:
            sys.setprofile(None)
        return counted

    calls()  # imports and what is kept from call to call
    watched = calls()
    wrapper, dataset_ops.DatasetV2.__init__ = (
        dataset_ops.DatasetV2.__init__,
        dataset_ops.DatasetV2.__init__.__wrapped__,
    )
    try:
        plain = calls()
    finally:
        dataset_ops.DatasetV2.__init__ = wrapper
    assert plain < watched < 2 * plain
