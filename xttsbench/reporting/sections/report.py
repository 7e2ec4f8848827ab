"""What a report says, in words, before any markup: the one content behind the console, Markdown and HTML.

A pure function turns the record into plain strings in the order in which a reader wants them: verdict first, then the
numbers, what the step's time goes into, the experiments, the findings, and what was not measured. Where arms were
compared, the comparison is the headline, and what was not asked is left out. Each string is free of control
characters; every exporter escapes for its own markup. ``None`` becomes "not measured" with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from xttsbench.records.base import Estimate, Location
from xttsbench.records.pipeline import Pipeline
from xttsbench.records.report import Arm, Finding, Report
from xttsbench.reporting import rhythm, units
from xttsbench.reporting.absent import NOT_MEASURED, missing
from xttsbench.reporting.groups import groups, of_verdict
from xttsbench.reporting.palette import PART_COLORS
from xttsbench.reporting.predictions import telling
from xttsbench.reporting.rows import Line, Table
from xttsbench.reporting.sections import headline
from xttsbench.reporting.sections.arms import Comparison, comparisons, spoken
from xttsbench.reporting.sections.details import pipeline_of, tables
from xttsbench.reporting.sections.fixes import FixesText, fixes_text
from xttsbench.reporting.sections.step import step_sentence
from xttsbench.reporting.text import plain, plain_lines

_SUBJECT = ("scenario", "name", "spec", "target")
"""Keys of the target that name it, the best first."""
_TOGETHER = 2
"""So many numbers of one record that share a reason for not being there stand in one line."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the step's mean time; ``share`` is of the step, 0..1, and may be negative for the residual."""

    name: str
    time: str
    share: float
    percent: str


