from __future__ import annotations

from xttsbench.fixes.cache import behind_cache
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.threads import demand

OPS = (
    PipelineOp(name="range", op="RangeDataset", cost_s=0.1),
    PipelineOp(name="load", op="MapDataset", inputs=("range",), cost_s=1.0, cpu_s=0.5),
    PipelineOp(name="cache", op="CacheDatasetV2", inputs=("load",), cost_s=0.01),
    PipelineOp(name="noise", op="MapDataset", inputs=("cache",), cost_s=0.2),
    PipelineOp(name="other", op="TensorDataset", cost_s=0.3),
    PipelineOp(name="zip", op="ZipDataset", inputs=("noise", "other")),
)


def test_what_is_before_a_full_cache_takes_nothing_and_the_rest_does() -> None:
    found = behind_cache(Pipeline(ops=OPS))
    assert [op.name for op in found.ops if op.cached] == ["range", "load"]
    assert [demand(op, found, 2).cost_s for op in found.ops] == [0.0, 0.0, 0.01, 0.2, 0.3, 0.0]
    assert found.ops[1].cost_s == 1.0, "what it took is still told"


def test_without_a_cache_nothing_changes() -> None:
    given = Pipeline(ops=OPS[:2])
    assert behind_cache(given) == given
