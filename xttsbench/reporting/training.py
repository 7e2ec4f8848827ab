"""What a report says of a training run beside its speed: losses over the steps, evaluations, checkpoints, a winner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xttsbench.records.report import Report
from xttsbench.records.training import TakenOver, Training, WatchedInterval
from xttsbench.reporting import units
from xttsbench.reporting.absent import NOT_MEASURED
from xttsbench.reporting.rows import Table
from xttsbench.reporting.text import plain

_MOST_ROWS: Final = 40
"""Intervals of a table at most; of more, evenly chosen ones, the last among them."""


def training_tables(report: Report) -> tuple[Table, ...]:
    """The tables of a training run; none for other reports."""
    training = report.training
    if training is None:
        return ()
    return (
        _run(training),
        _losses(training.intervals),
        _evaluations(training),
        _checkpoints(training),
        *(() if training.taken_over is None else (_taken_over(training.taken_over),)),
    )


def _run(training: Training) -> Table:
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
            (f"speech, {plain(name).replace('_', ' ')}", NOT_MEASURED if value is None else units.number(float(value)))
            for name, value in training.spoken.metrics.items()
        ]
    return Table("Training", ("what", "value"), tuple(rows))


def _losses(intervals: Sequence[WatchedInterval]) -> Table:
    header = ("steps", "loss", "mel", "stop", "guided", "gradient norm", "left out", "valid frames/s", "waiting")
    return Table("Losses over the steps", header, tuple(map(_interval, _chosen(intervals))))


def _chosen(intervals: Sequence[WatchedInterval]) -> Sequence[WatchedInterval]:
    if len(intervals) <= _MOST_ROWS:
        return intervals
    return [intervals[(number + 1) * len(intervals) // _MOST_ROWS - 1] for number in range(_MOST_ROWS)]


def _interval(interval: WatchedInterval) -> tuple[str, ...]:
    rate, waits = interval.valid_frames_per_s, interval.wait_fraction
    return (
        f"{interval.first_step:,} to {interval.first_step + interval.steps - 1:,}",
        *(
            _number(value)
            for value in (interval.loss, interval.mel, interval.stop, interval.guided, interval.gradient_norm)
        ),
        f"{interval.skipped:,}",
        NOT_MEASURED if rate is None else f"{rate:,.0f}",
        NOT_MEASURED if waits is None else units.percent(waits),
    )


def _evaluations(training: Training) -> Table:
    rows = tuple(
        (
            f"{found.step:,}",
            *(_number(value) for value in (found.loss, found.mel, found.stop, found.guided)),
            f"{found.clips:,}",
            "lowest so far" if found.best else "",
            NOT_MEASURED if found.took_s is None else units.duration(found.took_s),
        )
        for found in training.evaluations
    )
    return Table("Held-out loss", ("step", "loss", "mel", "stop", "guided", "clips", "", "took"), rows)


def _checkpoints(training: Training) -> Table:
    rows = tuple(
        (f"{entry.step:,}", f"{entry.epoch:,}", entry.weights_sha256[:16], entry.samples_sha256[:16])
        for entry in training.checkpoints
    )
    return Table("Checkpoints that were written", ("step", "epoch", "weights", "samples"), rows)


def _taken_over(taken: TakenOver) -> Table:
    rows = [("file", plain(taken.path)), ("proven", "yes" if taken.proven else f"no: {plain(taken.why)}")]
    rows += [(plain(key), plain(value)) for key, value in taken.config.items()]
    rows += [("other here", plain(difference)) for difference in taken.differences]
    rows += [(f"{plain(key)}, otherwise", plain(change)) for key, change in taken.overridden.items()]
    return Table("Taken over from best.yaml", ("what", "value"), tuple(rows))


def _number(value: float | None) -> str:
    return NOT_MEASURED if value is None else units.number(float(value))
