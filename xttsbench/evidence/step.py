"""Questions about the step: the line behind a loss, the costliest shape; its modes beside it as given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.attribution import ShapeCost, StepFacts, shape_costs
from xttsbench.analysis.pooling import (
    STRETCH_SPREAD,
    Pooled,
    Sample,
    pool_together,
)
from xttsbench.analysis.steps import Steps, measured, steps_of
from xttsbench.evidence import Compared, Evidence
from xttsbench.records.base import Estimate, Location
from xttsbench.records.trial import KIND_OF, NOT_APPLICABLE, StackLine, TrialRecord, reason_of


def heaviest_line(evidence: Evidence, kinds: tuple[str, ...], *, rarest: bool = False) -> StackLine | None:
    """The user's line with most time in these kinds; ``rarest`` prefers, among heavy ones, what fewest steps reach."""
    lines = [line for line in (evidence.anatomy.lines if evidence.anatomy else ()) if line.kind in kinds and line.file]
    if rarest:
        lines = sorted((line for line in lines if line.share >= 0.05), key=lambda line: line.steps_share)
    return lines[0] if lines else None


def place_of(line: StackLine | None) -> Location:
    """Location of a line; an empty one without a line."""
    return Location(file=line.file, line=line.line) if line is not None else Location()


def place_in_step(evidence: Evidence) -> Location:
    """The heaviest line that traces, else where the step is defined; nowhere where neither is known."""
    line = heaviest_line(evidence, ("function", "tensorflow"))
    if line is not None:
        return place_of(line)
    return next((trial.step_place for trial in evidence.ladder if trial.step_place is not None), Location())


def why_not_several(evidence: Evidence) -> str | None:
    """Reason why the ``fit`` of Keras 2 refuses several steps in one call; ``None`` where it does not."""
    keras = evidence.devices.versions.get("keras", "") if evidence.devices is not None else ""
    fits = evidence.script is not None and "fit" in evidence.script.iterations
    if not fits or not keras.startswith("2.") or [op.cardinality for op in evidence.graph.ops[-1:]] != [-2]:
        return None
    return "Keras 2 refuses steps_per_execution for data of unknown size unless fit is given steps_per_epoch"


def whole_step(evidence: Evidence, speedup: Estimate | None) -> Estimate | None:
    """The speed-up of the whole step where only its own work gets faster, by Amdahl's law."""
    if speedup is None or not evidence.wall_s:
        return None
    inside = sum(evidence.share(part) for part in ("compute", "dispatch"))  # the modes leave the host's work out

    def whole(ratio: float) -> float:
        return 1.0 / max(1.0 - inside + inside / max(ratio, 1e-9), 1e-9)

    return Estimate(estimate=whole(speedup.estimate), low=whole(speedup.low), high=whole(speedup.high))


def costliest_shape(evidence: Evidence) -> ShapeCost | None:
    """The shape that tracing and compilation took most time for, over all that the main trial ran."""
    trial = next(iter(evidence.ladder), None)
    shapes = trial.batches.shapes if trial is not None and trial.batches is not None else ()
    costs = [cost for cost in shape_costs(trial.segments, shapes) if cost.lost_s > 0] if trial is not None else []
    return max(costs, key=lambda cost: cost.lost_s, default=None)


FloatArray = npt.NDArray[np.float64]
MODES: Final = ("eager", "graph", "xla")
_TRACING: Final = ("graph", "xla")  # Modes that trace the step, and so leave out what its Python does on the side
_FETCHES_REMOVED: Final = "host reads removed"  # Begins the note of a step that was traced with its fetches answered


def compiled_share(trials: Sequence[TrialRecord], rng: np.random.Generator) -> Pooled | None:
    """Share of the step as given that one compiled graph saves, measured in paired turns within each process.

    A share, since the machine may be slower or faster then than when the target ran as it is. Of the graph alone: what
    XLA gains beyond it is faster computing, and no launch overhead. Beside neighbours turns of the same side differ by
    more than on a quiet machine, and four rounds may agree by luck: what they differ by is what both sides are taken
    to.
    """
    found = _in_turns(tried(trials, "graph", "graph"), "graph", lambda given: given.step_s)
    ratio_of = _beside(found, rng, max(STRETCH_SPREAD, _turns_differ(found.values())))
    return ratio_of and Pooled.of(1 - ratio_of.entries)


def _beside(turns: Mapping[str, Sample], rng: np.random.Generator, spread: float = STRETCH_SPREAD) -> Pooled | None:
    """Time of the changed step over that of the step as given, of the same draws; ``None`` where either is unknown."""
    if not turns:
        return None
    (figures,) = pool_together([turns], rng, stretch_spread=spread)
    if not figures["given_s"].value:  # all of it was the host's
        return None
    return Pooled.of(figures["changed_s"].entries / figures["given_s"].entries)


