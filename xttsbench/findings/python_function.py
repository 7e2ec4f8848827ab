"""The rule `python-function`."""

from __future__ import annotations

import math
from pathlib import PurePath
from typing import Final

from xttsbench.evidence import Evidence, allowed_cpus
from xttsbench.evidence.pipeline import downstream, function_of
from xttsbench.findings.rule import MAIN_SHARE, Findings, cost_share, gain, is_main, pace_share, rule
from xttsbench.fixes.spec import WORTH
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import AUTOTUNE, PipelineOp, Prediction, PythonFunction, every_op

_WORDS: Final = {
    "holds": "it computes under Python's interpreter lock",
    "blocks": "it waits without computing",
    "releases": "it computes outside the interpreter lock",
    "unknown": "whether it computes under the interpreter lock is not known",
    "computes": "it computes, whether under the interpreter lock is not known",
}
_FIXES: Final = {
    "holds": ("processes", "batch-first", "open-generator"),
    "blocks": ("parallel-map", "thread-pool", "parallel-interleave", "open-generator"),
    "releases": ("parallel-map", "parallel-interleave", "open-generator"),
    "unknown": ("parallel-map", "thread-pool", "processes", "open-generator"),
}
_COMPUTES: Final = 0.8  # Share of a call on a processor from which it computes, whatever the lock
_MAIN_OPS: Final = 0.5  # Share of a line's time in TensorFlow's ops from which a graph of them is advised
_MANY_CALLS: Final = 8  # Calls per batch from which one call for the whole batch is worth a word


@rule(
    "python-function",
    threshold="any is reported; a bottleneck only where the step waits for data",
    remedy="By class: TensorFlow ops or processes where the function holds the lock, parallel calls with as many "
    "threads where it waits, parallel calls where it releases the lock; or a cache of what it yields. Leave one "
    "that is no bottleneck alone.",
    false_alarms="a function that limits nothing is harmless",
)
def python_function(evidence: Evidence) -> Findings:
    """Python inside the graph, by file and line: whether it holds the interpreter lock, as far as that is known."""
    if evidence.bottleneck == "inconclusive":
        alone = "Whether it limits the step is not known: no bottleneck could be named."
    elif evidence.limits("input"):
        alone = "Leave it alone: other ops of the pipeline take the time."
    else:
        alone = "Leave it alone here: it is not what limits the step. Behind a faster device it may be."
    for function in evidence.graph.python_functions:
        op = _outer_op(evidence, function)
        limiting = evidence.limits("input") and _is_waited_for(evidence, function, op)
        computes = (function.call_cpu_s or 0.0) >= _COMPUTES * (function.call_time_s or math.inf)
        does = "computes" if function.gil == "unknown" and computes else function.gil
        after = (op, *downstream(evidence.graph, op)) if op is not None else ()
        fixed = gain(evidence, *_FIXES[function.gil], *(f"cache@{own.name}" for own in after))
        remedy = _of_line(function) + _checked_remedy(evidence, function, op)
        if fixed is not None and fixed.name not in evidence.fixes and "cache" in FixSet.parse(fixed.name):
            remedy = f"Keep what it yields by .cache() behind it, if every epoch may have the same. Else: {remedy}"
        yield python_function.finding(
            f"{function.name}() runs as {function.kind} in {function.location.op or 'the pipeline'}"
            f"{_at_once(function, op)}: {_WORDS[does]}{_each(function)}",
            {
                "kind": function.kind,
                "gil": function.gil,
                "call_time_s": function.call_time_s,
                "call_cpu_s": function.call_cpu_s,
                "calls_per_batch": function.calls_per_batch or None,  # 0 where buffers had all that was counted
                "cost_share": cost_share(evidence, op),
                "pace_share": pace_share(evidence, op) if op is not None else None,
                "helps": fixed.name if limiting and fixed is not None else None,
            },
            remedy if limiting else alone,
            severity="warning" if limiting else "info",
            limiting=limiting,
            at=function.location,
            predicted_speedup=(fixed.predicted if fixed is not None else evidence.max_speedups.get("input"))
            if limiting
            else None,
        )


