"""A live dataset through the Python door: measured here, labelled so."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import xttsbench
from xttsbench.errors import TargetError
from xttsbench.execution.journal import read_trials


def _slow_row(index):
    time.sleep(0.004)
    return np.float32(index)


def _slow_rows() -> tf.data.Dataset:
    rows = tf.data.Dataset.range(1_000_000).map(lambda index: tf.numpy_function(_slow_row, [index], tf.float32))
    return rows.batch(4)


def test_a_live_dataset_is_measured_in_this_process_and_the_report_says_so(tmp_path: Path) -> None:
    report = xttsbench.diagnose(_slow_rows(), accelerator="emulated:4", budget_s=12, out=tmp_path / "run")
    assert report.verdict.bottleneck == "input"
    assert any(note.startswith("measured in the calling process only") for note in report.notes)
    assert {trial.spec.kind for trial in read_trials(tmp_path / "run")} <= {"ladder", "input", "pipeline"}
    (found,) = [finding for finding in report.findings if finding.rule == "python-function"]
    assert (found.location.file, found.limiting) == (__file__, True)
    assert report.target["kind"] == "dataset"


def test_a_live_step_is_run_on_it(tmp_path: Path) -> None:
    calls = []
    dataset = tf.data.Dataset.from_tensors(tf.ones([2])).repeat()
    report = xttsbench.diagnose((dataset, calls.append), budget_s=5, steps=8, out=tmp_path / "run")
    assert report.target["name"] == "(_RepeatDataset, builtin_function_or_method)"
    assert len(calls) > 8


@pytest.mark.parametrize(("target", "kwargs", "message"), [(7, {}, "returned int 7"), ([1], {"n": 2}, r"\['n'\]")])
def test_what_is_no_target_is_refused(target: object, kwargs: dict[str, int], message: str, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=message):
        xttsbench.diagnose(target, kwargs=kwargs, out=tmp_path / "run")
