"""The document of a report, built section by section; here what all of them need.

A number that was not measured is "not measured", with the reason that the report gives. Compared configurations are
sorted into groups, each on one accelerator, of which a table, a plot of the configurations and a plot of their traces
show one: what ran on an emulated accelerator never shares any of them with what ran on a device. The plots of a report
have their names and captions here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from xttsbench.records.base import FASTER, Estimate, Record
from xttsbench.records.pipeline import Pipeline
from xttsbench.records.report import Report, Variant
from xttsbench.records.trial import TrialRecord
from xttsbench.reporting.document import NOT_MEASURED, Cell, Fact, Facts, Section, View
from xttsbench.reporting.words import configuration, missed, plain

Kind = TypeVar("Kind", bound=Record)


def read_as(kind: type[Kind], part: Mapping[str, Any] | None) -> Kind | None:
    """A part of the report as its record; ``None`` where there is none, or another version wrote it.

    What such a part says is in ``report.json``.
    """
    try:
        return kind.model_validate(part, strict=False) if part else None
    except ValidationError:
        return None


def pipeline_of(report: Report) -> Pipeline | None:
    """The pipeline of the report, as far as :func:`read_as` can read it."""
    return read_as(Pipeline, report.pipeline)


def missing(report: Report, path: str) -> str:
    """``not measured``, with the reason that the record gives for ``path`` or for what holds it."""
    while path:
        if reason := report.unmeasured.get(path):
            return f"{NOT_MEASURED}: {reason}"
        path = path.rpartition(".")[0]
    return NOT_MEASURED


def on_cpu(report: Report) -> bool:
    """Whether the real device can be no other than the CPU."""
    return bool(report.environment) and not report.environment.get("gpus")


def no_device(reason: str) -> bool:
    """Whether a figure is missing because it is one of a device that is not there."""
    return reason.startswith("no accelerator") or "so it is 0" in reason


def known(value: float | None, text: Callable[[float], str]) -> str:
    """A number in words; ``not measured`` where there is none."""
    return NOT_MEASURED if value is None else text(value)


def cell(estimate: Estimate | None, bounds: Callable[[Estimate], tuple[str, str]]) -> Cell:
    """A table's cell; the reasons for what was not measured stand in a list of their own, or the table would burst."""
    return Cell(NOT_MEASURED) if estimate is None else Cell(*bounds(estimate))


def unmeasured(report: Report) -> tuple[Section, ...]:
    """Section on missing figures and the reasons; figures with the same reason share a line."""
    lines: dict[tuple[str, str], dict[str, None]] = {}
    for path, reason in report.unmeasured.items():
        what = missed(re.sub(r"\.\d+", ".*", path))
        number = re.match(r"arms\.(\d+)\.", path)
        arm = report.arms[int(number[1])] if number and int(number[1]) < len(report.arms) else None
        if what is None or no_device(reason) or (arm is not None and not arm.group and arm.status == "ok"):
            continue
        subject = ", ".join(filter(None, (configuration(arm.id), arm.accelerator))) if arm is not None else ""
        if (at := re.match(r"findings\.(\d+)\.", path)) and int(at[1]) < len(report.findings):
            what = what.replace("a finding", report.findings[int(at[1])].rule)
        lines.setdefault((subject, reason), {})[what] = None
    facts = tuple(
        Fact(": ".join(filter(None, (subject, ", ".join(names)))), reason) for (subject, reason), names in lines.items()
    )
    return (Section("Not measured", (Facts(facts, ("what", "why")),), view=View.FULL),) if facts else ()


_KIND: Final = re.compile(r"\b(real|emulated)\b", re.IGNORECASE)
_REAL: Final = "REAL device"
_LONGEST_SLUG: Final = 48
MOST_SHOWN: Final = 26
"""Configurations of a group that a table or a plot has at most; a round of a sweep may have a thousand."""
_COMPARING: Final = frozenset({"run", "sweep", "prove", "plan"})
SCALE: Final = "scale"
"""The plot of a plan."""
TRAINING: Final = "training"
"""The plot of a training run."""
CAPTIONS: Final = {
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
    """Base name of the files of its plots: lower-case letters, digits and hyphens, unlike any other group's."""
    name: str
    accelerator: str  # The label as the report has it, such as "emulated accelerator, 10 ms a step"
    arms: tuple[Variant, ...]
    real: str = _REAL

    @property
    def emulated(self) -> bool:
        """Whether a wait stood in for the device."""
        return "emulated" in self.accelerator.lower()

    @property
    def where(self) -> str:
        """The accelerator, with REAL (or THIS CPU) or EMULATED in capitals: one is never to be taken for the other."""
        return _KIND.sub(lambda found: found[0].upper(), self.accelerator).replace(_REAL, self.real)

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
    made: dict[str, Group] = {}
    for key, arms in found.items():
        slug = _slug(*key)
        unlike = next(one for one in (slug, *(f"{slug}-{n}" for n in range(2, len(found) + 2))) if one not in made)
        made[unlike] = Group(unlike, *key, tuple(arms), "THIS CPU" if on_cpu(report) else _REAL)
    return tuple(made.values())


def compares(report: Report) -> bool:
    """Whether the report answers which configuration is worth what, and not what limits one target."""
    asked = bool(report.comparison) or report.parity is not None or any(arm.group for arm in report.arms)
    return report.kind in _COMPARING and asked


def figures(report: Report) -> dict[str, str]:
    """All plots of a report, name to caption: two for each group of configurations, and those of the target."""
    if report.scale is not None:
        return {SCALE: "Throughput and utilization by the number of input workers"}
    grouped = {} if report.training is not None else {n: c for g in groups(report) for n, c in figures_of(g).items()}
    return grouped | target_figures(report)


def target_figures(report: Report) -> dict[str, str]:
    """The plots of the target; in a comparison of its baseline, as far as something is known of it."""
    if report.training is not None:
        return {TRAINING: "Losses and waiting over the steps"} | CAPTIONS
    if not compares(report):
        return CAPTIONS
    if report.scale is not None or report.verdict.step_time_s is None:
        return {}
    return {name: f"{caption}, of the baseline" for name, caption in CAPTIONS.items()}


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
    return re.sub(r"[^a-z0-9]+", "-", plain("-".join(words)).lower()).strip("-")[:_LONGEST_SLUG].strip("-") or "group"
