"""The limiting op by hand-computed service demands."""

from __future__ import annotations

import pytest

from xttsbench.pipeline.limits import effective_parallelism, limiting_op
from xttsbench.records.pipeline import Pipeline, PipelineOp


def op(name="m", kind="ParallelMapDatasetV2", **fields):
    return PipelineOp(name=name, op=kind, **fields)


@pytest.mark.parametrize(
    ("fields", "pipeline", "expected"),
    [
        ({"kind": "BatchDatasetV2"}, {}, 1),
        ({"parallelism": 8}, {}, 4),
        ({"parallelism": 3}, {}, 3),
        ({"parallelism": -1}, {}, 4),
        ({"parallelism": -1, "chosen_parallelism": 2}, {}, 2),
        ({"parallelism": 32}, {"threadpool_size": 16}, 16),
        ({"kind": "ParallelInterleaveDatasetV4", "parallelism": 32}, {}, 32),
        ({"kind": "MapDataset"}, {}, 4),
        ({"kind": "MapDataset", "stateful": True}, {}, 1),
        ({"kind": "MapDataset"}, {"autotune": False}, 1),
    ],
)
def test_effective_parallelism(fields, pipeline, expected):
    assert effective_parallelism(op(**fields), Pipeline(**pipeline), allowed_cpus=4) == expected


def test_the_limit_is_cost_over_parallelism_not_cost():
    parallel = op("parallel", parallelism=4, cost_s=0.4)
    batch = op("batch", "BatchDatasetV2", cost_s=0.15)
    assert limiting_op(Pipeline(ops=(parallel, batch)), allowed_cpus=4) == batch
    assert limiting_op(Pipeline(ops=(parallel, batch)), allowed_cpus=2) == parallel


def test_nothing_limits_without_a_cost():
    assert limiting_op(Pipeline(ops=(op(), op("n", cost_s=0.0))), allowed_cpus=2) is None
