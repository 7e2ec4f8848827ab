"""Proposals for the step itself, by what each mode gave it or is expected to. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.evidence import Evidence
from xttsbench.evidence.step import heaviest_line, place_of, whole_step, why_not_several
from xttsbench.fixes.model import Model, period_with_faster_step_s
from xttsbench.fixes.proposal import Proposal
from xttsbench.fixes.registry import said
from xttsbench.fixes.spec import WORTH
from xttsbench.fixes.step import (
    STEP_GRAPH,
    STEP_NO_XLA,
    STEP_SEVERAL,
    STEP_TRACED_ONCE,
    STEP_XLA,
    retraced,
)
from xttsbench.records.base import Estimate, Location, name_and_place
from xttsbench.records.fix import Fix

_LOST: Final = 0.10
"""Share of the step that launching its ops one by one has to take for one graph to be tried unmeasured."""


_AT_ONCE: Final = 16  # steps of a call of fit, of which what comes once for a call is a few percent then
_COMPUTES: Final = 0.5  # share that computing has to take for XLA to be tried unmeasured


def step_ratio(evidence: Evidence, name: str) -> float | None:
    """The speed-up of the step alone in the mode that a fix gives it; ``None`` where that was not measured."""
    mode = evidence.modes.get(name.removeprefix("step:"))
    return mode.speedup.estimate if mode is not None and mode.speedup is not None else None


def of_step(evidence: Evidence, model: Model | None) -> Iterator[Proposal]:
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
                unknown = evidence.given_mode == "eager" and step_ratio(evidence, STEP_GRAPH.name) is None
                if part == "compute" and unknown:
                    why_not = "how much of the step computes is not known: the compiled step was not timed by itself"
        elif tried.speedup is None:
            why_not = tried.cause or f"the step did not run that way: {tried.status}"
        else:
            speedup = _whole(evidence, model, tried.speedup.estimate)
        yield _proposal(evidence, (STEP_GRAPH if mode == "graph" else STEP_XLA).name, speedup, launched, why_not)
    if not own and script is not None and script.steps_per_call == 1 and evidence.given_mode in ("graph", "xla"):
        lost = evidence.share("dispatch") + evidence.share("host")
        refused = why_not_several(evidence)
        little = None if lost >= _LOST else f"what comes once for a call takes {lost:.0%} of the step"
        speedup, why_not = None if refused else 1 / (1 - lost * (1 - 1 / _AT_ONCE)), refused or little
        yield _proposal(evidence, f"{STEP_SEVERAL.name}:{_AT_ONCE}", speedup, launched, why_not)
    again = steps is not None and int(steps.xla_compiles.sum() + steps.traces.sum()) > 0
    traced = retraced(evidence.traces, name_and_place(script.step_function)[0]) if script is not None and own else None
    ending = [STEP_NO_XLA] if again and steps is not None and int(steps.xla_compiles.sum()) else []
    if again and traced is not None:
        ending.append(STEP_TRACED_ONCE)
    ceiling = evidence.max_speedups.get("compile")
    left = ceiling.estimate if ceiling is not None and evidence.share("compile") > 0 else None
    why_not = None if left is not None else "compiling again takes no time that was seen"
    where = place_of(heaviest_line(evidence, ("function", "tensorflow")))
    for spec in ending:
        yield _proposal(evidence, spec.name, left, where, why_not)


def _proposal(evidence: Evidence, name: str, speedup: float | None, place: Location, why_not: str | None) -> Proposal:
    if why_not is None and speedup is not None and speedup < WORTH:
        alone = step_ratio(evidence, name)
        why_not = f"estimated {speedup:.2f} times as fast: less than 5 %"
        why_not = f"the step alone takes {1 / alone:.3g} times as long with it" if alone and alone < 1.0 else why_not
    ceiling = evidence.max_speedups.get("dispatch")
    where = (place,) if place.file else ()
    score = speedup or (ceiling.estimate if ceiling is not None else WORTH)
    what = said((Fix.parse(name),))
    return Proposal(name, (name,), speedup, what, where, why_not is None, why_not, score=score)


def _whole(evidence: Evidence, model: Model | None, ratio: float) -> float | None:
    """The speed-up of the whole where only the step gets faster: of the model, and at most what the input allows."""
    whole = whole_step(evidence, Estimate(estimate=ratio, low=ratio, high=ratio))
    if whole is None:
        return None
    found = whole.estimate
    if model is not None:
        found = min(found, model.period_s / period_with_faster_step_s(model, ratio))
    if evidence.input_alone_s is not None and evidence.wall_s:
        found = min(found, evidence.wall_s / min(evidence.input_alone_s.estimate, evidence.wall_s))
    return found
