"""Whether a report says what is true of a case: verdict, findings, line, predictions. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from cases import Case, fault_places

PIPELINE_RULES = frozenset({
    "autotune-arithmetic", "cache-misuse", "cacheable", "dead-option", "device-prefetch-not-last", "fixed-npy-header",
    "input-bound", "late-filter", "no-prefetch", "order-sensitive", "oversized-prefetch", "per-element-overhead",
    "python-function", "redundant-prefetch", "sequential-map", "sequential-read", "shuffle-after-batch",
    "shuffle-fill", "thread-pool",
})  # fmt: skip
STEP_RULES = frozenset({
    "cpu-placement", "dynamic-shape", "eager-step", "host-stall", "host-sync", "launch-bound", "partial-batch",
    "precision", "python-function-in-step", "retracing", "xla-recompilation", "xla-slower", "xla-untried",
})  # fmt: skip
_OF_THE_STEP = frozenset({"dispatch", "compute", "compile", "host"})


def judged(case: Case, report: Mapping[str, Any]) -> dict[str, Any]:
    """A report beside the truth.

    Returns:
        ``right``: the verdict and every required finding are there and nothing is wrongly limiting.
        ``line_found``: a limiting finding points into a marked statement; ``None`` where nothing is required to be
        limiting. ``residual_share``: what the attribution leaves over, of the step. ``says``, ``op`` and ``advice``
        are the verdict in words and the first limiting finding's op and remedy, to be read beside XProf's.
    """
    findings = report["findings"]
    limiting = [finding["rule"] for finding in findings if finding["limiting"]]
    wrong = wrongly_limiting(case, limiting)
    missing = [
        *missing_rules(case.limiting, limiting),
        *missing_rules(case.seen, [finding["rule"] for finding in findings]),
    ]
    bottleneck = report["verdict"]["bottleneck"]
    first: Mapping[str, Any] = next((finding for finding in findings if finding["limiting"]), {})
    return {
        "says": report["verdict"]["summary"],
        "op": first.get("location", {}).get("op"),
        "advice": first.get("remedy", ""),
        "bottleneck": bottleneck,
        "bottleneck_right": bottleneck in case.bottlenecks,
        "confidence": round(report["verdict"]["confidence"], 3),
        "limiting": sorted(set(limiting)),
        "places": [place_of(finding) for finding in findings if finding["limiting"]],
        "wrongly_limiting": wrong,
        "missing": missing,
        "line_found": line_found(case, findings) if case.limiting else None,
        "residual_share": residual_share(report["verdict"]),
        "right": bottleneck in case.bottlenecks and not wrong and not missing,
    }


def wrongly_limiting(case: Case, limiting: Iterable[str]) -> list[str]:
    """Rules that blame what the step does not wait for.

    They are all of them in a healthy case; those that the case forbids; and those about the other side than the
    verdict's, the pipeline's where only the step is slow and the step's where only the input is, unless asked for.
    """
    found = set(limiting)
    if case.healthy:
        return sorted(found)
    asked = {rule for entry in (*case.limiting, *case.seen) for rule in entry.split("|")}
    other: frozenset[str] = frozenset()
    if set(case.bottlenecks) == {"input"}:
        other = STEP_RULES
    elif set(case.bottlenecks) <= _OF_THE_STEP:
        other = PIPELINE_RULES
    return sorted(found & (set(case.not_limiting) | (other - asked)))


def missing_rules(required: Sequence[str], found: Iterable[str]) -> list[str]:
    """Entries of which none of the alternatives was found."""
    there = set(found)
    return [entry for entry in required if not there & set(entry.split("|"))]


def line_found(case: Case, findings: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a limiting finding points into a statement that is marked as the fault."""
    marked = fault_places(case)
    places = [finding["location"] for finding in findings if finding["limiting"]]
    return any(
        PurePath(str(place.get("file") or "")).name == fault.file and place.get("line") in fault.lines
        for place in places
        for fault in marked
    )


def place_of(finding: Mapping[str, Any]) -> str:
    """A finding's rule and place, ``thread-pool at reading.py:31``; no directory of the machine."""
    place = finding["location"]
    file, line = place.get("file"), place.get("line")
    return f"{finding['rule']} at {PurePath(file).name}:{line}" if file else f"{finding['rule']} at no line"


def residual_share(verdict: Mapping[str, Any]) -> float | None:
    """What the attribution leaves over, as a share of the mean step; ``None`` where nothing was attributed."""
    step, parts = verdict["step_time_s"], verdict["attribution_s"]
    return round(abs(parts["residual"]) / step["estimate"], 4) if step and parts else None


def predicted_per_s(report: Mapping[str, Any], fixes: Sequence[str]) -> float | None:
    """Steps a second that the report predicts with these fixes, as it is without any; ``None`` where it does not.

    A cache at any op is a cache, and of several sizes of a thread pool the nearest one that is at least as large
    as asked for is taken, since more threads than calls change nothing.
    """
    predictions = [entry for entry in report.get("predictions", ()) if entry.get("batches_per_s")]
    if not fixes:
        return next((entry["batches_per_s"] for entry in predictions if entry["name"] == "as it is"), None)
    asked = dict(_kind(fix) for fix in fixes)
    alike = []
    for entry in predictions:
        given = dict(_kind(fix) for fix in entry.get("fixes", ()))
        if given.keys() == asked.keys() and all((given[kind] or 0) >= (size or 0) for kind, size in asked.items()):
            alike.append((sum(abs((given[kind] or 0) - (size or 0)) for kind, size in asked.items()), entry))
    return min(alike, key=lambda found: found[0])[1]["batches_per_s"] if alike else None


def _kind(fix: str) -> tuple[str, int | None]:
    """A fix without what it is applied to, and its number: ``thread-pool:16`` -> ``("thread-pool", 16)``."""
    kind, _, number = fix.partition("@")[0].partition(":")
    return kind, int(number) if number.isdecimal() else None


def error(predicted: float | None, measured: float | None) -> float | None:
    """Relative error of a predicted throughput, of the measured one; ``None`` where either is missing."""
    if predicted is None or not measured:
        return None
    return abs(predicted - measured) / measured


def quantile(values: Iterable[float | None], share: float) -> float | None:
    """The smallest value that is at least as large as this share of all; ``None`` of nothing."""
    known = sorted(value for value in values if value is not None)
    return known[max(math.ceil(share * len(known)), 1) - 1] if known else None


def right(says: str, *, input_bound: bool) -> bool:
    """Whether XProf's answer is the truth; a perhaps and a silence are not an answer."""
    return says == ("input" if input_bound else "not input")
