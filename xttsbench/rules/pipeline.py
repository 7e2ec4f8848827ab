"""Rules about the input pipeline. A structural rule fires only where its own fix helped the pipeline as it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.pipeline.limits import limiting_op
from xttsbench.records.base import Estimate, Location
from xttsbench.records.pipeline import PipelineOp, PythonFunction
from xttsbench.records.report import Finding
from xttsbench.rules.evidence import Compared, Evidence, allowed_cpus

HELPS: Final = 1.05
"""A fix helps where the low end of its speed-up is above this."""
_MAIN_COST: Final = 0.30
"""An op with this share of the pipeline's cost is a main cost."""

_REMEDIES: Final = {
    "holds": (
        "It computes under Python's interpreter lock, so more parallel calls cannot help. Port it to TensorFlow ops, "
        "run it in processes, or cache its output."
    ),
    "blocks": (
        "It waits (files, network, sleep) and leaves the processor idle. Call it in parallel (num_parallel_calls) and "
        "give the pipeline a private thread pool as large as that parallelism: the shared pool has one thread a core."
    ),
    "releases": (
        "It computes outside the interpreter lock, so parallel calls scale up to the cores: map(..., "
        "num_parallel_calls=tf.data.AUTOTUNE)."
    ),
    "unknown": "Measure it alone: whether it holds the interpreter lock decides between TensorFlow ops and threads.",
}


def input_bound(evidence: Evidence) -> Iterator[Finding]:
    """The step waits for data; the op that costs most is named where the graph was read."""
    if not evidence.limits("input"):
        return
    op = limiting_op(evidence.pipeline, allowed_cpus(evidence)) if evidence.pipeline is not None else None
    place = f"{op.name} costs most" if op is not None else "its graph was not read"
    alone = evidence.input_alone_s
    yield Finding(
        rule="input-bound",
        severity="warning",
        limiting=True,
        title=f"{evidence.share('input'):.0%} of the step is waiting for data; {place}",
        location=op.location.model_copy(update={"op": op.name}) if op is not None else Location(),
        evidence={
            "wait_s_per_step": evidence.parts.get("input"),
            "batch_s_without_a_step": alone.estimate if alone is not None else None,
            "op_cost_s_per_batch": op.cost_s if op is not None else None,
            "cost_share": cost_share(evidence, op),
        },
        remedy="Make the costly op cheaper, parallel or cached; other findings say what was tried here.",
        predicted_speedup=evidence.ceilings.get("input"),
    )


def python_function(evidence: Evidence) -> Iterator[Finding]:
    """Python inside the graph, with the user's file and line; limiting only where the step waits for its op."""
    if evidence.pipeline is None:
        return
    waits = evidence.limits("input")
    for function in evidence.pipeline.python_functions:
        op = _op_of(evidence, function)
        share = cost_share(evidence, op)
        limiting = waits and (share is None or share >= _MAIN_COST)
        remedy = _REMEDIES[function.gil] if limiting else "Leave it alone: it is not what limits the step."
        place = f"{function.name}() runs as {function.kind} in {function.location.op or 'the pipeline'}"
        yield Finding(
            rule="python-function",
            severity="warning" if limiting else "info",
            limiting=limiting,
            title=f"{place} and {_GIL_WORDS[function.gil]}",
            location=function.location,
            evidence={
                "kind": function.kind,
                "gil": function.gil,
                "call_time_s": function.call_time_s,
                "call_cpu_s": function.call_cpu_s,
                "calls_per_batch": function.calls_per_batch,
                "cost_share": share,
            },
            remedy=remedy,
            predicted_speedup=evidence.ceilings.get("input") if limiting else None,
        )


_GIL_WORDS: Final = {
    "holds": "holds the interpreter lock",
    "blocks": "blocks without computing",
    "releases": "releases the interpreter lock",
    "unknown": "may or may not hold the interpreter lock",
}


def sequential_map(evidence: Evidence) -> Iterator[Finding]:
    """A map that runs one element at a time, where running it in parallel was measured to be faster."""
    fix = _helping(evidence, "parallel-map")
    if fix is None or evidence.pipeline is None:
        return
    maps = [op for op in evidence.pipeline.ops if op.op == "MapDataset"]
    if not maps:
        return
    op = max(maps, key=lambda candidate: candidate.cost_s or 0.0)
    yield _structural(
        evidence,
        "sequential-map",
        fix,
        f"{op.name} maps one element at a time",
        op.location.model_copy(update={"op": op.name}),
        "Give it num_parallel_calls=tf.data.AUTOTUNE (TensorFlow does not do so by itself for stateful functions, "
        "Python functions among them).",
        {"cost_share": cost_share(evidence, op), "sequential_maps": len(maps)},
    )


def no_prefetch(evidence: Evidence) -> Iterator[Finding]:
    """Step and input take turns, where a prefetch at the end was measured to be faster."""
    fix = _helping(evidence, "prefetch")
    if fix is None or evidence.pipeline is None or not evidence.pipeline.ops:
        return
    last = evidence.pipeline.ops[-1]
    yield _structural(
        evidence,
        "no-prefetch",
        fix,
        "step and input take turns: nothing is prepared while the step runs",
        last.location.model_copy(update={"op": last.name}),
        "End the pipeline with .prefetch(tf.data.AUTOTUNE).",
        {"last_op": last.op, "tensorflow_injects_prefetch": evidence.pipeline.injects_prefetch},
    )


