"""Phases from stacks and from the order of ops: real stacks of traced functions, and orders by hand."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections import defaultdict

import keras
import pytest
import tensorflow as tf

from xttsbench.step.frames import StackSampler, classify, in_order, writes
from xttsbench.step.graph_ops import PLUMBING, GraphOps

BACK, LOSS, OTHER = ("backward", False), ("loss", False), ("other", True)
NONE, WRITE = (None, False), (None, True)


@pytest.mark.parametrize(
    ("marks", "phases"),
    [
        ([NONE, LOSS, BACK, NONE, WRITE, NONE], ["forward", "loss", "backward", "optimizer", "optimizer", "other"]),
        ([NONE, NONE, WRITE], ["forward", "forward", "optimizer"]),  # no gradients at all
        ([WRITE, BACK, NONE], ["forward", "backward", "other"]),  # moving averages of the forward pass
        (
            [NONE, BACK, WRITE, NONE, BACK, WRITE],
            ["forward", "backward", "optimizer", "forward", "backward", "optimizer"],
        ),
        ([NONE, BACK, NONE, OTHER, NONE], ["forward", "backward", "other", "other", "other"]),  # only metrics write
        ([], []),
    ],
)
def test_what_the_stack_does_not_say_the_order_does(marks, phases):
    assert in_order(marks) == phases


@pytest.mark.parametrize("kind", ["AssignVariableOp", "AssignSubVariableOp", "ResourceApplyAdam", "ResourceScatterAdd"])
def test_ops_that_write_variables(kind):
    assert writes(kind)
    assert not writes("ReadVariableOp")


def phases_by_op(function, *args):
    found = defaultdict(set)
    for place in GraphOps(function.get_concrete_function(*args).graph).computing():
        found[place.op].add(place.phase)
    return found


def test_a_hand_written_step():
    weights = tf.Variable(tf.ones([8, 8]))

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            hidden = tf.tanh(tf.matmul(batch, weights))
            loss = tf.reduce_mean(tf.square(hidden))
        (gradient,) = tape.gradient(loss, [weights])
        gradient = tf.clip_by_norm(gradient, 1.0)
        weights.assign_sub(0.1 * gradient)
        return tf.reduce_max(hidden)

    found = phases_by_op(step, tf.ones([4, 8]))
    assert found["Tanh"] == {"forward"}
    assert found["MatMul"] == {"forward", "backward"}
    assert found["Square"] == {"loss"}
    assert found["TanhGrad"] == {"backward"}
    assert found["AssignSubVariableOp"] == {"optimizer"}
    assert found["Sqrt"] == {"optimizer"}, "clipping is on the way to the update"
    assert found["Max"] == {"other"}


def test_a_step_that_calls_functions_for_its_gradients_and_its_update():
    weights = tf.Variable(tf.ones([8, 8]))

    @tf.function
    def gradients(batch):
        with tf.GradientTape() as tape:
            hidden = tf.tanh(tf.matmul(batch, weights))
            loss = tf.reduce_mean(hidden)
        return tape.gradient(loss, [weights])

    @tf.function
    def update(gradient):
        weights.assign_sub(tf.exp(gradient))

    @tf.function
    def step(batch):
        (gradient,) = gradients(tf.abs(batch))
        update(tf.clip_by_norm(gradient, 1.0))
        return tf.reduce_max(batch)

    @tf.function
    def outer(batch):
        return tf.cos(step(tf.sin(batch)))

    for function in (step, outer):
        found = phases_by_op(function, tf.ones([4, 8]))
        assert found["Abs"] == {"forward"}
        assert found["Tanh"] == {"forward"}
        assert found["TanhGrad"] == {"backward"}
        assert found["Sqrt"] == {"optimizer"}, "clipping is on the way to the update"
        assert found["Exp"] == {"optimizer"}
        assert found["AssignSubVariableOp"] == {"optimizer"}
        assert found["Max"] == {"other"}
    assert found["Sin"] == {"forward"}


def test_a_keras_step_with_an_optimizer_and_a_metric():
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"], jit_compile=False)
    batch = (tf.ones([4, 8]), tf.ones([4, 1]))
    model.optimizer.build(model.trainable_variables)
    model.train_step(batch)
    step = tf.function(tf.autograph.experimental.do_not_convert(model.train_step))
    graph = GraphOps(step.get_concrete_function(batch).graph)
    found = phases_by_op(step, batch)
    assert found["Tanh"] == {"forward"}
    assert found["TanhGrad"] == {"backward"}
    assert "loss" in found["Square"]
    assert "optimizer" in found["Sqrt"]
    assert "other" in found["AssignVariableOp"], "the metric's"
    assert any(place.in_layer for place in graph.computing())


def test_lines_of_the_backward_pass_are_those_of_the_forward_pass():
    weights = tf.Variable(tf.ones([8, 8]))

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            hidden = tf.matmul(batch, weights, name="first")
            hidden = tf.matmul(hidden, weights, name="second")
            total = tf.reduce_sum(hidden)
        return tape.gradient(total, weights)

    graph = GraphOps(step.get_concrete_function(tf.ones([4, 8])).graph)
    forward = [place for place in graph.places.values() if place.op == "MatMul" and place.phase == "forward"]
    assert [place.frame.line for place in forward] == sorted({place.frame.line for place in forward})
    for place in graph.places.values():
        if place.phase == "backward" and place.op not in PLUMBING and place.frame is not None:
            assert place.frame.function == "step"


def test_names_of_inlined_loops_and_functions_lead_to_their_ops():
    weights = tf.Variable(tf.ones([8, 8]))

    @tf.function
    def inner(rows):
        return tf.tanh(tf.matmul(rows, weights))

    @tf.function
    def step(batch):
        for _ in tf.range(3):
            batch = inner(batch)
        return batch

    graph = GraphOps(step.get_concrete_function(tf.ones([4, 8])).graph)
    found = graph.find("while/body/_1/while/StatefulPartitionedCall/Tanh")
    assert found is not None
    assert (found.op, found.frame.function) == ("Tanh", "inner")
    assert graph.find("while/body/_1/while/add").op == "AddV2"
    assert graph.find("there/is/nothing") is None


HERE = __file__


def call_step(step, batch):
    """Stands for the worker's function of that name."""
    step(batch)


