"""A cache on disk over processes: a first pass that is cut off, one that fills it, and the next one's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.by_file import load
from xttsbench.execution.limits import Limits
from xttsbench.execution.trial import run_trial
from xttsbench.pipeline.nodes import dataset_nodes
from xttsbench.pipeline.read import read_graph
from xttsbench.records.trial import TrialSpec
from xttsbench.samedata.judge import judge

TARGET = """
from pathlib import Path
import numpy as np
import tensorflow as tf

def load(x):
    with Path(__file__).with_name("calls").open("a") as stream:
        stream.write(f"{x}\\n")
    return np.full(4, x, np.float32)

def make():
    rows = tf.data.Dataset.range(40).map(lambda x: tf.numpy_function(load, [x], tf.float32))
    return rows.map(lambda x: tf.ensure_shape(x, [4])).batch(4)
"""


@pytest.fixture
def process(helper, tmp_path):
    """``process(use)``: one of the processes that share the cache, or without a use one of the original."""
    file, kept = tmp_path / "data.py", tmp_path / "kept"
    file.write_text(TARGET)
    dataset = load(file, "data_of_cache").make()
    op = next(node.name for node in dataset_nodes(read_graph(dataset)) if node.op == "MapDataset")

    def run(use=None, seed=0):
        given = {"target": f"{file}:make", "epochs": 2, "source_limit": 41, "steps": 100, "window_s": 20.0}
        if use is not None:
            given |= {"fix": f"cache-file@{op}", "cache_dir": str(kept), "cache_use": use}
        spec = TrialSpec(trial_id="t", kind="elements", seed=seed, **given)
        calls = calls_of(tmp_path)
        record = run_trial(spec, helper, Limits(60.0, 30.0))
        return record, calls_of(tmp_path) - calls

    return run


def calls_of(folder: Path) -> int:
    file = folder / "calls"
    return len(file.read_text().splitlines()) if file.exists() else 0


def without_objections(record):
    assert record.elements is not None, record.cause
    return record.elements.model_copy(update={"objections": ()})  # to the list of calls, which the test needs


def test_what_a_process_left_half_filled_is_filled_by_the_next_one_and_read_by_the_one_after(process, tmp_path) -> None:
    originals = [without_objections(process(seed=seed)[0]) for seed in (0, 0, 1)]
    begun, calls = process("begun")
    assert (begun.status, begun.elements) == ("ok", None)
    assert 0 < calls < 40
    assert list((tmp_path / "kept").glob("*/*.lockfile"))

    filled, calls = process("filled")
    assert calls == 40
    assert list((tmp_path / "kept").glob("*/*.index"))
    assert judge(originals, without_objections(filled)).how == "identical"

    read, calls = process("read")
    assert calls == 0
    assert judge(originals, without_objections(read)).how == "identical"
    assert not (tmp_path / "kept").exists()


@pytest.mark.slow
def test_a_cache_that_another_process_finds_changed_is_seen(process, tmp_path) -> None:
    originals = [without_objections(process(seed=seed)[0]) for seed in (0, 0, 1)]
    process("filled")
    (data,) = (tmp_path / "kept").glob("*/*.data-*")
    held = bytearray(data.read_bytes())
    held[len(held) // 2] ^= 0x55
    data.write_bytes(held)
    read, _ = process("read")
    assert read.status == "raised" or judge(originals, without_objections(read)).equivalent is False
