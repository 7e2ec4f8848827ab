"""``parallel-filter``: predicates called several times at once, for which ``Dataset.filter`` has no argument."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.fixes.spec import Candidate, Setting, Spec, only
from xttsbench.records.pipeline import AUTOTUNE

_SHARE: Final = 0.1
"""Share of the pipeline's cost from which predicates are worth running at once."""


def candidates(setting: Setting) -> Iterator[Candidate]:
    """Filters whose predicate costs something and holds no state: TensorFlow leaves the others sequential."""
    pipeline = setting.pipeline
    least_s = _SHARE * sum(op.cost_s or 0.0 for op in pipeline.ops)
    names = tuple(
        op.name
        for op in pipeline.ops
        if op.op == "FilterDataset" and not (op.stateful or op.python_functions) and (op.cost_s or 0.0) > least_s
    )
    if names and setting.cpus > 1:
        made = {"op": "ParallelFilterDataset", "parallelism": AUTOTUNE, "chosen_parallelism": None}
        yield Candidate("parallel-filter", only(frozenset(names), made), ops=names)


PARALLEL_FILTER: Final = Spec(
    name="parallel-filter",
    words="filters in parallel",
    does=(
        "every filter without state calls its predicate in parallel, by an option of TensorFlow that is off unless "
        "asked for; the order stays"
    ),
    candidates=candidates,
    rewrite="xttsbench.fixes.parallel_filter.rewrite:parallel_filter",
    on_dataset="xttsbench.fixes.parallel_filter.rewrite:with_parallel_filters",
    needs_graph=False,
    runs_ahead=True,
    by_hand="set options.experimental_optimization.filter_parallelization = True in the pipeline's tf.data.Options",
)
