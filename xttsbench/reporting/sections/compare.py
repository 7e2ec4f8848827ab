"""Compared configurations as tables: what each gives, costs, and whether that is proven; and two runs compared.

One row per configuration, the same columns in every output; what none has is a note, not a column of blanks. A
comparison of two runs is a document, and as JUnit XML, which every CI system shows, a test case for each gate: a gate
that failed is a failure, one that is undecided an error, one that was not measured is skipped (the exit code tells that
from a pass). Without gates each configuration's result is a case, and only an undecided one is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final
from xml.etree import ElementTree

from xttsbench.records.base import DECIDED, FASTER, SLOWER
from xttsbench.records.comparison_result import ComparedPair, ComparedRun, ComparisonReport, Gate
from xttsbench.records.report import Report, Variant
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.sections import Group, cell, figures_of, fixes, groups, missing
from xttsbench.reporting.sections.step import OSCILLATES
from xttsbench.reporting.words import configuration, in_words, plain

BLANK: Final = "–"
"""Text of a value that was not measured; its reason is in ``unmeasured`` of the record."""
_MARKS: Final = {
    "passed": doc.Cell("pass"),
    "failed": doc.Cell("FAIL", tone="critical"),
    "undecided": doc.Cell("UNDECIDED", tone="warning"),
    "not measured": doc.Cell("NOT MEASURED", tone="warning"),
}
_SPEED: Final = ("configuration", "A per s", "B per s", "speed of B over A (95 %)", doc.Column("result", leads=True))
_ALONE: Final = ("configuration", "step time", "speed-up", "processes", "result")
_MOST_ROWS, _MOST_WARNINGS = 5, 2  # Of the tables and warnings on one screen
_METHODS: Final = {
    "paired blocks": "Rounds of one run, paired; 95 % intervals over rounds and processes.",
    "separate sessions": "Two sessions, unpaired: 95 % intervals over the processes of each.",
    "one process": "Too few processes: nothing is decided.",
}


def comparison_document(report: ComparisonReport) -> doc.Document:
    """The comparison in words."""
    sides = tuple(doc.Paragraph(_side(name, run)) for name, run in (("A", report.a), ("B", report.b)))
    figures = tuple(
        doc.Section(f"{pair.name}: other figures, without a verdict", tuple(_figures(pair))) for pair in report.pairs
    )
    remarks = doc.Lines(tuple(map(_remark, report.pairs)))
    differences = doc.Section("What differs", tuple(_differences(report)))
    return doc.Document(
        summary=_summary(report),
        blocks=(
            doc.Headline("compare", "", "", report.verdict.summary, sides),
            *map(doc.Callout, report.warnings),
            doc.Section("Gates", (_gates(report.gates),) if report.gates else ()),
            doc.Section("Speed", (_effects(report), remarks, doc.Lines(tuple(_notes(report)), "soft"))),
            doc.Fold("Other figures, and what differs", (*figures, differences)),
        ),
    )


def _summary(report: ComparisonReport) -> tuple[doc.Block, ...]:
    sides = tuple(doc.Paragraph(_side(name, run), "soft", lines=1) for name, run in (("A", report.a), ("B", report.b)))
    warnings = [doc.Callout(warning, lines=1) for warning in report.warnings]
    gates = sorted(report.gates, key=lambda gate: gate.outcome == "passed")[:_MOST_ROWS]
    pairs = (_effect(pair)[: len(_SPEED)] for pair in report.pairs[:_MOST_ROWS])
    tables = [*([_gates(gates)] if gates else []), doc.table(_SPEED, pairs)]
    notes = [
        f"{len(every) - _MOST_ROWS} more {what} with -v."
        for every, what in ((report.gates, "gates"), (report.pairs, "configurations"))
        if len(every) > _MOST_ROWS
    ]
    if apart := [found.field if found.comparable else f"{found.field}: NOT COMPARABLE" for found in report.differences]:
        notes.append(f"What differs: {', '.join(apart)}.")
    return (
        doc.Headline(report.command, "", "", report.verdict.summary, sides, lines=3),
        *warnings[:_MOST_WARNINGS],
        *(doc.Section("", (replace(one, short=True),)) for one in tables),
        *([doc.Section("", (doc.Paragraph(" ".join(notes), lines=2),))] if notes else []),
    )


def _side(name: str, run: ComparedRun) -> str:
    known = "" if run.processes_known else ", the report alone"
    machine = f". Machine: {run.disturbance.sentence}" if run.disturbance else ""
    return f"{name}: {run.given} ({run.kind} of {run.created_utc}{known}){machine}"


def _gates(gates: Sequence[Gate]) -> doc.Table:
    rows = [(_MARKS[gate.outcome], gate.limit, gate.pair, gate.why) for gate in gates]
    return doc.table(("outcome", "gate", "configuration", "why"), rows)


def _effects(report: ComparisonReport) -> doc.Table:
    return doc.table((*_SPEED, "evidence", "processes"), map(_effect, report.pairs))


def _effect(pair: ComparedPair) -> tuple[str | doc.Cell, ...]:
    sides = (pair.a, pair.b)
    return (
        pair.name,
        *(f"{units.number(one.rate_per_s.estimate)} {pair.unit}" if one.rate_per_s else BLANK for one in sides),
        doc.Cell(*units.ratio_bounds(pair.effect)) if pair.effect else BLANK,
        doc.Cell(spoken(pair.decision), tone="strong" if pair.decision in (*FASTER, *SLOWER) else ""),
        units.evidence(pair.evidence) if pair.evidence is not None else BLANK,
        f"{pair.a.processes}, {pair.b.processes}",
    )


def _remark(pair: ComparedPair) -> str:
    """Why a configuration is not decided, and what could have been seen of it."""
    visible = pair.smallest_visible_effect
    seen = "" if visible is None else f"an effect of {units.percent(visible)} would have been decided"
    return f"{pair.name}: {'; '.join(word for word in (pair.why, seen) if word) or 'nothing to add'}."


def _notes(report: ComparisonReport) -> Iterator[str]:
    yield from (
        _METHODS[method] for method in dict.fromkeys(pair.method for pair in report.pairs) if method in _METHODS
    )
    if (count := len(report.pairs)) > 1:
        yield f"With {count} configurations each has to show {20 * count} for its evidence."
    yield f"No difference: none beyond {report.margin:.0%}. {BLANK} is not measured; report.json has the reasons."


_ROWS: Final[tuple[tuple[str, str, Callable[..., str]], ...]] = (
    ("step time, mean", "step_time_s", units.duration_interval),
    ("samples per second", "throughput_per_s", units.rate_interval),
    ("utilization", "utilization", units.percent_interval),
    ("waiting for input", "input_wait_fraction", units.percent_interval),
    ("CV of the step time", "cv", "{:.3f}".format),
    ("padding efficiency", "padding_efficiency", units.percent),
    ("first step", "first_step_s", units.duration),
    ("memory, largest", "memory_bytes", units.size),
    ("steady steps", "steps", units.number),
)
"""Rows of the table: words, field, and formatting function."""


def _figures(pair: ComparedPair) -> Iterator[doc.Block]:
    rows = []
    for label, name, text in _ROWS:
        values = [getattr(side, name) for side in (pair.a, pair.b)]
        if values != [None, None]:
            rows.append((label, *(BLANK if value is None else text(value) for value in values)))
    if rows:
        yield doc.table(("", "A", "B"), rows)


def _differences(report: ComparisonReport) -> Iterator[doc.Block]:
    apart = doc.Cell("NOT COMPARABLE", tone="critical")
    rows = [(found.field, found.a, found.b, "" if found.comparable else apart) for found in report.differences]
    if rows:
        yield doc.table(("what", "A", "B", ""), rows)


_NOT_XML: Final = re.compile("[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Outside of the characters of XML 1.0, section 2.2, white space apart."""
_ELEMENTS: Final = {"failed": "failure", "undecided": "error", "not measured": "skipped"}


