"""The rules on calls at once: `sequential-map`, `-read`, `thread-pool`, `order-sensitive`, `compressed-records`."""

from __future__ import annotations

from typing import Final

import numpy as np

from xttsbench.evidence import Evidence, allowed_cpus
from xttsbench.evidence.pipeline import function_of, input_of, upstream
from xttsbench.findings.rule import Findings, Gain, blamed, cost_share, gain, is_main, most_costly, pace_share, rule
from xttsbench.fixes.calls import sequential_maps, stays_at_one_call
from xttsbench.records.base import Location
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import Pipeline, PipelineOp, every_op
from xttsbench.throughput.threads import functions_of, may_wait


@rule(
    "sequential-map",
    threshold="parallel calls were measured or estimated to help; always a bottleneck",
    remedy="Give the map num_parallel_calls: as many as were tried, or tf.data.AUTOTUNE.",
    false_alarms="none known",
)
def sequential_map(evidence: Evidence) -> Findings:
    """A map that runs one element at a time, where running it in parallel helps."""
    helps = gain(evidence, "parallel-map", part=True)
    if helps is None:
        return
    maps = sequential_maps(evidence.graph)
    if not helps.processes:
        maps = [op for op in maps if not _takes_turns(evidence.graph, op)]
    op = most_costly(evidence, maps)
    if op is None or not blamed(evidence, helps, *maps):
        return
    where = "for functions with state, Python functions among them" if op.stateful or op.python_functions else "here"
    tried = next((fix.number for fix in FixSet.parse(helps.name) if fix.kind == "parallel-map"), None)
    calls = str(tried or "tf.data.AUTOTUNE")  # as many as the gain is of
    yield sequential_map.finding(
        f"{op.name} maps one element at a time",
        {
            "cost_share": cost_share(evidence, op),
            "pace_share": pace_share(evidence, op),
            "sequential_maps": len(maps),
            "cost_s_per_batch": op.cost_s,
        },
        f"Give it num_parallel_calls={calls}: .map({function_of(op)}, num_parallel_calls={calls}) "
        f"(TensorFlow does not do so by itself {where}).",
        at=op,
        helps=helps,
    )


def _takes_turns(pipeline: Pipeline, op: PipelineOp) -> bool:
    """Whether the Python functions of an op hold the interpreter lock, so that parallel calls wait for one another."""
    own = functions_of(op, pipeline)
    return bool(own) and all(function.gil == "holds" for function in own)


READERS: Final = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")
"""Ops that read a file's records; the classes of these names take ``num_parallel_reads``."""


@rule(
    "sequential-read",
    threshold="the step waits for data, and reading several at once was measured or estimated to help or, of files, "
    "was not tried; a bottleneck where it helps",
    remedy="Read several at once: .interleave(..., num_parallel_calls=tf.data.AUTOTUNE), or num_parallel_reads.",
    false_alarms="on one spinning disk several readers can be slower",
)
def sequential_read(evidence: Evidence) -> Findings:
    """Files, or other sources, read one after the other, where reading several at once helps or was not tried."""
    helps = gain(evidence, "parallel-interleave", part=True)
    if not evidence.limits("input"):
        return
    op = most_costly(evidence, [op for op in evidence.graph.ops if _reads_in_turn(evidence.graph, op)])
    if op is None:
        return
    reader = _file_reader(op)
    untried = reader is not None and not any(name.startswith("parallel-interleave") for name in evidence.fixes)
    if not (blamed(evidence, helps, op) if helps is not None else untried and is_main(evidence, op)):
        return
    source = input_of(evidence.graph, op)
    files = source.cardinality if source is not None and (source.cardinality or 0) > 0 else None
    function, cycle = function_of(op), f"cycle_length={min(files, 16)}, " if files else ""
    if stays_at_one_call(op):
        calls = min(files, 16) if files else 4
        remedy = (
            f"AUTOTUNE runs one call here. Say how many: .interleave({function}, {cycle}num_parallel_calls={calls})."
        )
    elif reader is not None and len(op.inner) == 1 and op.op.startswith("FlatMap"):
        remedy = f"Read several at once: tf.data.{reader}(files, num_parallel_reads=tf.data.AUTOTUNE)."
    else:
        remedy = f"Read several at once: .interleave({function}, {cycle}num_parallel_calls=tf.data.AUTOTUNE)."
    yield sequential_read.finding(
        f"{op.name} reads its {f'{files} ' if files else ''}sources one at a time",
        {
            "cost_share": cost_share(evidence, op),
            "pace_share": pace_share(evidence, op),
            "sources": files,
            "cycle_length": op.cycle_length,
            "reader": reader,
        },
        f"{remedy} The elements are the same, in another order (one that repeats, unless deterministic=False)."
        + ("" if helps is not None else " What it would give was neither tried nor estimated here."),
        at=op,
        severity="warning",
        helps=helps,
    )


def _reads_in_turn(pipeline: Pipeline, op: PipelineOp) -> bool:
    """Whether an op reads several sources one at a time; of ``flat_map`` only what reads files does."""
    if stays_at_one_call(op):
        return True
    readers = ("FlatMapDataset", "InterleaveDataset", "LegacyInterleaveDataset")
    if op.parallelism is not None or not op.op.startswith(readers):
        return False
    source = input_of(pipeline, op)
    if source is not None and source.cardinality is not None and 0 <= source.cardinality <= 1:
        return False  # one file, or a generator, which is a flat_map over one element
    return _file_reader(op) is not None or not op.op.startswith("FlatMap") or (not op.inner and not op.python_functions)


