"""What is read of real datasets: ops, parameters, state, Python functions with their lines, options."""

from __future__ import annotations

import functools
import gc
import inspect as python_inspect
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.trainers.data_adapters import py_dataset_adapter
from tensorflow.python.ops import script_ops

from xttsbench.pipeline.read import inspect, read_graph
from xttsbench.pipeline.source import display_name, locate, lookup, recording

pytestmark = pytest.mark.tf


def double(x):
    return x * 2


def count_to(n):
    yield from range(n)


class Loader:
    def __call__(self, x):
        return x

    def method(self, x):
        return x


def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


@logged
def decorated(x):
    return x


def line(function):
    return python_inspect.getsourcelines(function)[1]


def call(function):
    """A map function whose Python call is ``function``."""
    return lambda x: tf.numpy_function(function, [x], tf.int64)


def kinds(pipeline):
    return [op.op for op in pipeline.ops]


def test_ops_parameters_and_options_in_order():
    def plus(x):
        return x + 1

    dataset = (
        tf.data.Dataset.range(64)
        .shuffle(16, seed=1)
        .map(call(double))
        .map(plus, num_parallel_calls=3, deterministic=False)
        .prefetch(5)
        .batch(4)
        .prefetch(tf.data.AUTOTUNE)
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = 7
    options.deterministic = False
    pipeline = inspect(dataset.with_options(options))

    assert kinds(pipeline) == [
        "RangeDataset",
        "ShuffleDatasetV3",
        "MapDataset",
        "ParallelMapDatasetV2",
        "PrefetchDataset",
        "BatchDatasetV2",
        "PrefetchDataset",
    ]
    names = [op.name for op in pipeline.ops]
    assert [op.inputs for op in pipeline.ops] == [(), *((name,) for name in names[:-1])]
    _, shuffle, sequential, parallel, inner, batch, final = pipeline.ops
    assert (shuffle.buffer_size, inner.buffer_size, final.buffer_size, batch.batch_size) == (16, 5, -1, 4)
    assert (sequential.parallelism, parallel.parallelism, parallel.deterministic) == (None, 3, "false")
    assert (sequential.stateful, parallel.stateful) == (True, False)
    assert parallel.location.line == line(plus)
    assert batch.location.file is None
    assert (pipeline.threadpool_size, pipeline.deterministic) == (7, False)
    assert (pipeline.autotune, pipeline.injects_prefetch) == (True, True)


def test_options_that_turn_autotune_off_turn_the_injected_prefetch_off():
    options = tf.data.Options()
    options.autotune.enabled = False
    pipeline = inspect(tf.data.Dataset.range(3).with_options(options).take(2))
    assert (pipeline.autotune, pipeline.injects_prefetch) == (False, False)
    assert kinds(pipeline) == ["RangeDataset", "TakeDataset"]
    assert pipeline.ops[1].inputs == (pipeline.ops[0].name,)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    pipeline = inspect(tf.data.Dataset.range(3).with_options(options))
    assert (pipeline.autotune, pipeline.injects_prefetch) == (True, False)


@pytest.mark.parametrize(
    ("function", "name", "where"),
    [
        (double, "double", double),
        (decorated, "decorated", decorated.__wrapped__),
        (functools.partial(double), "double", double),
        (Loader(), "Loader", Loader.__call__),
        (Loader().method, "Loader.method", Loader.method),
    ],
)
@pytest.mark.parametrize("kind", ["numpy_function", "py_function"])
def test_a_python_function_is_named_with_the_users_file_and_line(function, name, where, kind):
    make = getattr(tf, kind)
    dataset = tf.data.Dataset.range(3).map(lambda x: make(function, [x], tf.int64))
    pipeline = inspect(dataset)
    (found,) = pipeline.python_functions
    assert (found.kind, found.name, found.gil) == (kind, name, "unknown")
    assert (found.location.file, found.location.line) == (__file__, line(where))
    assert found.location.op == pipeline.ops[-1].name
    assert pipeline.ops[-1].python_functions == (found.token,)


def test_a_function_defined_inside_a_map_function_is_found_behind_autograph():
    def load(x):
        def inner(y):
            return y + 1

        return tf.numpy_function(inner, [x], tf.int64)

    (found,) = inspect(tf.data.Dataset.range(3).map(load)).python_functions
    assert (found.location.file, found.location.line) == (__file__, line(load) + 1)
    assert found.name == "load.<locals>.inner"


def test_a_built_in_has_a_name_and_no_place():
    (found,) = inspect(tf.data.Dataset.range(3).map(call(np.square))).python_functions
    assert (found.name, found.location.file, found.location.line) == ("square", None, None)


def test_classes_and_wrapped_methods_are_located():
    assert locate(Loader).line == line(Loader)
    assert display_name(functools.partial(Loader().method)) == "Loader.method"
    assert locate(len).file is None


def test_a_generator_is_one_function_with_its_own_line():
    dataset = tf.data.Dataset.from_generator(count_to, args=(3,), output_signature=tf.TensorSpec((), tf.int64))
    pipeline = inspect(dataset.batch(2))
    (found,) = pipeline.python_functions
    assert (found.kind, found.name, found.location.line) == ("generator", "count_to", line(count_to))
    flat = next(op for op in pipeline.ops if op.op == "FlatMapDataset")
    assert flat.python_functions == (found.token,)
    assert flat.location.line == line(count_to)
    ragged = tf.data.Dataset.from_generator(lambda: iter(()), output_signature=tf.RaggedTensorSpec((None,), tf.int64))
    assert [f.kind for f in inspect(ragged).python_functions] == ["generator"]


def test_python_functions_inside_inner_datasets_and_branches_are_reached():
    def branch(x):
        return tf.cond(x > 1, lambda: tf.numpy_function(double, [x], tf.int64), lambda: x)

    def inner(i):
        return tf.data.Dataset.range(i).map(branch)

    for dataset in (
        tf.data.Dataset.range(3).interleave(inner, cycle_length=2, num_parallel_calls=2),
        tf.data.Dataset.range(3).interleave(inner, cycle_length=2),
        tf.data.Dataset.range(3).flat_map(inner),
    ):
        pipeline = inspect(dataset)
        (found,) = pipeline.python_functions
        assert found.name == "double"
        assert pipeline.ops[-1].stateful
        assert pipeline.ops[-1].location.line == line(inner)


def test_branching_pipelines_keep_each_input():
    left, right = tf.data.Dataset.range(4), tf.data.Dataset.range(2).concatenate(tf.data.Dataset.range(2))
    pipeline = inspect(tf.data.Dataset.zip((left, right)))
    assert kinds(pipeline) == ["RangeDataset", "RangeDataset", "RangeDataset", "ConcatenateDataset", "ZipDataset"]
    by_name = {op.name: op for op in pipeline.ops}
    assert [by_name[name].op for name in pipeline.ops[-1].inputs] == ["RangeDataset", "ConcatenateDataset"]


def test_tables_random_numbers_and_variables_are_state_and_asserts_are_not():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)
    variable = tf.Variable(2.0)

    def checked(x):
        tf.debugging.assert_less(x, tf.constant(9, tf.int64))
        return x

    numbers = tf.data.Dataset.range(3)
    assert inspect(tf.data.Dataset.from_tensor_slices(["a", "b"]).map(table.lookup)).ops[-1].stateful
    assert inspect(numbers.map(lambda x: tf.random.uniform([]))).ops[-1].stateful
    assert inspect(numbers.map(lambda x: variable * 1.0)).ops[-1].stateful
    assert not inspect(numbers.map(checked)).ops[-1].stateful