@dataclass(frozen=True, slots=True)
class FindingText:
    """A finding in words."""

    severity: str
    limiting: bool
    rule: str
    title: str
    where: str
    evidence: tuple[Line, ...]
    remedy: tuple[str, ...]
    patch: tuple[str, ...]
    gain: str


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything that is said, in order."""

    subject: str
    kind: str
    command: str
    created_utc: str
    bottleneck: str
    """The part of the step that limits it; empty where arms were compared instead."""
    summary: str
    """The headline."""
    below: tuple[str, ...]
    """What stands right below the headline: the confidence, or the other sentences of a comparison; and what the
    machine did meanwhile."""
    warnings: tuple[str, ...]
    baseline: str
    """Heading of what is said of the baseline alone; empty where no arms were compared, and all is of the target."""
    numbers: tuple[Line, ...]
    parts: tuple[Part, ...]
    parts_note: str
    comparisons: tuple[Comparison, ...]
    step: str
    """What the step does, in a sentence; empty where it was not read."""
    pipeline: Pipeline | None
    """For exporters that draw it as a tree; as a table it is among the details."""
    predictions: Table | None
    """The most telling rows; all of them are among the details."""
    ladder: Table | None
    arms: Table | None
    aa: str
    fixes: FixesText | None
    findings: tuple[FindingText, ...]
    in_time: tuple[Line, ...]
    oscillation: tuple[Line, ...]
    unmeasured: tuple[Line, ...]
    details: tuple[Table, ...]


def shown(bottleneck: str) -> str:
    """The bottleneck as people read it; programs know the open one by the name that it has always had."""
    return "undecided" if bottleneck == "inconclusive" else bottleneck


def describe(report: Report) -> Contents:
    """The report in words."""
    compares = headline.compares(report)
    head = headline.headline(report)
    parts, note = _parts(report)
    limit = (Line("what limits it", _limit(report)),) if compares else ()
    return Contents(
        subject=plain(next((report.target[key] for key in _SUBJECT if report.target.get(key)), "")),
        kind=report.kind,
        command=plain(report.command),
        created_utc=plain(report.created_utc),
        bottleneck="" if compares else shown(report.verdict.bottleneck),
        summary=head.sentence,
        below=(*head.below, *((f"Machine: {plain(disturbed.sentence)}",) if (disturbed := report.disturbance) else ())),
        warnings=tuple(map(plain, report.warnings)),
        baseline=_baseline(report) if compares and report.verdict.step_time_s is not None else "",
        numbers=() if compares and report.verdict.step_time_s is None else (*limit, *_numbers(report)),
        parts=parts,
        parts_note="" if compares and not parts else note,
        comparisons=comparisons(report),
        step=step_sentence(report) or "",
        pipeline=None if compares else pipeline_of(report),
        predictions=None if compares else telling(report),
        ladder=_ladder(report),
        arms=_arms(report),
        aa=_aa(report),
        fixes=fixes_text(report),
        findings=tuple(_finding(finding, _proposed_patch(report)) for finding in report.findings),
        in_time=_in_time(report, only_measured=compares),
        oscillation=() if compares and not rhythm.measured(report) else rhythm.measures(report),
        unmeasured=_unmeasured(report),
        details=tables(report),
    )


def _baseline(report: Report) -> str:
    group = of_verdict(report)
    arm = None if group is None else group.baseline
    words = [plain(arm.id) if arm else "", group.where if group else ""]
    return ": ".join(["The baseline by itself", ", ".join(word for word in words if word)])


def _limit(report: Report) -> str:
    """The bottleneck of the baseline, or why a comparison does not name one."""
    verdict = report.verdict
    if verdict.bottleneck == "inconclusive":
        return missing(report, "verdict.attribution_s") if verdict.attribution_s is None else shown(verdict.bottleneck)
    return f"{verdict.bottleneck} (probability {units.percent(verdict.confidence)})"


def _value(report: Report, path: str, estimate: Estimate | None, format_: Callable[[Estimate], str]) -> str:
    return missing(report, path) if estimate is None else format_(estimate)


def _numbers(report: Report) -> tuple[Line, ...]:
    verdict = report.verdict
    kind, label = (plain(report.accelerator.get(key, "")) for key in ("kind", "label"))
    about = ", ".join(word for word in (kind if kind not in label else "", label) if word)
    about = about.replace("emulated", "EMULATED")  # never to be taken for a measurement of a device
    device = f"accelerator utilization ({about})" if about else "accelerator utilization"
    time, share = units.duration_interval, units.percent_interval
    rows = (
        ("step time, mean", "step_time_s", verdict.step_time_s, time),
        ("step time, median", "step_time_median_s", verdict.step_time_median_s, time),
        ("step time, 95th percentile", "step_time_p95_s", verdict.step_time_p95_s, time),
        ("waiting for input", "input_wait_fraction", verdict.input_wait_fraction, share),
        (device, "accelerator_utilization", verdict.accelerator_utilization, share),
    )
    return tuple(Line(label, _value(report, f"verdict.{path}", value, text)) for label, path, value, text in rows)


def _parts(report: Report) -> tuple[tuple[Part, ...], str]:
    attribution = report.verdict.attribution_s
    if attribution is None:
        return (), missing(report, "verdict.attribution_s")
    seconds: dict[str, float] = {name: getattr(attribution, name) for name in PART_COLORS}
    measured = sum(seconds.values()) - attribution.residual
    whole = report.verdict.step_time_s.estimate if report.verdict.step_time_s else measured + attribution.residual
    parts = tuple(
        Part(name, units.duration(value), value / whole if whole else 0.0, units.percent(value / whole if whole else 0))
        for name, value in seconds.items()
    )
    note = f"The parts add up to {units.duration(measured)} of {units.duration(whole)}; the residual is what is left."
    unsure = {name: f"verdict.attribution_s.{name}" for name in PART_COLORS}
    reasons = [f"{name}: {missing(report, path)}." for name, path in unsure.items() if path in report.unmeasured]
    return parts, " ".join([note, *reasons])


def _ladder(report: Report) -> Table | None:
    if not report.ladder:
        return None
    rows = tuple(
        (
            plain(rung.name),
            plain(rung.what),
            _cell(rung.step_time_s, units.duration_interval),
            f"{rung.steps:,}",
            f"{rung.processes:,}",
        )
        for rung in report.ladder
    )
    return Table("Differential ladder", ("rung", "what", "mean step time", "steps", "processes"), rows)


def _arms(report: Report) -> Table | None:
    """The arms that belong to no group."""
    alone = [arm for arm in report.arms if not arm.group]
    if not alone:
        return None
    header = ("arm", "step time", "per second", "speed-up", "processes", "result")
    return Table("Arms, each against the baseline", header, tuple(map(_arm, alone)))


def _arm(arm: Arm) -> tuple[str, ...]:
    return (
        plain(arm.id),
        _cell(arm.step_time_s, units.duration_interval),
        _cell(arm.throughput_per_s, units.rate_interval),
        "1" if arm.role == "baseline" and arm.effect is None else _cell(arm.effect, units.ratio_interval),
        f"{arm.blocks:,}",
        "; ".join(word for word in (_decision(arm), "" if arm.status == "ok" else plain(arm.status)) if word),
    )


def _cell(estimate: Estimate | None, format_: Callable[[Estimate], str]) -> str:
    """A table's cell; the reasons for what was not measured stand in the list of those, or the table would burst."""
    return NOT_MEASURED if estimate is None else format_(estimate)


def _decision(arm: Arm) -> str:
    if arm.decision is None:
        return "" if arm.role == "candidate" else {"baseline": "baseline", "aa": "baseline again"}[arm.role]
    return spoken(arm.decision)


def _aa(report: Report) -> str:
    aa = report.aa
    if report.kind == "train":
        return ""  # nobody expects that training is done twice
    if aa.effect is None:
        return f"The baseline against itself: {missing(report, 'aa.effect')}." if report.arms else ""
    of_groups = groups(report)
    where = f" ({of_groups[0].title})" if len(of_groups) > 1 else ""  # one record for all: that of the first
    words = [f"Noise check{where}, the baseline against itself: {units.ratio_interval(aa.effect)}"]
    if aa.noisy is not None:
        words.append("a noisy session, for which the intervals allow" if aa.noisy else "not a noisy session")
    if aa.smallest_visible_effect is not None:
        words.append(f"the smallest effect that could have been decided is {units.percent(aa.smallest_visible_effect)}")
    return "; ".join(words) + "."