def _file_reader(op: PipelineOp) -> str | None:
    """The kind of file reader that the data sets of an op's function are made of."""
    return next((kind for own in every_op(op.inner) for kind in READERS if own.op.startswith(kind)), None)


_MANY_THREADS: Final = 4  # Threads for each core from which a pool is far larger than the cores
_WAITING: Final = 0.5
"""An op waits where less than this share of its cost is processor time, on cores that are not all busy."""
_BUSY: Final = 0.8


@rule(
    "thread-pool",
    threshold="a larger pool was measured or estimated to help, which makes it a bottleneck; or a private one has 4 "
    "threads for each core and nothing in it waits",
    remedy="Set options.threading.private_threadpool_size to the calls at once that are wanted, and "
    "num_parallel_calls to the same; leave the option out where the pool is too large.",
    false_alarms="a pool that is too large costs nothing that was measured, and is for information",
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
        yield thread_pool.finding(
            f"{calls} {size or 'one thread a core'}{' thread(s)' if size else ''}, so they wait in turn",
            {"threadpool_size": size, "cores": cores, "tried_size": threads},
            f"Let {threads} calls run at a time: num_parallel_calls={threads} in the map, and a pool as large, "
            f"options.threading.private_threadpool_size = {threads}.",
            at=blocking[0].location if blocking else waiting,
            helps=helps,
        )
    elif size and size >= _MANY_THREADS * cores and not _something_waits(evidence, pipeline):
        places = [Location(file=one.file, line=one.line) for one in evidence.source if one.kind == "pool-size"]
        yield thread_pool.finding(
            f"a private pool of {size} threads on {cores} cores, and nothing in it waits",
            {"threadpool_size": size, "cores": cores},
            "Nothing is lost by it that was measured; threads beyond the cores only take turns. Leave "
            "private_threadpool_size out, or set it to the number of cores.",
            at=places[-1] if places else None,
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
    alone = gain(evidence, "thread-pool", part=True)
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


_UNEVEN: Final = 0.5  # Waits that vary this much beside their mean are those of a few slow elements, or of bursts


@rule(
    "order-sensitive",
    threshold="the step waits for data, waits vary by half of their mean, and the op has 30 % of the pace; never a "
    "bottleneck",
    remedy="Set options.deterministic = False, or deterministic=False in this call: the same elements in another "
    "order.",
    false_alarms="waits vary for other reasons too; what any order gives has to be measured",
)
def order_sensitive(evidence: Evidence) -> Findings:
    """Parallel calls that wait for the slowest of them to keep the order, where any order may be faster."""
    pipeline = evidence.graph
    if pipeline.deterministic is False or not evidence.limits("input"):
        return
    ordered = [
        op for op in pipeline.ops if op.op.startswith(("Parallel", "LegacyParallel")) and op.deterministic != "false"
    ]
    op = most_costly(evidence, [op for op in ordered if op.parallelism != 1])
    if op is None:
        return
    spread = _wait_spread(evidence)
    if spread < _UNEVEN or not is_main(evidence, op):
        return
    shuffled = any(own.random for own in (*upstream(pipeline, op), op))
    yield order_sensitive.finding(
        f"{op.name} keeps the order of its elements, so a slow one holds up those that are ready",
        {
            "pace_share": pace_share(evidence, op),
            "parallelism": op.chosen_parallelism or op.parallelism,
            "order_is_random_anyway": shuffled,
            "wait_std_over_mean": spread,
        },
        "options.deterministic = False, or deterministic=False in this call: the same elements in another order, "
        "which differs from run to run"
        + (". Its input is shuffled, so that order carries nothing but the seed's repeatability." if shuffled else ".")
        + " What that gives was not tried here.",
        at=op,
    )


def _wait_spread(evidence: Evidence) -> float:
    """Unevenness of the waits for batches, as standard deviation over mean; 0 where not measured."""
    waits = evidence.steps.wait_s if evidence.steps is not None else np.zeros(0)
    return float(waits.std() / waits.mean()) if len(waits) > 1 and waits.mean() > 0 else 0.0


@rule(
    "compressed-records",
    threshold="the step waits for data, and the op that reads compressed files has 30 % of the pace; never a "
    "bottleneck by itself",
    remedy="Write the records once without compression, or keep them behind the reader with .cache(); where the files "
    "have to stay as they are, read several at once.",
    false_alarms="from a disk or network slower than the decompression, compressed files are the quicker ones",
)
def compressed_records(evidence: Evidence) -> Findings:
    """Files of records that are decompressed in every epoch, by the thread that reads them."""
    if not evidence.limits("input"):
        return
    kinds = {
        op.name: kinds
        for op in evidence.graph.ops
        if not op.cached and (kinds := {own.compression for own in every_op([op]) if own.compression})
    }
    op = most_costly(evidence, [op for op in evidence.graph.ops if op.name in kinds])
    if op is None or not is_main(evidence, op):
        return
    kind = " and ".join(sorted(kinds[op.name]))
    yield compressed_records.finding(
        f"{op.name} decompresses its records ({kind}) in every epoch",
        {"compression": kind, "cost_share": cost_share(evidence, op), "pace_share": pace_share(evidence, op)},
        at=op,
        severity="warning",
    )
