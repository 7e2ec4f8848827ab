"""The document of a comparison of two runs: the answer, what each side is, the gates, and what else differs.

A comparison as JUnit XML, which every CI system shows: a test case for each gate and arm.

A gate that failed is a failure, one that is undecided an error, one that was not measured is skipped (the exit code
tells that from a pass). Without gates each arm's result is a case, and only an undecided one is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final
from xml.etree import ElementTree

from xttsbench.records.base import DECIDED, FASTER, SLOWER
from xttsbench.records.comparison_result import ComparedPair, ComparedRun, ComparisonReport, Gate
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.sections.arms import spoken
from xttsbench.reporting.words import plain

BLANK: Final = "–"
"""What was not measured; its reason is in ``unmeasured`` of the record."""
_MARKS: Final = {
    "passed": doc.Cell("pass"),
    "failed": doc.Cell("FAIL", tone="critical"),
    "undecided": doc.Cell("UNDECIDED", tone="warning"),
    "not measured": doc.Cell("NOT MEASURED", tone="warning"),
}
_MOST_ROWS, _MOST_WARNINGS = 5, 2
"""Of the tables and warnings on one screen."""
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
    """The answer, the gates that did not pass first, the speeds, and how far apart the two sides are otherwise."""
    sides = tuple(doc.Paragraph(_side(name, run), "soft", lines=1) for name, run in (("A", report.a), ("B", report.b)))
    warnings = [doc.Callout(warning, lines=1) for warning in report.warnings]
    gates = sorted(report.gates, key=lambda gate: gate.outcome == "passed")[:_MOST_ROWS]
    tables = []
    if gates:
        tables.append(_gates(gates))
    header = ("configuration", "A per s", "B per s", "speed of B over A (95 %)", doc.Column("result", leads=True))
    tables.append(doc.table(header, (_effect(pair)[: len(header)] for pair in report.pairs[:_MOST_ROWS])))
    notes = [
        f"{len(every) - _MOST_ROWS} more {what} with -v."
        for every, what in ((report.gates, "gates"), (report.pairs, "configurations"))
        if len(every) > _MOST_ROWS
    ]
    if apart := [found.field if found.comparable else f"{found.field}: NOT COMPARABLE" for found in report.differences]:
        notes.append(f"What differs: {', '.join(apart)}.")
    return (
        doc.Headline(report.command, "", "", report.verdict.summary, sides, lines=3, view=doc.View.SUMMARY),
        *(replace(one, view=doc.View.SUMMARY) for one in warnings[:_MOST_WARNINGS]),
        *(doc.Section("", (replace(one, short=True, view=doc.View.SUMMARY),)) for one in tables),
        *([doc.Section("", (doc.Paragraph(" ".join(notes), lines=2, view=doc.View.SUMMARY),))] if notes else []),
    )


def _side(name: str, run: ComparedRun) -> str:
    known = "" if run.processes_known else ", the report alone"
    machine = f". Machine: {run.disturbance.sentence}" if run.disturbance else ""
    return f"{name}: {run.given} ({run.kind} of {run.created_utc}{known}){machine}"


def _gates(gates: Sequence[Gate]) -> doc.Table:
    rows = [(_MARKS[gate.outcome], gate.limit, gate.pair, gate.why) for gate in gates]
    return doc.table(("outcome", "gate", "configuration", "why"), rows)


def _effects(report: ComparisonReport) -> doc.Table:
    header = ("configuration", "A per s", "B per s", "speed of B over A (95 %)")
    rest = (doc.Column("result", leads=True), "evidence", "processes")
    return doc.table((*header, *rest), map(_effect, report.pairs))


def _effect(pair: ComparedPair) -> tuple[str | doc.Cell, ...]:
    ours, theirs = (
        f"{units.number(side.rate_per_s.estimate)} {pair.unit}" if side.rate_per_s else BLANK
        for side in (pair.a, pair.b)
    )
    return (
        pair.name,
        ours,
        theirs,
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
    for method in dict.fromkeys(pair.method for pair in report.pairs):
        if method in _METHODS:
            yield _METHODS[method]
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
"""What it is called, its field, and how it is written."""


def _figures(pair: ComparedPair) -> Iterator[doc.Block]:
    """Side by side, without a verdict; what neither run measured is left out."""
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
    if report.gates:
        cases = [(gate.pair, gate.limit, _ELEMENTS.get(gate.outcome), gate.why) for gate in report.gates]
    else:
        cases = [
            (
                pair.name,
                "result",
                "skipped" if pair.method == "not measured" else "error" if pair.decision not in DECIDED else None,
                pair.why or sentence,
            )
            for pair, sentence in zip(report.pairs, report.comparison, strict=True)
        ]
    kinds = [kind for _, _, kind, _ in cases]
    counts = {
        "tests": str(len(cases)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
    }
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