def to_junit(report: ComparisonReport) -> str:
    """The XML, with its declaration and a newline at the end."""
    cases: list[tuple[str, str, str | None, str]]
    cases = [(gate.pair, gate.limit, _ELEMENTS.get(gate.outcome), gate.why) for gate in report.gates]
    for one, sentence in () if report.gates else zip(report.pairs, report.comparison, strict=True):
        ended = "skipped" if one.method == "not measured" else "error" if one.decision not in DECIDED else None
        cases.append((one.name, "result", ended, one.why or sentence))
    kinds = [kind for _, _, kind, _ in cases]
    tags = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    counts = {"tests": str(len(cases))} | {name: str(kinds.count(tag)) for name, tag in tags.items()}
    root = ElementTree.Element("testsuites", {"name": "xttsbench compare", **counts})
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": "xttsbench compare", "timestamp": _text(report.created_utc), **counts, "time": "0"}
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("a", report.a.given), ("b", report.b.given), *(("warning", w) for w in report.warnings)):
        ElementTree.SubElement(properties, "property", {"name": name, "value": _text(value)})
    for pair, name, kind, why in cases:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": f"xttsbench.{_text(pair)}", "name": _text(name), "time": "0"}
        )
        if kind is None:
            ElementTree.SubElement(case, "system-out").text = _text(why)
        else:
            ElementTree.SubElement(case, kind, {"message": _text(why)})
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", plain(text))


