"""The document of a run: verdict first, then the numbers, the experiments, the fixes, the findings, and what to check.

Where configurations were compared, the comparison comes first, and what was not asked is left out.

At its end stand tables for who wants to check: training, readings, target and environment. The records leave
the keys of many of these open, so they are flattened as they come, with units from the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from xttsbench.records.base import Estimate
from xttsbench.records.report import Report
from xttsbench.records.training import TakenOver, Training, WatchedInterval
from xttsbench.reporting import document as doc
from xttsbench.reporting import sections, units, words
from xttsbench.reporting.document import Fold, Section, View, folded
from xttsbench.reporting.sections import compare, fixes, pipeline, proof, scale, step
from xttsbench.reporting.sections.answer import unit
from xttsbench.reporting.sections.findings import findings
from xttsbench.reporting.sections.naming import spoken, with_level
from xttsbench.reporting.sections.summary import OPEN, headline, summary
from xttsbench.reporting.step_bar import Bars, bars
from xttsbench.reporting.words import PART_COLORS, part

_EXPERIMENTS: Final = {"as_is": "original", "input_only": "input alone", "step_only": "step alone"}
"""Isolation experiment, as the record names it, to what it is called."""


def report_document(report: Report, place: str = "") -> doc.Document:
    """The report in words.

    The place is the run's directory as it is shown; empty where it is not known.
    """
    comparing = sections.compares(report)
    document = doc.Document(
        summary=with_level(summary(report, attribution(report)[0], place)),
        blocks=(
            headline(report),
            *(doc.Callout(warning) for warning in report.warnings),
            *compare.comparisons(report),
            *numbers(report, comparing=comparing),
            *where_time_goes(report, comparing=comparing),
            doc.Section(pipeline.TITLE, () if comparing else pipeline.blocks(report)),
            *experiments(report),
            *compare.ungrouped(report),
            *fixes.section(report),
            *notes(report),
            *findings(report, comparing=comparing),
            *step.in_time(report, only_measured=comparing),
            *step.profiled(report),
            _plots(report, comparing=comparing),
            *sections.unmeasured(report),
            details(report, comparing=comparing),
            doc.Section("How it was made", made(report)),
        ),
    )
    return spoken(document, report)


def notes(report: Report) -> Iterator[doc.Section]:
    """Remarks that change nothing, which the screen leaves out."""
    yield doc.Section("Notes", tuple(doc.Paragraph(f"{one}.", "soft") for one in report.notes))


def made(report: Report) -> tuple[doc.Block, ...]:
    """By which command, and when."""
    said = doc.Paragraph(f"{report.kind} at {report.created_utc}", "soft", view=doc.View.FULL)
    return doc.Code((report.command,), view=doc.View.FULL), said


def numbers(report: Report, *, comparing: bool) -> Iterator[doc.Section]:
    """The mean step and its like; in a comparison those of the baseline, where they are known, below a proof."""
    yield from proof.blocks(report)
    yield from scale.blocks(report)
    verdict = report.verdict
    if report.scale is not None or (comparing and verdict.step_time_s is None):
        return
    kind, label = (report.accelerator.get(key, "") for key in ("kind", "label"))
    about = ", ".join(filter(None, (kind if kind not in label else "", label)))
    about = about.replace("emulated", "EMULATED")  # never to be taken for a measurement of a device
    device = f"accelerator utilization ({about})" if about else "accelerator utilization"
    time, share = units.duration_interval, units.percent_interval
    rows = (
        (f"{unit(report)} time, mean", "step_time_s", time),
        (f"{unit(report)} time, median", "step_time_median_s", time),
        (f"{unit(report)} time, 95th percentile", "step_time_p95_s", time),
        ("in next(): wait and hand-over", "input_wait_fraction", share),
        (device, "accelerator_utilization", share),
    )
    facts = [doc.Fact("what limits it", _limit(report))] if comparing else []
    for name, path, text in rows:
        value: Estimate | None = getattr(verdict, path)
        if value is not None or not sections.no_device(report.unmeasured.get(f"verdict.{path}", "")):
            facts.append(doc.Fact(name, sections.missing(report, f"verdict.{path}") if value is None else text(value)))
    header = ("number", "estimate (95 % interval)")
    yield doc.Section(_baseline(report) if comparing else "", (doc.Facts(tuple(facts), header),), view=doc.View.FULL)


def _baseline(report: Report) -> str:
    group = sections.of_verdict(report)
    arm = None if group is None else group.baseline
    about = ", ".join(filter(None, (arm.id if arm else "", group.where if group else "")))
    return f"The baseline by itself: {about}"


def _limit(report: Report) -> str:
    verdict = report.verdict
    if verdict.bottleneck == "inconclusive":
        return (
            sections.missing(report, "verdict.attribution_s")
            if verdict.attribution_s is None
            else part(verdict.bottleneck)
        )
    return f"{part(verdict.bottleneck)} (probability {units.probability(verdict.confidence)})"


def where_time_goes(report: Report, *, comparing: bool) -> Iterator[doc.Section]:
    """Section on the parts of a step's time, and on the ops of the step."""
    bars, note = attribution(report)
    blocks: list[doc.Block] = [] if bars is None else [bars]
    if bars is not None or not comparing:
        blocks.append(doc.Paragraph(note, "soft"))
    if said := step.sentence(report):
        blocks.append(doc.Paragraph(said))
    yield doc.Section(f"Where the time of a {unit(report)} goes (mean)", tuple(blocks), view=doc.View.FULL)


