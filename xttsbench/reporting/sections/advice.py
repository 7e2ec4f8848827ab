"""Advice of a report: times now and then, the cause, the line to edit, what to do, and what stands in its way.

Pure. All of it is about one fix: the one that was accepted, else the most promising one. Where fixes were tried and
none was accepted, nothing is promised: the advice says which one would help, and why it was not accepted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from xttsbench.findings import worse_than_slow
from xttsbench.fixes.results import mending
from xttsbench.fixes.spec import WORTH
from xttsbench.records.base import FASTER, Estimate, Location
from xttsbench.records.fix import FixResult, FixSet
from xttsbench.records.report import Finding, Report
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.sections import answer, fixes, groups, missing, pipeline_of, rounds
from xttsbench.reporting.sections.answer import Option
from xttsbench.reporting.sections.naming import short, with_calls
from xttsbench.reporting.sections.pipeline import name as call_of
from xttsbench.reporting.sections.step import costliest_line
from xttsbench.reporting.verdicts import MEANINGS
from xttsbench.reporting.words import in_words, part
from xttsbench.throughput.threads import chain_before

_KEPT_BUSY: Final = "Nothing: this input keeps an accelerator of that speed busy."
_MOST_LINES: Final = 3  # Places to edit that are named
_LATE: Final = 1.25  # Times its pause from which an emulated accelerator's compute asks for a reason
_WORTH_SAYING: Final = 0.02  # Share of a step from which the time without a loss is worth a line
_LIBRARY: Final = re.compile(r"(?:^|[/\\])(site-packages|dist-packages|xttsbench[/\\]xtts)[/\\]")
_BY_MODEL: Final = "by a model of the pipeline"
_OF_THE_STEP: Final = ("compute", "dispatch", "compile")  # Parts of the step that its own line explains


def times(report: Report) -> Iterator[doc.Fact]:
    """Time of a step now, and with the fix; none of the latter where no fix was accepted."""
    now, found = report.verdict.step_time_s, answer.gain(report)
    name = f"a {answer.unit(report)} now"
    if now is None:
        yield doc.Fact(name, missing(report, "verdict.step_time_s"), 2)
        if found is not None and found.gain is not None and found.taken:
            later = _later(result) if (result := _result(found, report)) is not None else ""
            yield doc.Fact("with the fix", f"{units.ratio_interval(found.gain)} as fast, measured{later}", 2)
        return
    yield doc.Fact(name, units.duration_interval(now))
    yield from _late(report)
    if found is not None and found.gain is not None:
        done = "after the fix" if found.fixes else "after the change"  # of a configuration
        hoped = "with a fix" if found.words else "at best"  # of the cause alone it is known what it costs
        yield doc.Fact(done if found.taken else hoped, _after(found, now, report), 3)
    elif answer.nothing_accepted(report):
        yield doc.Fact("after the fix", "as now: no fix was accepted", 1)
    else:
        if report.kind == "optimize":
            yield doc.Fact("after the fix", _none_tried(report), 2)
        yield from _at_best(report, now)
    chosen = next((one.semantics for one in report.fixes if one.chosen and one.semantics), None)
    if chosen is not None and chosen.checked:
        yield doc.Fact("its data", fixes.same_data(chosen), 3)


def _late(report: Report) -> Iterator[doc.Fact]:
    """Fact on a dataset's compute where it is clearly more than the pause of the emulated accelerator."""
    parts, pause_s = report.verdict.attribution_s, 1e-3 * report.accelerator.get("mean_step_ms", 0.0)
    if parts is not None and report.target.get("kind") == "dataset" and parts.compute > _LATE * pause_s > 0:
        late = f"{units.duration(pause_s)} of the emulated accelerator, and that this machine lets it go on late"
        yield doc.Fact("compute", f"{units.duration(parts.compute)}: the {late}", 2)


def _after(found: Option, now: Estimate, report: Report) -> str:
    gain, result = found.gain or now, _result(found, report)
    how = "estimated" if found.words else "if that time were gone"
    of_step = all(fix.is_of_step for fix in FixSet.of(found.fixes))  # of which the pipeline's model says nothing
    how += f" {'from the parts of a step' if of_step else _BY_MODEL}" if found.fixes and not found.measured else ""
    later = _later(result) if result is not None else ""
    time, ratio = answer.after(now, gain, report), units.ratio_interval(gain)
    if found.taken:  # turns of both were measured, in which a step had another time than the one of now
        return f"{time}, computed from the measured speed-up, {ratio}{later}"
    return f"{time}, {ratio} as fast, {how}{later}"


