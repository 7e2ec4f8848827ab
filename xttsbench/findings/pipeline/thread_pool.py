"""The rule `thread-pool`."""

from __future__ import annotations

from typing import Final

from xttsbench.evidence.evidence import Evidence, allowed_cpus
from xttsbench.findings.rule import Findings, Gain, finding, gain, most_costly, rule
from xttsbench.records.base import Location
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import Pipeline, place
from xttsbench.throughput.threads import may_wait

_MANY_THREADS: Final = 4
"""Threads for each core from which a pool is far larger than the cores."""
_WAITING: Final = 0.5
"""An op waits where less than this share of its cost is processor time, on cores that are not all busy."""
_BUSY: Final = 0.8


@rule(
    "thread-pool",
    evidence="threads in the pool, cores, and the number of threads that was tried",
    threshold="a larger pool was measured or estimated to help; or 4 threads for each core, and nothing in it waits",
    remedy="Set options.threading.private_threadpool_size, with num_parallel_calls to match.",
    false_alarms="a pool that is too large costs memory and little else, so that it is never a bottleneck",
)
def thread_pool(evidence: Evidence) -> Findings:
    """A pool with fewer threads than the parallel calls need, or with far more than there are cores."""
    pipeline = evidence.pipeline
    if pipeline is None:
        return
    cores, size = allowed_cpus(evidence), pipeline.threadpool_size
    helps = _pool_gain(evidence)
    if helps is not None:
        threads = next(fix.number for fix in FixSet.parse(helps.name) if fix.number)
        blocking = [function for function in pipeline.python_functions if function.gil == "blocks"]
        waiting = most_costly(evidence, [op for op in pipeline.ops if op.parallelism is not None and op.cost_s])
        waits = bool(blocking) or not size or size >= cores
        calls = "calls that wait share" if waits else "calls that could use all cores share"
        yield finding(
            thread_pool,
            f"{calls} {size or 'one thread a core'}{' thread(s)' if size else ''}, so they wait in turn",
            waiting,
            {"threadpool_size": size, "cores": cores, "tried_size": threads},
            f"Let {threads} calls run at a time: num_parallel_calls={threads} in the map, and a pool as large, "
            f"options.threading.private_threadpool_size = {threads}.",
            limits=helps,
            location=blocking[0].location if blocking else place(waiting) if waiting else Location(),
        )
    elif size and size >= _MANY_THREADS * cores and not _something_waits(evidence, pipeline):
        places = [Location(file=one.file, line=one.line) for one in evidence.source if one.kind == "pool-size"]
        yield finding(
            thread_pool,
            f"a private pool of {size} threads on {cores} cores, and nothing in it waits",
            None,
            {"threadpool_size": size, "cores": cores},
            "Nothing is lost by it that was measured; threads beyond the cores only take turns. Leave "
            "private_threadpool_size out, or set it to the number of cores.",
            location=places[-1] if places else Location(),
        )


def _pool_gain(evidence: Evidence) -> Gain | None:
    """The gain of a larger pool; predicted together with parallel calls, it must beat those alone.

    What only computes gains nothing from more threads than cores, whatever one process beside neighbours measured.
    """
    given = evidence.graph
    known = given.python_functions or any(op.parallelism and op.cost_s and op.cpu_s is not None for op in given.ops)
    cores_used = (given.threadpool_size or allowed_cpus(evidence)) >= allowed_cpus(evidence)
    if known and cores_used and not _something_waits(evidence, given):
        return None
    alone = gain(evidence, "thread-pool")
    if alone is not None:
        return alone
    both = gain(evidence, "thread-pool", "parallel-map", "parallel-interleave")
    if both is None or "thread-pool" not in FixSet.parse(both.name):
        return None
    calls = gain(evidence, "parallel-map", "parallel-interleave")
    return both if calls is None or both.speedup.estimate >= 1.1 * calls.speedup.estimate else None


def _something_waits(evidence: Evidence, pipeline: Pipeline) -> bool:
    """Whether calls may leave their thread idle; on busy cores a call that waits for its turn looks the same."""
    if any(may_wait(function) for function in pipeline.python_functions):
        return True
    if (evidence.facts.cores_busy or 0.0) >= _BUSY:
        return False
    return any(
        op.cost_s and op.cpu_s is not None and op.cpu_s < _WAITING * op.cost_s and op.parallelism is not None
        for op in pipeline.ops
    )