def _of_line(function: PythonFunction) -> str:
    """Remedy for the line that most of its time goes through; empty where there is no such line."""
    slow = function.slow_line
    if slow is None or slow.location.file is None:
        return ""
    place = f"{PurePath(slow.location.file).name}:{slow.location.line}"
    at = f"{slow.share:.0%} of the time of {function.name}() is spent in {place} (`{slow.text}`)"
    if slow.ops_share > _MAIN_OPS:
        return (
            f"{at}, which has TensorFlow run ops one by one: put @tf.function over the function "
            "that it calls, or call that in a map behind the generator. Else: "
        )
    if slow.carried:
        return (
            f"{at}: each round of the loop there changes {' and '.join(slow.carried)}, from which that line computes, "
            "so write the loop in another way, with less to do. Else: "
        )
    return (
        f"{at}: compute it once and keep it, where it gives the same for the same item in every epoch "
        "(@functools.cache, or a list made before the loop). Else: "
    )


def _at_once(function: PythonFunction, op: PipelineOp | None) -> str:
    """Phrase for how many of its calls run at once; empty where that is not known."""
    if function.kind == "generator":
        return ", one element after another"
    if op is None or ("Map" not in op.op and op.parallelism is not None):
        return ""
    calls = op.chosen_parallelism or op.parallelism or 1
    tuned = ", as AUTOTUNE chose" if op.parallelism == AUTOTUNE and op.chosen_parallelism else ""
    return f", one call after another{tuned}" if calls == 1 else f", {calls} calls at once{tuned}" if calls > 1 else ""


def _each(function: PythonFunction) -> str:
    return f", {1e3 * function.call_time_s:.3g} ms a call" if function.call_time_s else ""


def _outer_op(evidence: Evidence, function: PythonFunction) -> PipelineOp | None:
    """The op of the outer pipeline that runs a function, itself or in a dataset that its function makes."""
    return next(
        (op for op in evidence.graph.ops if any(function.token in own.python_functions for own in every_op((op,)))),
        None,
    )


def _is_waited_for(evidence: Evidence, function: PythonFunction, op: PipelineOp | None) -> bool:
    """Whether the function's op has a main share of the pace or, where its cost is not known, its calls have."""
    if op is not None and pace_share(evidence, op) is not None:
        return is_main(evidence, op)
    waited_s = evidence.input_alone_s.estimate if evidence.input_alone_s is not None else evidence.parts.get("input")
    if not waited_s:
        return False
    if function.call_time_s is not None and function.calls_per_batch is not None:
        at_once = _calls_at_once(evidence, op) if function.gil != "holds" else 1
        return function.call_time_s * function.calls_per_batch / at_once >= MAIN_SHARE * waited_s
    # By elimination: what is known of the others explains less than half of the time, and no other is unknown
    others = [other for other in evidence.graph.ops if other is not op and other.python_functions]
    known_s = sum(other.cost_s or 0.0 for other in evidence.graph.ops)
    return not any(other.cost_s is None for other in others) and known_s < 0.5 * waited_s


def _calls_at_once(evidence: Evidence, op: PipelineOp | None) -> int:
    pool = evidence.graph.threadpool_size or allowed_cpus(evidence)
    written = op.chosen_parallelism or op.parallelism if op is not None else None
    if written is None:
        return 1
    return pool if written < 1 else min(written, pool)


def _checked_remedy(evidence: Evidence, function: PythonFunction, op: PipelineOp | None) -> str:
    """The remedy of its class, unless the same report prices calls in parallel at nothing."""

    def kinds(row: Prediction) -> set[str]:
        return {fix.kind for fix in FixSet.of(row.fixes)}

    calls = ("parallel-map", "parallel-interleave", "open-generator", "thread-pool")
    priced = [row for row in evidence.predictions if row.fixes and row.speedup and kinds(row) <= set(calls)]
    advises = function.gil in ("blocks", "releases") and not (op is not None and op.parallelism not in (None, 1))
    best = max((row.speedup or 0.0 for row in priced), default=None)
    if not advises or best is None or best >= WORTH or gain(evidence, *calls) is not None:
        return _remedy(evidence, function, op)
    return (
        f"More calls at once are estimated at {best:.2f} times as fast here: the processors, or another op, are busy "
        f"already. Make the work of {function.name}() itself cheaper, or cache its output where it may be repeated."
    )


