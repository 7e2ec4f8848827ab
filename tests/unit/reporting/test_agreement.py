"""No output says other than the record: verdict, shares, times, gains with their intervals, fixes, utilization.

Each is looked for in what people read: the screen and the rest on a terminal, ``report.md``, ``report.html``. That a
wrong one is found is shown by outputs of one record held against another that differs in that alone.
"""

from __future__ import annotations

import html as entities
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.unit.reporting.conftest import changed, estimate
from tests.unit.reporting.sections.test_summary import (
    every_report,  # noqa: F401  # a fixture
    flat,
    optimized,
    screen,
)
from xttsbench.records.report import Report
from xttsbench.reporting import markdown, units
from xttsbench.reporting.document import View
from xttsbench.reporting.page import page_document, render_page
from xttsbench.reporting.sections import answer, compares
from xttsbench.reporting.sections.report import report_document
from xttsbench.reporting.words import SAME_DATA, part

_RATIO: Final = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?x\b")
_PROBABILITY: Final = re.compile(r"[Pp]robability ((?:over )?\S+ %)")
_SHOWN: Final = 0.005
"""Share of a step from which a part is in every bar."""
_HOW: Final = {"estimated": "estimated only", "if that time were gone": "at best"}
_EVERYTHING: Final = (f"console, {View.FULL.name}", "report.md", "report.html")
_ANSWERS: Final = (f"console, {View.SUMMARY.name}", "report.md", "report.html")


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def outputs(report: Report) -> dict[str, str]:
    """What people read, as plain words, by where they read it."""
    document = report_document(report, "reports/one")
    page = render_page(page_document(report), {})
    body = re.sub(r"<(style|script).*?</\1>", " ", page, flags=re.DOTALL)
    found = {
        **{f"console, {view.name}": flat(screen(report, width=400, view=view)) for view in View},
        "one line": document.line,
        "report.md": flat(entities.unescape(markdown.render(document).replace("\\", "").replace("|", " "))),
        "report.html": flat(entities.unescape(re.sub(r"<[^>]*>", " ", body))),
    }
    return {where: text.replace("(95 % interval: ", "(", 1) for where, text in found.items()}


def contradictions(report: Report, texts: dict[str, str]) -> Iterator[str]:
    """Where and what: outputs that lack something of the record, or say another number."""
    yield from _strangers(report, texts)
    if not compares(report):
        yield from _verdict(report, texts)
        yield from _shares(report, texts)
        yield from _gain(report, texts)
    yield from _fixes(report, texts)
    yield from _compared(report, texts)


def _lacks(texts: dict[str, str], where: tuple[str, ...] | list[str], wanted: str) -> Iterator[str]:
    yield from (f"{name} lacks {wanted!r}" for name in where if wanted not in texts[name])


def _strangers(report: Report, texts: dict[str, str]) -> Iterator[str]:
    """Speed-ups and probabilities that are not in the record."""
    record = json.loads(report.model_dump_json())
    words = json.dumps(record, ensure_ascii=False)
    known = {units.ratio(value) for value in numbers(record)}
    sure = {units.probability(report.verdict.confidence), *_PROBABILITY.findall(words)}
    for where, text in texts.items():
        yield from (f"{where}: {one}" for one in _RATIO.findall(text) if one not in known and one not in words)
        yield from (f"{where}: probability {one}" for one in set(_PROBABILITY.findall(text)) - sure)


def _verdict(report: Report, texts: dict[str, str]) -> Iterator[str]:
    """Its word at the head of everything; the time of a step, waiting and utilization with their intervals."""
    verdict = report.verdict
    head = re.compile(rf"(?:^|# | ){re.escape(part(verdict.bottleneck))} ?:? ", re.IGNORECASE)
    yield from (f"{where}: another verdict" for where, text in texts.items() if not head.search(text[:1200]))
    if verdict.step_time_s is not None:
        yield from _lacks(texts, [*_ANSWERS, _EVERYTHING[0]], units.duration_interval(verdict.step_time_s))
        yield from _lacks(texts, ["console, DETAILED"], units.duration(verdict.step_time_s.estimate))
    for share in (verdict.input_wait_fraction, verdict.accelerator_utilization):
        if share is not None:
            yield from _lacks(texts, _EVERYTHING, units.percent_interval(share))


def _shares(report: Report, texts: dict[str, str]) -> Iterator[str]:
    """What the time of a step goes into."""
    parts, time = report.verdict.attribution_s, report.verdict.step_time_s
    if parts is None or time is None or not time.estimate:
        return
    every = parts.model_dump()
    shares = [seconds / time.estimate for seconds in every.values()]
    for (name, seconds), share, said in zip(every.items(), shares, units.percents(shares), strict=True):
        if share >= _SHOWN:
            yield from _lacks(texts, _EVERYTHING, f"{part(name)} {units.duration(seconds)} {said}")
            if share >= 0.1:
                yield from _lacks(texts, _ANSWERS[:2], f"{part(name)} {said}")


