"""A saved plan on a dataset: applied to the pipeline that it was found for, refused for another one."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError, TargetError
from xttsbench.execution.child import Collected
from xttsbench.fixes.graph.saved_plan import PlanError, PlanWarning, apply_plan, changed_ops
from xttsbench.pipeline.identity import identity
from xttsbench.pipeline.read import inspect, read_graph
from xttsbench.probes.environment import environment
from xttsbench.records.base import Location
from xttsbench.records.fix import FixSet, Optimized
from xttsbench.records.pipeline import GraphIdentity, Pipeline, PipelineOp
from xttsbench.records.readings import Readings
from xttsbench.records.trial import TrialRecord, TrialSpec
from xttsbench.worker.trial import LiveTarget, load_here


def pipeline(
    numbers: int = 64, *, batch: int = 4, body: Callable[[Any], Any] = lambda row: row * 2, first: int = 0
) -> tf.data.Dataset:
    rows = np.arange(first, first + numbers, dtype=np.int64)
    return tf.data.Dataset.from_tensor_slices(rows).map(body).batch(batch)


def identity_of(dataset: Any) -> GraphIdentity:
    return identity(dataset, read_graph(dataset))


def plan_for(dataset: Any, *fixes: str, **changes: Any) -> Optimized:
    fields = {
        "run": "gone",
        "target": "data.py:make",
        "fixes": fixes,
        "identity": identity_of(dataset),
        "speedup": None,
        "equivalent": True,
        "data": "64 elements are identical.",
        "proven": True,
        "fingerprint": environment()["fingerprint"],
    }
    return Optimized.model_validate(fields | changes)


def ops(dataset: Any) -> list[str]:
    return [node.op for node in read_graph(dataset).node if "Dataset" in node.op]


def values(dataset: Any) -> list[list[int]]:
    return [batch.numpy().tolist() for batch in dataset]


@pytest.fixture(autouse=True)
def silent():
    """A warning is an error, but where a test expects it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_its_fixes_are_on_the_dataset_and_the_elements_are_the_same() -> None:
    fixed = apply_plan(pipeline(), plan_for(pipeline(), "parallel-map", "prefetch"))
    assert {"ParallelMapDatasetV2", "PrefetchDataset"} <= set(ops(fixed))
    assert values(fixed) == values(pipeline())


def test_without_fixes_the_object_itself_comes_back_whatever_it_is() -> None:
    dataset = pipeline(batch=3)
    assert apply_plan(dataset, plan_for(pipeline(), fingerprint="another machine", proven=False)) is dataset


def test_another_function_is_refused() -> None:
    plan = plan_for(pipeline(), "prefetch")
    changed = pipeline(body=lambda row: row * 3)
    with pytest.raises(PlanError, match=r"is not the one that the plan of data\.py:make was found for") as caught:
        apply_plan(changed, plan, before=inspect(pipeline()))
    assert "the ops are the same, so a function, a constant or an option is another" in str(caught.value)
    assert isinstance(caught.value, InvalidInputError)


def test_another_batch_size_is_refused_and_named() -> None:
    with pytest.raises(PlanError, match=r"batch size of Batch( \(.*:\d+\))? was 4 and is 8"):
        apply_plan(pipeline(batch=8), plan_for(pipeline(), "prefetch"), before=inspect(pipeline()))


def test_another_python_function_is_refused() -> None:
    def of(add: Callable[[np.ndarray], np.ndarray]) -> tf.data.Dataset:
        return pipeline(body=lambda row: tf.numpy_function(add, [row], tf.int64))

    plan = plan_for(of(lambda row: row + 1), "prefetch")
    apply_plan(of(lambda row: row + 1), plan)
    with pytest.raises(PlanError):
        apply_plan(of(lambda row: row - 1), plan)


def test_a_dataset_that_has_the_fixes_already_is_refused() -> None:
    plan = plan_for(pipeline(), "prefetch")
    with pytest.raises(PlanError, match="without the plan's fixes"):
        apply_plan(apply_plan(pipeline(), plan), plan)


def test_other_data_are_told_and_allowed() -> None:
    dataset = pipeline(first=1000)
    plan = plan_for(pipeline(), "prefetch")
    assert plan.identity is not None
    plan = plan.model_copy(update={"identity": GraphIdentity(graph=identity_of(dataset).graph, data="00")})
    with pytest.warns(PlanWarning, match="its data are others"):
        fixed = apply_plan(dataset, plan)
    assert values(fixed) == values(dataset)


def test_another_machine_and_what_was_not_proven_are_told() -> None:
    plan = plan_for(pipeline(), "prefetch", fingerprint="elsewhere", proven=False, data="it could not be told")
    with pytest.warns(PlanWarning) as told:
        apply_plan(pipeline(), plan)
    said = " ".join(str(one.message) for one in told)
    assert "the plan's is elsewhere" in said
    assert "not proven: it could not be told" in said


