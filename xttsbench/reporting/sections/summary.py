"""First lines of a report: the headline, and the answer on one screen.

The headline of a diagnosis is its bottleneck. That of a comparison is its first sentence; the others stand below it,
and whether all configurations feed the same data (else no speed-up means anything): first of these, where they do not.
The screen says what is wrong, where, what to do, what that gives, how sure that is, and what is next. It fits 25 lines
of 100 columns whatever a report holds: each block says how many lines it may take.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from xttsbench.diagnosis.verdict import MEANINGS
from xttsbench.records.base import Estimate
from xttsbench.records.report import Report
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.sections import Group, answer, cell, compare, compares, fixes, groups, missing
from xttsbench.reporting.sections.answer import disturbed
from xttsbench.reporting.sections.step import costliest_line
from xttsbench.reporting.words import LIKELY, configuration, part

_SUBJECT: Final = ("scenario", "name", "spec", "target")  # Keys of the target that name it, the best first
_REFUSED: Final = "REFUSED: "
_NOT_KNOWN: Final = {"failed": "Not known of", "losses_unknown": "Losses not compared:", "skipped": "Not compared:"}


def headline(report: Report) -> doc.Headline:
    """The first words of every output."""
    comparing, summary = compares(report), report.verdict.summary
    if comparing:
        sentence, *others = report.comparison or (summary,)
        same = parity_sentences(report)
        below = [*(same if refused(report) else ()), *others, *(() if refused(report) else same), *_chosen(report)]
    else:
        sentence = disturbed(report) or summary
        below = [] if sentence == summary else [summary]
        if not report.verdict.at_threshold:  # which of two words it gets is worth no probability
            below.append(f"Probability {units.probability(report.verdict.confidence)}, given what was measured")
    if report.disturbance and sentence != disturbed(report):
        below.append(f"Machine: {report.disturbance.sentence}")
    return doc.Headline(
        kind=report.kind,
        subject=str(next((report.target[key] for key in _SUBJECT if report.target.get(key)), "")),
        word="" if comparing else part(report.verdict.bottleneck),
        name="" if comparing else report.verdict.bottleneck,
        sentence=sentence,
        below=tuple(
            doc.Paragraph(text, "refused" if text.startswith(_REFUSED) else "" if comparing else "soft")
            for text in below
        ),
    )


def _chosen(report: Report) -> tuple[str, ...]:
    best = report.best
    if best is None:
        return ()
    config = ", ".join(f"{key}={value}" for key, value in best.config.items()) or "the target's defaults"
    tied = f"; no worse as far as was measured: {', '.join(best.tied_with)}" if best.tied_with else ""
    proof = "proven in fresh processes" if best.proven else "not proven"
    return (f"best.yaml: {config} ({proof}, {best.accelerator['label']}){tied}.",)


def refused(report: Report) -> bool:
    """Whether configurations were compared and some were found to feed other data than the baseline."""
    return report.parity is not None and not report.parity.get("same")


def parity_sentences(report: Report) -> tuple[str, ...]:
    """``All 5 loaders give the same batches: ...`` or ``REFUSED: ...``, then configurations not compared.

    Empty where no data were compared.
    """
    parity = report.parity
    if parity is None:
        return ()
    baseline = str(parity.get("baseline") or "the baseline")
    trained = parity.get("losses") or {}
    others = [name for arm in parity.get("arms") or () if (name := str(arm)) != baseline]
    if trained and not refused(report) and set(others) <= {str(arm) for arm in trained}:
        return _losses(trained, baseline), *_unknown(parity)
    what = _what(report, [str(parity.get("baseline")), *map(str, parity.get("arms") or ())])
    all_alike = f"All {len(others) + 1} {what} give the same batches{_how(parity, what)}."
    said = _refusal(parity, baseline, others, what) if refused(report) else all_alike
    alike = {arm: apart for arm, apart in trained.items() if arm not in (parity.get("differences") or {})}
    return said, *([_losses(alike, baseline)] if alike else []), *_unknown(parity)


def _losses(apart: Mapping[str, float], baseline: str) -> str:
    who = f"{_and(list(map(str, apart)))} {'has' if len(apart) == 1 else 'have'}"
    return f"{who} the losses of {baseline}: at most {max(apart.values()):.1g} apart, relative to them."


def _how(parity: Mapping[str, Any], what: str) -> str:
    words = []
    if isinstance(batches := parity.get("batches"), int):
        words.append(f"{batches:,} {'batch' if batches == 1 else 'batches'} compared")
    if isinstance(tolerance := parity.get("tolerance"), int | float):
        within = re.sub(r"e([-+])0*(?=\d)", r"e\1", f"{tolerance:.0e}").replace("e+", "e")  # 1e-4 for 1e-04
        words.append(f"{'mels' if what == 'loaders' else 'numbers'} within {within}")
    return f": {', '.join(words)}" if words else ""


def _refusal(parity: Mapping[str, Any], baseline: str, others: Sequence[str], what: str) -> str:
    """Sentence on the configurations that differ from the baseline, and where; on all of them where none is named."""
    places = {str(arm): str(place) for arm, place in (parity.get("differences") or {}).items()}
    if not places:
        where = str(parity.get("difference") or "where was not recorded")
        return f"REFUSED: the {what} do not give the same batches: {where.rstrip('.')}."
    verb = "does" if len(places) == 1 else "do"
    where = "; ".join(f"{arm}: {place}" if len(places) > 1 else place for arm, place in places.items())
    same = [name for name in others if name not in places]
    rest = f" {_and(same)} {'does' if len(same) == 1 else 'do'}{_how(parity, what)}." if same else ""
    what_of = "the losses" if set(places) <= set(parity.get("losses") or ()) else "the batches"
    return f"REFUSED: {_and(list(places))} {verb} not give {what_of} of {baseline}: {where.rstrip('.')}.{rest}"


def _unknown(parity: Mapping[str, Any]) -> list[str]:
    """The configurations of which nothing is known, or need not be, with the reason."""
    said = []
    for key, start in _NOT_KNOWN.items():
        by_reason: dict[str, list[str]] = {}
        for arm, reason in (parity.get(key) or {}).items():
            by_reason.setdefault(str(reason).rstrip("."), []).append(str(arm))
        said += [f"{start} {_and(arms)} ({reason})." for reason, arms in by_reason.items()]
    return said


def _and(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _what(report: Report, ids: Sequence[str]) -> str:
    """Noun for the configurations: the name of the group that holds them, where it is a plural."""
    names = (group.name for group in groups(report) if set(ids) & {arm.id for arm in group.arms})
    return next((name for name in names if name.isalpha() and name.endswith("s")), "configurations")


MOST_LINES: Final = 25
_VERDICT_LINES: Final = 3
_MOST_OPTIONS: Final = 3
_MOST_ARMS: Final = 8  # Rows of the tables of compared configurations, all groups together
_OPTIONS: Final = ("what to change", "gain", "same data", "basis")
_COMMAND: Final = 64  # Characters of the command line that are shown
_KEPT_BUSY: Final = "Nothing: this input keeps an accelerator of that speed busy."
_PAGE: Final = "report.html"


def summary(report: Report, bars: doc.Bars | None, place: str = "") -> tuple[doc.Block, ...]:
    """The blocks of the screen.

    The place is the run's directory as it is shown; empty where it is not known.
    """
    body = _compared(report) if compares(report) else _diagnosed(report, bars)
    last = tuple(_last(report, place))
    end = (doc.Section("", (doc.Facts(last),)),) if last else ()
    return (_headline(report), *_warnings(report), *body, *end)


def subject(report: Report) -> str:
    """Line on the measured machine: processors, memory, GPUs, and an accelerator that was emulated."""
    found = report.environment
    cpu, words = inner(found, "cpu"), []
    if cores := cpu.get("allowed_cpus") or cpu.get("affinity_cpus") or found.get("cpus"):
        words.append(f"{cores:g} CPU{'' if cores == 1 else 's'}")
    if total := memory_bytes(found):
        words.append(units.size(total))
    words += [gpu_names(found) or "no GPU"] if found else []
    if report.accelerator.get("kind") == "emulated":
        words.append(str(report.accelerator.get("label", "")).replace("emulated", "EMULATED"))
    return ", ".join(words)


def memory_bytes(environment: Mapping[str, Any]) -> float | None:
    """Memory that a process may use; ``None`` where it is not known."""
    memory = inner(environment, "memory")
    return memory.get("limit_bytes") or memory.get("total_bytes")


def gpu_names(environment: Mapping[str, Any]) -> str:
    """The GPUs by their names; empty for none."""
    return ", ".join(str(gpu.get("name", "GPU")) for gpu in environment.get("gpus") or () if isinstance(gpu, Mapping))


def inner(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The mapping under a key of the environment; empty where there is none."""
    value = found.get(key)
    return value if isinstance(value, Mapping) else {}


