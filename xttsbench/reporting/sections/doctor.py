"""The document of ``xttsbench doctor``: what is broken, what is worth knowing, and with ``-v`` every check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.records.machine import Check, Examination
from xttsbench.reporting import document as doc

_MARKS: Final = {
    "ok": doc.Cell("ok"),
    "note": doc.Cell("note", tone="strong"),
    "broken": doc.Cell("BROKEN", tone="critical"),
    "unknown": doc.Cell("unknown", tone="warning"),
}
_ORDER: Final = ("broken", "unknown", "note")


def doctor_document(found: Examination) -> doc.Document:
    """The examination in words."""
    headline = doc.Headline("doctor", _machine(found), "", _sentence(found), view=doc.View.SUMMARY)
    rows = [(_MARKS[check.status], check.id, check.seen) for check in found.checks]
    return doc.Document(
        summary=(headline, *_said(found)),
        blocks=(headline, doc.Section("Checks", (doc.table(("result", "check", "what was seen"), rows),))),
    )


def _machine(found: Examination) -> str:
    software, processors = found.machine.software, found.machine.processors
    gpus = found.machine.driver.gpus
    cores = f"{processors.allowed:g} processor{'s' * (processors.allowed != 1)}"
    devices = f"{cores}, {len(gpus) or 'no'} GPU{'s' * (len(gpus) != 1)}"
    return f"TensorFlow {software.packages.get('tensorflow') or 'not installed'}, {devices}"


def _sentence(found: Examination) -> str:
    checks, broken, unknown = len(found.checks), found.of("broken"), found.of("unknown")
    if broken:
        return f"{len(broken)} of {checks} checks found something broken."
    unchecked = f", {len(unknown)} could not be made" if unknown else ""
    return f"Nothing is broken: {checks} checks{unchecked}."


def _said(found: Examination) -> Iterator[doc.Block]:
    for status in _ORDER:
        for check in found.checks:
            if check.status == status:
                yield doc.Section("", tuple(_check(check)))


def _check(check: Check) -> Iterator[doc.Block]:
    word = check.status.upper() if check.status == "broken" else check.status
    tone: doc.Tone = "refused" if check.status == "broken" else "strong"
    yield doc.Paragraph(f"{word}  {check.id}: {check.seen}", tone, view=doc.View.SUMMARY)
    if check.remedy:
        yield doc.Paragraph(f"→ {check.remedy}", "soft", view=doc.View.SUMMARY)
