"""History of a training run, summed up: of steps that were taken more than once the last time counts."""

from __future__ import annotations

from collections.abc import Sequence

from xttsbench.records import training as records


def training_of(
    lines: Sequence[records.HistoryLine], recipe: str, taken_over: records.TakenOver | None = None
) -> records.Training:
    """Summarises a run from the lines of its history.

    A session that goes on from a checkpoint takes the steps after it once more, bit by bit the same. So what was
    reported of later steps before is left out.
    """
    sessions: list[records.Begun] = []
    intervals: list[records.WatchedInterval] = []
    evaluations: list[records.TimedEvaluation] = []
    checkpoints: list[records.CheckpointEntry] = []
    ended: records.Ended | None = None
    spoken: records.Spoken | None = None
    for line in lines:
        spoken = line.spoken or spoken
        if (begun := line.begun) is not None:
            intervals = [one for one in intervals if _last_step(one) <= begun.step]
            evaluations = [one for one in evaluations if one.step <= begun.step]
            checkpoints = [one for one in checkpoints if one.step <= begun.step]
            sessions.append(begun)
            ended = None
        if line.interval is not None:
            intervals.append(_watched(line.interval, line))
        if line.evaluated is not None:
            evaluations.append(records.TimedEvaluation(**line.evaluated.model_dump(), took_s=line.took_s))
        if line.saved is not None:
            checkpoints.append(line.saved)
        ended = line.ended or ended
    return records.Training(
        recipe=recipe,
        sessions=tuple(sessions),
        intervals=tuple(intervals),
        evaluations=tuple(evaluations),
        checkpoints=tuple(checkpoints),
        ended=ended,
        spoken=spoken,
        taken_over=taken_over,
    )


def wait_fraction(watched: records.Watched) -> float | None:
    """Share of an interval that was waiting for batches; ``None`` where it took no time."""
    return watched.wait_s / watched.wall_s if watched.wall_s > 0 else None


def valid_frames_per_s(watched: records.Watched) -> float | None:
    """Frames without padding over the interval's time; ``None`` where it took none."""
    return watched.valid_frames / watched.wall_s if watched.wall_s > 0 else None


def _watched(interval: records.Interval, line: records.HistoryLine) -> records.WatchedInterval:
    return records.WatchedInterval(
        **interval.model_dump(),
        session=line.session,
        wait_fraction=wait_fraction(line.watched) if line.watched is not None else None,
        valid_frames_per_s=valid_frames_per_s(line.watched) if line.watched is not None else None,
    )


def _last_step(interval: records.WatchedInterval) -> int:
    return interval.first_step + interval.steps - 1
