"""What a monitor saw, as a document: what stands out in one sentence, what each column came to, and plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xttsbench.records.monitoring import COLUMNS, Monitored, Signal, spoken
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.monitoring.screen import numbered

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
    about = [doc.Paragraph(text, "soft") for text in _about(found)]
    headline = doc.Headline("monitor", subject, "", sentence(found), tuple(about), view=doc.View.SUMMARY)
    main = [name for name in found.signals if name in _COMMON or name.startswith(("gpu", "process_"))]
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
    summary = (headline, _signals(found, main), *_last_events(found))
    return doc.Document(blocks, summary)


def sentence(found: Monitored) -> str:
    """What stands out: lost GPUs first, then what oscillates, starves, is stolen or is full."""
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
    newest = {one.column: one for one in found.oscillations}
    for one in newest.values():
        yield f"{spoken(one.column)} repeated itself every {units.duration(one.period_s)}"
    share = means.get("cpu_share")
    if share is not None:
        yield f"the processors were in use {units.percent(share)} of the time" + (
            ", nearly all" if share > _BUSY else ""
        )
    if (stolen := means.get("cpu_steal_share", 0.0)) > _STOLEN:
        yield f"{units.percent(stolen)} of their time was stolen by the hypervisor"


def _about(found: Monitored) -> Iterator[str]:
    if found.own_cpu_share is not None:
        yield f"The readings themselves took {100 * found.own_cpu_share:.2f} % of one processor."


def _signals(found: Monitored, names: Sequence[str]) -> doc.Table:
    columns = (doc.Column("column"), *(doc.Column(name, numeric=True) for name in ("mean", "lowest", "highest")))
    shown = [name for name in _ordered(names) if not name.endswith(_NOT_SUMMED)]
    rows = [(name, *_values(name, found.signals[name])) for name in shown if name in found.signals]
    return doc.table(columns, rows, view=doc.View.SUMMARY)


def _values(name: str, signal: Signal) -> tuple[str, ...]:
    return tuple(units.named(name, value)[1] for value in (signal.mean, signal.lowest, signal.highest))


def _ordered(names: Sequence[str]) -> list[str]:
    """In the order of the CSV: the machine, its GPUs, the process."""
    kinds = list(COLUMNS)
    starts = [kind.partition("<")[0] for kind in kinds]
    return sorted(names, key=lambda name: next((at for at, start in enumerate(starts) if name.startswith(start)), 0))


def _last_events(found: Monitored) -> list[doc.Block]:
    return [doc.Paragraph(f"{one.t_s:.1f} s: {one.text}", "soft", view=doc.View.SUMMARY) for one in found.events[-3:]]


def _machine(found: Monitored) -> tuple[doc.Fact, ...]:
    facts = [doc.Fact(name, str(value)) for name, value in found.machine.items()]
    return (*facts, doc.Fact("began", found.started_utc), doc.Fact("interval", units.duration(found.interval_s)))