def sampled(step, *, seconds=0.6):
    """Kind -> share of the sampled time, and (file, line, kind) -> share, of a step run over and over."""
    batch, number = tf.ones([64, 64]), 0
    step(batch)
    end = time.perf_counter() + seconds
    with StackSampler() as sampler:
        while number < 2 or time.perf_counter() < end:
            sampler.step = number
            call_step(step, batch)
            sampler.step = None
            number += 1
    kinds, lines = {}, {}
    for (file, line, _, kind), weight in sampler.weights.items():
        kinds[kind] = kinds.get(kind, 0.0) + weight / sampler.total_s
        lines[file, line, kind] = lines.get((file, line, kind), 0.0) + weight / sampler.total_s
    assert sampler.samples > 30
    return kinds, lines, sampler, number


def line_of(function, text):
    source, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(source) if text in line)


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_a_python_loop_and_tensorflow_share_the_step_as_they_do():
    """70 % in a loop of the user's, 30 % in a graph that takes as long as it is asked to."""
    product = tf.function(lambda x: tf.linalg.matmul(x, x))
    big = tf.ones([700, 700])
    product(big)

    def step(batch):
        began = time.perf_counter()
        product(big)
        spent = time.perf_counter() - began
        end = time.perf_counter() + spent * 7 / 3
        while time.perf_counter() < end:
            sum(range(50))

    kinds, lines, _, _ = sampled(step, seconds=1.0)
    assert 0.5 < kinds["python"] < 0.9
    assert 0.1 < kinds["function"] < 0.5
    (file, line, _), share = max(
        ((key, share) for key, share in lines.items() if key[2] == "function"), key=lambda found: found[1]
    )
    assert (file, line) == (HERE, line_of(step, "product(big)"))
    assert share > 0.1
    loop = {line_of(step, "while time"), line_of(step, "sum(range")}
    assert sum(share for (f, n, kind), share in lines.items() if f == HERE and n in loop and kind == "python") > 0.45


