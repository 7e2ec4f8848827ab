"""All rules about the input pipeline, family by family, and the one that names what the step waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.evidence.evidence import Evidence, allowed_cpus
from xttsbench.findings.gain import cost_share, pace_share
from xttsbench.findings.pipeline import cache_misuse as pipeline_cache
from xttsbench.findings.pipeline import cacheable as pipeline_cacheable
from xttsbench.findings.pipeline import elements as pipeline_elements
from xttsbench.findings.pipeline import parallel as pipeline_parallel
from xttsbench.findings.pipeline import prefetch as pipeline_buffers
from xttsbench.findings.pipeline import python_function as pipeline_python
from xttsbench.findings.pipeline import shuffle_fill as pipeline_shuffle
from xttsbench.records.pipeline import place
from xttsbench.records.report import Finding
from xttsbench.throughput.limits import limiting_op


def input_bound(evidence: Evidence) -> Iterator[Finding]:
    """The step waits for data; the op that costs most is named where the graph was read."""
    if not evidence.limits("input"):
        return
    op = limiting_op(evidence.pipeline, allowed_cpus(evidence)) if evidence.pipeline is not None else None
    what = f"{op.name} costs most" if op is not None else "no op's cost is known" if evidence.pipeline else ""
    alone = evidence.input_alone_s
    yield Finding(
        rule="input-bound",
        severity="warning",
        limiting=True,
        title=f"{evidence.share('input'):.0%} of the step is waiting for data; {what or 'its graph was not read'}",
        location=place(op),
        evidence={
            "wait_s_per_step": evidence.parts.get("input"),
            "batch_s_without_a_step": alone.estimate if alone is not None else None,
            "op_cost_s_per_batch": op.cost_s if op is not None else None,
            "op_cpu_s_per_batch": op.cpu_s if op is not None else None,
            "cost_share": cost_share(evidence, op),
            "pace_share": pace_share(evidence, op) if op is not None else None,
        },
        remedy="Make the costly op cheaper, parallel or cached; other findings say what was tried here.",
        # A dataset alone has nothing else to wait for, so that nothing says what would be left.
        predicted_speedup=evidence.ceilings.get("input") if evidence.has_step or evidence.emulated else None,
    )


RULES: Final = (
    *pipeline_python.RULES,
    *pipeline_parallel.RULES,
    *pipeline_buffers.RULES,
    *pipeline_shuffle.RULES,
    *pipeline_cacheable.RULES,
    *pipeline_cache.RULES,
    *pipeline_elements.RULES,
    input_bound,
)