def attribution(report: Report) -> tuple[Bars | None, str]:
    """The parts of the step and how they add up; without an attribution the reason alone."""
    found = report.verdict.attribution_s
    if found is None:
        return None, sections.missing(report, "verdict.attribution_s")
    seconds: dict[str, float] = {name: getattr(found, name) for name in PART_COLORS}
    measured = sum(seconds.values()) - found.residual
    whole = report.verdict.step_time_s.estimate if report.verdict.step_time_s else measured + found.residual
    note = f"The parts add up to {units.duration(measured)} of {units.duration(whole)}; the rest is unattributed."
    for name in PART_COLORS:
        if "so it is 0" not in report.unmeasured.get(path := f"verdict.attribution_s.{name}", "so it is 0"):
            note += f" {part(name)}: {sections.missing(report, path)}."
    of_both = {"dispatch": "launch overhead or compute"} if OPEN in report.verdict.summary else {}
    return bars(seconds, whole, of_both), note


def experiments(report: Report) -> Iterator[doc.Section]:
    """The isolation experiments, as far as there were any."""
    if report.ladder:
        rows = [
            (
                _EXPERIMENTS.get(one.name, one.name),
                one.what,
                sections.cell(one.step_time_s, units.duration_bounds),
                f"{one.steps:,}",
                f"{one.processes:,}",
            )
            for one in report.ladder
        ]
        header = ("experiment", "what", "mean step time", "steps", "processes")
        yield doc.Section("Isolation experiments", (doc.table(header, rows),))


def _plots(report: Report, *, comparing: bool) -> doc.Section:
    drawn = (doc.Figure(name, caption, view=doc.View.FULL) for name, caption in sections.target_figures(report).items())
    return doc.Section("Plots of the baseline" if comparing else "Plots", tuple(drawn))


_MOST_ROWS: Final = 40  # Intervals of a table at most; of more, evenly chosen ones, the last among them


def details(report: Report, *, comparing: bool) -> Section:
    """The tables, each folded away; the pipeline among them where it does not stand before."""
    return Section(
        "Details",
        (
            *(_training(report.training) if report.training is not None else ()),
            compare.in_full(report),
            Fold(pipeline.TITLE, pipeline.blocks(report) if comparing else (), view=View.FULL),
            *step.tables(report),
            _pairs("Readings beside the steps", _renamed(report.readings)),
            _pairs("Target", report.target),
            _pairs("Environment", report.environment),
        ),
    )


def _pairs(title: str, values: Mapping[str, object]) -> Fold:
    """A table of two columns from a (nested) dictionary."""
    return folded(title, ("what", "value"), list(_flat(values)))


def _flat(values: Mapping[str, object], prefix: str = "", unit: str = "") -> Iterator[tuple[str, str]]:
    """Label and value of every leaf; numbers below a key with a unit (``cpu_s: {python: 2.2}``) have that unit."""
    for name, value in ((one, found) for one, found in values.items() if found is not None and one != "traceback"):
        key = f"{name}_{unit}" if unit and isinstance(value, int | float) else str(name)
        label, text = units.named(key, value)
        label = words.label(label)
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{label}: ", units.unit(key))
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            for index, item in enumerate(value):
                if isinstance(item, Mapping):
                    yield from _flat(item, f"{prefix}{label} {index}: ")
            leaves = [units.named(key, item)[1] for item in value if not isinstance(item, Mapping)]
            if leaves or not value:
                yield f"{prefix}{label}", ", ".join(leaves) or "none"
        else:
            yield f"{prefix}{label}", text


