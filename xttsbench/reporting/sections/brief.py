"""Documents of one screen: of a watched run, of a monitored machine, and of what ``xttsbench doctor`` found.

Of a monitor's log there are plots as well: which columns stand in which figure, and a long column as so many stretches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from xttsbench.analysis.steps import FloatArray
from xttsbench.analysis.variation import changed
from xttsbench.records.machine import COLUMNS, Examination, Monitored, spoken
from xttsbench.records.watch import Memory, StallCause, WatchSummary
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.screen import numbered
from xttsbench.reporting.sections.naming import with_level
from xttsbench.reporting.step_bar import bars
from xttsbench.reporting.words import part

_HALF, _BUSY, _STOLEN = 0.5, 0.9, 0.05
_LINES = "Lines are means over stretches of time, shaded the extremes in them; dotted is what happened."
_NOT_SUMMED = ("_total_bytes", "_steps")
_COMMON = ("cpu_share", "cpu_steal_share", "memory_used_bytes", "storage_read_bytes_per_s", "storage_write_bytes_per_s")


def monitored_document(
    found: Monitored, figures: Sequence[doc.Figure] = (), users: doc.Table | None = None
) -> doc.Document:
    """The document: on a console the sentence and the main columns, on a page everything.

    Args:
        found: what was seen.
        figures: plots of the log, for a page.
        users: who used the processors, for a page.
    """
    subject = " ".join(filter(None, (found.log, f"{found.readings:,} readings in {units.duration(found.duration_s)}")))
    own = found.own_cpu_share
    about = () if own is None else (f"The readings themselves took {100 * own:.2f} % of one processor.",)
    headline = doc.Headline(
        "monitor", subject, "", sentence(found), tuple(doc.Paragraph(text, "soft") for text in about)
    )
    main = [name for name in found.signals if name in _COMMON or name.startswith(("gpu", "process_"))]
    last = [doc.Paragraph(f"{one.t_s:.1f} s: {one.text}", "soft") for one in found.events[-3:]]
    events = [(f"{event.t_s:.1f} s", event.text) for event in found.events]
    blocks = (
        headline,
        doc.Section("Over time", (doc.Paragraph(_LINES, "soft"), *figures) if figures else ()),
        doc.Section("What happened", (doc.table(("at", "what"), events),) if events else ()),
        doc.Section("Who used the processors", (users,) if users is not None else ()),
        doc.Fold("Every column", (_signals(found, list(found.signals)),)),
        doc.folded("Not measured", ("column", "why"), sorted(found.unmeasured.items())),
        doc.Section("The machine", (doc.Facts(_machine(found), header=("", "")),)),
    )
    return doc.Document(blocks, (headline, _signals(found, main), *last))


def sentence(found: Monitored) -> str:
    """Sentence on the most striking results: GPUs first, then oscillation, busy processors, and steal."""
    if not found.readings:
        return "No reading was taken."
    said = f"{'; '.join(_stands_out(found))}."
    return said[0].upper() + said[1:]


def _stands_out(found: Monitored) -> Iterator[str]:
    means = {name: signal.mean for name, signal in found.signals.items()}
    for number in numbered(found.signals, "gpu"):
        used = means.get(f"gpu{number}_utilization")
        if used is not None:
            yield f"GPU {number} was used {units.percent(used)} of the time" + (", it starves" if used < _HALF else "")
    for one in {one.column: one for one in found.oscillations}.values():  # the newest of each column
        yield f"{spoken(one.column)} repeated itself every {units.duration(one.period_s)}"
    if (share := means.get("cpu_share")) is not None:
        nearly = ", nearly all" if share > _BUSY else ""
        yield f"the processors were in use {units.percent(share)} of the time{nearly}"
    if (stolen := means.get("cpu_steal_share", 0.0)) > _STOLEN:
        yield f"{units.percent(stolen)} of their time was stolen by the hypervisor"


def _signals(found: Monitored, names: Sequence[str]) -> doc.Table:
    """In the order of the CSV: the machine, its GPUs, the process."""
    starts = [kind.partition("<")[0] for kind in COLUMNS]
    names = sorted(names, key=lambda name: next((at for at, start in enumerate(starts) if name.startswith(start)), 0))
    rows = []
    for name in names:
        if not name.endswith(_NOT_SUMMED):
            one = found.signals[name]
            rows.append((name, *(units.named(name, value)[1] for value in (one.mean, one.lowest, one.highest))))
    return doc.table(("column", *doc.numeric("mean", "lowest", "highest")), rows)


def _machine(found: Monitored) -> tuple[doc.Fact, ...]:
    facts = [doc.Fact(name, str(value)) for name, value in found.machine.items()]
    return (*facts, doc.Fact("began", found.started_utc), doc.Fact("interval", units.duration(found.interval_s)))


_GIB, _MIB = 1 / 2**30, 1 / 2**20
_ROWS: Final = 12


@dataclass(frozen=True)
class Panel:
    """Columns of one unit: their names and what they are called; ``top`` is where the axis ends."""

    title: str
    unit: str
    scale: float
    series: tuple[tuple[str, str], ...]
    top: float | None = None


def figures(columns: Collection[str]) -> dict[str, tuple[str, list[Panel]]]:
    """Name of each figure to its title and its panels, of the columns that hold something."""
    made = {}
    for name, title, panels in _all(columns):
        cut = [replace(one, series=tuple(pair for pair in one.series if pair[0] in columns)) for one in panels]
        if read := [panel for panel in cut if panel.series]:
            made[name] = (title, read)
    return made


def _all(columns: Collection[str]) -> Iterator[tuple[str, str, list[Panel]]]:
    for n in numbered(columns, "gpu"):
        pcie = tuple((f"gpu{n}_pcie_{way}_bytes_per_s", said) for way, said in (("rx", "to it"), ("tx", "from it")))
        yield (
            f"gpu-{n}",
            f"GPU {n}",
            [
                Panel("utilization", "%", 100, ((f"gpu{n}_utilization", ""),), 105),
                Panel("memory", "GiB", _GIB, ((f"gpu{n}_memory_used_bytes", ""),)),
                Panel("power", "W", 1, ((f"gpu{n}_power_w", ""),)),
                Panel("clock of the multiprocessors", "MHz", 1, ((f"gpu{n}_sm_clock_mhz", ""),)),
                Panel("PCIe", "MiB/s", _MIB, pcie),
            ],
        )
    steps = [
        Panel("processors that it uses", "processors", 1, (("process_cpus", ""),)),
        Panel("memory", "GiB", _GIB, (("process_memory_bytes", "resident"), ("process_gpu_memory_bytes", "on GPUs"))),
        Panel("time of a step", "ms", 1e3, (("process_step_time_s", ""),)),
        Panel("waiting for input", "% of a step", 100, (("process_input_wait_share", ""),), 105),
    ]
    yield "process", "The process", steps
    taken = (("cpu_steal_share", "stolen"), ("cpu_iowait_share", "waiting for storage"))
    cores = tuple((f"cpu{n}_share", f"processor {n}") for n in numbered(columns, "cpu"))
    yield (
        "processors",
        "Processors",
        [
            Panel("use", "%", 100, (("cpu_share", "all"), *cores), 105),
            Panel("time taken from them", "%", 100, taken),
            Panel("stopped by the quota", "processors", 1, (("quota_throttled_cpus", ""),)),
        ],
    )
    moved = (("storage_read_bytes_per_s", "read"), ("storage_write_bytes_per_s", "written"))
    yield (
        "storage",
        "Memory and storage",
        [
            Panel("memory in use", "GiB", _GIB, (("memory_used_bytes", ""),)),
            Panel("storage", "MiB/s", _MIB, moved),
            Panel("busiest device at work", "% of the time", 100, (("storage_busy_share", ""),), 105),
        ],
    )


def stretches(t_s: FloatArray, values: FloatArray, most: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Middle, mean, least and largest value of so many stretches of equal time, those without a value left out."""
    read = ~np.isnan(values)
    t_s, values = t_s[read], values[read]
    if values.size <= most:
        return t_s, values, values, values
    place = np.minimum((t_s - t_s[0]) / (t_s[-1] - t_s[0]) * most, most - 1).astype(np.int64)
    starts = np.flatnonzero(np.r_[True, place[1:] != place[:-1]])
    count = np.diff(np.r_[starts, values.size])
    mean, middle = np.add.reduceat(values, starts) / count, np.add.reduceat(t_s, starts) / count
    return middle, mean, np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)