def _proposed_patch(report: Report) -> str | None:
    """The diff of what is proposed, which stands once, with the fixes."""
    return next((fix.patch.diff for fix in report.fixes if fix.chosen and fix.patch is not None), None)


def _finding(finding: Finding, shown: str | None) -> FindingText:
    own = finding.patch if finding.patch != shown else None
    return FindingText(
        severity=finding.severity,
        limiting=finding.limiting,
        rule=plain(finding.rule),
        title=plain(finding.title),
        where=_where(finding.location),
        evidence=tuple(
            Line(*(plain(word) for word in units.named(name, value))) for name, value in finding.evidence.items()
        ),
        remedy=plain_lines(finding.remedy) if finding.remedy.strip() else (),
        patch=plain_lines(own) if own and own.strip() else (),
        gain=_gain(finding),
    )


def _where(location: Location) -> str:
    place = "" if location.file is None else plain(location.file)
    if place and location.line is not None:
        place += f":{location.line}"
    return ", ".join(word for word in (place, f"op {plain(location.op)}" if location.op else "") if word)


def _gain(finding: Finding) -> str:
    """What the fix is worth, as far as it was measured; a finding without a number says nothing here.

    The reasons of numbers that are not there stand once, in the list of what was not measured.
    """
    words = []
    if finding.predicted_speedup is not None:
        words.append(f"predicted {_ratio(finding.predicted_speedup)}")
    if finding.verified_speedup is not None:
        words.append(f"verified {units.ratio_interval(finding.verified_speedup)}")
    elif words:
        words.append("not verified")
    if finding.equivalent is not None:
        words.append("same elements as before" if finding.equivalent else "THE FIX CHANGES THE DATA")
    return "; ".join(words)


def _ratio(speedup: Estimate) -> str:
    """With its interval, where it has one: what a model says has none."""
    if speedup.low == speedup.high:
        return f"{units.ratio(speedup.estimate)} by the model"
    return units.ratio_interval(speedup)


def _unmeasured(report: Report) -> tuple[Line, ...]:
    """What was not measured and why; entries of a list, and fields of one record, share a line and a reason."""
    entries = dict.fromkeys((re.sub(r"[.\[]\d+\]?", ".*", path), reason) for path, reason in report.unmeasured.items())
    fields: dict[tuple[str, str], list[str]] = {}
    for path, reason in entries:
        fields.setdefault((path.rpartition(".")[0], reason), []).append(path)
    lines = []
    for (record, reason), paths in fields.items():
        names = [path.removeprefix(f"{record}.") for path in paths]
        together = [f"{record}: {', '.join(names)}"] if record and len(names) >= _TOGETHER else paths
        lines += [Line(plain(name), plain(reason)) for name in together]
    return tuple(lines)


def _in_time(report: Report, *, only_measured: bool) -> tuple[Line, ...]:
    """How the step behaves in time, how it warmed up, and what it cost to look."""
    lines = (
        ("oscillation", rhythm.measured(report), rhythm.sentence),
        ("warm-up", report.warm_up.steps_measured > 0, _warm_up),
        ("measurement overhead", bool(report.overhead), _overhead),
    )
    return tuple(Line(label, say(report)) for label, measured, say in lines if measured or not only_measured)


def _warm_up(report: Report) -> str:
    warm = report.warm_up
    words = [f"{warm.steps_measured:,} steps measured, {warm.steps_cut:,} cut as warm-up"]
    first = warm.first_step_s
    words.append(f"first step {missing(report, 'warm_up.first_step_s') if first is None else units.duration(first)}")
    for what, count, time in (
        ("trace", warm.traces, warm.trace_s),
        ("XLA compilation", warm.xla_compiles, warm.xla_compile_s),
    ):
        if count is not None:
            words.append(
                f"{count:,} {what}{'' if count == 1 else 's'}" + (f" taking {units.duration(time)}" if time else "")
            )
    state = "steady state reached" if warm.steady_state else "no steady state"
    words.append(f"{state}, {'certified' if warm.certified else 'not certified (under 240 steps)'}")
    if warm.reason:
        words.append(plain(warm.reason))
    return "; ".join(words)


def _overhead(report: Report) -> str:
    cost = report.overhead.get("overhead_s_per_step")
    if not isinstance(cost, int | float):
        return missing(report, "overhead")
    words = [f"{units.duration(cost)} a step"]
    share = report.overhead.get("share_of_step")
    if isinstance(share, int | float):
        words[0] += f", {units.percent(share)} of it"
    if method := report.overhead.get("method"):
        words.append(plain(str(method)))
    if report.verdict_after_s is not None:
        words.append(f"the verdict took {units.duration(report.verdict_after_s)}")
    return "; ".join(words)