def _none_tried(report: Report) -> str:
    """The sentence of a search for fixes that has tried none, with what stood in the way of the first one."""
    if not report.fixes:
        return "as now: xttsbench makes no change for this by itself"
    first = answer.untried(report)
    return with_calls(f"as now: no fix was tried; {first.words}: {first.why.rstrip('.')}", report)


def _at_best(report: Report, now: Estimate) -> Iterator[doc.Fact]:
    """Ideal time where no gain is known: the step without its bottleneck; a computing one without all else.

    A dataset without a step has none: nothing but its input takes time.
    """
    name, parts = report.verdict.bottleneck, report.verdict.attribution_s
    if name == "inconclusive" or parts is None or now.estimate <= 0 or answer.unit(report) == "batch":
        return
    computes = name == "compute"
    lost_s = now.estimate - parts.compute if computes else getattr(parts, name)
    if _WORTH_SAYING <= lost_s / now.estimate < 1.0:
        share = units.percent(lost_s / now.estimate)
        what = f"{share} that is not compute; less with a cheaper step" if computes else f"{share} of {part(name)}"
        yield doc.Fact("at best", f"{units.duration(now.estimate - lost_s)}, without the {what}", 1)


def advice(report: Report, place: str = "") -> Iterator[doc.Fact]:
    """The cause, the line to edit, and what to do.

    The place is the run's directory as it is shown; empty where it is not known.
    """
    found, why = answer.cause(report), answer.why(report)
    proved = any(one.chosen for one in report.fixes)
    if report.verdict.bottleneck == "inconclusive" and answer.disturbed(report) and not proved:  # for the summary
        yield doc.Fact("undecided", with_calls(report.verdict.summary, report), 3)
    if why:
        yield doc.Fact("cause" if found is not None else "likely cause", why, 4)
    if (at := line(report)) is not None:
        yield at
    if said := _to_do(found, report, place):
        yield doc.Fact("what to do", said, 6)
    if found is None and report.verdict.bottleneck == "inconclusive":
        yield from _found_besides(report)


def _found_besides(report: Report) -> Iterator[doc.Fact]:
    """The most useful finding that can be acted on whatever limits the step; one that is warned of stands above."""
    open_ones = [one for one in report.findings if one.severity != "info" and one.remedy and not worse_than_slow(one)]
    for one in sorted(open_ones, key=lambda one: one.severity != "critical")[:1]:
        at = f" ({answer.line_of(one, report)})" if _is_the_user_s(one.location) else ""
        yield doc.Fact("found besides", with_calls(f"{one.title}{at}. {one.remedy}", report), 4)


def line(report: Report) -> doc.Fact | None:
    """The user's line to edit: that of the fix, else of the cause, else the costliest one, else that of the step."""
    found = answer.cause(report)
    chosen = _result(answer.gain(report), report)
    blocked = chosen is not None and chosen.patch is not None and not chosen.patch.diff.strip()
    if chosen is not None and not blocked and (lines := tuple(_edited(chosen, report))):
        more = f" and {len(lines) - _MOST_LINES} more" if len(lines) > _MOST_LINES else ""
        return doc.Fact("your line", " and ".join(lines[:_MOST_LINES]) + more, 2)
    if found is not None and _is_the_user_s(found.location):
        return doc.Fact("your line", answer.line_of(found, report), 2)
    part_name, _ = answer.likely(report) or (report.verdict.bottleneck, 0.0)
    if part_name in ("input", "contention") and (op := answer.costliest(report)):
        place = f"{short(op.location.file or '', report)}:{op.location.line or '?'}"
        return doc.Fact("your line", f"{place}, in {call_of(op)}", 2) if _is_the_user_s(op.location) else None
    if part_name not in _OF_THE_STEP:
        return None
    if part_name == "compute" and (costly := costliest_line(report)):
        return doc.Fact("your line", costly, 2)
    steps = (one for one in report.fixes if all(fix.is_of_step for fix in FixSet.of(one.fixes)))
    at = next((at for one in steps for at in one.places if _is_the_user_s(at)), None)
    return None if at is None else doc.Fact("your line", f"{short(at.file or '', report)}:{at.line}, the step", 2)


