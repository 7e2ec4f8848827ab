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

from xttsbench.findings import worse_than_slow
from xttsbench.records.base import Estimate
from xttsbench.records.report import Report
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.sections import Group, advice, answer, compare, compares, groups, proof, scale
from xttsbench.reporting.sections.answer import disturbed
from xttsbench.reporting.sections.naming import with_calls
from xttsbench.reporting.step_bar import Bars
from xttsbench.reporting.words import LIKELY, part

_SUBJECT: Final = ("scenario", "name", "spec", "target")  # Keys of the target that name it, the best first
_REFUSED: Final = "REFUSED: "
OPEN: Final = "which of the two is not known"  # In a verdict on a step whose launching and computing are one part
_NOT_KNOWN: Final = {"failed": "Not known of", "losses_unknown": "Losses not compared:", "skipped": "Not compared:"}


def headline(report: Report) -> doc.Headline:
    """The first words of every output."""
    comparing, summary = compares(report), answer.explained(report.verdict.summary, report.fixes)
    if comparing:
        sentence, *others = report.comparison or (summary,)
        same = parity_sentences(report)
        below = [*(same if refused(report) else ()), *others, *(() if refused(report) else same), *_chosen(report)]
    else:
        sentence = disturbed(report) or summary
        below = [] if sentence == summary else [summary]
        if _is_decided(report):  # else the sentence says what has which probability
            sure = units.probability(report.verdict.confidence)
            below.append(f"This verdict has probability {sure}, given what was measured")
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


def _is_decided(report: Report) -> bool:
    """Whether a probability belongs to the verdict: which of two words it gets is worth none."""
    verdict = report.verdict
    return verdict.bottleneck != "inconclusive" and not verdict.at_threshold and OPEN not in verdict.summary


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


_VERDICT_LINES: Final = 3
_MOST_ARMS: Final = 8  # Rows of the tables of compared configurations, all groups together
_OPTIONS: Final = ("what to change", "gain", "same data", "basis")
_WHEN: Final = " (from epoch 2 on)"
_PAGE: Final = "report.html"


def summary(report: Report, bars: Bars | None, place: str = "") -> tuple[doc.Block, ...]:
    """The blocks of the screen.

    The place is the run's directory as it is shown; empty where it is not known.
    """
    body = (
        (*proof.blocks(report), *scale.summary(report), *_compared(report))
        if compares(report)
        else _diagnosed(report, bars, place)
    )
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
    sentence = with_calls(said.sentence, report)
    if said.word and not below and _is_decided(report) and report.verdict.step_time_s is not None:
        sure = units.probability(report.verdict.confidence)
        sentence = without_op(sentence, report).rstrip(". ")
        sentence = (
            f"{_without_place(sentence) if advice.line(report) else sentence} (this verdict: probability {sure})."
        )
    command = re.sub(r" --out[ =]\S+", "", report.command)  # the last line of the screen says where
    return doc.Headline(
        command, subject(report), said.word, sentence, tuple(below), lines=2 if below else _VERDICT_LINES
    )


def without_op(sentence: str, report: Report) -> str:
    """A verdict without its most costly op where the cause names the op that is to be mended: it may be another one."""
    return re.sub(r"; the most costly op is .*$", ".", sentence) if answer.why(report) else sentence


def _without_place(sentence: str) -> str:
    """A verdict without the line of the op that it ends with: the screen names a line once, that to be edited."""
    return re.sub(r"( \(\S+:\d+\)|, most of it at \S+:\d+)$", "", sentence)


def likely_sentence(report: Report) -> str:
    """Sentence on the likely cause where there is no verdict; empty where there is one, or for lack of measurements."""
    found = answer.likely(report)
    if found is None:
        return ""
    how = "A fix was proved all the same; likely" if any(one.chosen for one in report.fixes) else "Most likely"
    return f"{how}: {LIKELY[found[0]]}, {units.percent(found[1])} of a {answer.unit(report)} as measured."


def _warnings(report: Report) -> Iterator[doc.Callout]:
    if report.warnings:
        more = f" (and {len(report.warnings) - 1} more)" if len(report.warnings) > 1 else ""
        yield doc.Callout(f"{with_calls(report.warnings[0], report)}{more}", lines=3)
    yield from (doc.Callout(with_calls(one.title, report), lines=2) for one in report.findings if worse_than_slow(one))