def _gain(report: Report, texts: dict[str, str]) -> Iterator[str]:
    """The gain of the answer, and that it is called measured only where it is."""
    found = answer.gain(report)
    if found is None or found.gain is None or report.verdict.step_time_s is None:
        return
    exact = not found.measured and found.gain.low == found.gain.high
    said = units.ratio(found.gain.estimate) if exact else units.ratio_interval(found.gain)
    yield from _lacks(texts, _ANSWERS, said)
    how = "measured" if found.taken else "estimated" if found.words else "if that time were gone"
    after = f"computed from the measured speed-up, {said}" if found.taken else f"{said} as fast, {how}"
    yield from _lacks(texts, _ANSWERS[:2], f"{answer.after(report.verdict.step_time_s, found.gain, report)}, {after}")
    yield from _lacks(texts, _ANSWERS[2:], f"gain, {_HOW.get(how, how)} {said}")


def _fixes(report: Report, texts: dict[str, str]) -> Iterator[str]:
    """What is proposed, and what became of each fix that was measured."""
    proposed = sum(found.chosen for found in report.fixes)
    page, full = texts["report.html"], texts[_EVERYTHING[0]]
    if page.count(" PROPOSED ") != proposed:
        yield f"report.html proposes {page.count(' PROPOSED ')} fixes, and not {proposed}"
    for found in report.fixes:
        if found.verified_speedup is not None and found.outcome != "not verified":
            speed = units.ratio_interval(found.verified_speedup)
            yield from _lacks(texts, _EVERYTHING[:1], f"{speed}")
            became = "proposed" if found.chosen else found.outcome
            if not re.search(rf"{re.escape(speed)} (?:\S+ )+?{became}\b", full):
                yield f"{found.name} was {found.outcome}"
        if found.chosen and found.semantics is not None:
            yield from _lacks(texts, _ANSWERS[:1], SAME_DATA[found.semantics.how])


def _compared(report: Report, texts: dict[str, str]) -> Iterator[str]:
    """Times, utilization and speed-ups of compared configurations."""
    if not compares(report):
        return
    for arm in report.arms:
        for value, text in (
            (arm.step_time_s, units.duration_interval),
            (arm.utilization, units.percent_interval),
            (arm.effect, units.ratio_interval),
        ):
            if arm.group and value is not None:
                yield from _lacks(texts, _EVERYTHING[1:2], text(value))
                yield from _lacks(texts, _EVERYTHING[2:], text(value).split(" (")[0])


def test_no_output_says_other_than_the_record(every_report: dict[str, Report]) -> None:  # noqa: F811
    for name, report in every_report.items():
        assert list(contradictions(report, outputs(report))) == [], name


def _with_verdict(report: Report, **other: Any) -> Report:
    return changed(report, verdict=report.verdict.model_copy(update=other))


def _with_first_fix(report: Report, **other: Any) -> Report:
    first, *rest = report.fixes
    return changed(report, fixes=(first.model_copy(update=other), *rest))


OTHERS: Final[dict[str, Callable[[Report], Report]]] = {
    "verdict": lambda one: _with_verdict(one, bottleneck="dispatch"),
    "probability": lambda one: _with_verdict(one, confidence=0.9),
    "step time": lambda one: _with_verdict(one, step_time_s=estimate(0.0352)),
    "its interval": lambda one: _with_verdict(one, step_time_s=estimate(0.0342, 0.2)),
    "utilization": lambda one: _with_verdict(one, accelerator_utilization=estimate(0.7)),
    "waiting": lambda one: _with_verdict(one, input_wait_fraction=estimate(0.3)),
    "share": lambda one: _with_verdict(
        one, attribution_s=one.verdict.attribution_s and changed(one.verdict.attribution_s, input=0.0150)
    ),
    "gain": lambda one: _with_first_fix(one, verified_speedup=estimate(1.5, 0.02)),
    "interval of the gain": lambda one: _with_first_fix(one, verified_speedup=estimate(1.94, 0.1)),
    "accepted fix": lambda one: _with_first_fix(one, chosen=False, outcome="rejected"),
    "other fix": lambda one: changed(
        one, fixes=(one.fixes[0], changed(one.fixes[1], outcome="accepted"), *one.fixes[2:])
    ),
}


def test_what_would_be_wrong_is_found() -> None:
    report = optimized()
    texts = outputs(report)
    assert list(contradictions(report, texts)) == []
    for what, other in OTHERS.items():
        assert list(contradictions(other(report), texts)), what
