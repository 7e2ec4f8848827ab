"""A watched run on one screen: where its steps went, which stalled and what they had in common, and what is next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.records.report import Attribution
from xttsbench.records.watch import Memory, StallCause, WatchSummary
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.words import part

_CAUSES: Final = 4
_COMMAND: Final = 64
"""Characters of the command that are shown."""
_WORTH: Final = 0.001
"""Share of the time from which stalls are worth a line."""
_SIDES: Final = {"input": "waiting for input", "host": "work outside of compiled functions", "step": "the step itself"}
_ENDS: Final = {
    "running": "still running",
    "returned": "ended",
    "exited": "ended",
    "raised": "raised",
    "killed": "was killed",
    "interrupted": "was interrupted",
}


def watch_document(summary: WatchSummary, place: str = "") -> doc.Document:
    """The screen of a watched run.

    The place is its directory as it is shown; empty where it is not known.
    """
    blocks = (_headline(summary), *_body(summary), _last(summary, place))
    return doc.Document(blocks, summary=blocks)


def _headline(summary: WatchSummary) -> doc.Headline:
    named = summary.bottleneck != "inconclusive"
    below = []
    if named and summary.probability is not None:
        sure = f"Probability {units.probability(summary.probability)}, given what was seen; no experiment was made."
        below.append(doc.Paragraph(sure, "soft", lines=1))
    return doc.Headline(
        kind=f"watch {summary.script}"[:_COMMAND],
        subject="",
        word=f"likely {part(summary.bottleneck)}" if named else part(summary.bottleneck),
        name=summary.bottleneck,
        sentence=summary.sentence,
        below=tuple(below),
        lines=3,
        view=doc.View.SUMMARY,
    )


def _run(summary: WatchSummary) -> str:
    epochs = f", {summary.epochs:,} epochs" if summary.epochs > 1 else ""
    end = _ENDS[summary.ended]
    if summary.signal:
        end += f" by {summary.signal}"
    elif summary.exit_code:
        end += f" with exit code {summary.exit_code}"
    return f"{summary.steps:,} steps{epochs} in {units.duration(summary.duration_s)}, {end}"


def _body(summary: WatchSummary) -> Iterator[doc.Block]:
    if summary.error:
        yield doc.Callout(summary.error, lines=2, view=doc.View.SUMMARY)
    run = doc.Fact("run", _run(summary), 2)
    step = summary.step_time_s
    if step is None:
        yield doc.Section("", (doc.Facts((run,), view=doc.View.SUMMARY),))
        return
    if summary.attribution_s is not None:
        yield doc.Section("", (_bars(summary.attribution_s, step.estimate),))
    facts = [run, doc.Fact("a step", _times(summary))]
    if (waits := summary.input_wait_fraction) is not None:
        facts.append(doc.Fact("waiting for input", f"{units.percent_interval(waits)} of a step", 1))
    facts += _stalls(summary)
    if (drift := summary.drift) is not None:
        word = "slower" if drift.change > 0 else "faster"
        facts.append(doc.Fact("drift", f"{abs(drift.change):.0%} {word} over the run; {_SIDES[drift.side]} is", 1))
    if summary.traces or summary.xla_compiles:
        said = f"{summary.traces:,} traces and {summary.xla_compiles:,} XLA compilations after the warm-up"
        facts.append(doc.Fact("compiled again", said, 1))
    if summary.memory is not None:
        facts.append(doc.Fact("memory", _memory(summary.memory), 1))
    cause = next((one for one in summary.findings if one.limiting), None)
    if cause is not None:
        where = f" ({cause.location.file}:{cause.location.line})" if cause.location.file else ""
        facts += [doc.Fact("likely cause", f"{cause.title}{where}", 2), doc.Fact("what to do", cause.remedy, 2)]
    yield doc.Section("", (doc.Facts(tuple(facts), view=doc.View.SUMMARY),))


def _bars(parts: Attribution, step_s: float) -> doc.Bars:
    found = tuple(
        doc.Part(name, units.duration(seconds), seconds / step_s, units.percent(seconds / step_s))
        for name, seconds in parts
    )
    return doc.Bars(found, compact=True, view=doc.View.SUMMARY)


def _times(summary: WatchSummary) -> str:
    words = [f"{units.duration_interval(summary.step_time_s)} in the mean"] if summary.step_time_s else []
    names = {"median": "median", "p95": "95 % below", "p99": "99 % below"}
    words += [
        f"{word} {units.duration(summary.quantiles_s[name])}"
        for name, word in names.items()
        if name in summary.quantiles_s
    ]
    return ", ".join(words)


def _stalls(summary: WatchSummary) -> Iterator[doc.Fact]:
    """The steps that stalled, by what they had in common."""
    found = summary.stalls
    if not found.count or found.share_of_time < _WORTH:
        return
    said = f"{found.count:,} steps, {found.share_of_time:.1%} of the time beyond the median step"
    yield doc.Fact("stalled", said, 1)
    shown = [one for one in found.causes if one.lost_s >= 0.02 * found.lost_s][:_CAUSES]
    for one in shown:
        yield doc.Fact("", _cause(one), 1)


def _cause(one: StallCause) -> str:
    regular = f", every {one.every_steps:,.0f} steps" if one.every_steps is not None else ""
    if one.count == 1:
        return f"{one.what}: once, {units.duration(one.lost_s)} more, at step {one.first_step:,}"
    mean = units.duration(one.lost_s / one.count)
    return (
        f"{one.what}: {one.count:,} times{regular}, {mean} more each, a step of {units.duration(one.slowest_s)} at most"
    )


def _memory(found: Memory) -> str:
    said = f"{units.size(found.first_bytes)} at first, {units.size(found.last_bytes)} at last"
    return said if found.bytes_per_step is None else f"{said}: it grows by {units.size(found.bytes_per_step)} a step"


def _last(summary: WatchSummary, place: str) -> doc.Section:
    facts = []
    for gate in summary.fail_on:
        facts.append(doc.Fact("gate", f"{gate.expression} {gate.outcome}: {gate.why}", 2))
    if summary.next_command and summary.stretches:
        facts.append(doc.Fact("to prove it", summary.next_command, 2))
    if place:
        facts.append(doc.Fact("summary", f"{place}/summary.json", 2))
    return doc.Section("", (doc.Facts(tuple(facts), view=doc.View.SUMMARY),))
