"""A comparison as JUnit XML, which every CI system shows: a test case for each gate and arm.

A gate that failed is a failure, one that is undecided an error, one that was not measured is skipped (the exit code
tells that from a pass). Without gates each arm's result is a case, and only an undecided one is an error.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree

from xttsbench.records.base import DECIDED
from xttsbench.records.comparison_result import ComparisonReport
from xttsbench.reporting.words import plain

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
