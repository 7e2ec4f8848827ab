"""The rules on Python's share of the step: `host-sync`, `host-stall`, `python-function-in-step`, `call-per-batch`."""

from __future__ import annotations

import os
from typing import Final

from xttsbench.analysis.attribution import THRESHOLD
from xttsbench.evidence import Evidence
from xttsbench.evidence.step import heaviest_line, place_of
from xttsbench.findings.rule import Findings, rule
from xttsbench.records.base import Location
from xttsbench.records.trial import StackLine


@rule(
    "host-sync",
    threshold="one fetch for two steps; a bottleneck only where host work is one",
    remedy="Keep metrics on the device and fetch them every hundred steps.",
    false_alarms="on a CPU, where a fetch costs little",
)
def host_sync(evidence: Evidence) -> Findings:
    """Values that are fetched from the device to Python step after step."""
    steps = evidence.steps
    if steps is None or len(steps) == 0 or steps.syncs.mean() < 0.5 or not evidence.has_step:
        return
    per_step, cost_s = float(steps.syncs.mean()), float(steps.sync_s.mean())
    share = cost_s / evidence.wall_s if evidence.wall_s else 0.0
    limiting = evidence.limits("host") and share >= THRESHOLD
    yield host_sync.finding(
        f"values are fetched from the device, {per_step:.3g} a step",
        {"fetches_per_step": per_step, "fetch_s_per_step": cost_s, "share": share, "gpu": evidence.on_gpu},
        None
        if evidence.on_gpu
        else f"{host_sync.remedy} On this CPU it costs next to nothing; on a GPU each fetch waits for the step to end.",
        severity="warning" if evidence.on_gpu or limiting else "info",
        limiting=limiting,
        at=place_of(heaviest_line(evidence, ("sync",))),
    )


_HOST_KINDS: Final = ("python", "io", "sync")
_COLLECTING: Final = 0.5  # Share of the host's work from which Python's garbage collection is named as what it is
_REMEDIES: Final = {
    "collects": "Call gc.freeze() once the model is built, keep fewer objects alive from step to step, and do not call "
    "gc.collect() in the loop.",
    "io": "Save less often, or beside the training (an asynchronous checkpoint: tf.train.CheckpointOptions); "
    "call clear_session between trainings, not in one.",
    "sync": "Keep metrics on the device, and fetch them less often.",
}
_OTHERWISE: Final = "Do this work less often, or in a thread beside the training, or after the epoch."


def _seldom(line: StackLine | None) -> str:
    """Code that has a callback of Keras do its work for few batches; empty for other lines."""
    if line is None or not line.function.startswith(("on_train_batch_", "on_batch_")):
        return ""
    return (
        f"Begin {line.function}(self, batch, logs=None) with `if batch % 100: return`, which does its work once in a "
        "hundred batches, or move it into on_epoch_end()."
    )


def _is_of_calls(evidence: Evidence) -> bool:
    """Whether most of the host's work is what Keras makes anew in calls for each batch: `call-per-batch` tells it."""
    script, anew_share = evidence.script, evidence.facts.anew_share
    told = any(one.own_share >= THRESHOLD for one in (script.batch_calls if script is not None else ()))
    return told and anew_share >= 0.5 * evidence.share("host")


