"""``thread-pool``: a private thread pool for the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.fixes.calls import autotune_reset, numbered, thread_pool_size, waits
from xttsbench.fixes.open_generator import opened
from xttsbench.fixes.spec import Candidate, Setting, Spec, each
from xttsbench.records.pipeline import Pipeline
from xttsbench.throughput.threads import pool_size


def candidates(setting: Setting) -> Iterator[Candidate]:
    """A private pool with a thread for each call that waits."""
    pipeline, cpus = setting.pipeline, setting.cpus
    calling = opened(pipeline)  # calls of a generator's body need a thread each, once there are several
    size = thread_pool_size(calling, cpus, setting.goal_s)
    if size is None:
        return

    def edit(given: Pipeline) -> Pipeline:
        reset = each(given, autotune_reset)
        return reset.model_copy(update={"threadpool_size": size})

    waiting = tuple(op.name for op in calling.ops if waits(op, calling, cpus))
    asked = max((op.parallelism or 0 for op in pipeline.ops if op.name in waiting), default=0)
    several = any(op.parallelism is not None for op in pipeline.ops if op.name in waiting)
    yield Candidate(
        numbered("thread-pool", size), edit, ops=waiting, alone=several or asked > pool_size(pipeline, cpus)
    )


THREAD_POOL: Final = Spec(
    name="thread-pool",
    form="name:n",
    words="a private thread pool",
    does="a private thread pool: functions that wait need a thread each, and the shared pool has one a core",
    unit="threads",
    mends=("thread-pool", "python-function"),
    candidates=candidates,
    rank=10,
    on_dataset="xttsbench.fixes.thread_pool.rewrite:with_pool",
    argument="threads",
    needs_graph=False,
    keeps_conditions=True,
    patch="xttsbench.fixes.thread_pool.patch:thread_pool",
)
