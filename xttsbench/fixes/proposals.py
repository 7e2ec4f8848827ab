"""Which fixes are worth verifying, the most promising first, why the others are not, and what several would give.

Pure. Nothing here is a finding: whether a fix helps, and leaves the data alone, is for the trials to say. What a mode
gives the step alone was measured; what that gives the whole is the model's, since a faster step waits longer for the
same input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from xttsbench.analysis.steps import Steps, measured
from xttsbench.evidence import Evidence
from xttsbench.evidence.pipeline import bursts, pipeline_pace
from xttsbench.evidence.step import heaviest_line, place_of, whole_step
from xttsbench.fixes.model import COSTS_NOTHING, Model, Modelled, combine, modelled, predict, with_fixes
from xttsbench.fixes.prefetch import longer_name
from xttsbench.fixes.proposal import (
    Option,
    Proposal,
    first_pass_s,
    forbidden,
    of_input,
    option,
    ranked,
    simplicity,
    takes_long,
    without_room,
)
from xttsbench.fixes.registry import said
from xttsbench.fixes.spec import WORTH, Candidate
from xttsbench.fixes.step import STEP_BUCKETS, STEP_GRAPH, STEP_TRACED_ONCE, STEP_XLA, retraced
from xttsbench.records.base import Estimate, Location, name_and_place
from xttsbench.records.fix import Fix, FixSet
from xttsbench.records.pipeline import Prediction
from xttsbench.throughput.pace import Consumer

_WAITS: Final = 0.05  # share of the step in which it waits for data, from which its input is worth changing
_LOST: Final = 0.10
"""Share of the step that launching its ops one by one has to take for one graph to be tried unmeasured."""
_COMPUTES: Final = 0.5  # share that computing has to take for XLA to be tried unmeasured


def proposals(evidence: Evidence, *, asked: Collection[str] = ()) -> tuple[Proposal, ...]:
    """Fixes, alone and together, those that are worth verifying first, of these the most promising first.

    Args:
        evidence: as a diagnosis makes it.
        asked: kinds of fix that change what the batches hold, and are asked for: ``any-order``, ``buckets``.
    """
    said_of = modelled(evidence, wall_s=evidence.wall_s, alone_s=_alone_s(evidence), asked=asked)
    believed = said_of.model if said_of is not None and said_of.off is None else None
    idle = _does_not_wait(evidence)
    options = [*of_input(evidence, said_of, idle, asked=asked), *without_room(evidence)]
    steps = list(_of_step(evidence, believed))
    both = _of_both(evidence, said_of, options, steps, asked=asked)
    return ranked([*options, *steps, *both])


def predict_speedup(evidence: Evidence, fixes: FixSet) -> float | None:
    """The speed-up of fixes of the input together; ``None`` where the model cannot say, or is not believed.

    Args:
        evidence: as for :func:`proposals`.
        fixes: in the order in which they are applied.
    """
    found = _known(evidence, fixes)
    return predict(*found).speedup if found is not None else None


def longer_buffer(evidence: Evidence, fixes: FixSet, steps: Steps) -> Fix | None:
    """The fix that keeps more batches ready, where beside some fixes the input still comes in bursts; else ``None``.

    Only once a pipeline is fast enough on the whole does it show that it is not so at every moment: files that are
    read ahead are there all at once, and the first of the next ones are not.

    Args:
        evidence: as above, of the target as it is.
        fixes: in the order in which they are applied.
        steps: of the target with these fixes.
    """
    found = _known(evidence, fixes)
    if found is None or "buffer" in fixes or "prefetch" in fixes:
        return None
    model, parts = found
    pipeline = with_fixes(model, parts)
    if pipeline is None:
        return None
    input_s = pipeline_pace(pipeline, Consumer(), model.evidence).period_s
    uneven = bursts(replace(model.evidence, steps=steps, pipeline=pipeline), pipeline, input_s)
    if uneven is None or uneven.enough is None:
        return None
    return Fix.parse(longer_name(pipeline, uneven.enough))


def _known(evidence: Evidence, fixes: FixSet) -> tuple[Model, list[Candidate]] | None:
    """The model and the candidates of these names, where it knows and is believed."""
    said_of = modelled(evidence, wall_s=evidence.wall_s, alone_s=_alone_s(evidence))
    if said_of is None or said_of.off is not None:
        return None
    by_name = {one.name: one for one in said_of.known}
    return (said_of.model, [by_name[name] for name in fixes.names]) if by_name.keys() >= set(fixes.names) else None


def _does_not_wait(evidence: Evidence) -> str | None:
    """Why no fix of the input can help; ``None`` where one may."""
    if not evidence.has_step and not evidence.emulated:
        return None
    share = evidence.share("input")
    if evidence.limits("input") or evidence.limits("contention") or share >= _WAITS or not evidence.parts:
        return None
    limits = "" if evidence.bottleneck == "inconclusive" else f", and what limits it is {evidence.bottleneck}"
    return f"the step waits for data {share:.1%} of its time{limits}"


def _alone_s(evidence: Evidence) -> float | None:
    """Mean step alone: as the predictions were given it, or as the trials of the main kind measured it."""
    ceiling = next((row for row in evidence.predictions if row.name == COSTS_NOTHING), None)
    if ceiling is not None and ceiling.measured_per_s is not None:
        return 1 / ceiling.measured_per_s.estimate
    alone = [steps for trial in evidence.ladder if (steps := measured(trial, "step_only")) is not None]
    times_s = [float(steps.working_s.mean()) for steps in alone if len(steps)]
    return sum(times_s) / len(times_s) if times_s else None


def _of_both(
    evidence: Evidence,
    said_of: Modelled | None,
    inputs: Sequence[Option],
    steps: Sequence[Option],
    *,
    asked: Collection[str],
) -> Iterator[Option]:
    """The best fix of the step with the input's fix that is best beside it, where together they give more.

    A faster step alone gives nothing where the input sets the pace, and shows once the input is mended too.
    """
    ratios = {one.proposal.name: _step_ratio(evidence, one.proposal.name) for one in steps}
    faster_steps = [one for one in steps if one.proposal.worth or (ratios[one.proposal.name] or 0.0) >= WORTH]
    step = max(faster_steps, key=lambda one: (one.score, ratios[one.proposal.name] or 0.0), default=None)
    if step is None:
        return
    usable = [one for one in inputs if one.proposal.worth]
    ratio = ratios[step.proposal.name]
    if said_of is None or said_of.off is not None or ratio is None:
        best = max(usable, key=lambda one: one.score, default=None)
        if best is not None and step.proposal.predicted_speedup is not None and evidence.limits("input"):
            yield _joined(best, step, None, best.score * max(step.score, WORTH))
        return
    faster = _faster_step(said_of.model, ratio)
    before = predict(faster, ()).speedup
    known = [one for one in said_of.known if one.edit is not None and forbidden((one,), asked=asked) is None]
    known = [one for one in known if takes_long(evidence, first_pass_s(evidence, (one,))) is None]
    rows = [predict(faster, (one,)) for one in known]
    rows += combine(faster, known, rows, asked=asked)
    if not rows or not before:
        return
    found = [_joined_best(evidence, rows, known, step, before)]
    without = [row for row in rows if "cache" not in FixSet.of(row.fixes)]
    if "cache" in FixSet.of(found[0].proposal.fixes) and without:  # which long data may be too long to fill
        found.append(_joined_best(evidence, without, known, step, before))
    least = WORTH * max([step.score, *(one.score for one in usable)])
    yield from (one for one in found if one.score >= least)


def _joined_best(
    evidence: Evidence, rows: Sequence[Prediction], known: Sequence[Candidate], step: Option, before: float
) -> Option:
    """The simplest of the best of some predictions, with the step's fix; ``before`` is that of the step's alone."""
    by_name = {one.name: one for one in known}
    most = max(row.speedup or 0.0 for row in rows)
    near = [(row, [by_name[fix] for fix in row.fixes]) for row in rows if (row.speedup or 0.0) * WORTH >= most]
    row, fixes = min(near, key=lambda pair: simplicity(pair[1]))
    # What the step's fix gives is told more surely by its own measurement than by the model.
    both = step.score * (row.speedup or 0.0) / before
    return _joined(option(evidence, fixes, row), step, both, both)


def _step_ratio(evidence: Evidence, name: str) -> float | None:
    mode = evidence.modes.get(name.removeprefix("step:"))
    return mode.speedup.estimate if mode is not None and mode.speedup is not None else None


def _joined(one: Option, step: Option, speedup: float | None, score: float) -> Option:
    first, second = one.proposal, step.proposal
    fixes = (*first.fixes, *second.fixes)
    both = replace(
        first,
        name=str(FixSet.of(fixes)),
        fixes=fixes,
        predicted_speedup=speedup,
        what=f"{first.what}, {second.what}",
        places=(*first.places, *second.places),
        worth=True,
        why_not=None,
    )
    return Option(both, score, one.to_prove, one.held_bytes)


def _of_step(evidence: Evidence, model: Model | None) -> Iterator[Option]:
    """The fixes that apply to the step as it runs now: what each gives the whole, as far as that is known.

    Args:
        evidence: with the modes that were measured.
        model: of the pipeline and the step, where there is one that can be believed.
    """
    if not evidence.has_step:
        return
    script, steps = evidence.script, evidence.steps
    own = script is not None and "fit" not in script.iterations  # a step whose source is the script's
    launched = place_of(heaviest_line(evidence, ("tensorflow", "function", "python")))
    for mode in {"eager": ("graph", "xla"), "graph": ("xla",)}.get(evidence.given_mode, ()):
        part, least = ("dispatch", _LOST) if mode == "graph" else ("compute", _COMPUTES)
        tried, speedup, why_not = evidence.modes.get(mode), None, None
        if own and script is not None and script.step_function is None and evidence.given_mode != "eager":
            why_not = f"put the step into a function of its own first: {script.why_no_step or 'it has none'}"
        elif tried is None:
            if evidence.bottleneck != part and evidence.share(part) < least:
                why_not = f"{part} takes {evidence.share(part):.0%} of the step"
        elif tried.speedup is None:
            why_not = tried.cause or f"the step did not run that way: {tried.status}"
        else:
            speedup = _whole(evidence, model, tried.speedup.estimate)
        yield _step_option(evidence, (STEP_GRAPH if mode == "graph" else STEP_XLA).name, speedup, launched, why_not)
    again = steps is not None and int(steps.xla_compiles.sum() + steps.traces.sum()) > 0
    varied = steps is not None and len(set(steps.shape_id.tolist())) > 1
    varied |= any(trace.reason == "shape" for trace in evidence.traces)
    traced = retraced(evidence.traces, name_and_place(script.step_function)[0]) if script is not None and own else None
    if again and (traced is not None or (not own and varied)):
        ceiling = evidence.max_speedups.get("compile")
        left = ceiling.estimate if ceiling is not None and evidence.share("compile") > 0 else None
        why_not = None if left is not None else "compiling again takes no time that was seen"
        name = (STEP_TRACED_ONCE if traced is not None else STEP_BUCKETS).name
        where = place_of(heaviest_line(evidence, ("function", "tensorflow")))
        yield _step_option(evidence, name, left, where, why_not)


def _step_option(evidence: Evidence, name: str, speedup: float | None, place: Location, why_not: str | None) -> Option:
    if why_not is None and speedup is not None and speedup < WORTH:
        why_not = f"estimated {speedup:.2f} times as fast: less than 5 %"
    ceiling = evidence.max_speedups.get("dispatch")
    where = (place,) if place.file else ()
    return Option(
        Proposal(name, (name,), speedup, said((Fix.parse(name),)), where, why_not is None, why_not),
        speedup or (ceiling.estimate if ceiling is not None else WORTH),
    )


def _whole(evidence: Evidence, model: Model | None, ratio: float) -> float | None:
    """The speed-up of the whole where only the step gets faster: of the model, and at most what the input allows."""
    whole = whole_step(evidence, Estimate(estimate=ratio, low=ratio, high=ratio))
    if whole is None:
        return None
    found = whole.estimate
    if model is not None:
        found = min(found, model.period_s / _period_s(model, ratio))
    if evidence.input_alone_s is not None and evidence.wall_s:
        found = min(found, evidence.wall_s / min(evidence.input_alone_s.estimate, evidence.wall_s))
    return found


def _faster_step(model: Model, ratio: float) -> Model:
    """The model with a step that runs so many times as fast; its Python goes with the ops that it launched."""
    step = model.step
    scaled = replace(step, alone_s=step.alone_s / ratio, lock_s=step.lock_s / ratio, cpu_s=step.cpu_s / ratio)
    return replace(model, step=scaled)


def _period_s(model: Model, ratio: float) -> float:
    faster = _faster_step(model, ratio)
    extra_s = model.period_s - pipeline_pace(model.pipeline, model.step, model.evidence).period_s
    return pipeline_pace(faster.pipeline, faster.step, faster.evidence).period_s + max(extra_s, 0.0)