def _renamed(readings: Mapping[str, Any]) -> dict[str, object]:
    """The readings with the processors' side called ``system``: ``host`` is work of the training loop."""
    reasons = {re.sub(r"^host\b", "system", name): why for name, why in (readings.get("unmeasured") or {}).items()}
    named = {"system" if name == "host" else name: value for name, value in readings.items()}
    return named | ({"unmeasured": reasons} if reasons else {})


def _training(training: Training) -> Iterator[Fold]:
    yield from (_run(training), _losses(training.intervals), _evaluations(training), _checkpoints(training))
    if training.taken_over is not None:
        yield _taken_over(training.taken_over)


def _run(training: Training) -> Fold:
    rows = []
    for number, begun in enumerate(training.sessions):
        clips = f"{begun.clips_per_update:.4g} clips ({begun.accumulation} accumulated, {begun.replicas} replicas)"
        rows.append((f"session {number}", f"from step {begun.step:,}; effective batch {clips}"))
        times = f"{units.duration(begun.setup_s)} to start, {units.duration(begun.warm_up_s)} to compile"
        rows.append(("", f"{begun.parameters:,} parameters; {begun.shapes} shapes of batches; {times}"))
    if training.ended is not None:
        rows.append(("ended", f"{training.ended.reason.replace('_', ' ')} after step {training.ended.step:,}"))
        rows.append(("weights (SHA-256)", training.ended.weights_sha256))
    if training.spoken is not None:
        rows += [
            (f"speech, {name.replace('_', ' ')}", _number(value)) for name, value in training.spoken.metrics.items()
        ]
    return folded("Training", ("what", "value"), rows)


def _losses(intervals: Sequence[WatchedInterval]) -> Fold:
    header = ("steps", "loss", "mel", "stop", "guided", "gradient norm", "left out", "valid frames/s", "waiting")
    return folded("Losses over the steps", header, list(map(_interval, _chosen(intervals))))


def _chosen(intervals: Sequence[WatchedInterval]) -> Sequence[WatchedInterval]:
    if len(intervals) <= _MOST_ROWS:
        return intervals
    return [intervals[(number + 1) * len(intervals) // _MOST_ROWS - 1] for number in range(_MOST_ROWS)]


def _interval(interval: WatchedInterval) -> tuple[str, ...]:
    return (
        f"{interval.first_step:,} to {interval.first_step + interval.steps - 1:,}",
        *(_number(getattr(interval, name)) for name in ("loss", "mel", "stop", "guided", "gradient_norm")),
        f"{interval.skipped:,}",
        sections.known(interval.valid_frames_per_s, "{:,.0f}".format),
        sections.known(interval.wait_fraction, units.percent),
    )


def _evaluations(training: Training) -> Fold:
    rows = [
        (
            f"{found.step:,}",
            *(_number(value) for value in (found.loss, found.mel, found.stop, found.guided)),
            f"{found.clips:,}",
            "lowest so far" if found.best else "",
            sections.known(found.took_s, units.duration),
        )
        for found in training.evaluations
    ]
    return folded("Held-out loss", ("step", "loss", "mel", "stop", "guided", "clips", "", "took"), rows)


def _checkpoints(training: Training) -> Fold:
    rows = [
        (f"{entry.step:,}", f"{entry.epoch:,}", entry.weights_sha256[:16], entry.samples_sha256[:16])
        for entry in training.checkpoints
    ]
    return folded("Checkpoints that were written", ("step", "epoch", "weights", "samples"), rows)


def _taken_over(taken: TakenOver) -> Fold:
    rows = [("file", taken.path), ("proven", "yes" if taken.proven else f"no: {taken.why}")]
    rows += [(key, str(value)) for key, value in taken.config.items()]
    rows += [("other here", difference) for difference in taken.differences]
    rows += [(f"{key}, otherwise", change) for key, change in taken.overridden.items()]
    return folded("Taken over from best.yaml", ("what", "value"), rows)


def _number(value: float | None) -> str:
    return sections.known(value, lambda number: units.number(float(number)))
