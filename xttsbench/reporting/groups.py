"""The compared arms of a report, sorted into what may be compared, and the plots of a report by name.

A group is of arms on one accelerator. A table, a plot of the arms and a plot of their traces each show one. Arms on an
emulated accelerator never share any of them with arms on a device, and everything that shows a group says which it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from xttsbench.records.base import FASTER
from xttsbench.records.report import Report, Variant
from xttsbench.records.trial import TrialRecord
from xttsbench.reporting.words import plain

_KIND: Final = re.compile(r"\b(real|emulated)\b", re.IGNORECASE)
_LONGEST_SLUG: Final = 48
MOST_SHOWN: Final = 26
"""Configurations of a group that a table or a plot has at most; a round of a sweep may have a thousand."""
_COMPARING: Final = frozenset({"run", "sweep"})
TRAINING: Final = "training"
"""The plot of a training run."""
CAPTIONS: Final = {
    "attribution": "Where the mean time of a step goes",
    "timeline": "Steps, waits and utilization over time",
    "distribution": "Distribution of the step time",
    "autocorrelation": "Autocorrelation of the step time",
    "periodogram": "Periodogram of the step time",
}
"""Plots of one target: name (``plots/<name>.png`` and ``.svg``) to caption."""


@dataclass(frozen=True, slots=True)
class Group:
    """Configurations that were measured in the same blocks on the same accelerator, in the report's order."""

    slug: str
    """What the files of its plots are named after: lower-case letters, digits and hyphens, unlike any other group's."""
    name: str
    accelerator: str
    """The label as the report has it, such as "emulated accelerator, 10 ms a step"."""
    arms: tuple[Variant, ...]

    @property
    def emulated(self) -> bool:
        """Whether a wait stood in for the device."""
        return "emulated" in self.accelerator.lower()

    @property
    def where(self) -> str:
        """The accelerator, with REAL or EMULATED in capitals: one is never to be taken for the other."""
        return _KIND.sub(lambda found: found[0].upper(), self.accelerator)

    @property
    def title(self) -> str:
        """Group and accelerator."""
        return ": ".join(word for word in (self.name, self.where) if word)

    @property
    def baseline(self) -> Variant | None:
        """The configuration that the others are compared with."""
        return next((arm for arm in self.arms if arm.role == "baseline"), None)

    @property
    def candidates(self) -> tuple[Variant, ...]:
        """The candidates that were measured, the fastest first."""
        found = [arm for arm in self.arms if arm.role == "candidate" and arm.step_time_s is not None]
        return tuple(sorted(found, key=lambda arm: -arm.effect.estimate if arm.effect else 0.0))

    @property
    def shown(self) -> tuple[Variant, ...]:
        """The configurations that a table or a plot has room for, in the report's order: of many, the fastest."""
        if len(self.arms) <= MOST_SHOWN:
            return self.arms
        first = {arm.id for arm in self.candidates[: MOST_SHOWN - 2]}
        return tuple(arm for arm in self.arms if arm.role != "candidate" or arm.id in first)

    @property
    def fastest(self) -> Variant | None:
        """The fastest of the candidates that were decided to be faster than the baseline."""
        return next((arm for arm in self.candidates if arm.decision in FASTER and arm.effect is not None), None)


def groups(report: Report) -> tuple[Group, ...]:
    """The groups in the order in which the report names them first; configurations without a group belong to none."""
    found: dict[tuple[str, str], list[Variant]] = {}
    for arm in report.arms:
        if arm.group:
            found.setdefault((arm.group, arm.accelerator), []).append(arm)
    slugs: list[str] = []
    for key in found:
        slug = _slug(*key)
        others = (f"{slug}-{number}" for number in count(2))
        slugs.append(slug if slug not in slugs else next(other for other in others if other not in slugs))
    return tuple(Group(slug, *key, tuple(arms)) for slug, (key, arms) in zip(slugs, found.items(), strict=True))


def compares(report: Report) -> bool:
    """Whether the report answers which configuration is worth what, and not what limits one target."""
    asked = bool(report.comparison) or report.parity is not None or any(arm.group for arm in report.arms)
    return report.kind in _COMPARING and asked


def figures(report: Report) -> dict[str, str]:
    """All plots of a report, name to caption: two for each group of configurations, and those of the target."""
    grouped = {} if report.training is not None else {n: c for g in groups(report) for n, c in figures_of(g).items()}
    return grouped | target_figures(report)


def target_figures(report: Report) -> dict[str, str]:
    """The plots of the target; in a comparison of its baseline, as far as something is known of it."""
    if report.training is not None:
        return {TRAINING: "Losses and waiting over the steps"} | CAPTIONS
    if not compares(report):
        return CAPTIONS
    known = {"attribution": report.verdict.attribution_s}
    drawn = [name for name in CAPTIONS if known.get(name, report.verdict.step_time_s) is not None]
    return {name: f"{CAPTIONS[name]}, of the baseline" for name in drawn}


def figures_of(group: Group) -> dict[str, str]:
    """The plots of a group: its configurations side by side, and its traces over time."""
    return {
        f"arms-{group.slug}": f"Throughput of each configuration, {group.title}",
        f"traces-{group.slug}": f"Utilization and step time, {group.title}",
    }


def of_verdict(report: Report) -> Group | None:
    """The group whose baseline the report's verdict and oscillation are about: that of the report's accelerator."""
    every = groups(report)
    label = report.accelerator.get("label")
    return next((group for group in every if group.accelerator == label), every[0] if every else None)


def trials_of(
    group: Group, arm: Variant, every: Sequence[Group], trials: Sequence[TrialRecord]
) -> tuple[TrialRecord, ...]:
    """The trials of one configuration of one group that ended well, in the order of their blocks.

    The same configuration may run on a device and emulated; its trials are told apart by the waits they were given, and
    where two groups of a name are both emulated, by the milliseconds in the label.
    """
    alike = [other for other in every if other.name == group.name and other.emulated == group.emulated]
    found = [
        trial
        for trial in trials
        if (trial.status, trial.spec.kind) == ("ok", "arm")
        and trial.spec.arm == arm.id
        and (trial.spec.group or "") == group.name
        and bool(trial.spec.emulated_ms) == group.emulated
        and (len(alike) == 1 or _names_the_wait(group.accelerator, trial))
    ]
    return tuple(sorted(found, key=lambda trial: trial.spec.block))


def _names_the_wait(accelerator: str, trial: TrialRecord) -> bool:
    waits = trial.spec.emulated_ms
    return not waits or bool(re.search(rf"(?<![\d.]){sum(waits) / len(waits):g} ms", accelerator))


def _slug(*words: str) -> str:
    """``words`` as a file's name: no path, no markup, no other character than ``a-z``, ``0-9`` and ``-``."""
    parts = [re.sub(r"[^a-z0-9]+", "-", plain(word).lower()).strip("-") for word in words]
    return "-".join(part for part in parts if part)[:_LONGEST_SLUG].strip("-") or "group"