def table_of(panels: list[Panel], columns: Mapping[str, FloatArray]) -> doc.Table:
    """Table of a figure, as means over stretches of time: for readers who cannot see it, or want the numbers."""
    names = [name for panel in panels for name, _ in panel.series]
    t_s = columns["t_s"]
    edges = np.linspace(0.0, max(float(t_s[-1]), 1e-3), _ROWS + 1)
    rows = []
    for low, high in pairwise(edges):
        inside = (t_s >= low) & (t_s <= high)
        read = {name: columns[name][inside & ~np.isnan(columns[name])] for name in names}
        cells = (units.named(name, float(one.mean()) if one.size else None)[1] for name, one in read.items())
        rows.append((f"{low:.1f} to {high:.1f} s", *cells))
    return doc.table(("since the first reading", *doc.numeric(*names)), rows)


_MARKS: Final = {
    "ok": doc.Cell("ok"),
    "note": doc.Cell("note", tone="strong"),
    "broken": doc.Cell("BROKEN", tone="critical"),
    "unknown": doc.Cell("unknown", tone="warning"),
}
_ORDER: Final = ("broken", "unknown", "note")


def doctor_document(found: Examination) -> doc.Document:
    """The examination in words."""
    headline = doc.Headline("doctor", _examined(found), "", _judged(found))
    rows = [(_MARKS[check.status], check.id, check.seen) for check in found.checks]
    return doc.Document(
        summary=(headline, *_worth_saying(found)),
        blocks=(headline, doc.Section("Checks", (doc.table(("result", "check", "what was seen"), rows),))),
    )


