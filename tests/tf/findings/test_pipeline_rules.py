"""Each rule on a pipeline that has its fault and on a healthy one that looks alike, both read by TensorFlow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.by_file import load
from xttsbench.analysis.attribution import PARTS, StepFacts
from xttsbench.evidence import Evidence
from xttsbench.findings import RULES
from xttsbench.pipeline.costs import read_costs
from xttsbench.records.base import Estimate

TARGETS = Path(__file__).parents[2] / "targets" / "pipelines.py"
pytestmark = pytest.mark.measured
PAIRS = [
    ("maps_after_the_device", "ends_on_the_device", "device-prefetch-not-last"),
    ("records_in_turn", "records_of_one_file", "sequential-read"),
    ("records_under_gzip", "records_of_one_file", "compressed-records"),
    ("computes_each_epoch", "draws_each_epoch", "cacheable"),
    ("freezes_its_noise", "draws_noise_after_the_cache", "cache-misuse"),
    ("never_fills_its_cache", "takes_all_of_its_cache", "cache-misuse"),
    ("filters_last", "filters_by_the_result", "late-filter"),
    ("shuffles_what_it_loaded", "shuffles_numbers", "shuffle-fill"),
    ("hoards_batches", "hoards_numbers", "oversized-prefetch"),
    ("prefetches_nothing", "prefetches_one", "no-prefetch"),
    ("threads_without_work", "threads_that_wait", "thread-pool"),
]
QUICK = ("cacheable", "no-prefetch")
"""Rules whose pairs are in every run; each pair takes ten seconds."""


@pytest.fixture(scope="module")
def targets():
    """The file of targets, found again by name, as AutoGraph wants it."""
    module = load(TARGETS, "pipelines_with_faults")
    yield module
    del sys.modules[module.__name__]


def told(pipeline, bottleneck: str) -> Evidence:
    """A step that waits for its input, as long as the ops take, most of the time, or not at all."""
    waits = (sum(op.cost_s or 0.0 for op in pipeline.ops) or 0.04) if bottleneck == "input" else 0.0
    wall_s = waits / 0.8 or 0.05
    return Evidence(
        kind="dataset+step",
        has_step=True,
        emulated=False,
        bottleneck=bottleneck,
        wall_s=wall_s,
        parts=dict.fromkeys(PARTS, 0.0) | {"input": waits, "compute": wall_s - waits},
        max_speedups={"input": Estimate(estimate=5.0, low=4.9, high=5.1)} if waits else {},
        facts=StepFacts(has_step=True, cores_busy=1.0),
        environment={"cpu": {"allowed_cpus": 2.0}, "memory": {"total_bytes": 16 * 10**9, "limit_bytes": None}},
        pipeline=pipeline,
    )


TRIED = [*RULES["In the pipeline"], *RULES["In the source"]]


def found(evidence: Evidence) -> list[str]:
    return [finding.rule for rule in TRIED for finding in rule(evidence)]


@pytest.mark.parametrize(
    ("faulty", "healthy", "rule"),
    [pytest.param(*pair, id=pair[0], marks=() if pair[2] in QUICK else pytest.mark.slow) for pair in PAIRS],
)
def test_the_fault_is_seen_and_its_double_is_not_blamed(targets, faulty: str, healthy: str, rule: str) -> None:
    ill = read_costs(getattr(targets, faulty)()[0], batches=60, max_s=1.5)
    well = read_costs(getattr(targets, healthy)()[0], batches=60, max_s=1.5)
    if rule not in found(told(ill, "input")):  # costs are measured, and a neighbour on the machine disturbs a reading
        ill = read_costs(getattr(targets, faulty)()[0], batches=60, max_s=3.0)
    assert rule in found(told(ill, "input"))
    assert rule not in found(told(well, "input"))
    for pipeline in (ill, well):
        for each in TRIED:
            assert not any(finding.limiting for finding in each(told(pipeline, "compute")))
