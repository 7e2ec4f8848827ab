"""The compared configurations of a report (its arms) as tables: what each gives, costs, and whether that is proven.

One row per arm, the same columns in every output; what no arm has is a note, not a column of blanks. Arms of a group
have a table of their own with its plots; those that belong to none stand together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from xttsbench.records.base import FASTER, SLOWER
from xttsbench.records.report import Report, Variant
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.groups import Group, figures_of, groups
from xttsbench.reporting.sections import cell, missing
from xttsbench.reporting.sections.step import OSCILLATES
from xttsbench.reporting.words import configuration

_NEVER_BEGAN: Final = ("refused", "not run")
"""Statuses of a configuration that none of its processes gave it."""
_ROLES: Final = {"baseline": "baseline", "aa": "baseline again"}


def comparisons(report: Report) -> Iterator[doc.Block]:
    """A section for each group, then the noise check; nothing where no configuration belongs to a group."""
    for group in groups(report):
        plots = () if report.training is not None else figures_of(group).items()
        drawn = (doc.Figure(name, caption, view=doc.View.FULL) for name, caption in plots)
        yield doc.Section(group.title, (*_comparison(group), *drawn))
    if any(arm.group for arm in report.arms) and (said := _noise_check(report)):
        yield doc.Section("", (doc.Paragraph(said),), view=doc.View.FULL)


def ungrouped(report: Report) -> Iterator[doc.Section]:
    """The configurations that belong to no group, and the noise check where no group has it."""
    alone = [arm for arm in report.arms if not arm.group]
    blocks: list[doc.Block] = []
    if alone:
        header = ("configuration", "step time", "per second", "speed-up", "processes", "result")
        blocks.append(doc.table(header, map(_row, alone)))
    if len(alone) == len(report.arms) and (said := _noise_check(report)):
        blocks.append(doc.Paragraph(said, "soft"))
    if blocks:
        title = "Configurations, each against the baseline" if alone else ""
        yield doc.Section(title, tuple(blocks), view=doc.View.FULL)


def in_full(report: Report) -> doc.Fold:
    """What the tables of compared configurations have no room for."""
    names = "group, accelerator, configuration, settings, repeats, steps, waiting for input, std / mean, evidence"
    rows = [
        (
            arm.group,
            arm.accelerator,
            configuration(arm.id),
            ", ".join(f"{name} {value}" for name, value in arm.config.items()) or "the original",
            f"{arm.blocks:,}",
            f"{arm.steps:,}",
            cell(arm.input_wait_fraction, units.percent_bounds),
            _plain(arm.std_over_mean, units.number),
            "" if arm.role == "baseline" else _plain(arm.evidence, units.evidence),
        )
        for arm in report.arms
        if arm.group
    ]
    header = names.replace("evidence", "evidence against the baseline").split(", ")
    return doc.folded("Compared configurations in full", header, rows)


def result(arm: Variant) -> str:
    """The result in words: marked as the baseline, as the baseline again, or how the configuration ended."""
    if (ended := how_it_ended(arm)) is not None:
        return ended[0] if ended[0] in _NEVER_BEGAN else f"ended: {ended[0]}"
    if arm.role != "candidate":
        return _ROLES[arm.role]
    return "not faster" if arm.decision == "undecided" and arm.gain_ruled_out else spoken(arm.decision)


def spoken(word: str | None) -> str:
    """A word of the evidence as people read it: ``clearly faster``, ``no difference``."""
    return (word or "not tested").replace("_", " ")


def how_it_ended(arm: Variant) -> tuple[str, str] | None:
    """The status of a configuration that did not end well, in words, and its cause if one is known."""
    if arm.status == "ok":
        return None
    status, _, cause = arm.status.partition(":")
    return status.strip().replace("_", " ") or "unknown", cause.strip()


def tone(arm: Variant) -> str:
    """How to set a configuration: ``baseline``, ``again``, ``faster``, ``slower``, ``ended``, or ``plain``."""
    if arm.status != "ok":
        return "ended"
    if arm.role == "candidate":
        return "faster" if arm.decision in FASTER else "slower" if arm.decision in SLOWER else "plain"
    return {"baseline": "baseline", "aa": "again"}[arm.role]


def _row(arm: Variant) -> tuple[str | doc.Cell, ...]:
    decision = "" if arm.decision is None and arm.role == "candidate" else _ROLES.get(arm.role) or spoken(arm.decision)
    return (
        configuration(arm.id),
        cell(arm.step_time_s, units.duration_bounds),
        cell(arm.throughput_per_s, lambda rate: units.rate_bounds(rate, unit=" /s")),
        doc.Cell("1") if arm.role == "baseline" and arm.effect is None else cell(arm.effect, units.ratio_bounds),
        f"{arm.blocks:,}",
        "; ".join(word for word in (decision, "" if arm.status == "ok" else arm.status) if word),
    )


def _noise_check(report: Report) -> str:
    """What the same configuration, measured twice, differs by."""
    aa = report.aa
    if report.kind == "train":
        return ""  # nobody expects that training is done twice
    if aa.effect is None:
        compared = any(arm.group and arm.role == "candidate" and arm.decision is not None for arm in report.arms)
        return f"Noise check: {missing(report, 'aa.effect')}." if compared else ""
    of_groups = groups(report)
    where = f" ({of_groups[0].title})" if len(of_groups) > 1 else ""  # one record for all: that of the first
    words = [f"Noise check{where}, the baseline measured twice: {units.ratio_interval(aa.effect)}"]
    if aa.noisy is not None:
        words.append("a noisy session, for which the intervals allow" if aa.noisy else "not a noisy session")
    if aa.smallest_visible_effect is not None:
        words.append(f"the smallest effect that could have been decided is {units.percent(aa.smallest_visible_effect)}")
    return "; ".join(words) + "."


def _comparison(group: Group) -> tuple[doc.Table, doc.Lines]:
    measured = [name for name in _COLUMNS if any(_has(arm, name) for arm in group.arms)]
    nowhere = [column.name for name, (column, _) in _COLUMNS.items() if name not in measured]
    columns = tuple(_COLUMNS[name][0] for name in measured)
    rows = tuple(doc.Row(tuple(_COLUMNS[name][1](arm) for name in measured), tone(arm)) for arm in group.shown)
    notes = doc.Lines(tuple(_notes(group, nowhere)), "soft")
    return doc.Table(columns, rows, blanks=True), notes


def _has(arm: Variant, column: str) -> bool:
    return column in {"id", "decision"} or getattr(arm, column) is not None


def _speed_up(arm: Variant) -> doc.Cell:
    if arm.role == "baseline" and arm.effect is None and arm.status == "ok":
        return doc.Cell("1")
    return cell(arm.effect, units.ratio_bounds)


def _utilization(arm: Variant) -> doc.Cell:
    found = cell(arm.utilization, units.percent_bounds)
    share = None if arm.utilization is None else min(1.0, max(0.0, arm.utilization.estimate))
    return doc.Cell(found.value, found.bounds, share)


def _plain(value: float | None, text: Callable[[float], str]) -> doc.Cell:
    return doc.Cell(doc.NOT_MEASURED if value is None else text(float(value)))


def _number(name: str, short: str, *, interval: bool = False, optional: bool = False) -> doc.Column:
    return doc.Column(name, short, numeric=True, interval=interval, optional=optional)


_COLUMNS: Final[Mapping[str, tuple[doc.Column, Callable[[Variant], doc.Cell]]]] = {
    "id": (doc.Column("configuration"), lambda arm: doc.Cell(configuration(arm.id))),
    "utilization": (_number("utilization", "util."), _utilization),
    "step_time_s": (_number("step time", "step\ntime"), lambda arm: cell(arm.step_time_s, units.duration_bounds)),
    "throughput_per_s": (
        _number("samples/s", "samples\n/s"),
        lambda arm: cell(arm.throughput_per_s, units.rate_bounds),
    ),
    "valid_frames_per_s": (
        _number("valid frames/s", "valid\nframes/s", optional=True),
        lambda arm: cell(arm.valid_frames_per_s, units.rate_bounds),
    ),
    "padding_efficiency": (
        _number("padding efficiency", "pad.\neff.", optional=True),
        lambda arm: _plain(arm.padding_efficiency, units.percent),
    ),
    "cv": (_number("CV", "CV"), lambda arm: _plain(arm.cv, "{:.3f}".format)),
    "effect": (_number("speed-up", "speed-up", interval=True), _speed_up),
    "decision": (doc.Column("result", leads=True), lambda arm: doc.Cell(result(arm))),
}
"""Field of :class:`~xttsbench.records.report.Variant` to its column and cell. A terminal shows the interval of the
speed-up alone, which the result rests on; the pages have them all."""


def _notes(group: Group, nowhere: Sequence[str]) -> Iterator[str]:
    """What has to be known to read the table, below it."""
    if of := " and ".join(dict.fromkeys(arm.utilization_of for arm in group.arms if arm.utilization_of)):
        yield f"Utilization: {of}."
    if group.emulated:
        yield (
            "EMULATED: a wait of known length stands in for the device's work. The input side is real; the utilization "
            "and the times are not those of a device."
        )
    yield _sample([arm for arm in group.arms if arm.status == "ok"])
    if hidden := len(group.arms) - len(group.shown):
        yield f"Another {hidden} configurations, slower than these or ended, are in report.json."
    spread = {arm.id: arm.std_over_mean or 0.0 for arm in group.arms if arm.role != "aa"}
    shaky = "; ".join(f"{name} {units.number(float(value))}" for name, value in spread.items() if value > OSCILLATES)
    if shaky:
        yield f"The step time oscillates (std/mean above {OSCILLATES:g}): {shaky}."
    for arm in group.arms:
        if (ended := how_it_ended(arm)) is not None:
            how = f"was {ended[0]}" if ended[0] in _NEVER_BEGAN else f"ended, {ended[0]}"
            yield ": ".join(word for word in (f"{arm.id} {how}", ended[1]) if word)
    if nowhere:
        names = ", ".join(nowhere)
        yield f'Not measured in any configuration: {names}; the reasons stand under "Not measured".'


def _sample(ok: Sequence[Variant]) -> str:
    """How much stands behind a row."""
    words = []
    if ok:
        words.append(
            f"{_range([arm.blocks for arm in ok])} {'process' if {arm.blocks for arm in ok} == {1} else 'processes'}"
        )
    if any(arm.steps for arm in ok):
        words.append(f"{_range([arm.steps for arm in ok])} steps")
    behind = ", ".join(words)
    return (f"Each row: {behind}. " if behind else "") + "Intervals 95 %; CV is 1.4826 MAD / median of the step time."


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