def _headline(report: Report) -> doc.Headline:
    said, text = headline(report), likely_sentence(report)
    below = [doc.Paragraph(text, "strong", lines=1)] if text else []
    if compares(report):
        others = (one for one in said.below if not one.text.startswith("Machine: "))
        below = [replace(one, lines=2) for one in others][:2]
    sentence = answer.with_calls(said.sentence, report)
    verdict = report.verdict
    if said.word and not below and verdict.step_time_s is not None and not verdict.at_threshold:
        sentence = f"{sentence.rstrip('. ')} (probability {units.probability(verdict.confidence)})."
    command = report.command if len(report.command) <= _COMMAND else f"{report.command[: _COMMAND - 1]}…"
    lines = 2 if below else _VERDICT_LINES
    return doc.Headline(command, subject(report), said.word, sentence, tuple(below), lines=lines)


def likely_sentence(report: Report) -> str:
    """Sentence on the likely cause where there is no verdict; empty where there is one, or for lack of measurements."""
    found = answer.likely(report)
    if found is None:
        return ""
    return f"Likely all the same: {LIKELY[found[0]]}, {units.percent(found[1])} of a {answer.unit(report)} as measured."


def _warnings(report: Report) -> Iterator[doc.Callout]:
    if report.warnings:
        more = f" (and {len(report.warnings) - 1} more)" if len(report.warnings) > 1 else ""
        first = re.sub(r" \([^()]*\)$", "", report.warnings[0])  # what stands in brackets at its end is for the page
        yield doc.Callout(f"{first}{more}", lines=1)


