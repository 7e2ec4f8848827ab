"""XLA's own counters grow by exactly what was compiled."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.records.rows import RowMemory, StepRow
from xttsbench.step import modes
from xttsbench.step.modes import Compilations, XlaCounters, XlaMetrics


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


def test_a_library_without_the_symbols_is_told_and_reads_nothing(monkeypatch):
    monkeypatch.setattr(modes, "_COLLECT", "_no_such_symbol")
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
    """A clock that is set by hand, and counters: a look at them takes two milliseconds."""

    def __init__(self):
        self.now, self.compiles, self.compile_ns, self.looks = 10**9, 0, 0, 0
        self.xla = SimpleNamespace(available=True, read=self.read)
        self.memory = RowMemory(bytearray(RowMemory.size_bytes(5000)))
        self.rows = self.memory.segment("as_is")
        self.found = Compilations(self.xla, lambda: self.now)
        self.found.begin()

    def read(self):
        self.looks += 1
        self.now += 2 * MS
        return XlaCounters(self.compiles, self.compile_ns)

    def step(self, ms, shape=0, compile_ms=0, compiles=0):
        self.compiles, self.compile_ns = self.compiles + compiles, self.compile_ns + compile_ms * MS
        self.now += (ms + compile_ms) * MS
        index = self.rows.append(StepRow(self.now, 0))
        self.found.step_ended(self.rows, index, (ms + compile_ms) * MS, shape)

    def column(self, name):
        return self.memory.read()[0].columns[name]


def test_each_compilation_is_put_down_to_its_step():
    machine = Machine()
    for shape in (0, 0, 1, 1, 0, 2, 2, 0):
        machine.step(5, shape, *((0, 0) if machine.rows.count not in (0, 2, 5) else (300, 1)))
    machine.found.end()
    assert machine.column("xla_compiles") == (1, 0, 1, 0, 0, 1, 0, 0)
    np.testing.assert_allclose(np.array(machine.column("xla_ns")) / MS, [300, 0, 300, 0, 0, 300, 0, 0], rtol=0.02)


def test_several_compilations_of_one_step_stay_together():
    machine = Machine()
    for _ in range(4):
        machine.step(5)
    machine.step(5, compile_ms=900, compiles=6)
    machine.step(40)  # slow, but by less than a compilation takes
    machine.found.end()
    assert machine.column("xla_compiles") == (0, 0, 0, 0, 6, 0)
    assert machine.column("xla_ns")[4] == 900 * MS


def test_what_was_compiled_before_the_segment_is_in_none_of_its_steps():
    machine = Machine()
    machine.compiles, machine.compile_ns = 3, 10**9
    machine.found.begin()
    machine.step(400)
    machine.found.end()
    assert machine.column("xla_compiles") == (0,)


def test_steps_of_other_lengths_are_not_slow_and_nothing_is_looked_at():
    machine = Machine()
    for step in range(300):
        machine.step((20, 80, 200)[step % 3], shape=step % 3)
    looks = machine.looks
    machine.found.end()
    assert looks <= 2  # the begin, and at most one for the first steps of the shapes
    assert set(machine.column("xla_compiles")) == {0}


@pytest.mark.parametrize("seed", range(3))
def test_looks_within_the_loop_take_a_thousandth_of_the_time_at_most(seed):
    rng, machine = np.random.default_rng(seed), Machine()
    began = machine.now
    for ms in rng.integers(10, 200, size=2000):
        machine.step(int(ms))
    spent = (machine.looks - 1) * 2 * MS
    assert machine.looks > 5  # else a process that is killed would have found none
    assert spent <= 0.001 * (machine.now - began)


def test_a_machine_without_the_counters_is_left_alone():
    memory = RowMemory(bytearray(RowMemory.size_bytes(8)))
    found = Compilations(SimpleNamespace(available=False))
    found.begin()
    found.step_ended(memory.segment("as_is"), 0, 10**9, 0)
    found.end()