def _is_the_user_s(at: Location) -> bool:
    """Whether a place is known, and neither in an installed package nor in the bundled workload."""
    return bool(at.file) and not _LIBRARY.search(at.file or "")


def _result(option: Option | None, report: Report) -> FixResult | None:
    return next((one for one in report.fixes if option is not None and option.fixes == one.fixes), None)


def _edited(found: FixResult, report: Report) -> Iterator[str]:
    """Lines that the patch changes; without a patch those of the ops that the fix is about."""
    edits = found.patch.edits if found.patch is not None else ()
    at: list[tuple[str | None, int | None]] = [(edit.file, edit.line) for edit in edits]
    calls: dict[str, tuple[str | None, int | None]] = {}
    for one in found.places:  # behind the call come the Python functions in it, which other fixes leave alone
        if one.op and (one.op not in calls or any(fix.kind == "native" for fix in FixSet.of(found.fixes))):
            calls[one.op if one.op not in calls else f"{one.op}:{one.line}"] = (one.file, one.line)
    at = at or list(calls.values())
    for file in dict.fromkeys(file for file, _ in at if file):
        numbers = {number for other, number in at if other == file and number is not None}
        numbers |= _removed(found.patch.diff, file) if found.patch is not None else set()
        starts = [number for number in sorted(numbers) if number - 1 not in numbers]
        ends = [number for number in sorted(numbers) if number + 1 not in numbers]
        for start, end in zip(starts, ends, strict=True):
            yield f"{short(file, report)}:{start}" + (f"-{end}" if end > start else "")
        if not numbers:
            yield short(file, report)


def _removed(diff: str, file: str) -> set[int]:
    """Numbers of the lines of a file that a unified diff takes out or changes."""
    found, number, here = set[int](), 0, False
    for line in diff.splitlines():
        if line.startswith("--- a/"):
            here = f"/{file}".endswith(f"/{line[6:]}")
        elif begun := re.match(r"@@ -(\d+)", line):
            number = int(begun[1])
        elif line[:1] in ("-", " "):
            found |= {number} if here and line[0] == "-" else set()
            number += 1
    return found


def _to_do(found: Finding | None, report: Report, place: str) -> str:
    verdict, best = report.verdict, answer.gain(report)
    chosen = next((one for one in report.fixes if one.chosen), None)
    if chosen is not None:
        return _apply(chosen, report, place)
    if answer.nothing_accepted(report):
        return _left(found, report)
    if best is not None and best.taken and (said := compared(report)):
        return said
    if best is not None and best.words and (found is None or not _is_for(found, best)):
        if best.taken:
            return f"Change to {best.words}{_moved(best.fixes, report)}."
        if verdict.bottleneck == "inconclusive" and report.kind == "diagnose":  # which the next command goes on with
            return f"Have it decided with the next command. Then worth a try: {best.words}{_moved(best.fixes, report)}."
        proves = answer.next_command(report, place).startswith("xttsbench optimize")
        how = "Try it, and have it proved with the next command" if proves else "Try it"
        return f"{how}: {best.words}{_moved(best.fixes, report)}."
    if found is not None and found.remedy:
        return with_calls(found.remedy, report)
    if verdict.step_time_s is None or verdict.bottleneck == "inconclusive":
        return ""
    if verdict.bottleneck != "compute":
        return MEANINGS[verdict.bottleneck].remedy
    emulated = report.step is None and report.accelerator.get("kind") == "emulated"
    return _KEPT_BUSY if emulated else _faster_step(report)


def _faster_step(report: Report) -> str:
    """Remedy of a step that computes, without XLA where that was tried and gains nothing."""
    remedy = MEANINGS["compute"].remedy
    tried = next((arm.effect for arm in report.arms if arm.id == "step:xla" and arm.effect is not None), None)
    if tried is None:
        return remedy
    gain = tried.estimate
    said = f"takes {1 / gain:.3g} times as long" if gain < 1.0 else f"is {units.ratio(gain)} as fast"
    return f"{remedy if gain >= WORTH else remedy.replace('XLA, ', '')} With XLA the step alone {said}."