@rule(
    "host-stall",
    threshold="host work is the verdict, or takes 10 % of the step, and less than half of it is what call-per-batch "
    "names; always a bottleneck",
    remedy="Do this work less often, or in a thread beside the training, or after the epoch.",
    false_alarms="work in another thread that holds the interpreter lock is charged to the line that waits for it",
)
def host_stall(evidence: Evidence) -> Findings:
    """Host work between steps, or in one outside of its compiled functions: Python, logs, checkpoints, collections."""
    if not evidence.limits("host") or _is_of_calls(evidence):
        return
    line = heaviest_line(evidence, _HOST_KINDS, rarest=evidence.facts.opaque)
    period = evidence.oscillation
    collecting_s = float(evidence.steps.gc_s.mean()) if evidence.steps is not None and len(evidence.steps) else None
    collects = collecting_s is not None and collecting_s >= _COLLECTING * evidence.parts.get("host", 0.0)
    how_often = ""
    if line is not None and line.steps_share < 0.5:
        how_often = f", about every {1 / max(line.steps_share, 1e-6):.0f} steps"
    elif period.period_steps is not None and not evidence.length_has_the_period:
        how_often = f", about every {period.period_steps:.0f} steps"
    what = "garbage collection between steps" if collects else "host work between steps"
    who = f", most of it in {line.function}()" if line and line.function.isidentifier() and not collects else ""
    yield host_stall.finding(
        f"{what} takes {evidence.share('host'):.0%} of the step{how_often}{who}",
        {
            "host_s_per_step": evidence.parts.get("host"),
            "share": evidence.share("host"),
            "line_share": line.share if line else None,
            "in_share_of_steps": line.steps_share if line else None,
            "kind": line.kind if line else None,
            "period_steps": period.period_steps,
            "gc_s_per_step": collecting_s,
        },
        _seldom(line) or _REMEDIES.get("collects" if collects else line.kind if line else "", _OTHERWISE),
        severity="critical",
        limiting=True,
        at=place_of(None if collects and line is None else line),
        predicted_speedup=evidence.max_speedups.get("host"),
    )


@rule(
    "python-function-in-step",
    threshold="any is reported; a bottleneck from 10 % of the step where the verdict is compute",
    remedy="Write the function in TensorFlow ops, or move it into the input pipeline.",
    false_alarms="a function that runs once in many steps",
)
def python_function_in_step(evidence: Evidence) -> Findings:
    """Python inside an op of the step: it runs on the processor and needs the interpreter lock."""
    anatomy = evidence.anatomy
    if anatomy is None or not anatomy.python_functions_in_step:
        return
    share = anatomy.kinds.get("python_function", 0.0)
    how = "an op of TensorFlow's" if {"EagerPyFunc", "PyFunc"} & anatomy.ops.keys() else "inside its graph"
    yield python_function_in_step.finding(
        f"the step calls Python from {how}: {anatomy.python_functions_in_step[0]}",
        {"share_of_step": share, "functions": len(anatomy.python_functions_in_step)},
        severity="warning" if share >= THRESHOLD else "info",
        limiting=share >= THRESHOLD and evidence.bottleneck == "compute",
        at=place_of(heaviest_line(evidence, ("python_function",))),
    )


_SAME: Final = "the same compiled function on the same rows, without Keras's loop and its callbacks."
_AT_ONCE: Final = (
    " Where rows are known beforehand, one call for all is better still: `values = model.predict(rows)`. Ever new "
    "shapes are traced again: pad to a few."
)


@rule(
    "call-per-batch",
    threshold="20 calls of a line, of two batches at most on average, that spend 10 % of the time outside the "
    "compiled function; a bottleneck unless TensorFlow sees a GPU",
    remedy="Hand over all rows in one call, or call the method for one batch: train_on_batch, test_on_batch, "
    "predict_on_batch.",
    false_alarms="on a GPU, where a wait for results counts as time outside the function",
)
def call_per_batch(evidence: Evidence) -> Findings:
    """Calls of `fit`, `evaluate` or `predict` for one batch or two at a time."""
    script = evidence.script
    for one in script.batch_calls if script is not None else ():
        call_s, own_s, share = one.time_s / (one.calls - 1), one.own_s, one.own_share
        if share < THRESHOLD:
            continue
        place = Location(file=one.place.file, line=one.place.line)
        yield call_per_batch.finding(
            f"{one.method}() is called for each batch: {1e3 * own_s:.0f} of its {1e3 * call_s:.0f} ms go to what Keras "
            "makes anew in each call, a dataset, its iterator and callbacks",
            {"calls": one.calls, "call_s": call_s, "own_s": own_s, "first_call_to_last_share": share},
            f"Write `{one.on_batch}` in line {place.line} of {os.path.basename(place.file or '')}: {_SAME}"
            + (_AT_ONCE if one.method == "predict" else ""),
            severity="critical" if share >= 0.5 else "warning",
            limiting=not evidence.on_gpu,
            at=place,
        )
