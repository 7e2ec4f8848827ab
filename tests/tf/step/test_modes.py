"""Another mode is the same step: the same losses, graph, XLA or op by op; and every switch is turned back."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.framework import ops

from xttsbench.records.rows import RowMemory, StepRow
from xttsbench.step import modes
from xttsbench.step.modes import (
    Compilations,
    XlaCounters,
    XlaMetrics,
    fetches_answered,
    in_mode,
    keras_step,
    without_xla,
)
from xttsbench.step.watch import COUNTERS, Watch

BATCHES = [tf.random.stateless_normal([4, 8], [seed, 0]) for seed in range(5)]


@pytest.fixture(autouse=True)
def _functions_run_as_graphs_again():
    yield
    tf.config.run_functions_eagerly(False)


def fresh_step():
    weights = tf.Variable(tf.random.stateless_normal([8, 8], [1, 2]))

    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((batch @ weights) ** 2)
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
        return loss

    return step


def losses(step):
    return [float(step(batch)) for batch in BATCHES]


@pytest.mark.parametrize("mode", ["graph", "xla", "eager"])
def test_the_losses_are_those_of_the_step_as_given(mode):
    given = losses(fresh_step())
    assert len(set(given)) == len(BATCHES)
    np.testing.assert_allclose(losses(in_mode(fresh_step(), mode)), given, rtol=1e-5)


@pytest.mark.parametrize("mode", ["graph", "xla"])
def test_a_mode_compiles_the_step(mode):
    metrics = XlaMetrics()
    before = metrics.read().compiles
    with Watch() as watch:
        losses(in_mode(fresh_step(), mode))
    found = dict(zip(COUNTERS, watch.counters(), strict=True))
    assert found["calls"] == len(BATCHES)
    assert found["traces"] == 1
    if metrics.available:
        assert metrics.read().compiles - before == (mode == "xla")


def test_eager_mode_runs_a_compiled_step_op_by_op():
    eagerly = []
    compiled = tf.function(lambda batch: eagerly.append(tf.executing_eagerly()) or batch)
    in_mode(compiled, "eager")(BATCHES[0])
    assert eagerly == [True]


def test_without_xla_compiles_nothing_and_gives_the_same():
    metrics = XlaMetrics()
    before = metrics.read().compiles
    original = polymorphic_function.Function.__init__
    with without_xla():
        step = tf.function(fresh_step(), jit_compile=True)
    assert polymorphic_function.Function.__init__ is original
    np.testing.assert_allclose(losses(step), losses(fresh_step()), rtol=1e-5)
    assert metrics.read().compiles == before
    # Afterwards a function may ask for XLA again.
    assert tf.function(fresh_step(), jit_compile=True)._jit_compile is True


def test_without_xla_is_undone_by_an_error():
    original = polymorphic_function.Function.__init__
    with pytest.raises(KeyError), without_xla():
        raise KeyError
    assert polymorphic_function.Function.__init__ is original


def reading_step(seen):
    inner = fresh_step()

    def step(batch):
        loss = inner(batch)
        seen.append((loss.numpy(), loss.numpy().item()))
        return loss

    return step


def test_a_step_that_reads_its_loss_can_be_traced_within():
    seen = []
    step = in_mode(reading_step(seen), "graph")
    with fetches_answered() as fetches:
        traced = losses(step)
    np.testing.assert_allclose(traced, losses(fresh_step()), rtol=1e-5)
    assert fetches.count == 2
    assert seen == [(1.0, 1.0)]  # while tracing, and never again


def test_numbers_are_answered_where_autograph_does_not_convert_them():
    seen = []

    @tf.function(autograph=False)
    def step(batch):
        loss = tf.reduce_sum(batch)
        seen.append((float(loss), int(loss), loss.item()))
        return loss

    with fetches_answered() as fetches:
        assert float(step(tf.ones([3, 2]))) == 6.0
    assert seen == [(1.0, 1, 1.0)]
    assert fetches.count == 3


def test_an_answer_has_the_tensor_s_shape_and_type():
    shapes = []

    @tf.function
    def step(batch):
        shapes.append((batch.numpy().shape, batch.numpy().dtype))
        return batch

    with fetches_answered():
        step(tf.ones([3, 5], tf.float16))
    assert shapes == [((3, 5), np.float16)]


def test_outside_nothing_is_answered():
    names = ("numpy", "__float__", "__int__", "item")
    before = {name: ops.SymbolicTensor.__dict__.get(name) for name in names}
    with pytest.raises(KeyError), fetches_answered():
        raise KeyError
    assert {name: ops.SymbolicTensor.__dict__.get(name) for name in names} == before
    with pytest.raises((TypeError, AttributeError, NotImplementedError)):
        tf.function(lambda batch: float(tf.reduce_sum(batch)), autograph=False)(BATCHES[0])
    with pytest.raises((TypeError, AttributeError, NotImplementedError)):
        tf.function(lambda batch: batch.numpy())(BATCHES[0])


def test_an_eager_tensor_answers_with_its_own_value_throughout():
    with fetches_answered() as fetches:
        assert float(tf.constant(2.5)) == 2.5
        assert tf.constant([1, 2]).numpy().tolist() == [1, 2]
    assert fetches.count == 0


def rows(count=5):
    random = np.random.default_rng(0)
    return [
        (random.normal(size=(8, 4)).astype(np.float32), random.normal(size=(8, 1)).astype(np.float32))
        for _ in range(count)
    ]


def compiled_model(*, input_known=True, **options):
    tf.keras.utils.set_random_seed(7)
    layers = [tf.keras.layers.Dense(6, activation="tanh"), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential(([tf.keras.Input([4])] if input_known else []) + layers)
    model.compile(optimizer=tf.keras.optimizers.Adam(0.01), loss="mse", **{"jit_compile": False} | options)
    return model


@pytest.mark.parametrize("options", [{}, {"run_eagerly": True}, {"jit_compile": True}], ids=["graph", "eager", "xla"])
@pytest.mark.parametrize("input_known", [True, False], ids=["built", "deferred"])
def test_losses_and_weights_are_those_of_train_on_batch(options, input_known):
    fitted, stepped = (compiled_model(input_known=input_known, **options) for _ in range(2))
    step, expected = keras_step(stepped), []
    for x, y in rows():
        fitted.reset_metrics()
        expected.append(float(fitted.train_on_batch(x, y)))
        found = step((tf.constant(x), tf.constant(y)))
        # As in an epoch of fit: the mean over the batches so far.
        np.testing.assert_allclose(float(found["loss"]), np.mean(expected), rtol=1e-4)
    for a, b in zip(stepped.get_weights(), fitted.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)
    assert int(stepped.optimizer.iterations) == 5


@pytest.mark.parametrize("eagerly", [True, False])
def test_run_eagerly_is_respected(eagerly):
    seen = []

    class Spy(tf.keras.layers.Layer):
        def call(self, x):
            seen.append(tf.executing_eagerly())
            return x

    model = tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(1), Spy()])
    model.compile(optimizer="sgd", loss="mse", run_eagerly=eagerly, jit_compile=False)
    step = keras_step(model)
    seen.clear()
    for x, y in rows(3):
        step((tf.constant(x), tf.constant(y)))
    assert seen.count(True) == (3 if eagerly else 0)


def test_jit_compile_is_respected():
    metrics = XlaMetrics()
    if not metrics.available:
        pytest.skip(metrics.reason)
    for jit in (False, True):
        before = metrics.read().compiles
        step = keras_step(compiled_model(jit_compile=jit))
        for x, y in rows(2):
            step((tf.constant(x), tf.constant(y)))
        assert (metrics.read().compiles > before) == jit


def test_sample_weights_are_part_of_the_batch():
    fitted, stepped = compiled_model(), compiled_model()
    step = keras_step(stepped)
    x, y = rows(1)[0]
    weight = np.linspace(0.0, 2.0, 8).astype(np.float32)
    found = step((tf.constant(x), tf.constant(y), tf.constant(weight)))
    np.testing.assert_allclose(float(found["loss"]), float(fitted.train_on_batch(x, y, weight)), rtol=1e-4)


@pytest.fixture
def metrics():
    found = XlaMetrics()
    if not found.available:
        pytest.skip(found.reason)
    return found


def test_each_new_shape_is_one_compilation_and_an_old_one_is_none(metrics):
    @tf.function(jit_compile=True)
    def total(x):
        return tf.reduce_sum(x**2)

    total(tf.ones([31]))
    before = metrics.read()
    for size in (32, 33, 34, 35, 36):
        total(tf.ones([size]))
    after = metrics.read()
    assert after.compiles - before.compiles == 5
    assert after.compile_ns - before.compile_ns > 5 * 100_000  # nothing is compiled in a tenth of a millisecond
    for size in (32, 33, 34, 35, 36):
        total(tf.ones([size]))
    assert metrics.read() == after


def test_a_function_without_xla_compiles_nothing(metrics):
    before = metrics.read()
    tf.function(lambda x: x * 3)(tf.ones([7]))
    assert metrics.read() == before


def test_reading_repeatedly_gives_the_same(metrics):
    assert len({metrics.read() for _ in range(20)}) == 1


def test_reading_leaves_no_memory_behind(metrics):
    def resident_mb():
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    before_mb = resident_mb()
    for _ in range(1000):
        metrics.read()
    assert resident_mb() - before_mb < 10  # collected by TensorFlow, they were 50 to 200 kB each time


@pytest.mark.parametrize(("name", "value"), [("_REGISTRY", "_no_such_symbol"), ("_BESIDE", ()), ("_MOST", 0)])
def test_a_library_without_the_symbols_or_of_another_layout_is_told_and_reads_nothing(monkeypatch, name, value):
    monkeypatch.setattr(modes, name, value)
    found = XlaMetrics()
    assert not found.available
    assert "does not export" in found.reason
    assert found.read() == XlaCounters()


@pytest.mark.parametrize("change", [(sys, "platform", "darwin"), (ctypes, "sizeof", lambda _: 4)], ids=["os", "bits"])
def test_another_platform_is_told(monkeypatch, change):
    monkeypatch.setattr(*change)
    found = XlaMetrics()
    monkeypatch.undo()
    assert "64-bit Linux" in found.reason


MS = 1_000_000


class Machine:
    """Steps and counters that are set by hand."""

    def __init__(self):
        self.compiles, self.compile_ns, self.looks = 0, 0, 0
        self.memory = RowMemory(bytearray(RowMemory.size_bytes(5000)))
        self.rows = self.memory.segment("as_is")
        self.found = Compilations(SimpleNamespace(read=self.read))
        self.found.begin()

    def read(self):
        self.looks += 1
        return XlaCounters(self.compiles, self.compile_ns)

    def step(self, ms, shape=0, compile_ms=0, compiles=0):
        self.compiles, self.compile_ns = self.compiles + compiles, self.compile_ns + compile_ms * MS
        index = self.rows.append(StepRow(0, 0))
        self.found.step_ended(self.rows, index, (ms + compile_ms) * MS, shape)

    def column(self, name):
        return self.memory.read()[0].columns[name]


def test_each_compilation_is_put_down_to_its_step():
    machine = Machine()
    for shape in (0, 0, 1, 1, 0, 2, 2, 0):
        machine.step(5, shape, *((0, 0) if machine.rows.count not in (0, 2, 5) else (300, 1)))
    assert machine.column("xla_compiles") == (1, 0, 1, 0, 0, 1, 0, 0)
    np.testing.assert_allclose(np.array(machine.column("xla_ns")) / MS, [300, 0, 300, 0, 0, 300, 0, 0], rtol=0.02)


def test_several_compilations_of_one_step_stay_together():
    machine = Machine()
    for _ in range(4):
        machine.step(5)
    machine.step(5, compile_ms=900, compiles=6)
    machine.step(40)  # slow, but by less than a compilation takes
    assert machine.column("xla_compiles") == (0, 0, 0, 0, 6, 0)
    assert machine.column("xla_ns")[4] == 900 * MS


def test_what_was_compiled_before_the_segment_is_in_none_of_its_steps():
    machine = Machine()
    machine.compiles, machine.compile_ns = 3, 10**9
    machine.found.begin()
    machine.step(400)
    assert machine.column("xla_compiles") == (0,)


def test_steps_of_other_lengths_are_not_slow_and_nothing_is_looked_at():
    machine = Machine()
    for step in range(300):
        machine.step((20, 80, 200)[step % 3], shape=step % 3)
    looks = machine.looks
    assert looks == 4  # the begin, and the first step of each shape
    assert set(machine.column("xla_compiles")) == {0}