def test_sleeping_is_python_at_its_line():
    def step(batch):
        time.sleep(0.02)

    kinds, lines, sampler, steps = sampled(step, seconds=0.4)
    assert kinds["python"] > 0.95
    assert lines[HERE, line_of(step, "time.sleep"), "python"] > 0.95
    # All of the step is sampled, none of the time between steps.
    assert 0.7 * steps * 0.02 < sampler.total_s < 1.3 * steps * 0.025


def test_eager_ops_are_tensorflow_at_their_line():
    def step(batch):
        for _ in range(40):
            batch = tf.tanh(batch @ batch)

    kinds, lines, _, _ = sampled(step)
    assert kinds.get("tensorflow", 0) > 0.6
    assert "function" not in kinds
    assert max(lines, key=lines.get)[:2] == (HERE, line_of(step, "tf.tanh"))


def test_saving_is_io_at_its_line(tmp_path):
    checkpoint = tf.train.Checkpoint(weights=tf.Variable(tf.ones([600, 600])))

    def step(batch):
        checkpoint.write(str(tmp_path / "weights"))

    kinds, lines, _, _ = sampled(step)
    assert kinds.get("io", 0) > 0.7
    assert max(lines, key=lines.get) == (HERE, line_of(step, "checkpoint.write"), "io")


def test_fetching_a_value_is_sync_at_its_line():
    big = tf.ones([1500, 1500])

    def step(batch):
        big.numpy()

    kinds, lines, _, _ = sampled(step)
    assert max(kinds, key=kinds.get) == "sync"
    assert max(lines, key=lines.get)[:2] == (HERE, line_of(step, "big.numpy"))


def test_a_python_function_inside_a_compiled_step_is_named():
    def slow(x):
        spin(0.01)
        return x

    @tf.function
    def step(batch):
        return tf.py_function(slow, [batch], tf.float32)

    kinds, lines, _, _ = sampled(step)
    assert kinds.get("python_function", 0) > 0.6
    assert any(kind == "python_function" and file == HERE for file, _, kind in lines)


def test_only_time_within_steps_is_sampled():
    with StackSampler() as sampler:
        spin(0.1)
    assert sampler.samples == 0
    assert sampler.total_s == 0


def test_steps_in_which_a_line_is_seen_are_told_apart():
    count = [0]

    def step(batch):
        count[0] += 1
        if count[0] % 5 == 0:
            time.sleep(0.03)
        spin(0.005)

    _, _, sampler, steps = sampled(step)
    rare = next(seen for key, seen in sampler.steps.items() if key[1] == line_of(step, "time.sleep"))
    always = set().union(*(seen for key, seen in sampler.steps.items() if key[1] == line_of(step, "spin(")))
    always |= set().union(*(seen for key, seen in sampler.steps.items() if key[2] == "spin"))
    assert len(rare) <= steps / 5 + 1
    assert len(always) > 0.7 * steps


def test_leaving_restores_the_switch_interval_and_ends_the_thread():
    before = sys.getswitchinterval()
    with StackSampler():
        assert sys.getswitchinterval() < before
        assert any(thread.name == "xttsbench-sampler" for thread in threading.enumerate())
    assert sys.getswitchinterval() == pytest.approx(before)
    assert not any(thread.name == "xttsbench-sampler" for thread in threading.enumerate())


def test_no_frame_is_no_line():
    assert classify(None) is None


class Callback:
    """Reads its own stack as a callback does that computes in comprehensions."""

    def on_train_batch_end(self) -> list[str]:
        return [
            *[classify(sys._getframe())[2] for _ in range(1)],
            *{classify(sys._getframe())[2]: 1 for _ in range(1)},
            *(classify(sys._getframe())[2] for _ in range(1)),
        ]


def test_a_line_in_a_comprehension_is_of_the_function_around_it():
    assert Callback().on_train_batch_end() == ["on_train_batch_end"] * 3
    assert [classify(sys._getframe())[2] for _ in range(1)] == [inspect.currentframe().f_code.co_name]
