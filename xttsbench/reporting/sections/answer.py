"""Answer of a report: the cause, possible changes with their gains, and the next command.

Pure.

Every output takes the gain, the fix and the next command from here, so that none says other than another.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from xttsbench import BUDGET_S
from xttsbench.fixes.rounds import LEAST_BLOCKS
from xttsbench.fixes.spec import WORTH, WORTH_UNSURE
from xttsbench.records.base import DECIDED, FASTER, Estimate
from xttsbench.records.fix import FixResult, FixSet
from xttsbench.records.pipeline import PipelineOp
from xttsbench.records.report import Finding, Report
from xttsbench.reporting import units
from xttsbench.reporting.sections import Group, compares, groups, pipeline_of, rounds
from xttsbench.reporting.sections.naming import ops_of, short, with_calls
from xttsbench.reporting.sections.pipeline import manner
from xttsbench.reporting.sections.pipeline import name as call_of
from xttsbench.reporting.words import SAME_DATA, in_words, part

_LIKELY: Final = (*FASTER, "likely_faster")
_QUIET_TOO: Final = re.compile(r"is called anew for each batch|the dataset ends after|the trial ended early")
_LEAST_MORE_S: Final = 120  # Seconds that another run gets more, at least: a trial begins anew with its process
_IN_TIME: Final = ("stragglers", "oscillation")  # Rules on few of the steps, beside which all others cost something
_FILLING: Final = re.compile(r"(\d+) s to fill")
_UNEXPLAINED: Final = re.compile(r"; no op explains it: [^.]*(?:\.\d[^.]*)*")
_BUNDLED: Final = "xttsbench.targets.bundled:"


@dataclass(frozen=True)
class Option:
    """Something that may be changed.

    Attributes:
        words: what it is.
        gain: how many times as fast; a model's estimate has no width.
        data: whether the data stay as they are, in a word or two.
        basis: ``measured``, ``estimated``, or what came of the measurement.
        measured: whether the gain is; else it is estimated.
        taken: whether it may be counted on: accepted, or clearly faster, with the same data.
        here: whether it was measured on the accelerator that the verdict is about.
        later_epochs: whether the first epoch takes as long as before.
        proposed: whether it is what the patch does, which others may be faster than once their caches are full.
        fixes: names of the fixes that it is; none of a compared configuration.
        out: whether it was rejected.
    """

    words: str
    gain: Estimate | None
    data: str
    basis: str
    measured: bool
    taken: bool
    here: bool = True
    later_epochs: bool = False
    proposed: bool = False
    fixes: tuple[str, ...] = ()
    out: bool = False


def unit(report: Report) -> str:
    """Unit of the times of a report: a ``step``, or a ``batch`` of a dataset that nothing trains on."""
    alone = report.target.get("kind") == "dataset" and report.accelerator.get("kind") != "emulated"
    return "batch" if alone else "step"


def cause(report: Report) -> Finding | None:
    """Finding that limits the step, by its remedy's worth, of Python functions the costliest; ``None`` for none."""
    found = next((found for found in report.findings if found.limiting), None)
    return _costly_python(report) if found is not None and found.rule == "python-function" else found


def _costly_python(report: Report) -> Finding | None:
    """The limiting Python function whose op takes most of the time; ``None`` for none."""
    every = [one for one in report.findings if one.limiting and one.rule == "python-function"]
    return max(every, key=lambda one: float(one.evidence.get("cost_share") or 0.0), default=None)


def likely(report: Report) -> tuple[str, float] | None:
    """Most likely cause in a report without a verdict: part of the step and its share; else ``None``.

    It is the largest avoidable part from 10 % on, else the device's own work: the rule of the verdict itself.
    """
    found, time = report.verdict.attribution_s, report.verdict.step_time_s
    if report.verdict.bottleneck != "inconclusive" or found is None or time is None or time.estimate <= 0:
        return None
    if (limits := cause(report)) is not None and limits.rule == "call-per-batch":
        return None  # what waits then, waits for a dataset that is made anew
    shares = {name: seconds / time.estimate for name, seconds in found.model_dump().items() if name != "residual"}
    name = max((name for name in shares if name != "compute"), key=shares.__getitem__)
    name = name if shares[name] >= 0.1 else "compute"
    return name, shares[name]