def _diagnosed(report: Report, bars: doc.Bars | None) -> Iterator[doc.Block]:
    facts = [*_times(report), *cause_facts(report), *training_facts(report)]
    compact = [replace(bars, compact=True)] if bars is not None else []
    yield doc.Section("", (*compact, doc.Facts(tuple(facts), tone="soft" if compact else "")))
    blocks: list[doc.Block] = []
    if found := answer.options(report):
        rows = [
            (
                doc.Cell(one.words, tone="strong" if one.taken else ""),
                _gain(one.gain, measured=one.measured) if one.gain else doc.NOT_MEASURED,
                doc.Cell(one.data, tone="critical" if one.data == "NO" else ""),
                one.basis,
            )
            for one in found[:_MOST_OPTIONS]
        ]
        blocks.append(replace(doc.table(_OPTIONS, rows), short=True))
    if said := _note(report, len(found) - _MOST_OPTIONS):
        blocks.append(doc.Paragraph(said, "soft", lines=1))
    yield doc.Section("", tuple(blocks))


def _gain(gain: Estimate, *, measured: bool) -> doc.Cell:
    """With its interval; what a model says has none."""
    estimate, bounds = units.ratio_bounds(gain)
    return doc.Cell(estimate, bounds if measured or gain.low != gain.high else "")


def _times(report: Report) -> Iterator[doc.Fact]:
    now, found = report.verdict.step_time_s, answer.gain(report)
    name = f"a {answer.unit(report)} now"
    if now is None:
        yield doc.Fact(name, missing(report, "verdict.step_time_s"), 2)
        return
    yield doc.Fact(name, units.duration_interval(now))
    if found is None or found.gain is None:
        yield from _at_best(report, now)
        return
    how = "measured" if found.taken else "estimated"
    if found.later_epochs:
        how += " from the second epoch on"
    time = answer.after(now, found.gain)
    times = _gain(found.gain, measured=found.measured).text
    first = next((one.words for one in answer.options(report)), "")  # the first row of the table needs no name
    words = "" if found.words in ("", first) else f": {found.words.removesuffix(', REAL device')}"
    yield doc.Fact("after the fix", f"{time}, {times} as fast, {how}{words}", 1)
    chosen = next((one.semantics for one in report.fixes if one.chosen and one.semantics), None)
    if chosen is not None and chosen.checked:
        yield doc.Fact("its data", fixes.same_data(chosen), 2)


def _at_best(report: Report, now: Estimate) -> Iterator[doc.Fact]:
    """Ideal time where no gain is known: the step without its bottleneck; a computing one without all else."""
    name, parts = report.verdict.bottleneck, report.verdict.attribution_s
    if name == "inconclusive" or parts is None or now.estimate <= 0:
        return
    computes = name == "compute"
    lost_s = now.estimate - parts.compute if computes else getattr(parts, name)
    if 0 < lost_s < now.estimate:
        what = f"{units.percent(lost_s / now.estimate)} {'that is not compute' if computes else f'of {part(name)}'}"
        yield doc.Fact("at best", f"{units.duration(now.estimate - lost_s)}, without the {what}", 1)


def cause_facts(report: Report) -> Iterator[doc.Fact]:
    """The cause, the user's line, and what to do; nothing where no finding limits the step."""
    found = answer.cause(report)
    if found is None:
        yield from _without_cause(report)
        return
    yield doc.Fact("cause", answer.with_calls(found.title, report), 2)
    if found.location.file:
        yield doc.Fact("your line", answer.line_of(found, report), 1)
    elif report.verdict.bottleneck in ("input", "contention") and (op := answer.costliest(report)):
        yield doc.Fact("costliest op", op, 1)
    if found.remedy:
        yield doc.Fact("what to do", answer.with_calls(found.remedy, report), 2)