def test_bucketing_is_located_by_the_length_function():
    def length(x):
        return tf.shape(x)[0]

    dataset = tf.data.Dataset.range(9).map(lambda n: tf.ones([n]))
    pipeline = inspect(dataset.bucket_by_sequence_length(length, [3, 6], [2, 2, 2]))
    assert kinds(pipeline)[-1] == "GroupByWindowDataset"
    assert not pipeline.ops[-1].stateful


def test_embedded_data_is_not_mistaken_for_a_parameter():
    pipeline = inspect(tf.data.Dataset.from_tensor_slices(np.zeros((1000, 8))).padded_batch(10).cache())
    assert [op.batch_size for op in pipeline.ops] == [None, 10, None]


def test_the_empty_graph_of_more_than_2_gb_of_data_is_not_taken_for_an_empty_pipeline(monkeypatch):
    monkeypatch.setattr(tf.raw_ops, "DatasetToGraphV2", lambda **_: tf.constant(b""))
    pipeline = inspect(tf.data.Dataset.from_tensor_slices([1, 2]).batch(2))
    assert "larger than 2 GB" in pipeline.unserialisable
    assert [op.batch_size for op in pipeline.ops] == [None, 2]


def test_what_functions_without_a_graph_do_is_read_of_their_traces():
    def slow(x):
        return x

    def noisy(x):
        return x + tf.random.uniform([], 0, 9, tf.int64)

    dataset = tf.data.Dataset.range(8).apply(tf.data.experimental.copy_to_device("/cpu:0"))
    tail = inspect(dataset.map(call(slow)).map(noisy).shuffle(4).map(lambda x: x * 2))
    assert [op.random for op in tail.ops[2:]] == [False, True, True, False]
    assert [bool(op.python_functions) for op in tail.ops[2:]] == [True, False, False, False]
    assert [one.location.line for one in tail.python_functions] == [line(slow)]
    (mapped,) = [op for op in inspect(tf.data.Dataset.zip((dataset.map(noisy), dataset))).ops if op.op == "MapDataset"]
    assert mapped.random


