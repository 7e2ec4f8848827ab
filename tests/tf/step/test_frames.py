"""Phases from stacks and from the order of ops: real stacks of traced functions, and orders by hand."""

from __future__ import annotations

from collections import defaultdict

import keras
import pytest
import tensorflow as tf

from xttsbench.step.frames import in_order, writes
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