def disturbed(report: Report) -> str:
    """Sentence on a machine too disturbed for a verdict; empty where a quiet one would have none either."""
    found, said = report.disturbance, report.verdict
    if found is None or said.bottleneck != "inconclusive" or not said.step_time_s or _QUIET_TOO.search(said.summary):
        return ""
    if rounds.taken(report) < rounds.DISTURBED and not found.invalid_rounds:
        return ""
    return f"The machine disturbed the measurement: {found.sentence.rstrip('.')}."


def line_of(found: Finding, report: Report) -> str:
    """The line of a finding, and the call of the pipeline that it is in or that calls it, where it names one."""
    at, pipeline = found.location, pipeline_of(report)
    line = short(at.file or "", report) + (f":{at.line}" if at.line is not None else "")
    op = next((op for op in ops_of(report) if op.name == at.op), None)
    for one in pipeline.python_functions if pipeline is not None and found.rule == "python-function" else ():
        if one.parts is not None and one.location == at:
            loop = f"{short(one.parts.file or at.file or '', report)}:{one.parts.line}, the generator's loop"
            return loop if loop.startswith(f"{line},") else f"{loop}, read at {line}"
        if one.location == at and one.slow_line is not None and (slow := one.slow_line.location).file:
            return f"{short(slow.file, report)}:{slow.line}, in {one.name}() of {line}"
    if op is None or not op.location.file or not op.location.line:
        return line + (with_calls(f", in {at.op}", report) if at.op else "")
    if (op.location.file, op.location.line) == (at.file, at.line):
        return f"{line}, in {call_of(op)}"
    return f"{line}, called by {call_of(op)} at {short(op.location.file, report)}:{op.location.line}"


def explained(text: str, fixes: Iterable[FixResult]) -> str:
    """A text without the clause that no op of the input explains the wait, where a fix of some is proposed."""
    proved = any(not fix.is_of_step for one in fixes if one.chosen for fix in FixSet.of(one.fixes))
    return _UNEXPLAINED.sub("", text) if proved else text


def why(report: Report) -> str:
    """The cause in words: how what takes the time works, and what the finding says beyond that; empty for none.

    Without a finding on what to mend it is how the costliest call of the pipeline works.
    """
    found, python = cause(report), _costly_python(report)
    input_side = (likely(report) or (report.verdict.bottleneck, 0.0))[0] in ("input", "contention")
    if not input_side or (found is not None and found.rule == "python-function"):
        return with_calls(found.title, report) if found is not None else ""
    unexplained = _UNEXPLAINED.search(explained(report.verdict.summary, report.fixes))
    how = with_calls(python.title, report) if python is not None else "" if unexplained else _works(report)
    told = found is None or found.rule == "input-bound" or (python is not None and found.rule == "sequential-map")
    said = with_calls(explained(found.title, report.fixes), report) if found else ""
    if how and found is not None and found.rule in _IN_TIME:  # which is first, and what every batch costs beside it
        return f"{said}. In every batch {how}"
    return how if how and told else "; ".join(filter(None, (how, said)))


def _works(report: Report) -> str:
    """Sentence on the costliest call of the pipeline and how it works; empty where no costs were measured."""
    pipeline, op = pipeline_of(report), costliest(report)
    if pipeline is None or op is None:
        return ""
    share = units.percent((op.cost_s or 0.0) / sum(one.cost_s or 0.0 for one in pipeline.ops))
    takes = f"{with_calls(op.name, report)} takes {share} of the time of all ops"
    return ": ".join(filter(None, (takes, manner(op, pipeline))))