def _without_cause(report: Report) -> Iterator[doc.Fact]:
    """Why nothing is named; or, of a step that is all it should be, its costliest line and what else there is to do."""
    name = report.verdict.bottleneck
    if report.verdict.step_time_s is None:
        return
    if name == "inconclusive":
        if answer.disturbed(report):  # which stands in place of the summary
            yield doc.Fact("undecided", answer.with_calls(report.verdict.summary, report), 2)
        return
    if name == "compute" and (line := costliest_line(report)):
        yield doc.Fact("costliest line", line, 1)
    emulated = name == "compute" and report.step is None and report.accelerator.get("kind") == "emulated"
    yield doc.Fact("what to do", _KEPT_BUSY if emulated else MEANINGS[name].remedy, 2)


def training_facts(report: Report) -> Iterator[doc.Fact]:
    """Facts on the progress of a model's training."""
    training = report.training
    if training is None:
        return
    losses = [found for found in training.intervals if found.loss is not None]
    if losses:
        first, last = losses[0], losses[-1]
        fell = " to ".join(units.number(float(one.loss or 0.0)) for one in (first, last))
        steps = f"steps {first.first_step:,} to {last.first_step + last.steps - 1:,}"
        yield doc.Fact("loss", f"{fell} over {steps}", 1)
    if (held := next((found for found in reversed(training.evaluations) if found.best), None)) is not None:
        yield doc.Fact("held-out loss", f"{units.number(float(held.loss))}, the lowest, at step {held.step:,}", 1)
    if training.ended is not None:
        reason = training.ended.reason.replace("_", " ")
        count = len(training.checkpoints)
        kept = f"; {count:,} checkpoint{'' if count == 1 else 's'} kept" if count else ""
        yield doc.Fact("ended", f"{reason} after step {training.ended.step:,}{kept}", 1)


def _note(report: Report, hidden: int) -> str:
    """Note below the table of changes: the proposal, or why the first was not tried; and how many more there are."""
    more = f"{hidden} more with -v. " if hidden > 0 else ""
    if not any(found.chosen for found in report.fixes):
        if any(found.outcome == "rejected" for found in report.fixes):
            return more + fixes.proposal(report, None)
        left = next((found for found in report.fixes if found.outcome == "not verified" and found.why), None)
        if left is not None and answer.options(report):
            return f"{more}{answer.with_calls(left.what or left.name, report)}: {left.why}"
    return more.strip() or ("" if report.fixes or report.kind == "train" else "No fix was found to try.")


def _compared(report: Report) -> Iterator[doc.Block]:
    found = groups(report)
    room = max(2, _MOST_ARMS // max(1, len(found))) if len(found) < _MOST_ARMS // 2 else 2
    for group in found[: _MOST_ARMS // 2]:
        yield doc.Section(group.title, (_group(group, room),))


def _group(group: Group, most: int) -> doc.Table:
    every = [arm for arm in group.arms if arm.role != "aa"]
    best = sorted(every, key=lambda one: (one.role != "baseline", -(one.effect.estimate if one.effect else 0.0)))
    rows = [
        doc.Row(
            (
                doc.Cell(configuration(one.id)),
                cell(one.step_time_s, units.duration_bounds),
                cell(one.utilization, units.percent_bounds),
                doc.Cell("1") if one.role == "baseline" else cell(one.effect, units.ratio_bounds),
                doc.Cell(compare.result(one)),
            ),
            compare.tone(one),
        )
        for one in best[:most]
    ]
    if (hidden := len(best) - most) > 0:
        rows.append(doc.Row((doc.Cell(f"{hidden} more with -v"), *[doc.Cell("")] * 4), "plain"))
    columns = (
        doc.Column("configuration"),
        doc.Column("step time", numeric=True, interval=False),
        doc.Column("utilization", numeric=True, interval=False),
        doc.Column("speed-up", numeric=True),
        doc.Column("result", leads=True),
    )
    return doc.Table(columns, tuple(rows), blanks=True, short=True)


def _last(report: Report, place: str) -> Iterator[doc.Fact]:
    if command := answer.next_command(report, place):
        yield doc.Fact("next", command, 2)
    if report.disturbance is not None and not answer.disturbed(report):
        yield doc.Fact("machine", report.disturbance.sentence, 1 if report.warnings else 2)
    if place:
        yield doc.Fact("report", f"{place}/{_PAGE}", 2)
