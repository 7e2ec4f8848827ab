"""The rule `partial-batch`."""

from __future__ import annotations

from collections import Counter

from xttsbench.analysis.attribution import THRESHOLD, partial_batches
from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.step import heaviest_line, place_of
from xttsbench.findings.rule import Findings, rule
from xttsbench.records.base import Location
from xttsbench.records.report import Finding


@rule(
    "partial-batch",
    evidence="usual and partial size, traces, compilations, seconds lost, and their share of the steady steps",
    threshold="one trace or compilation at a smaller batch, or an error there; a bottleneck from 10 % of the steps",
    remedy="batch(n, drop_remainder=True), or pad the last batch to the full size and mask its rows.",
    false_alarms="it costs once for each process, so that it matters in short runs",
)
def partial_batch(evidence: Evidence) -> Findings:
    """The last, smaller batch of an epoch traces or compiles the step anew, or breaks it."""
    trial = next(iter(evidence.ladder), None)
    if trial is None or not evidence.has_step:
        return
    found = partial_batches(trial.segments)
    broke = _broke(evidence, found.usual if found else None)
    if broke is not None:
        yield broke
        return
    if found is None or not found.traces + found.compiles:
        return
    steady = evidence.steps
    again = 0.0
    if steady is not None and len(steady):
        own = (steady.batch_size < found.usual) & steady.compiling
        again = float(steady.compile_s[own].sum()) / float(steady.wall_s.sum())
    limiting = evidence.limits("compile") and again >= THRESHOLD
    yield partial_batch.finding(
        f"the last batch of an epoch has {found.size} rows instead of {found.usual}, and the step is "
        f"{'compiled' if found.compiles else 'traced'} again for it",
        {
            "usual_size": found.usual,
            "partial_size": found.size,
            "traces": found.traces,
            "xla_compiles": found.compiles,
            "lost_s": found.lost_s,
            "share_of_steady_steps": again,
        },
        severity="critical" if limiting else "warning" if found.lost_s > 0.1 else "info",
        limiting=limiting,
        location=place_of(heaviest_line(evidence, ("function", "tensorflow"))),
        predicted_speedup=evidence.max_speedups.get("compile") if limiting else None,
    )


def _broke(evidence: Evidence, usual: int | None) -> Finding | None:
    """The finding where a trial raised at a batch that is smaller than those before it."""
    for trial in evidence.ladder:
        size = trial.error.batch_size if trial.error is not None else None
        before = usual
        if before is None:
            sizes = Counter(size for segment in trial.segments for size in segment.columns.get("batch_size", ()))
            before = sizes.most_common(1)[0][0] if len(sizes) == 1 else None
        if trial.error is None or size is None or before is None or size >= before:
            continue
        return partial_batch.finding(
            f"the step raises {trial.error.type} at a batch of {size} rows, where those before had {before}",
            {"usual_size": before, "partial_size": size, "at_step": trial.error.step},
            "batch(n, drop_remainder=True), or take the size from the batch itself: tf.shape(batch)[0].",
            severity="critical",
            location=Location(file=trial.error.file, line=trial.error.line),
        )
    return None