def costliest(report: Report) -> PipelineOp | None:
    """The op of the pipeline that takes most of its time; ``None`` where no costs were measured."""
    op = max(ops_of(report), key=lambda one: one.cost_s or 0.0, default=None)
    return op if op is not None and op.cost_s else None


def gain(report: Report) -> Option | None:
    """The best gain that is known: proven, else estimated, of a fix or of the cause removed.

    ``None`` where fixes were tried and none was accepted, whatever else may be hoped for.
    """
    every = [one for one in options(report) if one.here and one.gain is not None and one.gain.estimate >= WORTH]
    taken = next((one for one in every if one.taken), None)
    if taken is not None:
        return taken
    if nothing_accepted(report):
        return None
    if found := [one for one in every if _hopeful(one)]:
        return max(found, key=lambda one: (_fits(one, report), one.gain.estimate if one.gain else 0.0))
    limits = cause(report)
    # Of what waits for all of its input the gain is that of a cure of everything, which no change is.
    removed = limits.predicted_speedup if limits is not None and limits.rule != "input-bound" else None
    if removed is None or removed.estimate < WORTH:
        return None
    return Option("", removed, "", "estimated", measured=False, taken=False)


def untried(report: Report) -> FixResult:
    """The first fix of which not too little is expected, else the first."""
    return next((one for one in report.fixes if speed_of(one, WORTH) >= WORTH), report.fixes[0])


def nothing_accepted(report: Report) -> bool:
    """Whether fixes were tried, or read for whether the data stay the same, and nothing may be counted on."""
    tried = any(one.outcome == "rejected" or one.verified_speedup is not None for one in report.fixes)
    return tried and not any(one.taken and one.here for one in options(report))


def speed_of(found: FixResult, unknown: float = 0.0) -> float:
    """Speed-up of a fix: measured, else estimated, else ``unknown``."""
    return found.speed.estimate if found.speed is not None else unknown


def _hopeful(option: Option) -> bool:
    """Whether a gain that is not proven is large enough to be acted on."""
    unproven = not (option.measured or option.out)
    return unproven and option.gain is not None and option.gain.estimate >= WORTH_UNSURE


def _fits(option: Option, report: Report) -> bool:
    """Whether a run of the usual length has the time to try it: some caches take longer to fill."""
    return not any(float(fill_s) > BUDGET_S for why in _whys(option, report) for fill_s in _FILLING.findall(why))


def _whys(option: Option, report: Report) -> list[str]:
    return [one.why for one in report.fixes if one.fixes == option.fixes]


def after(now: Estimate, gain: Estimate, report: Report) -> str:
    """The time of a step with a gain, in words, from what it is now; with an interval where the gain has one.

    It is as uncertain as both are: relative errors of a quotient add up in squares. No step is shorter than the wait of
    an emulated accelerator.
    """
    estimate = now.estimate / gain.estimate
    if not gain.low < gain.high:
        return units.duration(estimate)
    below = math.hypot(_log_ratio(now.estimate, now.low), _log_ratio(gain.high, gain.estimate))
    above = math.hypot(_log_ratio(now.high, now.estimate), _log_ratio(gain.estimate, gain.low))
    low, high = estimate * math.exp(-below), estimate * math.exp(above)
    low = max(low, min(1e-3 * report.accelerator.get("mean_step_ms", 0.0), estimate))
    return units.duration_interval(Estimate(estimate=estimate, low=low, high=high))


def _log_ratio(above: float, below: float) -> float:
    return math.log(above / below) if below > 0 else math.inf


def options(report: Report) -> tuple[Option, ...]:
    """Possible changes, the best first: fixes that were measured or are worth it, and compared configurations."""
    fixes = sorted((_of_fix(found, report) for found in report.fixes if _counts(found)), key=_rank)
    compared = () if compares(report) else (one for group in groups(report) for one in _of_group(group, report))
    return tuple(sorted((*compared, *fixes), key=lambda one: (not (one.taken and one.here), not one.taken)))


