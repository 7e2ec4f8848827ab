"""Questions about the step: the user's line behind a loss, what a faster step gives the whole, the costliest shape."""

from __future__ import annotations

from xttsbench.analysis.attribution import ShapeCost, shape_costs
from xttsbench.evidence.evidence import Evidence
from xttsbench.records.base import Estimate, Location
from xttsbench.records.trial import StackLine


def heaviest_line(evidence: Evidence, kinds: tuple[str, ...], *, rarest: bool = False) -> StackLine | None:
    """The user's line with most time in these kinds; ``rarest`` prefers, among heavy ones, what fewest steps reach."""
    lines = [line for line in (evidence.anatomy.lines if evidence.anatomy else ()) if line.kind in kinds and line.file]
    if rarest:
        lines = sorted((line for line in lines if line.share >= 0.05), key=lambda line: line.steps_share)
    return lines[0] if lines else None


def place_of(line: StackLine | None) -> Location:
    """Where the line is; nowhere without one."""
    return Location(file=line.file, line=line.line) if line is not None else Location()


def place_in_step(evidence: Evidence, kinds: tuple[str, ...]) -> Location:
    """The heaviest line of these kinds, else where the step is defined; nowhere where neither is known."""
    line = heaviest_line(evidence, kinds)
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
