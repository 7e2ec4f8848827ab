"""What differs between two pipelines, told from their ops."""

from __future__ import annotations

from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.worker.plan_fit import changed_ops

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


def test_another_batch_size_is_named_with_both_values() -> None:
    assert changed_ops(Pipeline(ops=OPS), changed(2, batch_size=16)) == "batch size of Batch was 8 and is 16"


def test_another_sequence_of_ops_is_shown() -> None:
    here = Pipeline(ops=(*OPS, PipelineOp(name="PrefetchDataset/_4", op="PrefetchDataset")))
    assert (
        changed_ops(Pipeline(ops=OPS), here)
        == "its ops were TensorSlice, Map, Batch, and are TensorSlice, Map, Batch, Prefetch"
    )


def test_where_the_ops_are_the_same_a_function_is_suspected_with_its_line() -> None:
    assert changed_ops(Pipeline(ops=OPS), changed(1, cost_s=0.2)).endswith("of Map (data.py:7)")


def test_what_was_measured_is_no_difference_of_the_pipeline() -> None:
    here = changed(2, cost_s=3.0, chosen_parallelism=4, elements_per_batch=8.0)
    assert "Batch" not in changed_ops(Pipeline(ops=OPS), here)


def test_without_the_run_the_ops_at_hand_are_named() -> None:
    assert "the ops here are TensorSlice, Map, Batch" in changed_ops(None, Pipeline(ops=OPS))


def test_only_the_first_differences_are_named() -> None:
    here = changed(2, batch_size=4, parallelism=2, buffer_size=9, deterministic="false")
    assert changed_ops(Pipeline(ops=OPS), here).endswith(", and 1 more")
