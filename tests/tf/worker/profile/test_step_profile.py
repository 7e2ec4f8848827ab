"""What the ops of real steps are found to be: compiled, through XLA, eager, Keras; nothing is left behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager.polymorphic_function import atomic_function, polymorphic_function

from tests.by_file import load
from xttsbench.step.graph_ops import devices_of
from xttsbench.step.modes import keras_step
from xttsbench.worker.profile.step import read_step_ops

TARGETS = Path(__file__).parents[3] / "targets"


@pytest.fixture(scope="module")
def targets():
    """Everything in two files of targets, whatever other modules are called; found again by name, for AutoGraph."""
    names: dict[str, Any] = {}
    for file in ("bottlenecks", "steps"):
        names |= vars(load(TARGETS / f"{file}.py", f"profiled_{file}"))
    return names


def read(bench, made, window_s=1.0):
    dataset, step = made
    step = step if callable(step) and not hasattr(step, "fit") else keras_step(step)
    batches = list(dataset.take(2))
    for batch in batches:
        step(batch)
    return read_step_ops(bench, step, batches, window_s)


def texts(found, phase):
    """The user's lines of a phase, as text."""
    lines = [line for line in found.lines if line.phase == phase and line.file]
    return [Path(line.file).read_text().splitlines()[line.line - 1].strip() for line in lines]


def test_a_compiled_step_by_phase_and_line(bench, targets):
    found = read(bench, targets["plain_training"]())
    assert not {key: reason for key, reason in found.unmeasured.items() if key != "between_ops_s"}
    assert sum(found.phases.values()) == pytest.approx(1.0)
    assert set(found.phases) >= {"forward", "loss", "backward", "optimizer"}
    assert found.phases["backward"] > found.phases["optimizer"]
    assert texts(found, "forward")[0] == "hidden = tf.nn.relu(tf.matmul(hidden, layer))"
    assert "loss = tf.reduce_mean(hidden**2)" in texts(found, "loss")
    assert "layer.assign_sub(1e-4 * gradient)" in texts(found, "optimizer")
    assert {placed.device for placed in found.placements} == {"CPU:0"}
    assert found.op_time_s > 0
    assert found.keras_layers is False


def test_through_xla_instructions_are_led_back_to_the_same_lines(bench, targets):
    found = read(bench, targets["plain_training_through_xla"]())
    assert "phases" not in found.unmeasured
    assert found.phases["forward"] + found.phases["backward"] > 0.5
    assert texts(found, "forward")[0] == "hidden = tf.nn.relu(tf.matmul(hidden, layer))"
    assert not bench.watch.traces or all(trace.step == 0 for trace in bench.watch.traces)


def test_an_eager_step_and_the_python_between_its_ops(bench, targets):
    found = read(bench, targets["eager_step"]())
    assert set(found.phases) == {"forward", "loss", "backward", "optimizer"}
    assert found.between_ops_s > 0
    assert found.ops == 98
    assert "layer.assign_sub(0.01 * gradient)" not in texts(found, "forward")


def test_time_between_the_ops_is_the_users_python(bench):
    def step(batch):
        time.sleep(0.02)
        return tf.tanh(batch) + tf.sin(batch)

    found = read(bench, (tf.data.Dataset.from_tensors(tf.ones([4])).repeat(), step))
    assert 0.015 < found.between_ops_s < 0.2


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_keras_model_without_a_line_of_the_users(bench, targets, jit_compile):
    found = read(bench, targets["keras_model"](jit_compile=jit_compile))
    assert found.keras_layers is True
    assert {"forward", "backward", "optimizer"} <= set(found.phases)
    assert any("wide" in line.function for line in found.lines)


def test_ops_too_short_for_the_profiler_are_counted(bench, targets):
    dataset, step = targets["many_tiny_ops"]()
    batch = next(iter(dataset))
    for _ in range(100):  # by then the executor knows that its kernels are cheap
        step(batch)
    found = read_step_ops(bench, step, [batch], 0.5)
    assert found.short_ops > 800
    assert found.ops > 800


def test_an_opaque_step_says_so(bench):
    found = read(bench, (tf.data.Dataset.range(5), lambda _: time.sleep(0.001)))
    assert "no op" in found.unmeasured["phases"]
    assert found.phases == {}


def test_a_step_that_fails_now_costs_nothing_measured_before(bench):
    def step(_):
        raise ValueError("not today")

    found = read_step_ops(bench, step, [tf.ones([2])], 0.2)
    assert "ValueError: not today" in found.unmeasured["phases"]


def test_every_patch_is_taken_back(bench, targets):
    places = [
        (pywrap_tfe, "TFE_Py_FastPathExecute"),
        (pywrap_tfe, "TFE_Py_Execute"),
        (atomic_function.AtomicFunction, "call_flat"),
        (polymorphic_function.Function, "__call__"),
    ]
    before = [getattr(owner, name) for owner, name in places]
    read(bench, targets["eager_step"]())
    assert [getattr(owner, name) for owner, name in places] == before


def test_devices_of_a_compiled_step(targets):
    dataset, step = targets["plain_training"]()
    batch = next(iter(dataset))
    step(batch)
    found = devices_of(step, batch)
    assert set(found.values()) == {"CPU:0"}
    assert any("MatMul" in name for name in found)
    assert devices_of(lambda one: float(tf.reduce_sum(one)), batch) == {}, "it cannot be traced"