def _examined(found: Examination) -> str:
    allowed, gpus = found.machine.processors.allowed, len(found.machine.driver.gpus)
    version = found.machine.software.packages.get("tensorflow") or "not installed"
    cores = f"{allowed:g} processor{'s' * (allowed != 1)}"
    return f"TensorFlow {version}, {cores}, {gpus or 'no'} GPU{'s' * (gpus != 1)}"


def _judged(found: Examination) -> str:
    checks, broken, unknown = len(found.checks), found.of("broken"), found.of("unknown")
    if broken:
        return f"{len(broken)} of {checks} checks found something broken."
    unchecked = f", {len(unknown)} could not be made" if unknown else ""
    return f"Nothing is broken: {checks} checks{unchecked}."


def _worth_saying(found: Examination) -> Iterator[doc.Block]:
    for check in (check for status in _ORDER for check in found.of(status)):
        tone: doc.Tone = "refused" if check.status == "broken" else "strong"
        said = doc.Paragraph(f"{_MARKS[check.status].value}  {check.id}: {check.seen}", tone)
        remedy = (doc.Paragraph(f"→ {check.remedy}", "soft"),) if check.remedy else ()
        yield doc.Section("", (said, *remedy))


_CAUSES: Final = 4
_COMMAND: Final = 64  # Characters of the command that are shown
_WORTH: Final = 0.001  # Share of the time from which stalls are worth a line
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
    return doc.Document(blocks, summary=with_level(blocks))


