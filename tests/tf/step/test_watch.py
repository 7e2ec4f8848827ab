"""The watch counts what really happens inside TensorFlow, changes no result, and leaves nothing behind."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function, tracing_compilation
from tensorflow.python.framework import ops

from xttsbench.step.watch import COUNTERS, Watch, trace_reason


@pytest.fixture
def watch():
    with Watch() as watching:
        yield watching


def counted(watch):
    return dict(zip(COUNTERS, watch.counters(), strict=True))


def reasons(watch):
    return [trace.reason for trace in watch.traces]


def test_calls_are_counted_and_timed(watch):
    @tf.function
    def double(x):
        return x * 2

    began = time.perf_counter_ns()
    for _ in range(7):
        double(tf.constant(1.0))
    elapsed = time.perf_counter_ns() - began
    found = counted(watch)
    assert found["calls"] == 7
    assert found["traces"] == 1
    assert 0 < found["trace_ns"] < found["calls_ns"] < elapsed


def test_a_function_within_a_function_counts_once(watch):
    @tf.function
    def inner(x):
        return x + 1

    @tf.function
    def outer(x):
        return inner(x) * inner(x)

    outer(tf.constant(1.0))
    found = counted(watch)
    assert found["calls"] == 1
    # The inner one is traced within the outer one: its time is part of the outer trace, and is not counted twice.
    assert found["traces"] == 1
    assert found["trace_ns"] <= found["calls_ns"]


def test_an_error_leaves_the_counting_intact(watch):
    @tf.function
    def fails(x):
        raise ValueError("while tracing")

    @tf.function
    def works(x):
        return x

    with pytest.raises(ValueError, match="while tracing"):
        fails(tf.constant(1.0))
    works(tf.constant(1.0))
    assert counted(watch)["calls"] == 2
    assert counted(watch)["traces"] == 2


def test_a_new_shape_is_the_reason_of_a_trace(watch):
    @tf.function
    def total(x):
        return tf.reduce_sum(x)

    for size in (2, 3, 3):
        total(tf.ones([size]))
    assert reasons(watch) == ["first", "shape"]
    assert counted(watch)["traces"] == 2


def test_a_new_python_value_is_the_reason_of_a_trace(watch):
    @tf.function
    def scaled(x, factor):
        return x * float(factor)

    for factor in (1, 2, 2):
        scaled(tf.ones([2]), factor)
    assert reasons(watch) == ["first", "python value"]


def test_a_function_made_in_the_loop_is_the_reason_of_a_trace(watch):
    keep = []
    for step in range(3):
        watch.step = step

        @tf.function
        def made(x):
            return x + 1

        keep.append(made)  # else the next one may get the same address
        made(tf.ones([2]))
    assert reasons(watch) == ["first", "new function object", "new function object"]
    assert [trace.step for trace in watch.traces] == [0, 1, 2]
    assert all(trace.time_s > 0 and "made" in trace.function for trace in watch.traces)


def test_a_function_made_in_the_loop_and_dropped_is_traced_at_each_step(watch):
    def step(batch):
        @tf.function
        def made(x):
            return x + 1

        return made(batch)

    for _ in range(5):
        step(tf.ones([2]))
    assert counted(watch)["traces"] == 5
    assert set(reasons(watch)[1:]) <= {"new function object", "first", "other"}
    assert "shape" not in reasons(watch)


def test_values_fetched_are_counted_and_timed(watch):
    tensor = tf.constant(3.0)
    tensor.numpy()
    float(tensor)
    int(tensor)
    np.asarray(tensor)
    bool(tensor > 1)
    found = counted(watch)
    assert found["syncs"] >= 4
    assert found["sync_ns"] > 0


def test_a_step_that_fetches_nothing_counts_no_fetch(watch):
    step = tf.function(lambda x: x + 1)
    for _ in range(3):
        step(tf.ones([2]))
    assert counted(watch)["syncs"] == 0


def test_collections_are_timed(watch):
    before = counted(watch)["gc_ns"]
    gc.collect()
    assert counted(watch)["gc_ns"] > before


def test_leaving_puts_the_very_same_objects_back():
    def patched():
        return (
            polymorphic_function.Function.__dict__["__call__"],
            tracing_compilation._create_concrete_function,
            ops._EagerTensorBase.__dict__.get("_numpy"),
            list(gc.callbacks),
        )

    before = patched()
    with Watch():
        assert patched()[0] is not before[0]
        assert patched()[1] is not before[1]
    assert all(new is old for new, old in zip(patched()[:3], before[:3], strict=True))
    assert patched()[3] == before[3]


def test_an_error_within_puts_them_back_too():
    original = polymorphic_function.Function.__dict__["__call__"]
    with pytest.raises(KeyError), Watch():
        raise KeyError
    assert polymorphic_function.Function.__dict__["__call__"] is original


def test_leaving_twice_does_no_harm():
    with Watch() as watch:
        watch.__exit__()
    assert counted(watch)["calls"] == 0


def seeded_losses(*, watched):
    tf.keras.utils.set_random_seed(3)
    weights = tf.Variable(tf.random.normal([8, 8]))

    @tf.function
    def train(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((batch @ weights) ** 2) + tf.random.uniform([])
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    def run():
        return [float(train(tf.random.normal([4, 8]))) for _ in range(20)], weights.numpy()

    if not watched:
        return run()
    with Watch():
        return run()


def test_results_are_the_same_to_the_bit_with_and_without_it():
    (bare, bare_weights), (losses, weights) = seeded_losses(watched=False), seeded_losses(watched=True)
    assert losses == bare
    assert weights.tobytes() == bare_weights.tobytes()


def test_autograph_still_converts_what_is_called_through_it(watch):
    @tf.function
    def collatz(n):
        steps = tf.constant(0)
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps

    assert int(collatz(tf.constant(27))) == 111


A = "(TensorSpec(shape=(8, 16), dtype=tf.float32, name=None), Literal[1])"
OTHER_SHAPE = A.replace("(8, 16)", "(4, 16)")
UNKNOWN_SHAPE = A.replace("shape=(8, 16)", "shape=<unknown>")
OTHER_VALUE = A.replace("Literal[1]", "Literal[2]")
OTHER_TYPE = A.replace("float32", "float64")


@pytest.mark.parametrize(
    ("before", "function", "signature", "reason"),
    [
        ([], 1, A, "first"),
        ([(1, A)], 1, OTHER_SHAPE, "shape"),
        ([(1, A)], 1, UNKNOWN_SHAPE, "shape"),
        ([(1, A), (1, OTHER_VALUE)], 1, OTHER_VALUE.replace("(8, 16)", "(2, 16)"), "shape"),
        ([(1, A)], 1, OTHER_VALUE, "python value"),
        ([(1, A), (1, OTHER_SHAPE)], 1, OTHER_SHAPE.replace("Literal[1]", "Literal['x']"), "python value"),
        ([(1, A)], 1, OTHER_TYPE, "other"),
        ([(1, A)], 1, OTHER_SHAPE.replace("Literal[1]", "Literal[2]"), "other"),
        ([(1, A)], 2, A, "new function object"),
        ([(1, A)], 2, OTHER_SHAPE, "new function object"),
        ([(1, A), (2, A)], 3, A, "new function object"),
        ([(2, OTHER_SHAPE), (1, A)], 1, OTHER_VALUE, "python value"),
        ([(1, A)], 1, A, "first"),  # the second trace of a first call that makes variables
        ([(1, A), (1, A)], 1, A, "other"),
        ([(1, A), (1, OTHER_TYPE)], 1, A, "other"),
    ],
)
def test_the_reason_of_a_trace(before: list[tuple[int, str]], function: int, signature: str, reason: str) -> None:
    assert trace_reason(before, function, signature) == reason