def redundant_prefetch(evidence: Evidence) -> Iterator[Finding]:
    """Several prefetches of which only the last hides anything; where leaving them out was measured, not slower."""
    if evidence.pipeline is None:
        return
    inner = [op for op in evidence.pipeline.ops[:-1] if op.op.startswith("PrefetchDataset")]
    ends_with_prefetch = bool(evidence.pipeline.ops) and evidence.pipeline.ops[-1].op.startswith("PrefetchDataset")
    if not ends_with_prefetch or not inner:
        return
    fix = evidence.fixes.get("drop-prefetch")
    measured = fix.speedup if fix is not None else None
    adjacent = [op for op in inner if _feeds_prefetch(evidence, op)]
    # One prefetch into the next hides nothing by construction; of others it takes a measurement to say so.
    if not adjacent and (measured is None or measured.high < 1 / HELPS):
        return
    yield Finding(
        rule="redundant-prefetch",
        severity="info",
        limiting=False,
        title=f"{len(inner)} prefetch(es) before the last hold memory and hide nothing",
        location=inner[0].location.model_copy(update={"op": inner[0].name}),
        evidence={
            "prefetches": len(inner) + 1,
            "buffered_elements": sum(max(op.buffer_size or 0, op.chosen_buffer_size or 0, 0) for op in inner),
            "speed_without_them": measured.estimate if measured else None,
        },
        remedy="Keep the last prefetch and remove the others.",
        predicted_speedup=measured,
    )


def thread_pool(evidence: Evidence) -> Iterator[Finding]:
    """A pool with fewer threads than the blocking calls asked for, or with far more than there are cores."""
    if evidence.pipeline is None:
        return
    cores = allowed_cpus(evidence)
    size = evidence.pipeline.threadpool_size
    fix = next(
        (found for name in evidence.fixes if (found := _helping(evidence, name)) and name[:11] == "thread-pool"), None
    )
    if fix is not None:
        blocking = [f for f in evidence.pipeline.python_functions if f.gil == "blocks"]
        place = blocking[0].location if blocking else Location()
        threads = int(fix.name.partition(":")[2])
        yield _structural(
            evidence,
            "thread-pool",
            fix,
            f"calls that wait share {size or 'one thread a core'}{' threads' if size else ''}, so they wait in turn",
            place,
            f"options.threading.private_threadpool_size = {threads}, with num_parallel_calls to match.",
            {"threadpool_size": size, "cores": cores, "tried_size": threads},
        )
    elif size and size > 8 * cores and not any(f.gil == "blocks" for f in evidence.pipeline.python_functions):
        yield Finding(
            rule="thread-pool",
            severity="info",
            limiting=False,
            title=f"a private pool of {size} threads on {cores} cores, and nothing in it waits",
            evidence={"threadpool_size": size, "cores": cores},
            remedy="Leave private_threadpool_size out, or set it to the number of cores.",
        )


RULES: Final = (
    python_function,
    sequential_map,
    no_prefetch,
    redundant_prefetch,
    thread_pool,
    input_bound,
)


def cost_share(evidence: Evidence, op: PipelineOp | None) -> float | None:
    """Share of an op in the cost of the whole pipeline, or ``None`` where costs are not known."""
    if op is None or op.cost_s is None or evidence.pipeline is None:
        return None
    total = sum(other.cost_s or 0.0 for other in evidence.pipeline.ops)
    return op.cost_s / total if total > 0 else None


def _op_of(evidence: Evidence, function: PythonFunction) -> PipelineOp | None:
    ops = evidence.pipeline.ops if evidence.pipeline else ()
    return next((op for op in ops if function.token in op.python_functions), None)


def _helping(evidence: Evidence, name: str) -> Compared | None:
    """The fix of that name, if it was measured to help a step that waits for its input."""
    fix = evidence.fixes.get(name)
    helps = fix is not None and fix.speedup is not None and fix.speedup.low > HELPS
    return fix if helps and evidence.limits("input") else None


def _structural(
    evidence: Evidence,
    rule: str,
    fix: Compared,
    title: str,
    location: Location,
    remedy: str,
    numbers: dict[str, float | int | str | bool | None],
) -> Finding:
    speedup: Estimate | None = fix.speedup
    return Finding(
        rule=rule,
        severity="critical" if speedup is not None and speedup.estimate >= 2 else "warning",
        limiting=True,
        title=title,
        location=location,
        evidence={**numbers, "measured_with": fix.name, "processes": fix.processes},
        remedy=remedy,
        predicted_speedup=speedup,
    )


def _feeds_prefetch(evidence: Evidence, op: PipelineOp) -> bool:
    """Whether the only consumer of ``op`` is a prefetch too."""
    ops = evidence.pipeline.ops if evidence.pipeline else ()
    consumers = [other for other in ops if op.name in other.inputs]
    return bool(consumers) and all(other.op.startswith("PrefetchDataset") for other in consumers)
