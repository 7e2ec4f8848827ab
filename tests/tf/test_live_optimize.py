"""Live datasets through ``xttsbench.optimize``: all in this process, and nothing accepted that changes the data."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import xttsbench
from xttsbench.errors import TargetError, XttsbenchError
from xttsbench.execution.journal import read_trials
from xttsbench.workflows.runs import rebuild
from xttsbench.workflows.saved import read_plan

pytestmark = pytest.mark.measured

_ROWS = 512
_SLEEP_S = 0.004


def _slow_row(index):
    time.sleep(_SLEEP_S)
    return np.float32(index)


def _slow_rows() -> tf.data.Dataset:
    rows = tf.data.Dataset.range(_ROWS).map(lambda index: tf.numpy_function(_slow_row, [index], tf.float32))
    return rows.batch(4)


def _values(dataset: tf.data.Dataset, count: int) -> list[list[float]]:
    return [batch.numpy().tolist() for batch in dataset.take(count)]


@pytest.mark.slow
def test_a_sleeping_function_is_made_faster_and_yields_the_same_elements(tmp_path: Path) -> None:
    original, began = _slow_rows(), time.monotonic()
    dataset, report = xttsbench.optimize(original, budget_s=60, out=tmp_path / "run")
    assert time.monotonic() - began < 120, "the budget was not kept"
    assert dataset is not original
    assert report.optimized is not None
    assert report.optimized.fixes
    (chosen,) = [one for one in report.fixes if one.chosen]
    assert chosen.outcome == "accepted"
    assert chosen.verified_speedup is not None
    assert chosen.verified_speedup.low > 1
    assert chosen.blocks >= 6
    assert (chosen.semantics.equivalent, chosen.semantics.how) == (True, "identical")
    assert _values(dataset, 20) == _values(original, 20)
    assert report.kind == "optimize"
    assert any(warning.startswith("measured in the calling process only") for warning in report.warnings)
    # What was written says the same, and is applied to the dataset as it is made anew.
    assert read_plan(tmp_path / "run") == report.optimized
    again, told = xttsbench.optimize(_slow_rows(), plan=tmp_path / "run")
    assert told == report
    assert _values(again, 20) == _values(original, 20)
    _values(again, _ROWS)  # where the fix is a cache, it is full then
    began = time.perf_counter()
    _values(again, _ROWS)
    assert time.perf_counter() - began < _ROWS * _SLEEP_S / 2
    assert rebuild(tmp_path / "run").report.fixes == report.fixes


def test_of_a_healthy_one_the_same_object_comes_back(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.range(1024).batch(8).prefetch(tf.data.AUTOTUNE)
    found, report = xttsbench.optimize(dataset, accelerator="emulated:8", budget_s=40, out=tmp_path / "run")
    assert found is dataset
    assert not any(one.outcome == "accepted" for one in report.fixes)
    assert report.optimized is None or report.optimized.fixes == ()


def test_of_one_that_counts_its_calls_nothing_is_accepted(tmp_path: Path) -> None:
    calls = itertools.count()

    def numbered(_index):
        time.sleep(0.004)
        return np.int64(next(calls))

    dataset = tf.data.Dataset.range(512).map(lambda index: tf.numpy_function(numbered, [index], tf.int64)).batch(4)
    found, report = xttsbench.optimize(dataset, budget_s=60, out=tmp_path / "run")
    assert found is dataset
    assert not any(one.outcome == "accepted" for one in report.fixes)
    assert report.fixes
    trials = read_trials(tmp_path / "run")
    assert not any(trial.spec.kind == "arm" for trial in trials), "a fix was timed that may change the data"


def _broken(_index):
    raise ValueError("no such file")


def test_what_raises_or_is_no_target_is_an_error_and_no_dataset(tmp_path: Path) -> None:
    rows = tf.data.Dataset.range(8).map(lambda index: tf.numpy_function(_broken, [index], tf.float32))
    with pytest.raises(XttsbenchError, match="no such file"):
        xttsbench.optimize(rows, budget_s=20, out=tmp_path / "run")
    with pytest.raises(TargetError, match="returned int 7"):
        xttsbench.optimize(7, out=tmp_path / "other")
