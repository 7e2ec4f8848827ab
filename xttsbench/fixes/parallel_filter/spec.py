"""``parallel-filter``: predicates called several times at once, for which ``Dataset.filter`` has no argument."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.fixes.calls import calls_wanted, held_bytes, numbered, waits
from xttsbench.fixes.spec import Candidate, Setting, Spec, only
from xttsbench.records.pipeline import AUTOTUNE

_SHARE: Final = 0.1
"""Share of the pipeline's cost from which predicates are worth running at once."""


def candidates(setting: Setting) -> Iterator[Candidate]:
    """Sequential filters whose predicate costs something: as many calls as wait, else AUTOTUNE."""
    pipeline, cpus = setting.pipeline, setting.cpus
    whole = sum(op.cost_s or 0.0 for op in pipeline.ops)
    filters = [op for op in pipeline.ops if op.op == "FilterDataset" and op.cost_s and op.cost_s >= _SHARE * whole]
    if not filters:
        return
    calls = AUTOTUNE
    if any(waits(op, pipeline, cpus) for op in filters):
        calls = calls_wanted(pipeline, cpus, setting.goal_s) or AUTOTUNE
    names = tuple(op.name for op in filters)
    made = {"op": "ParallelFilterDataset", "parallelism": calls, "chosen_parallelism": None}
    name = numbered("parallel-filter", calls)
    yield Candidate(name, only(frozenset(names), made), ops=names, held_bytes=held_bytes(filters, calls))


PARALLEL_FILTER: Final = Spec(
    name="parallel-filter",
    form="name[:n]",
    words="filters in parallel",
    does=(
        "every filter calls its predicate in parallel (AUTOTUNE, or n calls), for which `filter` has no argument; the "
        "order stays"
    ),
    unit="calls",
    candidates=candidates,
    rewrite="xttsbench.fixes.parallel_filter.rewrite:parallel_filter",
    argument="calls",
    hazards="xttsbench.fixes.parallel_filter.rewrite:hazards",
    runs_ahead=True,
    by_hand=(
        "filter takes no num_parallel_calls: set options.experimental_optimization.filter_parallelization = True, "
        "or apply the saved plan"
    ),
)
