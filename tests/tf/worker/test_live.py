"""A target of this process with fixes on it: applied once, kept apart from what fingerprints were taken of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.execution.child import Collected
from xttsbench.pipeline.graph.read import read_graph
from xttsbench.records.fix import FixSet
from xttsbench.records.readings import Readings
from xttsbench.records.trial import TrialRecord, TrialSpec
from xttsbench.worker.live import LiveTarget, load_here


def _dataset(count: int = 64) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).map(lambda number: number * 2).batch(4)


def _run(live: LiveTarget, **fields: Any) -> TrialRecord:
    spec = TrialSpec.model_validate({"trial_id": "007", "target": "live", "window_s": 1.0, "steps": 8} | fields)
    collected = Collected(spec)
    live.measure(spec, collected.take, collected.rows)
    return collected.record(started_utc="2026-01-01T00:00:00", duration_s=1.0, readings=Readings())


def test_the_dataset_is_the_given_object_and_a_fix_is_applied_once() -> None:
    dataset = _dataset()
    live = LiveTarget((dataset, print), "a pair")
    assert live.dataset is dataset
    assert live.with_fix(FixSet.parse("prefetch"), None) is live.with_fix(FixSet.parse("prefetch"), None)
    assert live.with_fix(FixSet.parse("parallel-map"), None) is not live.with_fix(FixSet.parse("prefetch"), None)


def test_fingerprints_are_those_of_the_dataset_with_the_fix_and_the_step_is_not_run() -> None:
    stepped: list[Any] = []
    live = LiveTarget((_dataset(), stepped.append), "a pair")
    original = _run(live, rung="elements", epochs=2, source_limit=12)
    fixed = _run(live, rung="elements", epochs=2, source_limit=12, fix="parallel-map")
    assert (original.status, fixed.status) == ("ok", "ok")
    assert original.elements is not None
    assert fixed.elements is not None
    assert [len(epoch.elements) for epoch in original.elements.epochs] == [3, 3]
    assert fixed.elements.epochs == original.elements.epochs
    assert fixed.elements.identity == original.elements.identity
    assert stepped == []


def test_an_arm_runs_the_step_on_the_dataset_with_the_fix() -> None:
    stepped: list[Any] = []
    record = _run(LiveTarget((_dataset(), stepped.append), "a pair"), rung="arm", fix="prefetch")
    segment = record.segment("as_is")
    assert segment is not None
    assert segment.steps == len(stepped) > 0


def test_a_cache_on_disk_of_shortened_passes_is_not_the_one_that_is_kept(tmp_path: Path) -> None:
    dataset = _dataset()
    live = LiveTarget(dataset, "live")
    name = next(node.name for node in read_graph(dataset).node if node.op == "MapDataset")
    fix = f"cache-file@{name}"
    assert _run(live, rung="elements", source_limit=12, fix=fix, cache_dir=str(tmp_path)).status == "ok"
    kept = [batch.numpy().tolist() for batch in live.with_fix(FixSet.parse(fix), str(tmp_path))]
    assert kept == [batch.numpy().tolist() for batch in dataset]


def test_a_fix_that_does_not_apply_is_the_end_of_its_trial() -> None:
    record = _run(LiveTarget(tf.data.Dataset.range(8).prefetch(1), "live"), rung="arm", fix="parallel-map")
    assert record.status == "raised"
    assert "does not apply" in str(record.cause)


def test_a_target_is_found_here_by_what_it_is(tmp_path: Path) -> None:
    source = "import tensorflow as tf\ndef make(count=3):\n    return tf.data.Dataset.range(count)\n"
    (tmp_path / "target_of_live_test.py").write_text(source)
    dataset = _dataset()
    assert load_here(dataset, "live", {}).dataset is dataset
    assert int(load_here(_dataset, "f", {"count": 8}).dataset.cardinality()) == 2
    named = load_here(f"{tmp_path / 'target_of_live_test.py'}:make", "named", {"count": 5})
    assert int(named.dataset.cardinality()) == 5
    with pytest.raises(TargetError, match="returned int 7"):
        load_here(7, "seven", {})