def _diagnosed(report: Report, bars: Bars | None, place: str) -> Iterator[doc.Block]:
    facts = [*advice.times(report), *advice.advice(report, place), *training_facts(report)]
    compact = [replace(bars, compact=True)] if bars is not None else []
    yield doc.Section("", (*compact, doc.Facts(tuple(facts), tone="soft" if compact else "")))
    blocks: list[doc.Block] = []
    if found := _rows(report):
        rows = [
            (
                doc.Cell(f"{one.words}{_WHEN if at and one.later_epochs else ''}", tone="strong" if one.taken else ""),
                _gain(one.gain, measured=one.measured) if one.gain else doc.NOT_MEASURED,
                doc.Cell(one.data, tone="critical" if one.data == "NO" else ""),
                one.basis,
            )
            for at, one in enumerate(found)  # of the first one the lines above say when its gain comes
        ]
        blocks.append(replace(doc.table(_OPTIONS, rows), spare=True))
    elif not report.fixes and report.kind == "diagnose":  # of a search for fixes it is said above
        blocks.append(doc.Paragraph("xttsbench makes no change for this by itself.", "soft", lines=1))
    yield doc.Section("", tuple(blocks))


def _rows(report: Report) -> tuple[answer.Option, ...]:
    """The changes for the table, that of the advice first; none where configurations say it all."""
    found = answer.options(report)
    compared = report.kind != "optimize" and any(group.baseline is not None for group in groups(report))
    if compared and not any(one.fixes and one.taken for one in found):
        return ()
    best, blocked = answer.gain(report), advice.obstructed(report)
    if best is None and blocked is not None:
        return tuple(sorted(found, key=lambda one: one.fixes != blocked.fixes))
    return tuple(sorted(found, key=lambda one: one != best))


def _gain(gain: Estimate, *, measured: bool) -> doc.Cell:
    """With its interval; what a model says has none."""
    estimate, bounds = units.ratio_bounds(gain)
    return doc.Cell(estimate, bounds if measured or gain.low != gain.high else "")


def training_facts(report: Report) -> Iterator[doc.Fact]:
    """Facts on the progress of a model's training."""
    training = report.training
    if training is None:
        return
    losses = [found for found in training.intervals if found.loss is not None]
    if losses and report.accelerator.get("kind") != "emulated":  # behind one nothing is learnt
        first, last = losses[0], losses[-1]
        fell = " to ".join(units.number(float(one.loss or 0.0)) for one in (first, last))
        steps = f"steps {first.first_step:,} to {last.first_step + last.steps - 1:,}"
        yield doc.Fact("loss", f"{fell} over {steps}", 1)
    if (held := next((found for found in reversed(training.evaluations) if found.best), None)) is not None:
        yield doc.Fact("held-out loss", f"{units.number(float(held.loss))}, the lowest, at step {held.step:,}", 1)
    if training.ended is not None:
        reason = training.ended.reason.replace("_", " ")
        count = len(training.checkpoints)
        written = f"; {count:,} checkpoint{'' if count == 1 else 's'} written" if count else ""
        yield doc.Fact("ended", f"{reason} after step {training.ended.step:,}{written}", 1)


def _compared(report: Report) -> Iterator[doc.Block]:
    found = groups(report)
    room = max(2, _MOST_ARMS // max(1, len(found))) if len(found) < _MOST_ARMS // 2 else 2
    for group in found[: _MOST_ARMS // 2]:
        yield doc.Section(group.title, (_group(group, room),))


def _group(group: Group, most: int) -> doc.Table:
    every = [arm for arm in group.arms if arm.role != "aa"]
    best = sorted(every, key=lambda one: (one.role != "baseline", -(one.effect.estimate if one.effect else 0.0)))
    cells = [compare.COLUMNS[name][1] for name in ("id", "step_time_s", "utilization", "effect", "decision")]
    rows = [doc.Row(tuple(of(one) for of in cells), compare.tone(one)) for one in best[:most]]
    if (hidden := len(best) - most) > 0:
        rows.append(doc.Row((doc.Cell(f"{hidden} more with -v"), *[doc.Cell("")] * 4), "plain"))
    columns = (
        doc.Column("configuration"),
        doc.Column("step time", numeric=True, interval=False),
        doc.Column("utilization", numeric=True, interval=False),
        doc.Column("speed-up (95 %)", numeric=True),
        doc.Column("result", leads=True),
    )
    return doc.Table(columns, tuple(rows), blanks=True, short=True)


def _last(report: Report, place: str) -> Iterator[doc.Fact]:
    if command := answer.next_command(report, place):
        yield doc.Fact("next", command, 2)
    if report.disturbance is not None and not answer.disturbed(report):
        yield doc.Fact("machine", report.disturbance.sentence, 2)
    if place and report.target.get("output"):
        yield doc.Fact("output", f"{place}/{report.target['output']} has what the target printed", 2)
    if place:
        yield doc.Fact("report", f"{place}/{_PAGE}", 2)