def _remedy(evidence: Evidence, function: PythonFunction, op: PipelineOp | None) -> str:
    """By class, in the terms of the user's own call."""
    name = function.name.rpartition(".")[2]
    name = name if name.isidentifier() else "f"
    mapped = function_of(op) if op is not None and op.function else name  # what the map is given calls this one
    parallel = op is not None and op.parallelism not in (None, 1)
    batched = (
        f" Or call it once a batch: {function.calls_per_batch:.0f} calls make one now."
        if function.calls_per_batch is not None and function.calls_per_batch >= _MANY_CALLS
        else ""
    )
    if function.parts is not None:
        elsewhere = ", and run that function in processes, for it holds the lock" if function.gil == "holds" else ""
        if function.parts.file not in (None, function.location.file):
            return (
                f"The loop that calls {name}() is a library's. Make a data set of the items yourself, and the elements "
                f"in a map: from_tensor_slices(items).map(element, num_parallel_calls=...){elsewhere}."
            )
        return (
            f"What picks an item and what makes its element can be separated (loop in line {function.parts.line}): "
            "have the generator yield items, and make the elements in a map, Dataset.from_generator(items, ...)"
            f".map(element, num_parallel_calls=...){elsewhere}."
        )
    if function.kind == "generator" and function.gil != "holds":
        whole = f"Its loop cannot be taken apart ({function.whole_because}). " if function.whole_because else ""
        return (
            f"{whole}A generator yields one element at a time. Split {name}() by shard: "
            "Dataset.range(n).interleave(lambda i: Dataset.from_generator(..., args=(i,)), num_parallel_calls=n); "
            + ("as it waits, with options.threading.private_threadpool_size = n." if function.gil == "blocks" else "")
        ).rstrip("; ")
    if function.gil == "holds":
        now = f" (now {op.parallelism})" if parallel and op is not None and (op.parallelism or 0) > 1 else ""
        return (
            f"It computes under Python's interpreter lock, so more parallel calls{now} cannot help. Port {name}() to "
            f"TensorFlow ops, run it in processes, or cache its output.{batched}"
        )
    if function.gil == "blocks":
        written = (op.parallelism or 0) if op is not None else 0
        rows = (fix for row in evidence.predictions for fix in FixSet.of(row.fixes))  # as many as the fix has
        own = (fix.number for fix in rows if fix.kind in _FIXES["blocks"] and fix.number)
        calls = written if written > 1 else next(own, 32)
        if parallel and _calls_at_once(evidence, op) >= calls:
            return (
                f"It waits (files, network, sleep), {calls} calls at a time with threads for all of them. Ask for more "
                f"(num_parallel_calls={2 * calls}, options.threading.private_threadpool_size = {2 * calls}), or make a "
                f"call's wait shorter.{batched}"
            )
        reads = op is not None and "Interleave" in op.op
        call = (
            f"Read several at once, .interleave(..., cycle_length={calls}"
            if reads
            else f"Call it in parallel, .map({mapped}"
        )
        return (
            f"It waits (files, network, sleep) and leaves the processor idle. {call}, num_parallel_calls={calls}), and "
            "give the pipeline a private thread pool as large, options.threading.private_threadpool_size = "
            f"{calls}: the shared pool has one thread a core ({allowed_cpus(evidence)} here)."
        )
    if function.gil == "releases":
        if parallel:
            return (
                "It computes outside the interpreter lock and runs in parallel already: make its own work cheaper, "
                f"cache its output, or add cores.{batched}"
            )
        return (
            "It computes outside the interpreter lock, so parallel calls can use several processors: "
            f".map({mapped}, num_parallel_calls=tf.data.AUTOTUNE)."
        )
    return (
        f"Measure {name}() alone: whether it holds the interpreter lock decides between TensorFlow ops (or processes) "
        "and threads."
    )
