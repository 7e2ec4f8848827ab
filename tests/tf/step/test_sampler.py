"""The sampler tells the user's own Python from TensorFlow, and points at the line."""

from __future__ import annotations

import inspect
import sys
import threading
import time

import pytest
import tensorflow as tf

from xttsbench.step.frames import StackSampler, classify

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