def _is_for(found: Finding, option: Option) -> bool:
    """Whether the remedy of a finding is what an option does: what it gives is what the finding hopes for."""
    hoped = found.predicted_speedup
    same = hoped is not None and option.gain is not None and math.isclose(hoped.estimate, option.gain.estimate)
    return same and option.later_epochs == found.rule.startswith("cache")


def _apply(chosen: FixResult, report: Report, place: str) -> str:
    """Sentences on how the accepted fix gets into the source."""
    words = f"{with_calls(chosen.words, report)}{_moved(chosen.fixes, report)}"
    patch = chosen.patch
    if patch is None or not patch.diff.strip():
        why = " ".join(patch.unpatched.values()) if patch is not None else ""
        if not why:
            return f"Change it by hand, or load the plan as the next command does: {words}."
        how = "Load the plan, as the next command does" if fixes.call(report.optimized) else "Change it by hand"
        return f"{how}: {words}. xttsbench could not write it into the source: {with_calls(why, report)}"
    faster = ", and faster too" if patch.verified_speedup is not None and patch.verified_speedup.low > 1.0 else ""
    ran = f"The patched source, the same change, was run as well: the same data{faster}. " if patch.equivalent else ""
    why = f": {patch.why_not.rstrip('.')}" if patch.why_not and not patch.unpatched else ""
    ran = ran if patch.ran else f"The change was measured on the graph; the patched source itself was not run{why}. "
    rest = f" Left to do by hand: {' '.join(patch.unpatched.values())}" if patch.unpatched else ""
    where = f"{place}/patch.diff" if place else "the run's patch.diff"
    return f"Apply {where}, in the directory of this command: {words}. {ran}{rest}".strip()


def compared(report: Report) -> str:
    """Sentence on the gain of the fastest configuration on each accelerator; empty for none."""
    every = [group for group in groups(report) if group.baseline is not None]
    best = next((arm for group in every for arm in group.candidates if arm.decision in FASTER), None)
    if best is None:
        return ""
    gains = []
    for group in every:
        arm = next((one for one in group.arms if one.id == best.id and one.effect is not None), None)
        where = f"behind an {group.where}" if group.emulated else "on this machine"
        if arm is not None and arm.effect is not None:
            sure = "" if arm.decision in FASTER else ", undecided"
            gains.append(f"{units.ratio_interval(arm.effect)} as fast {where}{sure}")
    baseline = next(group.baseline for group in every if group.baseline is not None)
    same = (report.parity or {}).get("same")
    data = "; the batches are the same, which was checked" if same else ""
    return f"Use {in_words(best.id)} in place of {in_words(baseline.id)}: {', and '.join(gains)}{data}."


def _moved(names: tuple[str, ...], report: Report) -> str:
    """Remark on the shuffles and repeats that a cache moves behind itself; empty for none."""
    pipeline = pipeline_of(report)
    by_name = {op.name: op for op in pipeline.ops} if pipeline is not None else {}
    for fix in FixSet.of(names):
        if pipeline is not None and fix.kind == "cache" and fix.op in by_name:
            later = chain_before(by_name[fix.op], pipeline).orderings
            calls = [call_of(by_name[name]) for name in later if name in by_name]
            return f" (and {' and '.join(dict.fromkeys(calls))} moved behind it)" if calls else ""
    return ""


def _left(found: Finding | None, report: Report) -> str:
    """Sentences on the fix that would help and its obstacle; else on what was not tried, was tried, and is left."""
    untried, blocked = _untried(report), obstructed(report)
    mended = mending(found.rule, report.fixes) if found is not None else None
    remedy = with_calls(found.remedy, report) if found is not None and found.remedy else ""
    first = remedy if mended is None and found is not None and found.rule != "input-bound" else ""
    if blocked is not None and not (first and answer.speed_of(blocked) < WORTH):
        rest = untried if blocked.outcome == "rejected" else ""
        out = [one for one in report.fixes if one.outcome == "rejected" and one.semantics and _would_help(one)]
        also = f" {_obstacle(out[0], report)}" if out and blocked.outcome != "rejected" else ""
        return f"{rest} {_obstacle(blocked, report)}{also}".strip()
    tried = [one for one in report.fixes if one.verified_speedup is not None]
    best = max(tried, key=answer.speed_of, default=None)
    said = "No fix was accepted."
    if best is not None and rounds.that_decide(best.why, report):
        said = _obstacle(best, report)
    elif best is not None:
        others = f", the best of {len(tried)} that were tried" if len(tried) > 1 else " was tried"
        words = with_calls(best.words, report)
        said = f"{words[:1].upper()}{words[1:]}{others}: {with_calls(best.why.rstrip('.'), report)}."
    if blocked is not None:  # what no fix does comes before one that nothing speaks for
        return f"{first} {said}"
    if untried:
        return f"{untried} {said}"
    if remedy and (mended is None or (mended not in tried and mended.outcome != "rejected")):
        return f"{said} {remedy}"
    costly = report.verdict.bottleneck in ("input", "contention") and answer.costliest(report) is not None
    return f"{said} What is left is to make that work itself cheaper." if costly else said


