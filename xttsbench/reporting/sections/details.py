"""The tables at the end of a report, for who wants to check: training, readings, trials, target and environment.

The records leave the keys of many of these open, so they are flattened as they come, with units from the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from xttsbench.records.report import Report
from xttsbench.records.training import TakenOver, Training, WatchedInterval
from xttsbench.reporting import units, words
from xttsbench.reporting.document import NOT_MEASURED, Fold, Section, View, folded
from xttsbench.reporting.sections import arms, fixes, pipeline, step

_MOST_ROWS: Final = 40
"""Intervals of a table at most; of more, evenly chosen ones, the last among them."""


def details(report: Report, *, comparing: bool) -> Section:
    """The tables, each folded away; the pipeline among them where it does not stand before."""
    ops = pipeline.blocks(report)
    return Section(
        "Details",
        (
            *(_training(report.training) if report.training is not None else ()),
            arms.in_full(report),
            Fold(pipeline.TITLE, ops, view=View.FULL) if comparing else Fold("", ()),
            _pairs("Pipeline", {} if ops else report.pipeline or {}),
            fixes.predictions_in_full(report),
            *step.tables(report),
            _pairs("Readings beside the steps", _renamed(report.readings)),
            _pairs("Accelerator", report.accelerator),
            _trials(report),
            _pairs("Target", report.target),
            _pairs("Environment", report.environment),
        ),
    )


def _pairs(title: str, values: Mapping[str, object]) -> Fold:
    """A table of two columns from a (nested) dictionary."""
    return folded(title, ("what", "value"), list(_flat(values)))


def _flat(values: Mapping[str, object], prefix: str = "", unit: str = "") -> Iterator[tuple[str, str]]:
    """Label and value of every leaf; numbers below a key with a unit (``cpu_s: {python: 2.2}``) have that unit."""
    for name, value in values.items():
        key = f"{name}_{unit}" if unit and isinstance(value, int | float) else str(name)
        label, text = units.named(key, value)
        label = words.label(label)
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{label}: ", units.unit(key))
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            for index, item in enumerate(value):
                if isinstance(item, Mapping):
                    yield from _flat(item, f"{prefix}{label} {index}: ")
            leaves = [units.named(key, item)[1] for item in value if not isinstance(item, Mapping)]
            if leaves or not value:
                yield f"{prefix}{label}", ", ".join(leaves) or "none"
        else:
            yield f"{prefix}{label}", text


def _renamed(readings: Mapping[str, Any]) -> dict[str, object]:
    """The readings with the processors' side called ``system``: ``host`` is work of the training loop."""
    missing = {re.sub(r"^host\b", "system", name): why for name, why in (readings.get("unmeasured") or {}).items()}
    named = {"system" if name == "host" else name: value for name, value in readings.items()}
    return named | ({"unmeasured": missing} if missing else {})


def _trials(report: Report) -> Fold:
    keys = tuple(dict.fromkeys(key for trial in report.trials for key in trial))
    header = [words.label(units.named(key, 0.0)[0]) for key in keys]
    rows = [
        ["" if trial.get(key) is None else units.named(key, trial[key])[1] for key in keys] for trial in report.trials
    ]
    return folded("Trials", header, rows)


def _training(training: Training) -> Iterator[Fold]:
    """Losses over the steps, evaluations, checkpoints, and what was taken over from a winner."""
    yield from (_run(training), _losses(training.intervals), _evaluations(training), _checkpoints(training))
    if training.taken_over is not None:
        yield _taken_over(training.taken_over)


def _run(training: Training) -> Fold:
    rows = []
    for number, begun in enumerate(training.sessions):
        clips = f"{begun.clips_per_update:.4g} clips ({begun.accumulation} accumulated, {begun.replicas} replicas)"
        rows.append((f"session {number}", f"from step {begun.step:,}; effective batch {clips}"))
        times = f"{units.duration(begun.setup_s)} to start, {units.duration(begun.warm_up_s)} to compile"
        rows.append(("", f"{begun.parameters:,} parameters; {begun.shapes} shapes of batches; {times}"))
    if training.ended is not None:
        rows.append(("ended", f"{training.ended.reason.replace('_', ' ')} after step {training.ended.step:,}"))
        rows.append(("weights (SHA-256)", training.ended.weights_sha256))
    if training.fitted is not None:
        rows.append(("fitted to memory", f"tokens_per_batch {training.fitted.tokens_per_batch:,}"))
    if training.spoken is not None:
        rows += [
            (f"speech, {name.replace('_', ' ')}", NOT_MEASURED if value is None else units.number(float(value)))
            for name, value in training.spoken.metrics.items()
        ]
    return folded("Training", ("what", "value"), rows)


def _losses(intervals: Sequence[WatchedInterval]) -> Fold:
    header = ("steps", "loss", "mel", "stop", "guided", "gradient norm", "left out", "valid frames/s", "waiting")
    return folded("Losses over the steps", header, list(map(_interval, _chosen(intervals))))


def _chosen(intervals: Sequence[WatchedInterval]) -> Sequence[WatchedInterval]:
    if len(intervals) <= _MOST_ROWS:
        return intervals
    return [intervals[(number + 1) * len(intervals) // _MOST_ROWS - 1] for number in range(_MOST_ROWS)]


def _interval(interval: WatchedInterval) -> tuple[str, ...]:
    rate, waits = interval.valid_frames_per_s, interval.wait_fraction
    return (
        f"{interval.first_step:,} to {interval.first_step + interval.steps - 1:,}",
        *(_number(getattr(interval, name)) for name in ("loss", "mel", "stop", "guided", "gradient_norm")),
        f"{interval.skipped:,}",
        NOT_MEASURED if rate is None else f"{rate:,.0f}",
        NOT_MEASURED if waits is None else units.percent(waits),
    )


def _evaluations(training: Training) -> Fold:
    rows = [
        (
            f"{found.step:,}",
            *(_number(value) for value in (found.loss, found.mel, found.stop, found.guided)),
            f"{found.clips:,}",
            "lowest so far" if found.best else "",
            NOT_MEASURED if found.took_s is None else units.duration(found.took_s),
        )
        for found in training.evaluations
    ]
    return folded("Held-out loss", ("step", "loss", "mel", "stop", "guided", "clips", "", "took"), rows)


def _checkpoints(training: Training) -> Fold:
    rows = [
        (f"{entry.step:,}", f"{entry.epoch:,}", entry.weights_sha256[:16], entry.samples_sha256[:16])
        for entry in training.checkpoints
    ]
    return folded("Checkpoints that were written", ("step", "epoch", "weights", "samples"), rows)


def _taken_over(taken: TakenOver) -> Fold:
    rows = [("file", taken.path), ("proven", "yes" if taken.proven else f"no: {taken.why}")]
    rows += [(key, str(value)) for key, value in taken.config.items()]
    rows += [("other here", difference) for difference in taken.differences]
    rows += [(f"{key}, otherwise", change) for key, change in taken.overridden.items()]
    return folded("Taken over from best.yaml", ("what", "value"), rows)


def _number(value: float | None) -> str:
    return NOT_MEASURED if value is None else units.number(float(value))