_NEVER_BEGAN: Final = ("refused", "not run")  # Statuses of a configuration that none of its processes gave it
_ROLES: Final = {"baseline": "baseline", "aa": "baseline again"}


def comparisons(
    report: Report, tables: Callable[[str], doc.Table | None] = lambda _: None, *, folded: bool = False
) -> Iterator[doc.Block]:
    """A section for each group, with the ``tables`` of its plots by their names, then the noise check."""
    for group in groups(report):
        plots = () if report.training is not None else figures_of(group).items()
        drawn = tuple(doc.Figure(name, text, table=tables(name), view=doc.View.FULL) for name, text in plots)
        yield doc.Section(group.title, (*_comparison(group), *((doc.Fold("Plots", drawn),) if folded else drawn)))
    if any(arm.group for arm in report.arms) and (said := _noise_check(report)):
        yield doc.Section("", (doc.Paragraph(said),), view=doc.View.FULL)


def ungrouped(report: Report) -> Iterator[doc.Section]:
    """The configurations that belong to no group, and the noise check where no group has it."""
    blocks: list[doc.Block] = []
    if alone := [arm for arm in report.arms if not arm.group]:
        blocks += [doc.table(_ALONE, (*map(_row, alone), *fixes.beside(report))), *fixes.times_beside(report)]
    if len(alone) == len(report.arms) and (said := _noise_check(report)):
        blocks.append(doc.Paragraph(said, "soft"))
    title = "Configurations, each against the baseline" if alone else ""
    yield doc.Section(title, tuple(blocks), view=doc.View.FULL)


def in_full(report: Report) -> doc.Fold:
    """Folded table with the columns for which the comparison's tables have no room."""
    names = "group, accelerator, configuration, settings, repeats, steps, waiting for input, std / mean, evidence"
    rows = [
        (
            arm.group,
            arm.accelerator,
            in_words(arm.id),
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
    word = arm.decision or ("indicative only" if arm.effect else None)
    return "not faster" if word == "undecided" and arm.gain_ruled_out else spoken(word)


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
    """Style of a configuration: ``baseline``, ``again``, ``faster``, ``slower``, ``ended``, or ``plain``."""
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
        doc.Cell("1") if arm.role == "baseline" and arm.effect is None else cell(arm.effect, units.ratio_bounds),
        f"{arm.blocks:,}",
        "; ".join(word for word in (decision, "" if arm.status == "ok" else arm.status) if word),
    )


def _noise_check(report: Report) -> str:
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
    always = ("id", "decision")
    measured = [one for one in COLUMNS if one in always or any(getattr(arm, one) is not None for arm in group.arms)]
    nowhere = [column.name for name, (column, _) in COLUMNS.items() if name not in measured]
    columns = tuple(COLUMNS[name][0] for name in measured)
    rows = tuple(doc.Row(tuple(COLUMNS[name][1](arm) for name in measured), tone(arm)) for arm in group.shown)
    notes = doc.Lines(tuple(_group_notes(group, nowhere)), "soft")
    return doc.Table(columns, rows, blanks=True), notes


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


COLUMNS: Final[Mapping[str, tuple[doc.Column, Callable[[Variant], doc.Cell]]]] = {
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


def _group_notes(group: Group, nowhere: Sequence[str]) -> Iterator[str]:
    """Notes below a group's table that are needed to read it."""
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
    words = []
    if ok:
        blocks = [arm.blocks for arm in ok]
        words.append(f"{_range(blocks)} {'process' if {*blocks} == {1} else 'processes'}")
    if any(arm.steps for arm in ok):
        words.append(f"{_range([arm.steps for arm in ok])} steps")
    behind = f"Each row: {', '.join(words)}. " if words else ""
    return f"{behind}Intervals 95 %; CV is 1.4826 MAD / median of the step time."


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