def _counts(found: FixResult) -> bool:
    known = found.outcome != "not verified" or found.semantics is not None or found.verified_speedup is not None
    return known or (found.predicted_speedup or 0.0) >= WORTH


def _rank(option: Option) -> tuple[bool, bool, bool, float]:
    gain = option.gain.estimate if option.gain else 0.0
    return not option.proposed, not option.taken, option.out, -gain


def _of_fix(found: FixResult, report: Report) -> Option:
    speed, measured = found.speed, found.verified_speedup is not None
    basis = "measured" if measured else "estimated" if speed else "not timed" if found.semantics else "not tried"
    out, later = found.outcome == "rejected", "cache" in FixSet.of(found.fixes)
    if out and found.semantics is not None and not found.semantics.equivalent:
        basis += ", rejected"
    elif out:
        basis = "tried, no gain" if measured else "tried, it ended"
    elif measured and found.outcome == "not verified":
        basis = f"tried, {found.blocks} of {LEAST_BLOCKS} processes"
        if found.decision not in DECIDED:
            basis = "tried, no gain seen" if found.why.startswith("no gain") else "tried, undecided"
    elif speed and not measured and report.kind == "optimize":
        basis = "estimated, not tried"
    if not measured and (fill_s := _FILLING.search(found.why)) and float(fill_s[1]) > BUDGET_S:
        basis = f"{basis.removesuffix(', not tried')}, {float(fill_s[1]) / 60:.0f} min to fill"
    data = "not checked" if found.semantics is None else SAME_DATA[found.semantics.how]
    if found.semantics is not None and found.semantics.how == "different" and found.name.startswith("step:"):
        data = "NO: other losses"
    return Option(
        words=with_calls(found.words, report),
        gain=speed,
        data=data,
        basis=basis,
        measured=measured,
        taken=found.chosen or found.outcome == "accepted",
        later_epochs=later,
        proposed=found.chosen,
        fixes=found.fixes,
        out=out,
    )


def _of_group(group: Group, report: Report) -> Iterator[Option]:
    best = next((arm for arm in group.candidates if arm.effect and arm.effect.estimate >= WORTH), None)
    if best is None or best.decision not in _LIKELY:
        return
    parity = report.parity or {}
    same = "yes" if best.id in map(str, parity.get("arms") or ()) and parity.get("same") else "not checked"
    if best.id in (parity.get("differences") or {}):
        same = SAME_DATA["different"]
    used = f"{best.utilization.estimate:.0%} used" if group.emulated and best.utilization else ""
    yield Option(
        words=", ".join(filter(None, (in_words(best.id), group.where.replace(" accelerator,", ""), used))),
        gain=best.effect,
        data=same,
        basis="measured" if best.decision in FASTER else "likely",
        measured=True,
        taken=best.decision in FASTER and same == "yes",
        here=group.accelerator == report.accelerator.get("label"),
    )


