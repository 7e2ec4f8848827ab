"""The rules on tracing and compiling again: `retracing`, `xla-recompilation`, `partial-batch`."""

from __future__ import annotations

from collections import Counter
from typing import Final

from xttsbench.analysis.attribution import THRESHOLD, partial_batches
from xttsbench.evidence import Evidence
from xttsbench.evidence.step import costliest_shape, heaviest_line, place_in_step, place_of
from xttsbench.findings.rule import Findings, rule
from xttsbench.records.base import Location
from xttsbench.records.report import Finding

_AGAIN: Final = {
    "new function object": ("the tf.function is made anew", "Make the tf.function once, outside of the loop."),
    "shape": (
        "each new shape of a batch is traced",
        "Pad the batches to a few fixed shapes (buckets), or let one trace serve all: "
        "@tf.function(reduce_retracing=True), or an input_signature with None for what varies.",
    ),
    "python value": (
        "each new Python value among its arguments is traced",
        "Pass Python numbers as tensors, or keep them out of the arguments.",
    ),
    "other": (
        "its arguments differ from call to call",
        "See the signatures of the traces; make arguments alike from call to call.",
    ),
}  # Reason -> what is said of it, and the remedy
_OF_FIT: Final = ("one_step_on_data", "one_step_on_iterator", "multi_step_on_iterator", "train_function")
_COMPILED_ANEW: Final = (
    "compile() in a loop makes Keras's functions anew",
    "Move `model.compile(...)` in front of the loop: fit goes on with a compiled model. Another learning rate is "
    "`model.optimizer.learning_rate = rate`. In the loop it also forgets the optimizer's state, which is seldom meant.",
)
_OF_ITERATORS: Final = tuple(
    f"_{where}{name}_func" for where in ("", "remote_") for name in ("init", "next", "finalize")
)
_EACH_EPOCH: Final = (
    "TensorFlow makes the iterator of each replica anew in every epoch, with six functions each",
    "Have one iterator for all epochs of a dataset that repeats: `fit(dataset.repeat(), steps_per_epoch=steps)`, or "
    "`iter(distributed)` in front of the epochs; a PyDataset has to be put into a tf.data.Dataset for that.",
)
"""TensorFlow's functions of an iterator over devices (``MultiDeviceIterator``)."""


@rule(
    "retracing",
    threshold="a trace in the steady state, and one that is not a function's first; a bottleneck where "
    "compilation is one",
    remedy="Fix shapes, pass Python numbers as tensors, and make tf.functions once, outside of the loop.",
    false_alarms="a few traces while the last shapes are first seen",
)
def retracing(evidence: Evidence) -> Findings:
    """A tf.function that is traced again and again, and why."""
    steps = evidence.steps
    if steps is None or int(steps.traces.sum()) == 0 or not evidence.has_step:
        return
    again = [trace for trace in evidence.traces if trace.reason != "first"]
    if not again:
        return
    spent_s = dict[tuple[str, str], float]()  # by function and reason: that which is traced most may cost least
    for trace in again:
        known = trace.function, trace.reason
        spent_s[known] = spent_s.get(known, 0.0) + trace.time_s
    function, reason = max(spent_s, key=spent_s.__getitem__)
    times = sum(trace.reason == reason for trace in again)
    example = next(trace for trace in again if (trace.function, trace.reason) == (function, reason))
    limiting, costliest = evidence.limits("compile"), costliest_shape(evidence)
    (why, remedy), at = _AGAIN[reason], place_in_step(evidence)
    if example.function in _OF_ITERATORS:
        why, remedy = _EACH_EPOCH
    elif reason == "new function object" and example.function in _OF_FIT and evidence.script is not None:
        why, remedy = _COMPILED_ANEW
        calls = (one.place for one in evidence.script.keras_calls if one.method == "fit")
        at = next((Location(file=one.file, line=one.line) for one in calls), at)
    yield retracing.finding(
        f"{example.function} is traced again after the first step: {why}",
        {
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
        remedy,
        severity="critical" if limiting else "warning",
        limiting=limiting,
        at=at,
        predicted_speedup=evidence.max_speedups.get("compile") if limiting else None,
    )


@rule(
    "xla-recompilation",
    threshold="one compilation in the steady state; a bottleneck where compilation is one",
    remedy="Give XLA few fixed shapes (buckets, drop_remainder=True) and compile each before training, or turn it off: "
    "jit_compile=False.",
    false_alarms="a few compilations while the last shapes are first seen",
)
def xla_recompilation(evidence: Evidence) -> Findings:
    """XLA compiles in the steady state, as it does for a new shape, also where nothing is traced."""
    steps = evidence.steps
    if steps is None or int(steps.xla_compiles.sum()) == 0 or not evidence.has_step:
        return
    compiles = int(steps.xla_compiles.sum())
    shapes = {int(shape) for shape, count in zip(steps.shape_id, steps.xla_compiles, strict=True) if count}
    limiting, costliest = evidence.limits("compile"), costliest_shape(evidence)
    yield xla_recompilation.finding(
        f"XLA compiled {compiles} times in {len(steps)} steady steps",
        {
            "compiles": compiles,
            "steps": len(steps),
            "traces_in_the_same_steps": int(steps.traces.sum()),
            "shapes_compiled": len(shapes),
            "compile_s_per_compile": float(steps.compile_s[steps.xla_compiles > 0].sum()) / compiles,
            "costliest_shape": costliest.shape if costliest else None,
            "costliest_shape_lost_s": costliest.lost_s if costliest else None,
        },
        severity="critical" if limiting else "warning",
        limiting=limiting,
        at=place_in_step(evidence),
        predicted_speedup=evidence.max_speedups.get("compile") if limiting else None,
    )


@rule(
    "partial-batch",
    threshold="a trace, a compilation or an error at a smaller batch; a bottleneck only where compilation is one",
    remedy="batch(n, drop_remainder=True), or pad the last batch to the full size and mask its rows.",
    false_alarms="a long run, in which it costs little",
)
def partial_batch(evidence: Evidence) -> Findings:
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
    limiting = evidence.limits("compile") and again >= THRESHOLD
    yield partial_batch.finding(
        f"the last batch of an epoch has {found.size} rows instead of {found.usual}, and the step is "
        f"{'compiled' if found.compiles else 'traced'} again for it",
        {
            "usual_size": found.usual,
            "partial_size": found.size,
            "traces": found.traces,
            "xla_compiles": found.compiles,
            "lost_s": found.lost_s,
            "share_of_steady_steps": again,
        },
        severity="critical" if limiting else "warning" if found.lost_s > 0.1 else "info",
        limiting=limiting,
        at=place_of(heaviest_line(evidence, ("function", "tensorflow"))),
        predicted_speedup=evidence.max_speedups.get("compile") if limiting else None,
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
        return partial_batch.finding(
            f"the step raises {trial.error.type} at a batch of {size} rows, where those before had {before}",
            {"usual_size": before, "partial_size": size, "at_step": trial.error.step},
            "batch(n, drop_remainder=True), or take the size from the batch itself: tf.shape(batch)[0].",
            severity="critical",
            at=Location(file=trial.error.file, line=trial.error.line),
        )
    return None