def _untried(report: Report) -> str:
    """Sentence on the fixes that there was no time for; empty for none."""
    left = [one for one in report.fixes if one.outcome == "not verified" and "no time" in one.why]
    left = [one for one in left if one.verified_speedup is None and answer.speed_of(one, WORTH) >= WORTH]
    if not left:
        return ""
    words = [one.words for one in left[:2]] + ([f"{len(left) - 2} more"] if len(left) > 2 else [])
    every = with_calls(" and ".join(words), report)
    return f"Not tried for want of time: {every}; the next command has more of it."


def obstructed(report: Report) -> FixResult | None:
    """The most promising fix that was not accepted for another reason than that it gains nothing."""
    open_ones = [one for one in report.fixes if one.outcome != "accepted" and _would_help(one)]
    return max(open_ones, key=lambda one: (one.semantics is not None, answer.speed_of(one)), default=None)


def _obstacle(found: FixResult, report: Report) -> str:
    """Sentence on what a fix would give, and on what stands in its way."""
    words = with_calls(found.words, report) + _moved(found.fixes, report)
    speed, basis = answer.speed_of(found), "measured" if found.verified_speedup is not None else "estimated"
    what, later = f"{words[:1].upper()}{words[1:]}", _later(found)
    gives = f"{what} would give {units.ratio(speed)}{later} ({basis})" if speed >= WORTH else f"{what} may help"
    data = found.semantics
    if data is not None and data.equivalent is None:
        return f"{gives}, but the data are not proved to stay the same: {with_calls(_begun(data.sentence), report)}"
    if data is not None and data.equivalent is False:
        said, seen, _ = data.sentence.partition(" Seen: ")  # how that showed is for -v
        if found.name.startswith("step:"):
            return f"{gives}, but {said.rpartition('; ')[2].rstrip('.')}."
        return f"{gives}, but gives other data{', which was seen' if seen else ''}: {with_calls(_begun(said), report)}"
    if found.verified_speedup is not None and found.decision in FASTER:
        gain = units.ratio_interval(found.verified_speedup)
        return f"{what} gave {gain} in one process{later}; to be sure takes a second one, and more time."
    if found.verified_speedup is None:
        return f"{gives}, and was not tried: {with_calls(found.why.rstrip('.'), report)}."
    gain, seen = units.ratio_interval(found.verified_speedup), f"{found.rounds} round{'s' * (found.rounds != 1)}"
    end = "Time alone would not decide it here" if "would not" in found.why else "More time would decide it"
    end = rounds.that_decide(found.why, report) or end
    return f"{what} was tried and is not decided: {gain} in {seen}{later}. {end}."


def _later(found: FixResult) -> str:
    """Condition of a cache's gain: it comes with the second epoch, and with the first one it is less."""
    whole = re.search(r"with the epoch that fills the cache, [\d.]+ times over \d+ (?:epochs|of them)", found.why)
    if "cache" not in FixSet.of(found.fixes):
        return ""
    return ", from the second epoch on" + (f" ({whole[0]})" if whole is not None else "")


def _would_help(found: FixResult) -> bool:
    """Whether a fix was not accepted for another reason than that it gains nothing."""
    changes = found.semantics is not None and found.semantics.equivalent is not True
    undecided = found.outcome == "not verified"
    return (changes and answer.speed_of(found, 99.0) >= WORTH) or (undecided and answer.speed_of(found) >= WORTH)


def _begun(sentence: str) -> str:
    first = sentence.split(" ", 1)[0]
    return sentence if not first.isalpha() else sentence[:1].lower() + sentence[1:]
