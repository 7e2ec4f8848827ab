"""Gates of a benchmark: limits that a test sets on what was measured, alone or against a saved run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np

from xttsbench.analysis.evidence import LEAST_SCALE, interval, unpaired
from xttsbench.comparison.effects import MIN_PROCESSES, SESSION_NOISE, decide_pairs
from xttsbench.comparison.gates import place
from xttsbench.errors import UsageError
from xttsbench.records.base import Estimate
from xttsbench.records.report import Report, Severity

_LEAST: Final = 1e-9  # for a figure of 0, such as the utilization of an idle device, which has no logarithm

Decision = Literal["passed", "failed", "undecided", "not compared"]


@dataclass(frozen=True)
class Gate:
    """One demand and what came of it."""

    name: str
    limit: float
    decision: Decision
    sentence: str
    interval: Estimate | None = None

    def record(self) -> dict[str, Any]:
        """As plain JSON."""
        interval = self.interval.model_dump() if self.interval is not None else None
        told = {key: getattr(self, key) for key in ("limit", "decision", "sentence")}
        return {"gate": self.name, **told, "interval": interval}


def regression(
    now: Sequence[float], before: Sequence[float], *, most: float, source: str, session_noise: float = SESSION_NOISE
) -> Gate:
    """Whether throughput is lower than that of a saved run by more than a share.

    Both sides are samples per second of each process; ``session_noise`` is what two sessions on one machine differ by,
    as a share.
    """
    name, counts = "max_regression", f"{len(now)} processes against {len(before)}"
    if min(len(now), len(before)) < MIN_PROCESSES:
        return Gate(name, most, "undecided", f"{name}: an interval needs two processes on each side; here {counts}.")
    sample = unpaired(np.log(before), np.log(now))
    found = decide_pairs({name: sample}, margin=most, session_noise=session_noise)[name].interval(0.95)
    decision, allowed = place(found, 1 - most, at_least=True), f"{100 * most:.3g} %"
    said = {
        "passed": f"is not lower by more than the {allowed} that are allowed",
        "failed": f"is a proven regression by more than the {allowed} that are allowed",
        "undecided": f"shows neither a regression by more than {allowed} nor that there is none; more repeats may",
    }[decision]
    figure = f"{found.estimate:.3f}x that of {source} ({found.low:.3f} to {found.high:.3f}; {counts})"
    return Gate(name, most, decision, f"{name}: the throughput, {figure}, {said}.", found)


def limit(
    name: str, values: Sequence[float], *, unit: str = "", floor: float | None = None, ceiling: float | None = None
) -> Gate:
    """Whether a figure keeps above a floor, or below a ceiling (give one).

    The values are the figure of each process.
    """
    allowed = floor if floor is not None else ceiling
    if allowed is None:
        raise ValueError(f"{name}: neither a floor nor a ceiling was given")
    if len(values) < MIN_PROCESSES:
        few = "it was not measured" if not values else f"an interval needs two processes, here is {len(values)}"
        return Gate(name, allowed, "undecided", f"{name}: {few}.")
    found = interval([math.log(max(value, _LEAST)) for value in values], LEAST_SCALE)
    decision = place(found, allowed, at_least=floor is not None)
    verbs = {"passed": "keeps within", "failed": "is proven to be beyond", "undecided": "lies on both sides of"}
    figure = f"{found.estimate:.4g}{unit} ({found.low:.4g} to {found.high:.4g}, {len(values)} processes)"
    said = f"{name}: {figure} {verbs[decision]} the limit of {allowed:.4g}{unit}."
    return Gate(name, allowed, decision, said, found)


@dataclass(frozen=True)
class Saved:
    """One benchmark of a saved run: the file's name, and its ``extra_info``."""

    source: str
    extra_info: Mapping[str, Any]


def share(value: float | str, name: str) -> float:
    """The share as a number between 0 and 1, both left out.

    Text may end with ``%``.

    Raises:
        UsageError: it is none.
    """
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = math.nan
    if not 0 < number < 1:
        raise UsageError(f"{name}: a share between 0 and 1, such as 0.05 or 5%, is expected; got {value!r}.")
    return number


_SEVERITIES: Final = get_args(Severity)


@dataclass(frozen=True)
class Demands:
    """The limits of a test; ``None`` where there is none.

    Raises:
        UsageError: ``fail_on`` cannot be.
    """

    diagnose: bool = False
    max_regression: float | None = None
    min_throughput: float | None = None
    max_step_time_s: float | None = None
    min_utilization: float | None = None
    fail_on: Severity | None = None

    def __post_init__(self) -> None:
        if self.fail_on is not None and self.fail_on not in _SEVERITIES:
            raise UsageError(f"xttsbench_benchmark: fail_on is one of {', '.join(_SEVERITIES)}; got {self.fail_on!r}.")
        if self.fail_on is not None and not self.diagnose:
            raise UsageError("xttsbench_benchmark: fail_on is about findings, which diagnose=True alone gives.")


def judged(demands: Demands, found: Mapping[str, Any], saved: Saved | str | None, session_noise: float) -> list[Gate]:
    """Every limit held against what was measured.

    What was found is the ``extra_info`` of this run; ``saved`` may be the reason why there is no run to compare with.
    """
    own = {name: values or [] for name, values in found["per_process"].items()}
    gates = []
    if demands.max_regression is not None:
        gates.append(_against(saved, found, demands.max_regression, session_noise))
    if (floor := demands.min_throughput) is not None:
        gates.append(limit("min_throughput", own["throughput_per_s"], unit=" samples/s", floor=floor))
    if (ceiling := demands.max_step_time_s) is not None:
        gates.append(limit("max_step_time_s", own["step_time_s"], unit=" s", ceiling=ceiling))
    if (floor := demands.min_utilization) is not None:
        gates.append(limit("min_utilization", own["utilization"], floor=floor))
    return gates


def too_severe(demands: Demands, diagnosis: Report | None) -> list[str]:
    """The limiting findings that fail a test, one sentence each."""
    if demands.fail_on is None or diagnosis is None:
        return []
    least = _SEVERITIES.index(demands.fail_on)
    return [
        f"fail_on={demands.fail_on!r}: {finding.rule} ({finding.severity}): {finding.title}"
        for finding in diagnosis.findings
        if finding.limiting and _SEVERITIES.index(finding.severity) >= least
    ]


def _against(saved: Saved | str | None, found: Mapping[str, Any], most: float, session_noise: float) -> Gate:
    """The gate against a saved run, unless that one was measured on something else."""

    def not_compared(why: str) -> Gate:
        return Gate("max_regression", most, "not compared", f"max_regression: NOT COMPARED: {why}.")

    if saved is None:
        saved = "no saved run is named; give --benchmark-compare or --xttsbench-baseline FILE"
    if isinstance(saved, str):
        return not_compared(saved)
    then = saved.extra_info
    for name, what in (("fingerprint", "machine or TensorFlow"), ("accelerator", "accelerator")):
        if then.get(name) != found[name]:
            there = f"{saved.source} was measured on another {what}"
            return not_compared(f"{there} ({then.get(name)}, here {found[name]})")
    before = (then.get("per_process") or {}).get("throughput_per_s")
    if not isinstance(before, list) or not all(isinstance(rate, float) and rate > 0 for rate in before):
        return not_compared(f"{saved.source} does not hold the throughput of each process")
    now = found["per_process"]["throughput_per_s"] or []
    return regression(now, before, most=most, source=saved.source, session_noise=session_noise)