def test_a_function_with_a_graph_and_in_what_has_none_is_one():
    @tf.function
    def doubled(x):
        return tf.numpy_function(lambda y: y * 2, [x], tf.int64)

    dataset = tf.data.Dataset.range(8).map(doubled).apply(tf.data.experimental.copy_to_device("/cpu:0"))
    pipeline = inspect(dataset.flat_map(lambda x: tf.data.Dataset.range(2).map(doubled)))
    assert [bool(op.python_functions) for op in pipeline.ops] == [False, True, False, True]
    assert len(pipeline.python_functions) == 1


def test_what_cannot_be_serialised_is_walked_in_python():
    def slow(x):
        time.sleep(0)
        return x

    dataset = (
        tf.data.Dataset.range(8)
        .map(call(slow), num_parallel_calls=4)
        .batch(2)
        .apply(tf.data.experimental.copy_to_device("/cpu:0"))
        .prefetch(3)
    )
    with pytest.raises(tf.errors.OpError):
        read_graph(dataset)
    pipeline = inspect(dataset)
    assert "does not support serialization" in pipeline.unserialisable
    parallel = next(op for op in pipeline.ops if op.python_functions)
    assert (parallel.parallelism, parallel.stateful) == (4, True)
    assert pipeline.ops[-1].buffer_size == 3
    assert [f.location.line for f in pipeline.python_functions] == [line(slow)]
    names = [op.name for op in pipeline.ops]
    assert all(set(op.inputs) <= set(names[:i]) for i, op in enumerate(pipeline.ops))


def fail_at_six(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, tf.constant(6, tf.int64))]):
        return tf.identity(x)


def counting(calls):
    def wrap(original):
        def recorded(*arguments):
            calls.append(arguments)
            return original(*arguments)

        return recorded

    return wrap


@pytest.mark.parametrize("make", [tf.numpy_function, tf.py_function])
def test_calls_are_recorded_and_the_original_put_back_after_an_error(make):
    dataset = tf.data.Dataset.range(4).map(lambda x: make(double, [x], tf.int64))
    token = inspect(dataset).python_functions[0].token
    before = script_ops._py_funcs.get(token)
    inside = getattr(before, "_func", None)
    calls = []
    seen = []
    with pytest.raises(tf.errors.OpError), recording({token: counting(calls)}):
        seen.extend(int(x) for x in dataset.map(fail_at_six))
    assert seen == [0, 2, 4]
    gc.collect()
    made = len(calls)
    assert made == 4
    assert script_ops._py_funcs.get(token) is before
    assert getattr(before, "_func", None) is inside
    assert [int(x) for x in dataset] == [0, 2, 4, 6]
    assert len(calls) == made


def test_a_failing_wrapper_restores_what_was_already_replaced():
    first = tf.data.Dataset.range(2).map(lambda x: tf.numpy_function(double, [x], tf.int64))
    second = first.map(lambda x: tf.py_function(double, [x], tf.int64))
    one, two = (f.token for f in inspect(second).python_functions)
    before = script_ops._py_funcs.get(one)

    def broken(original):
        raise ValueError("no recorder")

    with pytest.raises(ValueError, match="no recorder"), recording({one: counting([]), two: broken}):
        pass
    assert script_ops._py_funcs.get(one) is before


def test_an_unknown_token_is_nothing():
    assert lookup("pyfunc_99999999") is None
    with recording({"pyfunc_99999999": counting([])}):
        pass


def test_a_generator_of_keras_s_has_the_name_and_the_line_of_the_user_s_class():
    class Clips(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return np.full([2, 4], index, np.float32), np.zeros([2, 1], np.float32)

    adapter = py_dataset_adapter.PyDatasetAdapter(Clips(workers=1), shuffle=False)
    (function,) = inspect(adapter.get_tf_dataset()).python_functions
    assert function.name.endswith("Clips.__getitem__")
    assert function.location.file == __file__
    assert function.location.line == Clips.__getitem__.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("text", "found"),
    [("gs://bucket/a", "gs://"), ("wasb+ssl://x/a", "wasb+ssl://"), ("see http://x for more", None), ("://", None)],
)
def test_a_url_is_a_place_of_files_and_a_sentence_with_one_is_not(text, found):
    assert inspect(tf.data.Dataset.from_tensor_slices([text])).ops[0].files_on == found


def test_a_file_url_is_a_file_of_this_machine(tmp_path):
    (tmp_path / "a").touch()
    here, url = (inspect(tf.data.Dataset.from_tensor_slices([f"{way}{tmp_path}/a"])) for way in ("", "file://"))
    assert url.ops[0].files_on == here.ops[0].files_on is not None
