"""``summary.json`` of what was accumulated: while the run goes on, and at its end with what the rules say.

Of it are made scalars for TensorBoard, without TensorFlow, and the answers to ``--fail-on``: a figure held against a
limit, or against that of an earlier run. A gate fails where the whole interval lies beyond its limit and passes where
all of it keeps it; else it is undecided.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from xttsbench.analysis.pooling import ratio
from xttsbench.analysis.running import drift_of, memory_of
from xttsbench.comparison.gates import place
from xttsbench.diagnosis.bottleneck import CONFIDENT, Likely, likely
from xttsbench.errors import UsageError
from xttsbench.records.base import Estimate
from xttsbench.records.comparison_result import Outcome
from xttsbench.records.missing import nulls
from xttsbench.records.report import Report
from xttsbench.records.trial import StepProfile
from xttsbench.records.watch import FailOn, WatchedRun, WatchSummary
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
    """Summary of a run.

    ``about`` are fields that say what was watched, and when; ``unmeasured`` is what the process could not see.
    """
    found, stretches, over = likely(watched, profile, handoff_s), watched.stretches, watched.ended != "running"
    wall_s = sum(one.wall_s for one in stretches)
    fields: dict[str, Any] = {
        **about,
        "over": over,
        **dict(watched),
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
    return {path.removeprefix("."): reason for path, reason in nulls("", summary, why).items()}


class Scalars:
    """An event file.

    The directory is made where it is missing.

    Raises:
        UsageError: it cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event: Any = Event
        self._writer: Any = RecordWriter
        self._path = directory / f"events.out.tfevents.{int(time.time()):010d}.{os.getpid()}.xttsbench"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._append(Event(wall_time=time.time(), file_version="brain.Event:2"))
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


LEVELS: Final = ("info", "warning", "critical")
_EXPRESSION: Final = re.compile(r"([a-z0-9-]+)\s*>\s*(\+?)\s*([0-9]+\.?[0-9]*(?:e-?[0-9]+)?|\.[0-9]+)\s*(%|us|ms|s)?")
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
DEFAULTS: Final = ("step-time>+5%", "input>+5%")
"""Gates of a baseline that comes without others."""


def _exactly(value: float | None) -> Estimate | None:
    return None if value is None else Estimate(estimate=value, low=value, high=value)


def _share(name: str) -> Callable[[WatchSummary], Estimate | None]:
    def of(summary: WatchSummary) -> Estimate | None:
        parts, step = summary.attribution_s, summary.step_time_s
        return _exactly(getattr(parts, name) / step.estimate) if parts is not None and step is not None else None

    return of


_FIGURES: Final[Mapping[str, tuple[str, Callable[[WatchSummary], Estimate | None]]]] = {
    "input": ("share of the step that waits for input", lambda summary: summary.input_wait_fraction),
    **{
        name: (f"share of the step that goes to {words}", _share(name))
        for name, words in (("dispatch", "launch overhead"), ("compile", "compilation"), ("host", "host work"))
    },
    "step-time": ("mean step time", lambda summary: summary.step_time_s),
    "p95": ("95th percentile of the step time", lambda summary: _exactly(summary.quantiles_s.get("p95"))),
    "p99": ("99th percentile of the step time", lambda summary: _exactly(summary.quantiles_s.get("p99"))),
    "stalls": (
        "share of the time lost to steps that stalled",
        lambda summary: _exactly(summary.stalls.share_of_time) if summary.stretches else None,
    ),
    "drift": (
        "change of the step time over the run",
        lambda summary: _exactly(summary.drift.change if summary.drift else 0.0) if summary.stretches else None,
    ),
}
"""Figure of ``--fail-on`` -> its words, and its value."""
_TIMES: Final = ("step-time", "p95", "p99")


@dataclass(frozen=True)
class Gate:
    """One ``--fail-on``, read.

    Attributes:
        expression: as it was typed.
        figure: a key of the figures; empty for a severity of findings.
        limit: in seconds or as a share; of a ``relative`` one, what is allowed on top of the baseline's.
        ratio: the limit is a share of the baseline's figure.
    """

    expression: str
    figure: str = ""
    limit: float = 0.0
    relative: bool = False
    ratio: bool = False