def _headline(summary: WatchSummary) -> doc.Headline:
    named = summary.bottleneck != "inconclusive"
    below: tuple[doc.Paragraph, ...] = ()
    if named and summary.probability is not None:
        sure = f"Probability {units.probability(summary.probability)}, given what was seen; no experiment was made."
        below = (doc.Paragraph(sure, "soft", lines=1),)
    return doc.Headline(
        kind=f"watch {summary.script}"[:_COMMAND],
        subject=f"rank {summary.rank.rank} of {summary.rank.ranks}" if summary.rank is not None else "",
        word=f"likely {part(summary.bottleneck)}" if named else part(summary.bottleneck),
        name=summary.bottleneck,
        sentence=summary.sentence,
        below=below,
        lines=3,
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
    for said in filter(None, (summary.error, *summary.notes)):
        yield doc.Callout(said, lines=2)
    run = doc.Fact("run", _run(summary), 2)
    step = summary.step_time_s
    if step is None:
        yield doc.Section("", (doc.Facts((run,)),))
        return
    if summary.attribution_s is not None:
        parts = bars(dict(summary.attribution_s), step.estimate)
        yield doc.Section("", (replace(parts, compact=True),))
    facts = [run, doc.Fact("a step", _times(summary))]
    if (waits := summary.input_wait_fraction) is not None:
        facts.append(doc.Fact("waiting for input", f"{units.percent_interval(waits)} of a step", 1))
    facts += _stalls(summary)
    if (drift := summary.drift) is not None:
        said = f"step times {changed(drift.change, summary.steps)}; most of it is {_SIDES[drift.side]}"
        facts.append(doc.Fact("drift", said, 2))
    if summary.traces or summary.xla_compiles:
        said = f"{summary.traces:,} traces and {summary.xla_compiles:,} XLA compilations after the warm-up"
        facts.append(doc.Fact("compiled again", said, 1))
    if summary.memory is not None:
        facts.append(doc.Fact("memory", _memory(summary.memory), 1))
    undecided = summary.bottleneck == "inconclusive"
    acted_on = (one for one in summary.findings if one.limiting or (undecided and one.severity != "info"))
    if (found := next(acted_on, None)) is not None:
        where = f" ({found.location.file}:{found.location.line})" if found.location.file else ""
        name = "likely cause" if found.limiting else "found besides"
        facts += [doc.Fact(name, f"{found.title}{where}", 2), doc.Fact("what to do", found.remedy, 2)]
    yield doc.Section("", (doc.Facts(tuple(facts)),))


def _times(summary: WatchSummary) -> str:
    words = [f"{units.duration_interval(summary.step_time_s)} in the mean"] if summary.step_time_s else []
    for name, word in {"median": "median", "p95": "95 % below", "p99": "99 % below"}.items():
        if name in summary.quantiles_s:
            words.append(f"{word} {units.duration(summary.quantiles_s[name])}")
    return ", ".join(words)


def _stalls(summary: WatchSummary) -> Iterator[doc.Fact]:
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
    mean, slowest = units.duration(one.lost_s / one.count), units.duration(one.slowest_s)
    return f"{one.what}: {one.count:,} times{regular}, {mean} more each, a step of {slowest} at most"


def _memory(found: Memory) -> str:
    said = f"{units.size(found.first_bytes)} at first, {units.size(found.last_bytes)} at last"
    return said if found.bytes_per_step is None else f"{said}: it grows by {units.size(found.bytes_per_step)} a step"


def _last(summary: WatchSummary, place: str) -> doc.Section:
    facts = [doc.Fact("gate", f"{gate.expression} {gate.outcome}: {gate.why}", 2) for gate in summary.fail_on]
    if summary.next_command and summary.stretches:
        facts.append(doc.Fact("to prove it", summary.next_command, 2))
    if place:
        facts.append(doc.Fact("summary", f"{place}/summary.json", 2))
    return doc.Section("", (doc.Facts(tuple(facts)),))
