"""``--fail-on`` of a watched run: a figure held against a limit, or against that of an earlier run. Pure.

A gate fails where the whole interval lies beyond its limit and passes where all of it keeps it; else it is undecided.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from xttsbench.comparison.gates import place
from xttsbench.errors import UsageError
from xttsbench.records.base import Estimate
from xttsbench.records.watch import FailOn, WatchSummary

LEVELS: Final = ("info", "warning", "critical")
_EXPRESSION: Final = re.compile(r"([a-z0-9-]+)\s*>\s*(\+?)\s*([0-9.]+(?:e-?\d+)?)\s*(%|us|ms|s)?")
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
DEFAULTS: Final = ("step-time>+5%", "input>+5%")
"""What a baseline alone asks for."""


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


def judge(gates: Sequence[Gate], summary: WatchSummary, baseline: WatchSummary | None) -> tuple[FailOn, ...]:
    """Every gate held against a run that is over.

    Raises:
        UsageError: one asks for a baseline that was not given.
    """
    return tuple(_judged(gate, summary, baseline) for gate in gates)


def _judged(gate: Gate, summary: WatchSummary, baseline: WatchSummary | None) -> FailOn:
    if not gate.figure:
        return _findings(gate, summary)
    words, of = _FIGURES[gate.figure]
    value, limit, said = of(summary), gate.limit, ""
    if gate.relative:
        if baseline is None:
            raise UsageError(f"--fail-on {gate.expression!r} compares with an earlier run: name it with --baseline.")
        before = of(baseline)
        if before is None:
            why = f"the {words} is not in the baseline"
            return FailOn(expression=gate.expression, value=value, limit=None, outcome="not measured", why=why)
        limit = before.estimate * (1 + gate.limit) if gate.ratio else before.estimate + gate.limit
        said = f", the baseline's {_told(gate, before.estimate)} and {gate.expression.partition('+')[2]}"
        value = _against(value, before)
    if value is None:
        why = f"the {words} was not measured"
        return FailOn(expression=gate.expression, value=None, limit=limit, outcome="not measured", why=why)
    outcome = place(value, limit, at_least=False)
    shown = f"{words} {_told(gate, value.estimate)}"
    if value.low < value.high:
        shown += f" ({_told(gate, value.low)} to {_told(gate, value.high)})"
    verb = {"passed": "keeps", "failed": "is beyond"}.get(outcome, "may or may not keep")
    why = f"{shown} {verb} the limit {_told(gate, limit)}{said}"
    return FailOn(expression=gate.expression, value=value, limit=limit, outcome=outcome, why=why)


def _against(value: Estimate | None, before: Estimate) -> Estimate | None:
    """The value with the interval of its difference from an independent one."""
    if value is None:
        return None
    below = math.hypot(value.estimate - value.low, before.high - before.estimate)
    above = math.hypot(value.high - value.estimate, before.estimate - before.low)
    return Estimate(estimate=value.estimate, low=value.estimate - below, high=value.estimate + above)


def _findings(gate: Gate, summary: WatchSummary) -> FailOn:
    least = LEVELS.index(gate.expression)
    bad = [one for one in summary.findings if one.limiting and LEVELS.index(one.severity) >= least]
    why = f"{bad[0].rule}: {bad[0].title}" if bad else "no finding on the bottleneck is that severe"
    if not summary.stretches:
        return FailOn(
            expression=gate.expression, value=None, limit=None, outcome="not measured", why="no step was seen"
        )
    return FailOn(expression=gate.expression, value=None, limit=None, outcome="failed" if bad else "passed", why=why)


def _told(gate: Gate, value: float) -> str:
    return f"{value * 1e3:.4g} ms" if gate.figure in _TIMES else f"{value:.1%}"
