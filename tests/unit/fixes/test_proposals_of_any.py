"""Proposals of pipelines that nobody thought of: no error, no name twice, a reason for each that is not worth it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.evidence.made import make_evidence
from tests.unit.fixes.pipelines import ENVIRONMENT, pipeline, python
from xttsbench.analysis.attribution import StepFacts
from xttsbench.evidence.evidence import Compared
from xttsbench.fixes.proposals import proposals
from xttsbench.fixes.registry import SPECS
from xttsbench.records.base import Estimate
from xttsbench.records.fix import FixSet

NUMBERS = st.none() | st.sampled_from([0.0, 1e-6, 1e-3, 0.05, 2.0])
OPS = st.fixed_dictionaries(
    {
        "op": st.sampled_from(
            ["RangeDataset", "MapDataset", "ParallelMapDatasetV2", "InterleaveDataset", "ParallelInterleaveDatasetV4",
             "FlatMapDataset", "FilterDataset", "ShuffleDatasetV3", "RepeatDataset", "BatchDatasetV2", "TakeDataset",
             "PaddedBatchDatasetV2", "UnbatchDataset", "CacheDatasetV2", "PrefetchDataset", "OptionsDataset"]
        ),
        "parallelism": st.none() | st.sampled_from([-1, 1, 4, 64]),
        "chosen_parallelism": st.none() | st.sampled_from([1, 2]),
        "buffer_size": st.none() | st.sampled_from([-1, 0, 1, 8]),
        "batch_size": st.none() | st.sampled_from([1, 8]),
        "cycle_length": st.none() | st.sampled_from([-1, 1, 4]),
        "cardinality": st.none() | st.sampled_from([-2, -1, 0, 1, 1000]),
        "elements_per_batch": NUMBERS,
        "element_bytes": st.none() | st.sampled_from([0.0, 8.0, 1e8]),
        "cost_s": NUMBERS,
        "cpu_s": NUMBERS,
        "random": st.booleans(),
        "side_effects": st.booleans(),
        "cached": st.booleans(),
        "python_functions": st.sampled_from([(), ("t",)]),
        "reads": st.none() | st.just((0,)),
        "passes": st.sampled_from([{}, {0: 0}]),
    }
)  # fmt: skip
RATIO = Estimate(estimate=2.0, low=1.9, high=2.1)


@settings(deadline=None, max_examples=150, derandomize=True)
@given(
    ops=st.lists(OPS, min_size=1, max_size=6),
    gil=st.sampled_from(["holds", "blocks", "releases", "unknown"]),
    bottleneck=st.sampled_from(["input", "compute", "dispatch", "contention", "compile", "inconclusive"]),
    has_step=st.booleans(),
    modes=st.sampled_from([{}, {"xla": Compared("xla", "ok", speedup=RATIO)}, {"xla": Compared("xla", "raised")}]),
    any_order=st.booleans(),
    environment=st.sampled_from([{}, ENVIRONMENT, ENVIRONMENT | {"storage": {"free_bytes": 1e12}}]),
)
def test_whatever_the_pipeline(ops, gil, bottleneck, has_step, modes, any_order, environment):
    evidence = make_evidence(
        bottleneck,
        pipeline=pipeline(*ops, python_functions=(python(gil, cpu_s=0.005),)),
        environment=environment,
        has_step=has_step,
        facts=StepFacts(has_step=has_step),
        modes=modes,
    )
    found = proposals(evidence, asked=frozenset({"any-order"} if any_order else ()))
    names = [one.name for one in found]
    assert len(names) == len(set(names))
    assert all(one.name == " + ".join(one.fixes) and one.what for one in found)
    assert {fix.kind for one in found for fix in FixSet.of(one.fixes)} <= set(SPECS)
    assert all((one.why_not is None) == one.worth for one in found)
    worth = [one.worth for one in found]
    assert worth == sorted(worth, reverse=True)
    assert sum(worth) <= 6
    assert any_order or not [one for one in found if one.worth and "any-order" in one.fixes]
    assert has_step or not [name for name in names if "step:" in name]
