"""Questions about the step: the line behind a loss, the costliest shape; modes and fixes beside the target as given."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.attribution import ShapeCost, StepFacts, shape_costs
from xttsbench.analysis.pooling import STRETCH_SPREAD, Columns, Pooled, Sample, mean_of, pool, pool_together, ratio
from xttsbench.analysis.steps import Steps, measured, steady, steps_of
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


def _step_times(trial: TrialRecord, segment_name: str, facts: StepFacts) -> Columns | None:
    """Step times of a segment on cached batches, without compilation; ``None`` if there are none."""
    steps = measured(trial, segment_name)
    return None if steps is None else {"wall_s": steps.working_s}


def compiled_share(trials: Sequence[TrialRecord], rng: np.random.Generator) -> Pooled | None:
    """Share of the step as given that one compiled graph saves, measured in paired turns within each process.

    A share, since the machine may be slower or faster then than when the target ran as it is. Of the graph alone: what
    XLA gains beyond it is faster computing, and no launch overhead. Beside neighbours turns of the same side differ by
    more than on a quiet machine, and four rounds may agree by luck: what they differ by is what both sides are taken
    to.
    """
    found = {}
    for trial in tried(trials, "graph", "graph"):
        given, changed = measured(trial, "step_only"), measured(trial, "graph")
        if given is not None and changed is not None:
            found[trial.spec.trial_id] = _in_pairs(given, changed)
    if not found:
        return None
    (figures,) = pool_together([found], rng, stretch_spread=max(STRETCH_SPREAD, _turns_differ(found.values())))
    given_s, graph_s = figures["given_s"], figures["graph_s"]
    return Pooled(1 - graph_s.value / given_s.value, 1 - graph_s.resamples / given_s.resamples)


def _in_pairs(given: Steps, changed: Steps) -> Sample:
    """Both sides as one sample whose stretches are their rounds, or equal parts of both where there is one round."""
    rounds = [number for number in np.unique(given.round) if number in changed.round]
    if len(rounds) > 1:
        parts = [(given.round == number, changed.round == number) for number in rounds]
    else:
        count = min(len(given), len(changed), 8)
        parts = list(zip(*(np.array_split(np.arange(len(side)), count) for side in (given, changed)), strict=True))
    return Sample(
        values={"given_s": float(given.step_s.mean()), "graph_s": float(changed.working_s.mean())},
        stretches={
            "given_s": np.array([given.step_s[rows].mean() for rows, _ in parts]),
            "graph_s": np.array([changed.working_s[rows].mean() for _, rows in parts]),
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
    """The trials of a kind, and the scripts that measured it in their own process once they were over."""
    return [
        trial
        for trial in trials
        if trial.spec.kind == kind or (trial.spec.kind == "script" and trial.segment(segment_name) is not None)
    ]


def modes(
    trials: Sequence[TrialRecord], ladder: Sequence[TrialRecord], facts: StepFacts, rng: np.random.Generator
) -> dict[str, Compared]:
    """Each mode, precision and size of the batch that was tried, with its speed-up over the step as given.

    Tracing a step leaves out what its Python does on the side (saving, logging), so the host's own work is left out of
    the step as given too: a checkpoint that is not written is not a gain of XLA. The ratio is of one process and the
    same batches; the time of a mode is that of the step as given in the main trials over it, so that the two agree.
    """
    found = {}
    main = _mean([c for trial in ladder if (c := _step_times(trial, "step_only", facts)) is not None], rng)
    for mode, kind in KIND_OF.items():
        own = tried(trials, kind, mode)
        if mode not in MODES:  # one kind measures several of them, as far as they apply
            own = [trial for trial in own if trial.segment(mode) or reason_of(mode, trial.notes)]
        if not own:
            continue
        # Where nothing is traced anew the host's work is in both; nothing else tells it apart there.
        work = _own_work if mode in _TRACING else _step_times
        given = [c for trial in own if (c := work(trial, "step_only", facts)) is not None]
        given = given or [c for trial in ladder if (c := work(trial, "step_only", facts)) is not None]
        changed = [c for trial in own if (c := _step_times(trial, mode, facts)) is not None]
        before, after = _mean(given, rng), _mean(changed, rng)
        last, warm_up = own[-1], own[-1].segment("warm_up")
        inapplicable = reason_of(mode, last.notes)
        speedup, as_given = ratio(before, after), main or before
        time_s = after.estimate() if after else None
        if as_given and speedup:
            low, middle, high = (as_given.value / by for by in (speedup.high, speedup.estimate, speedup.low))
            time_s = Estimate(estimate=middle, low=low, high=high)
        found[mode] = Compared(
            name=mode,
            status=NOT_APPLICABLE if inapplicable else last.status,
            cause=inapplicable or last.cause,
            time_s=time_s,
            speedup=speedup,
            processes=len(own),
            compile_s=steps_of(warm_up).step_s.sum().item() if warm_up else None,
            fetches_removed=any(note.startswith(_FETCHES_REMOVED) for trial in own for note in trial.notes),
        )
    return found


def _own_work(trial: TrialRecord, segment_name: str, facts: StepFacts) -> Columns | None:
    """Step times of a segment without compilation, and without the host's own work."""
    steps = measured(trial, segment_name)
    if steps is None:
        return None
    base = steps.working_s - steps.emulated_s if facts.eager else np.minimum(steps.outside_s, steps.working_s)
    return {"wall_s": steps.working_s - facts.host_share * base}


def _mean(processes: Sequence[Columns], rng: np.random.Generator) -> Pooled | None:
    return pool(processes, {"mean": mean_of("wall_s")}, rng)["mean"] if processes else None


def fixes(trials: Sequence[TrialRecord], as_is: Pooled, rng: np.random.Generator) -> dict[str, Compared]:
    """Each fix that was tried, with its speed-up over the target as it is."""
    by_name: dict[str, list[TrialRecord]] = defaultdict(list)
    for trial in trials:
        if trial.spec.kind == "fix" and trial.spec.fix:
            by_name[trial.spec.fix].append(trial)
    found = {}
    for name, own in by_name.items():
        walls = [{"wall_s": steady(rows)[0].wall_s} for trial in own if (rows := measured(trial, "as_is")) is not None]
        changed = _mean(walls, rng)
        found[name] = Compared(
            name=name,
            status=own[-1].status,
            cause=own[-1].cause,
            time_s=changed.estimate() if changed else None,
            speedup=ratio(as_is, changed),
            processes=len(walls),
        )
    return found
