"""The limiting op by hand-computed service demands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction
from xttsbench.throughput.pace import Consumer, Machine, pace
from xttsbench.throughput.threads import demand, effective_parallelism, limiting_op, pool_size, threads


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
    batch = op("batch", "PaddedBatchDatasetV2", cost_s=0.15)
    assert limiting_op(Pipeline(ops=(parallel, batch)), allowed_cpus=4) == batch
    assert limiting_op(Pipeline(ops=(parallel, batch)), allowed_cpus=2) == parallel


def test_nothing_limits_without_a_cost():
    assert limiting_op(Pipeline(ops=(op(), op("n", cost_s=0.0))), allowed_cpus=2) is None


def test_ops_of_one_thread_add_up_against_a_parallel_op():
    ops = (
        op("read", "TFRecordDataset", cost_s=0.06),
        op("decode", "MapDataset", stateful=True, cost_s=0.05, inputs=("read",)),
        op("ahead", "PrefetchDataset", buffer_size=2, inputs=("decode",)),
        op("mix", cost_s=0.16, parallelism=2, inputs=("ahead",)),
    )
    # 110 ms one after the other are more than 160 ms by two.
    assert limiting_op(Pipeline(ops=ops), allowed_cpus=4).name == "read"
    assert limiting_op(Pipeline(ops=ops[2:]), allowed_cpus=4).name == "mix"


def test_functions_that_share_the_lock_limit_together():
    function = PythonFunction(
        token="t", kind="numpy_function", name="f", gil="holds", call_cpu_s=0.1, calls_per_batch=1
    )
    ops = (
        op("python", cost_s=0.2, cpu_s=0.1, parallelism=2, python_functions=("t",)),
        op("other", cost_s=0.15, cpu_s=0.0, parallelism=2, inputs=("python",)),
    )
    assert limiting_op(Pipeline(ops=ops, python_functions=(function,)), allowed_cpus=8).name == "python"


COSTS = st.floats(0.0001, 0.5)
OPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["MapDataset", "ParallelMapDatasetV2", "PrefetchDataset", "BatchDatasetV2", "ShuffleDatasetV3"]
        ),
        COSTS,
        st.sampled_from([None, -1, 1, 2, 8]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@given(kinds=OPS, cpus=st.integers(1, 8))
def test_the_limiting_op_is_the_one_that_the_model_names(kinds, cpus):
    ops = []
    for number, (kind, cost_s, parallelism, stateful) in enumerate(kinds):
        fields = {"cost_s": cost_s, "cpu_s": cost_s / 2, "stateful": stateful, "elements_per_batch": 1.0}
        if kind.startswith("Parallel"):
            fields["parallelism"] = parallelism or 2
        if kind == "PrefetchDataset":
            fields |= {"buffer_size": 2, "cost_s": 0.0, "cpu_s": 0.0}
        ops.append(op(f"op {number}", kind, inputs=(f"op {number - 1}",) if number else (), **fields))
    pipeline = Pipeline(ops=tuple(ops))
    found = limiting_op(pipeline, cpus)
    if all(one.op == "PrefetchDataset" for one in ops):
        assert found is None
        return
    said = pace(threads(pipeline, cpus), Consumer(), Machine(cpus, pool_size(pipeline, cpus)))
    assert found is not None
    shared = {"thread pool": "pool_s", "processors": "cpu_s", "interpreter lock": "lock_s"}.get(said.limited_by)
    if shared is None:
        assert said.limited_by == found.name
    else:
        needs = [getattr(demand(one, pipeline, cpus), shared) for one in ops]
        assert getattr(demand(found, pipeline, cpus), shared) == max(needs) > 0
