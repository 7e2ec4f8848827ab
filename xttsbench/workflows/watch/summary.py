"""``summary.json`` of what was accumulated: while the run goes on, and at its end with what the rules say. Pure.

Scalars of a watched run for TensorBoard, written without TensorFlow.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from xttsbench.analysis.pooling import ratio
from xttsbench.analysis.running import drift_of, memory_of
from xttsbench.diagnosis.bottleneck import CONFIDENT, Likely, likely
from xttsbench.errors import UsageError
from xttsbench.records.base import nulls
from xttsbench.records.report import Report
from xttsbench.records.trial import StepProfile
from xttsbench.records.watch import WatchedRun, WatchSummary
from xttsbench.reporting.words import LIKELY

_NO_STEPS: Final = "no training step was seen yet"
_NONE_SEEN: Final = "no training step was seen"


def summarise(
    watched: WatchedRun,
    *,
    profile: StepProfile | None,
    handoff_s: float,
    report: Report | None,
    about: Mapping[str, Any],
    unmeasured: Mapping[str, str],
) -> WatchSummary:
    """What a run comes to.

    Args:
        watched: what was accumulated.
        profile: of its steps.
        handoff_s: the part of a wait that handing over a batch takes.
        report: of the run, at its end.
        about: fields of the summary that say what was watched, and when.
        unmeasured: what the process said it could not see.
    """
    found = likely(watched, profile, handoff_s)
    stretches = watched.stretches
    over = watched.ended != "running"
    wall_s = sum(one.wall_s for one in stretches)
    fields: dict[str, Any] = {
        **about,
        "over": over,
        **{name: getattr(watched, name) for name in ("ended", "exit_code", "signal", "error", "steps", "epochs")},
        "warm_up_steps": watched.warm_up_steps,
        "lost_steps": watched.lost_steps,
        "quantiles_s": watched.quantiles_s,
        "stalls": watched.stalls,
        "stretches": stretches,
        "traces": sum(one.traces for one in stretches),
        "xla_compiles": sum(one.xla_compiles for one in stretches),
        "garbage_collection_share": sum(one.gc_s for one in stretches) / wall_s if wall_s else None,
        "drift": drift_of(stretches),
        "memory": memory_of(stretches),
        "period_steps": None,
        **_said(found, over=over),
    }
    if report is not None and report.verdict.step_time_s is not None:
        verdict = report.verdict
        fields |= {
            "bottleneck": verdict.bottleneck,
            "probability": verdict.confidence,
            "sentence": verdict.summary,
            "attribution_s": verdict.attribution_s,
            "step_time_s": verdict.step_time_s,
            "input_wait_fraction": verdict.input_wait_fraction,
            "period_steps": report.oscillation.period_steps,
            "findings": report.findings,
        }
    summary = WatchSummary(**fields)
    return summary.model_copy(update={"unmeasured": _reasons(summary, report) | dict(unmeasured)})


def _said(found: Likely | None, *, over: bool) -> dict[str, Any]:
    if found is None:
        nothing = ("probability", "attribution_s", "step_time_s", "input_wait_fraction")
        said = _NONE_SEEN if over else _NO_STEPS
        return {"bottleneck": "inconclusive", "sentence": f"{said[0].upper()}{said[1:]}."} | dict.fromkeys(nothing)
    wall = found.figures["wall_s"]
    named = found.bottleneck if found.probability >= CONFIDENT else "inconclusive"
    share = getattr(found.parts, found.bottleneck) / wall.value if wall.value > 0 else 0.0
    return {
        "bottleneck": named,
        "probability": found.probability,
        "sentence": f"{share:.0%} of the step so far is {LIKELY[found.bottleneck]}"
        + (", which may or may not be what limits it." if named == "inconclusive" else "."),
        "attribution_s": found.parts,
        "step_time_s": wall.estimate(),
        "input_wait_fraction": ratio(found.figures["wait_s"], wall),
    }


def _reasons(summary: WatchSummary, report: Report | None) -> dict[str, str]:
    """A reason for every null."""
    if not summary.stretches:
        why = dict.fromkeys(WatchSummary.model_fields, _NONE_SEEN if summary.over else _NO_STEPS)
    else:
        running = "known at the end of the run"
        why = {
            "period_steps": running if report is None else report.unmeasured.get("oscillation.period_steps", "none"),
            "drift": "the step time neither rises nor falls all along, or there are too few steps to say",
            "memory": "resident memory was read less than twice",
        }
    ended = "the process has not ended" if not summary.over else "it ended in another way"
    why |= {"exit_code": ended, "signal": ended, "error": "nothing was raised" if summary.over else ended}
    return {path.removeprefix("."): reason for path, reason in nulls("", summary, why)}


_VERSION = "brain.Event:2"


class Scalars:
    """An event file.

    Args:
        directory: made where it is missing.

    Raises:
        UsageError: it cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event: Any = Event
        self._writer: Any = RecordWriter
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.xttsbench"
        self._path = directory / name
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._append(Event(wall_time=time.time(), file_version=_VERSION))
        except OSError as error:
            raise UsageError(
                f"--tensorboard {str(directory)!r} cannot be written: {error.strerror or error}. Name another."
            ) from error

    def write(self, summary: WatchSummary) -> None:
        """Add what is known by now, at the number of steps so far; nothing before the first."""
        if not summary.steps or not summary.stretches:
            return
        newest = summary.stretches[-1]
        values: dict[str, float] = {
            "step_time_s": newest.wall_s / newest.steps,
            "input_wait_fraction": newest.wait_s / max(newest.wall_s, 1e-12),
            "stalls": float(summary.stalls.count),
            "stalled_share": summary.stalls.share_of_time,
            "traces": float(summary.traces),
        }
        if newest.rss_bytes is not None:
            values["resident_bytes"] = float(newest.rss_bytes)
        if summary.attribution_s is not None and summary.step_time_s is not None:
            for name, seconds in summary.attribution_s:
                values[f"share/{name}"] = seconds / max(summary.step_time_s.estimate, 1e-12)
        event = self._event(wall_time=time.time(), step=summary.steps)
        for name, value in values.items():
            event.summary.value.add(tag=f"xttsbench/{name}", simple_value=value)
        with suppress(OSError):
            self._append(event)

    def _append(self, event: Any) -> None:
        with self._path.open("ab") as file:
            self._writer(file).write(event.SerializeToString())