def next_command(report: Report, place: str) -> str:
    """Command that applies the fix, proves it, or decides what stayed undecided; empty for none."""
    place = place or (report.optimized.run if report.optimized is not None else "")
    chosen = next((found for found in report.fixes if found.chosen), None)
    if chosen is not None and chosen.patch is not None and chosen.patch.diff.strip() and place:
        return f"patch -p1 < {shlex.quote(f'{place}/patch.diff')}"
    if chosen is not None and chosen.patch is not None and report.target.get("kind") == "script":
        return f"by hand: {' '.join(chosen.patch.unpatched.values())}"
    if report.optimized is not None and report.optimized.fixes:
        plan = f"{report.optimized.run.rstrip('/')}/optimized.yaml" if report.optimized.run else "optimized.yaml"
        return f"in Python: dataset, report = xttsbench.optimize({report.optimized.target!r}, plan={plan!r})"
    if report.best is not None and report.best.decided:
        whose = "train tiny" if report.best.workload else "diagnose"
        return shlex.join(["xttsbench", *whose.split(), "--best", report.best.run or place])
    if report.kind == "train":
        return ""
    if compares(report):
        final = (*DECIDED, "ended")
        undecided = any(arm.role == "candidate" and arm.decision not in final for arm in report.arms)
        return _again(report, _enough_s(report, report.comparison)) if undecided else ""
    if report.verdict.bottleneck == "inconclusive":
        return _again(report, _enough_s(report)) if report.verdict.step_time_s is not None else ""
    if str(report.target.get("name", "")).startswith(_BUNDLED):
        loader = next((one.words.split(" (")[0] for one in options(report) if one.taken and not one.fixes), None)
        if loader and any(arm.id == loader and arm.config.get("loader") == loader for arm in report.arms):
            return f"xttsbench train tiny --set loader={loader}"
    if nothing_accepted(report):
        open_ones = [one for one in report.fixes if one.outcome == "not verified"]
        left = [one.why for one in open_ones if one.verified_speedup is not None or "no time" in one.why]
        short = [why for why in left if not rounds.wants_quiet(why, report)]
        if left:
            return _again(report, _enough_s(report, short) if short else None)
    if any(map(_hopeful, options(report))) and report.kind == "diagnose" and (command := _optimize(report)):
        return command
    whys = [untried(report).why] if report.fixes else []
    whys = _whys(best, report) if (best := gain(report)) is not None else whys
    if report.kind == "optimize" and any("no time" in why for why in whys):
        return _again(report, _enough_s(report, whys))
    found = cause(report)
    return f"xttsbench explain {found.rule if found else part(report.verdict.bottleneck).replace(' ', '-')}"


def _enough_s(report: Report, whys: Iterable[str] = ()) -> int:
    """Seconds for another run: what it had and twice what is said to be missing; else 600, or twice what it had.

    Rounds whose time is not said take as long as those that there were.
    """
    given = re.search(r"--budget[ =](\d+)", report.command)
    had_s, texts = float(given[1]) if given else BUDGET_S, set(whys)
    had = max((arm.rounds for arm in report.arms), default=0) or 1
    lacking = {float(fill_s) for why in texts for fill_s in _FILLING.findall(why)}
    missing = [float(s) if s else int(n) * had_s / had for why in texts for n, s in rounds.ROUNDS.findall(why)]
    wanted_s = max(600.0, 2 * had_s)
    if lacking or missing:
        wanted_s = had_s + max(2 * sum((*lacking, *missing)), _LEAST_MORE_S)
    return math.ceil(wanted_s / 60) * 60


def _again(report: Report, budget_s: int | None) -> str:
    given, rest = _words_of(report.command)
    if given[:1] != ["xttsbench"]:
        return ""
    old = {"--out", "--budget"} if budget_s else {"--out"}
    kept = [word for at, word in enumerate(given) if not {word.partition("=")[0], given[at - 1]} & old]
    return shlex.join([*kept, *(("--budget", str(budget_s)) if budget_s else ())]) + rest


def _optimize(report: Report) -> str:
    given, rest = _words_of(report.command)
    target = str(report.target.get("name", ""))
    if given[:2] != ["xttsbench", "diagnose"] or target not in given:
        return ""
    kept = [word for at, word in enumerate(given) if at and {word, given[at - 1]} & {"--set", "--accelerator"}]
    best = gain(report)
    long = [] if best is None or _fits(best, report) else ["--budget", str(_enough_s(report, _whys(best, report)))]
    return shlex.join(["xttsbench", "optimize", target, *kept, *long]) + rest


def _words_of(command: str) -> tuple[list[str], str]:
    """The words of a command, none where it cannot be split, and what a script is given, with its separator."""
    head, separator, rest = command.partition(" -- ")
    try:
        return shlex.split(head), separator + rest
    except ValueError:
        return [], ""