def parse(expression: str) -> Gate:
    """Read a ``--fail-on``: ``input>0.2``, ``p99>120ms``, ``step-time>+5%``, ``input>+5%``, ``critical``.

    Raises:
        UsageError: it is none of them.
    """
    if expression in LEVELS:
        return Gate(expression)
    found = _EXPRESSION.fullmatch(expression.strip())
    known = ", ".join(_FIGURES)
    if found is None or found[1] not in _FIGURES or not math.isfinite(value := float(found[3])):
        raise UsageError(
            f"--fail-on {expression!r}: use FIGURE>LIMIT, such as 'input>20%', 'p99>120ms' or, against --baseline, "
            f"'step-time>+5%'; a figure is one of {known}; or a severity of findings: {', '.join(LEVELS)}."
        )
    figure, plus, unit = found[1], bool(found[2]), found[4] or ""
    timed = figure in _TIMES
    if (unit in _SECONDS and not timed) or (timed and unit == "%" and not plus) or (timed and plus and not unit):
        form = "a time such as 120ms, or +5% of the baseline's" if timed else "a share such as 20% or 0.2"
        raise UsageError(f"--fail-on {expression!r}: {figure} takes {form}.")
    scale = 0.01 if unit == "%" else _SECONDS.get(unit, 1.0)
    return Gate(expression, figure, value * scale, relative=plus, ratio=timed and unit == "%")


def judge(gate: Gate, summary: WatchSummary, baseline: WatchSummary | None) -> FailOn:
    """A gate held against a run that is over.

    Raises:
        UsageError: it asks for a baseline that was not given.
    """

    def found(outcome: Outcome, why: str, value: Estimate | None = None, limit: float | None = None) -> FailOn:
        return FailOn(expression=gate.expression, value=value, limit=limit, outcome=outcome, why=why)

    if not gate.figure:
        least = LEVELS.index(gate.expression)
        bad = [one for one in summary.findings if one.limiting and LEVELS.index(one.severity) >= least]
        if not summary.stretches:
            return found("not measured", "no step was seen")
        why = f"{bad[0].rule}: {bad[0].title}" if bad else "no finding on the bottleneck is that severe"
        return found("failed" if bad else "passed", why)
    words, of = _FIGURES[gate.figure]
    value, limit, said = of(summary), gate.limit, ""
    if gate.relative:
        if baseline is None:
            raise UsageError(f"--fail-on {gate.expression!r} compares with an earlier run: name it with --baseline.")
        before = of(baseline)
        if before is None:
            return found("not measured", f"the {words} is not in the baseline", value)
        limit = before.estimate * (1 + gate.limit) if gate.ratio else before.estimate + gate.limit
        said = f", the baseline's {_told(gate, before.estimate)} and {gate.expression.partition('+')[2]}"
        value = _against(value, before)
    if value is None:
        return found("not measured", f"the {words} was not measured", None, limit)
    outcome = place(value, limit, at_least=False)
    shown = f"{words} {_told(gate, value.estimate)}"
    if value.low < value.high:
        shown += f" ({_told(gate, value.low)} to {_told(gate, value.high)})"
    verb = {"passed": "keeps", "failed": "is beyond"}.get(outcome, "may or may not keep")
    return found(outcome, f"{shown} {verb} the limit {_told(gate, limit)}{said}", value, limit)


def _against(value: Estimate | None, before: Estimate) -> Estimate | None:
    """The value with the interval of its difference from an independent one."""
    if value is None:
        return None
    below = math.hypot(value.estimate - value.low, before.high - before.estimate)
    above = math.hypot(value.high - value.estimate, before.estimate - before.low)
    return Estimate(estimate=value.estimate, low=value.estimate - below, high=value.estimate + above)


def _told(gate: Gate, value: float) -> str:
    return f"{value * 1e3:.4g} ms" if gate.figure in _TIMES else f"{value:.1%}"
