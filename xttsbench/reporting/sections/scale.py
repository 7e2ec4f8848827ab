"""Sections of a plan, on the screen and the page: where more workers stop helping and why, and layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from xttsbench.records.base import Estimate
from xttsbench.records.report import Report
from xttsbench.records.scale import Scale, ScaleCell, ScaleKnee, ScaleProof
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.sections import SCALE, figures

_MEASURED: Final = "The input on workers of this machine"
_FEW: Final = 6  # rows of a table on the screen
_NEEDS: Final = {
    "step_s": "the step alone",
    "step_cpu_s": "processor time of the step",
    "making_s": "making a batch, with processors enough",
    "worker_cpu_s": "processor time of a worker for making and sending it",
    "sending_s": "of that for sending it",
    "client_cpu_s": "processor time of the client for receiving it",
    "request_s": "a request, within one machine",
    "split_s": "processor time of the dispatcher for a split",
}


def summary(report: Report) -> tuple[doc.Section, ...]:
    """The answer on the screen; nothing for other reports."""
    scale = report.scale
    if scale is None:
        return ()
    layouts = _choices(scale)
    proof = (doc.Section(_MEASURED, (_proof(scale.proof), _needed(scale.proof))),) if scale.proof else ()
    return (
        doc.Section("Where more input workers stop helping", (_knees(scale, _FEW),)),
        *((doc.Section(_title(scale), (layouts,)),) if layouts.rows else ()),
        *proof,
    )


def blocks(report: Report) -> Iterator[doc.Section]:
    """All tables and the plot of a plan; nothing for other reports."""
    scale = report.scale
    if scale is None:
        return
    yield doc.Section(
        "Where more input workers stop helping", (_knees(scale), doc.Figure(SCALE, figures(report)[SCALE]))
    )
    yield doc.Section(_title(scale), (_choices(scale),) if scale.choices else ())
    if scale.proof is not None:
        yield doc.Section(_MEASURED, (_proof(scale.proof), _needed(scale.proof)))
    local = [cell for cell in scale.cells if not cell.workers]
    yield doc.Section("More cores in this machine, without workers", (_cells(local, ("cores",)),))
    rows = [(text, units.duration_interval(scale.needs[name])) for name, text in _NEEDS.items()]
    rows += [("as it is, measured", units.rate_interval(scale.measured_per_s))]
    rows += [("as it is, by the model", units.rate_interval(scale.predicted_per_s))]
    about = doc.Lines(
        (
            "Ranges are 95 % intervals: draws of what was measured. Latency is a round trip beyond that in a machine.",
            "* extrapolated: more than four workers, or a network, step or machine with which nothing was checked.",
            *scale.notes,
        ),
        "soft",
    )
    yield doc.Section("What it rests on, for a batch", (doc.table(("what", "estimate (95 % interval)"), rows), about))
    every = _cells([cell for cell in scale.cells if cell.workers], ("workers", "cores", "replicas", "network", "step"))
    yield doc.Fold("Every layout", (every,), view=doc.View.FULL)


def _proof(proof: ScaleProof) -> doc.Table:
    rows = [
        (f"{one.workers}", *(doc.Cell(*units.rate_bounds(rate)) for rate in (one.measured_per_s, one.predicted_per_s)))
        for one in proof.rates
    ]
    return doc.table(doc.numeric("workers", "batches/s, measured", "as planned"), rows)


def _needed(proof: ScaleProof) -> doc.Lines:
    said = f"Each worker had {proof.cores:g} cores of this machine. Batches were taken as they came, without a step."
    if proof.needed is not None:
        said += f" Such workers that would keep up with the step: {units.count_range(proof.needed)}."
    return doc.Lines((said,), "soft")


def _title(scale: Scale) -> str:
    priced = any(choice.price_per_hour is not None for choice in scale.choices)
    return f"The {'cheapest' if priced else 'smallest'} layout that keeps the accelerator busy for 90 %"


def _network(gbit_s: float | None, latency_s: float) -> str:
    late = f", {units.duration(latency_s)}" if latency_s else ""
    return "none" if gbit_s is None else f"{gbit_s:g} Gbit/s{late}"


def _step(accelerator: float) -> str:
    return "as here" if accelerator == 1 else f"{accelerator:g}x as fast"


def _count(workers: Estimate) -> doc.Cell:
    low, high = f"{workers.low:,.0f}", f"{workers.high:,.0f}"
    return doc.Cell(f"{workers.estimate:,.0f}", "" if low == high else f"{low} to {high}")


def _knees(scale: Scale, most: int | None = None) -> doc.Table:
    columns = (
        doc.Column("network"),
        doc.Column("accelerator"),
        doc.Column("replicas", numeric=True),
        doc.Column("workers", numeric=True),
        doc.Column("utilization", numeric=True),
        doc.Column("then limited by", leads=True),
    )

    def row(one: ScaleKnee) -> tuple[str | doc.Cell, ...]:
        used = doc.Cell(*units.percent_bounds(one.utilization))
        where = (_network(one.gbit_s, one.latency_s), _step(one.accelerator), f"{one.replicas}")
        return (*where, _count(one.workers), used, one.limited_by)

    return doc.table(columns, map(row, scale.knees[:most]))


def _choices(scale: Scale) -> doc.Table:
    priced = any(choice.price_per_hour is not None for choice in scale.choices)
    price = (doc.Column(f"{scale.currency} an hour".strip(), numeric=True),) if priced else ()
    columns = (
        doc.Column("accelerator"),
        doc.Column("workers", numeric=True),
        doc.Column("of", leads=True),
        doc.Column("utilization", numeric=True),
        doc.Column("batches/s", numeric=True),
        *price,
    )
    rows = [
        (
            _step(one.accelerator),
            f"{one.workers:,}",
            one.machine,
            doc.Cell(*units.percent_bounds(one.utilization)),
            doc.Cell(*units.rate_bounds(one.throughput_per_s)),
            *((f"{one.price_per_hour:.2f}" if one.price_per_hour is not None else "-",) if priced else ()),
        )
        for one in scale.choices
    ]
    return doc.table(columns, rows)


def _cells(cells: list[ScaleCell], names: tuple[str, ...]) -> doc.Table:
    texts: dict[str, Callable[[ScaleCell], str]] = {
        "workers": lambda one: f"{one.workers:,}{'*' * one.extrapolated}",
        "cores": lambda one: f"{one.cores:g}{'*' * (one.extrapolated and not one.workers)}",
        "replicas": lambda one: f"{one.replicas}",
        "network": lambda one: _network(one.gbit_s, one.latency_s) + ", compressed" * one.compressed,
        "step": lambda one: _step(one.accelerator),
    }
    rows = [
        (
            *(texts[name](one) for name in names),
            doc.Cell(*units.rate_bounds(one.throughput_per_s)),
            doc.Cell(*units.percent_bounds(one.utilization)),
            one.limited_by,
        )
        for one in cells
    ]
    return doc.table((*names, *doc.numeric("batches/s", "utilization"), "limited by"), rows)