def test_a_fix_of_the_step_is_left_out_and_said() -> None:
    with pytest.warns(PlanWarning, match="of the training step and not of the dataset: step:xla"):
        fixed = apply_plan(pipeline(), plan_for(pipeline(), "prefetch", "step:xla"))
    assert "PrefetchDataset" in ops(fixed)


def test_a_plan_that_names_no_pipeline_is_refused() -> None:
    with pytest.raises(PlanError, match="does not say which pipeline"):
        apply_plan(pipeline(), plan_for(pipeline(), "prefetch", identity=None))


OPS = (
    PipelineOp(name="TensorSliceDataset/_1", op="TensorSliceDataset"),
    PipelineOp(
        name="MapDataset/_2", op="MapDataset", function="f", location=Location(file="data.py", line=7), cost_s=0.1
    ),
    PipelineOp(name="BatchDatasetV2/_3", op="BatchDatasetV2", batch_size=8),
)


def changed(index: int, **fields: object) -> Pipeline:
    ops = list(OPS)
    ops[index] = ops[index].model_copy(update=fields)
    return Pipeline(ops=tuple(ops))


@pytest.mark.parametrize(
    ("before", "here", "told"),
    [
        (Pipeline(ops=OPS), changed(2, batch_size=16), "batch size of Batch was 8 and is 16$"),
        (
            Pipeline(ops=OPS),
            Pipeline(ops=(*OPS, PipelineOp(name="PrefetchDataset/_4", op="PrefetchDataset"))),
            "^its ops were TensorSlice, Map, Batch, and are TensorSlice, Map, Batch, Prefetch$",
        ),
        (Pipeline(ops=OPS), changed(1, cost_s=0.2), "a function, a constant or an option is another$"),
        (None, Pipeline(ops=OPS), "the ops here are TensorSlice, Map, Batch"),
    ],
    ids=["another size", "another sequence", "a function", "without the run"],
)
def test_what_is_another_pipeline_is_named(before: Pipeline | None, here: Pipeline, told: str) -> None:
    assert re.search(told, changed_ops(before, here))


def test_what_was_measured_is_no_difference_of_the_pipeline() -> None:
    here = changed(2, cost_s=3.0, chosen_parallelism=4, elements_per_batch=8.0)
    assert "Batch" not in changed_ops(Pipeline(ops=OPS), here)


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
    assert live.with_fix(FixSet.parse("prefetch")) is live.with_fix(FixSet.parse("prefetch"))
    assert live.with_fix(FixSet.parse("parallel-map")) is not live.with_fix(FixSet.parse("prefetch"))


def test_fingerprints_are_those_of_the_dataset_with_the_fix_and_the_step_is_not_run() -> None:
    stepped: list[Any] = []
    live = LiveTarget((_dataset(), stepped.append), "a pair")
    original = _run(live, kind="elements", epochs=2, source_limit=12)
    fixed = _run(live, kind="elements", epochs=2, source_limit=12, fix="parallel-map")
    assert (original.status, fixed.status) == ("ok", "ok")
    assert original.elements is not None
    assert fixed.elements is not None
    assert [len(epoch.elements) for epoch in original.elements.epochs] == [3, 3]
    assert fixed.elements.epochs == original.elements.epochs
    assert fixed.elements.identity == original.elements.identity
    assert stepped == []


def test_an_arm_runs_the_step_on_the_dataset_with_the_fix() -> None:
    stepped: list[Any] = []
    record = _run(LiveTarget((_dataset(), stepped.append), "a pair"), kind="arm", fix="prefetch")
    segment = record.segment("as_is")
    assert segment is not None
    assert segment.steps == len(stepped) > 0


def test_a_fix_that_does_not_apply_is_the_end_of_its_trial() -> None:
    record = _run(LiveTarget(tf.data.Dataset.range(8).prefetch(1), "live"), kind="arm", fix="parallel-map")
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


class Shifting:
    """A loader whose random shift is switched off when the plan is made."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(shift_enabled=False)

    def load(self, x: Any) -> Any:
        return x + np.random.default_rng().integers(9) if self.config.shift_enabled else x

    def create(self) -> tf.data.Dataset:
        return tf.data.Dataset.range(8).map(lambda x: tf.numpy_function(self.load, [x], tf.int64))


def test_a_plan_is_refused_where_a_switch_of_its_functions_was_turned() -> None:
    loader = Shifting()
    dataset = loader.create()
    mapped = next(node.name for node in read_graph(dataset).node if node.op == "MapDataset")
    plan = plan_for(dataset, f"cache@{mapped}")
    assert any(op.startswith("Cache") for op in ops(apply_plan(dataset, plan)))
    vars(loader.config)["shift_enabled"] = True  # seen by no reader of the text
    with pytest.raises(PlanError, match=r"would change the data of this pipeline as it is now: .*draws"):
        apply_plan(dataset, plan)