def _in_turns(trials: Sequence[TrialRecord], name: str, work: Callable[[Steps], FloatArray]) -> dict[str, Sample]:
    """Trial -> the step as given, as far as ``work`` has it, and the changed one, of trials that measured both."""
    found = {}
    for trial in trials:
        given, changed = measured(trial, "step_only"), measured(trial, name)
        if given is not None and changed is not None:
            found[trial.spec.trial_id] = _in_pairs(given, changed, work(given))
    return found


def _in_pairs(given: Steps, changed: Steps, given_s: FloatArray) -> Sample:
    """Both sides as one sample whose stretches are their rounds, or equal parts of both where there is one round."""
    rounds = [number for number in np.unique(given.round) if number in changed.round]
    if len(rounds) > 1:
        parts = [(given.round == number, changed.round == number) for number in rounds]
    else:
        count = min(len(given), len(changed), 8)
        parts = list(zip(*(np.array_split(np.arange(len(side)), count) for side in (given, changed)), strict=True))
    return Sample(
        values={"given_s": float(given_s.mean()), "changed_s": float(changed.working_s.mean())},
        stretches={
            "given_s": np.array([given_s[rows].mean() for rows, _ in parts]),
            "changed_s": np.array([changed.working_s[rows].mean() for _, rows in parts]),
        },
        weight=float(min(len(given), len(changed))),
    )


def _turns_differ(samples: Iterable[Sample]) -> float:
    """Spread between turns of one side, as a share of their mean: the pooled standard deviation of all sides."""
    squares, freedom = 0.0, 0
    for sample in samples:
        for turns in sample.stretches.values():
            squares += float(((turns / turns.mean() - 1) ** 2).sum())
            freedom += len(turns) - 1
    return math.sqrt(squares / freedom) if freedom else 0.0


def tried(trials: Sequence[TrialRecord], kind: str, segment_name: str) -> list[TrialRecord]:
    """The trials of a kind; those that tried it beside their own, and scripts that did so once they were over."""
    return [
        trial
        for trial in trials
        if trial.spec.kind == kind
        or (trial.spec.also == kind and trial.segment(segment_name) is not None)
        or (trial.spec.kind == "script" and (trial.segment(segment_name) or reason_of(segment_name, trial.notes)))
    ]


def modes(
    trials: Sequence[TrialRecord], alone: Pooled | None, facts: StepFacts, rng: np.random.Generator
) -> dict[str, Compared]:
    """Each mode, precision and size of the batch that was tried, with its speed-up over the step as given.

    Tracing a step leaves out what its Python does on the side (saving, logging), so the host's own work is left out of
    the step as given too: a checkpoint that is not written is not a gain of XLA. The ratio is of the turns of one
    process, which had the same batches; the time of a mode is that of the step ``alone``, as all else in a report has
    it, over that ratio.
    """
    found = {}
    for mode, kind in KIND_OF.items():
        own = tried(trials, kind, mode)
        if mode not in MODES:  # one kind measures several of them, as far as they apply
            own = [trial for trial in own if trial.segment(mode) or reason_of(mode, trial.notes)]
        if not own:
            continue
        # Where nothing is traced anew the host's work is in both; nothing else tells it apart there.
        host_share = facts.host_share if mode in _TRACING else 0.0
        share = _beside(_in_turns(own, mode, partial(_own_work_s, host_share=host_share, eager=facts.eager)), rng)
        last, warm_up = own[-1], own[-1].segment("warm_up")
        inapplicable = reason_of(mode, last.notes)
        least_s = 1e-3 * float(np.mean(own[-1].spec.emulated_ms or 0.0))
        time_s = Pooled.of(np.maximum(alone.entries * share.entries, least_s)) if alone and share else None
        found[mode] = Compared(
            name=mode,
            status=NOT_APPLICABLE if inapplicable else last.status,
            cause=inapplicable or last.cause,
            time_s=time_s.estimate() if time_s else None,
            speedup=Pooled.of(1 / share.entries).estimate() if share else None,
            processes=len(own),
            compile_s=steps_of(warm_up).step_s.sum().item() if warm_up else None,
            fetches_removed=any(note.startswith(_FETCHES_REMOVED) for trial in own for note in trial.notes),
        )
    return found


def _own_work_s(steps: Steps, *, host_share: float, eager: bool) -> FloatArray:
    """Step times without compilation, and without that share of what is not the device's for the host's own work."""
    base = steps.working_s - steps.emulated_s if eager else np.minimum(steps.outside_s, steps.working_s)
    return np.asarray(steps.working_s - host_share * base)
