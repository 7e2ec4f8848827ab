"""XLA's own counters grow by exactly what was compiled."""

from __future__ import annotations

import ctypes
import sys

import pytest
import tensorflow as tf

from xttsbench.step import xla_metrics
from xttsbench.step.xla_metrics import XlaCounters, XlaMetrics


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
    monkeypatch.setattr(xla_metrics, "_COLLECT", "_no_such_symbol")
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
