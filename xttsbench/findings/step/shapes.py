"""Rules about what tracing and compiling again costs, by shape: retracing, recompilation, the smaller last batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from xttsbench.analysis.shape_costs import ShapeCost, partial_batches, shape_costs
from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.lines import heaviest_line, place_of
from xttsbench.records.base import Location
from xttsbench.records.report import Finding


def retracing(evidence: Evidence) -> Iterator[Finding]:
    """A tf.function that is traced again and again, and why."""
    steps = evidence.steps
    if steps is None or int(steps.traces.sum()) == 0:
        return
    again = [trace for trace in evidence.traces if trace.reason != "first"]
    if not again:
        return
    reason, times = Counter(trace.reason for trace in again).most_common(1)[0]
    example = next(trace for trace in again if trace.reason == reason)
    limiting, costliest = evidence.limits("compile"), _costliest(evidence)
    remedies = {
        "new function object": "Make the tf.function once, outside of the loop.",
        "shape": "Fix the shapes (buckets), or relax them with input_signature or reduce_retracing=True.",
        "python value": "Pass Python numbers as tensors, or keep them out of the arguments.",
        "other": "See the signatures of the traces; make arguments alike from call to call.",
    }
    yield Finding(
        rule="retracing",
        severity="critical" if limiting else "warning",
        limiting=limiting,
        title=f"{example.function} is traced again after the first step: {reason}",
        location=place_of(heaviest_line(evidence, ("function", "tensorflow"))),
        evidence={
            "traces_in_steady_state": int(steps.traces.sum()),
            "steps": len(steps),
            "reason": reason,
            "traces_with_this_reason": times,
            "trace_time_s": sum(trace.time_s for trace in again) / len(again),
            "signature": example.signature,
            "lost_s_in_steady_state": float(steps.compile_s.sum()),
            "costliest_shape": costliest.shape if costliest else None,
            "costliest_shape_lost_s": costliest.lost_s if costliest else None,
        },
        remedy=remedies[reason],
        predicted_speedup=evidence.ceilings.get("compile") if limiting else None,
    )


def xla_recompilation(evidence: Evidence) -> Iterator[Finding]:
    """XLA compiles again in the steady state, most often for each new shape, while the trace count stays low."""
    steps = evidence.steps
    if steps is None or int(steps.xla_compiles.sum()) == 0:
        return
    compiles = int(steps.xla_compiles.sum())
    shapes = {int(shape) for shape, count in zip(steps.shape_id, steps.xla_compiles, strict=True) if count}
    limiting, costliest = evidence.limits("compile"), _costliest(evidence)
    yield Finding(
        rule="xla-recompilation",
        severity="critical" if limiting else "warning",
        limiting=limiting,
        title=f"XLA compiled {compiles} times in {len(steps)} steady steps",
        location=place_of(heaviest_line(evidence, ("function", "tensorflow"))),
        evidence={
            "compiles": compiles,
            "steps": len(steps),
            "traces_in_the_same_steps": int(steps.traces.sum()),
            "shapes_compiled": len(shapes),
            "compile_s_per_compile": float(steps.compile_s[steps.xla_compiles > 0].sum()) / compiles,
            "costliest_shape": costliest.shape if costliest else None,
            "costliest_shape_lost_s": costliest.lost_s if costliest else None,
        },
        remedy="Give XLA few fixed shapes (buckets, drop_remainder=True) and compile each before training.",
        predicted_speedup=evidence.ceilings.get("compile") if limiting else None,
    )


def partial_batch(evidence: Evidence) -> Iterator[Finding]:
    """The last, smaller batch of an epoch traces or compiles the step anew, or breaks it."""
    trial = next(iter(evidence.ladder), None)
    if trial is None or not evidence.has_step:
        return
    found = partial_batches(trial.segments)
    broke = _broke(evidence, found.usual if found else None)
    if broke is not None:
        yield broke
        return
    if found is None or not found.traces + found.compiles:
        return
    steady = evidence.steps
    again = 0.0
    if steady is not None and len(steady):
        own = (steady.batch_size < found.usual) & steady.compiling
        again = float(steady.compile_s[own].sum()) / float(steady.wall_s.sum())
    limiting = evidence.limits("compile") and again >= 0.10
    yield Finding(
        rule="partial-batch",
        severity="critical" if limiting else "warning" if found.lost_s > 0.1 else "info",
        limiting=limiting,
        title=f"the last batch of an epoch has {found.size} rows instead of {found.usual}, and the step is "
        f"{'compiled' if found.compiles else 'traced'} again for it",
        location=place_of(heaviest_line(evidence, ("function", "tensorflow"))),
        evidence={
            "usual_size": found.usual,
            "partial_size": found.size,
            "traces": found.traces,
            "xla_compiles": found.compiles,
            "lost_s": found.lost_s,
            "share_of_steady_steps": again,
        },
        remedy="batch(n, drop_remainder=True), or pad the last batch to the full size and mask its rows.",
        predicted_speedup=evidence.ceilings.get("compile") if limiting else None,
    )


def _broke(evidence: Evidence, usual: int | None) -> Finding | None:
    """The finding where a trial raised at a batch that is smaller than those before it."""
    for trial in evidence.ladder:
        size = trial.error.batch_size if trial.error is not None else None
        before = usual
        if before is None:
            sizes = Counter(size for segment in trial.segments for size in segment.columns.get("batch_size", ()))
            before = sizes.most_common(1)[0][0] if len(sizes) == 1 else None
        if trial.error is None or size is None or before is None or size >= before:
            continue
        return Finding(
            rule="partial-batch",
            severity="critical",
            limiting=False,
            title=f"the step raises {trial.error.type} at a batch of {size} rows, where those before had {before}",
            location=Location(file=trial.error.file, line=trial.error.line),
            evidence={"usual_size": before, "partial_size": size, "at_step": trial.error.step},
            remedy="batch(n, drop_remainder=True), or take the size from the batch itself: tf.shape(batch)[0].",
        )
    return None


def _costliest(evidence: Evidence) -> ShapeCost | None:
    """The shape that tracing and compilation took most time for, over all that the main trial ran."""
    trial = next(iter(evidence.ladder), None)
    shapes = trial.batches.shapes if trial is not None and trial.batches is not None else ()
    costs = [cost for cost in shape_costs(trial.segments, shapes) if cost.lost_s > 0] if trial is not None else []
    return max(costs, key=lambda cost: cost.lost_s, default=None)


RULES: Final = (retracing, xla_recompilation, partial_batch)
