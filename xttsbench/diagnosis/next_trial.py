"""What to measure next: time goes where it decides, within the budget.

Pure: from the trials so far, what they say so far, and the seconds left to the next specification. The order is what a
verdict needs first: the target as it is with its input and its step alone; the graph and costs of the pipeline; what
compiling an eager step gives; the fixes of a pipeline that the step waits for; the whole again in a fresh process,
where the verdict is not sure yet or neighbours disturbed it; and last, of a step that computes, what else could make it
faster.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from xttsbench.analysis.steps import steps_of
from xttsbench.diagnosis.classify import SURE
from xttsbench.evidence.facts import ALWAYS, is_eager, is_opaque
from xttsbench.fixes.calls import BLOCKING_POOL
from xttsbench.planning import IMPORT_S, Job
from xttsbench.records.fix_set import Fix, FixSet
from xttsbench.records.pipeline import Pipeline
from xttsbench.records.trial import TrialKind, TrialRecord, TrialSpec

WAITS: Final = 0.07
"""Share of the step in ``next()`` from which fixes of the pipeline are tried."""
_COMPUTES: Final = 0.5
"""A step that waits for less than this share of its time has something to gain from other precision."""
_READ_SHARE: Final = 0.5
_MODE_SHARE: Final = 0.5
_MOST_PROCESSES: Final = 3
"""Of the target as it is: a verdict that three leave open is open."""


@dataclass(frozen=True)
class Interim:
    """What the trials so far say.

    Attributes:
        bottleneck: the most probable one.
        probability: of that, 0..1.
        disturbed: neighbours disturbed a part of what it is from.
    """

    bottleneck: str = ""
    probability: float = 0.0
    disturbed: bool = False

    @property
    def sure(self) -> bool:
        """Whether more of the same would not change what is said."""
        return self.probability >= SURE and not self.disturbed


MODES: Final[tuple[TrialKind, ...]] = ("eager", "graph", "xla")
"""Modes of the step; the one that takes the least time to be measured comes first."""


def next_trial(
    job: Job,
    done: Sequence[TrialRecord],
    left_s: float,
    *,
    said: Interim = Interim(),
    only: Collection[TrialKind] | None = None,
) -> TrialSpec | None:
    """The next trial, or ``None`` when nothing is left that is worth its time.

    Args:
        job: what all trials share.
        done: the trials so far, in order.
        left_s: seconds left until the verdict is due.
        said: what these trials say.
        only: rungs that may be run still; all without it. Modes of the step that are named are asked for, whatever
            the verdict.
    """
    if job.script:
        return _next_script(job, done, left_s)
    if not done:
        return job.spec(0, "ladder")
    first = done[0]
    if first.status != "ok":
        return None
    for rung, fix, block, share in _wanted(done, said, asked=only or ()):
        if (only is not None and rung not in only) or _ran(done, rung, fix, block):
            continue
        if _expected_s(first, rung, block, job.window_s * share) <= left_s:
            # What is not replicated runs in the block at hand: a helper is started only for another whole ladder.
            return job.spec(len(done), rung, block=max(block, done[-1].spec.block), fix=fix, share=share)
    return None


def _next_script(job: Job, done: Sequence[TrialRecord], left_s: float) -> TrialSpec | None:
    """The script itself, and once more in a fresh process where it may be repeated and there is time."""
    if not done:
        return job.spec(0, "script")
    again = job.repeat and len(done) == 1 and done[0].status == "ok" and done[0].duration_s <= left_s
    return job.spec(1, "script", block=1) if again else None


def _ran(done: Sequence[TrialRecord], rung: TrialKind, fix: str | None, block: int) -> bool:
    return any(
        trial.spec.rung == rung and trial.spec.fix == fix and (trial.spec.block == block or rung != "ladder")
        for trial in done
    )


def skipped(done: Sequence[TrialRecord], said: Interim = Interim()) -> list[str]:
    """Names of the trials that were wanted and not run, for the report."""
    if not done or done[0].status != "ok" or done[0].spec.rung == "script":
        return []
    return [
        (f"{rung} {fix}" if fix else rung) + (f" (block {block})" if block else "")
        for rung, fix, block, _ in _wanted(done, said)
        if not _ran(done, rung, fix, block)
    ]


def _wanted(
    done: Sequence[TrialRecord], said: Interim, asked: Collection[TrialKind] = ()
) -> list[tuple[TrialKind, str | None, int, float]]:
    """All trials worth running after the first, most needed first: (rung, fix, block, share of the window)."""
    first = done[0]
    has_step = first.segment("warm_up") is not None
    pipeline = next((trial.pipeline for trial in done if trial.pipeline is not None), None)
    wanted: list[tuple[TrialKind, str | None, int, float]] = [("pipeline", None, 0, _READ_SHARE)]
    compiles = has_step and not is_opaque(first.anatomy)
    if compiles and (is_eager(first.anatomy) or _recompiles(first)):
        wanted.append(("graph", None, 0, _MODE_SHARE))
    if _wait_share(first) >= WAITS or not has_step:
        wanted += [("fix", fix, 0, _READ_SHARE) for fix in _fixes(pipeline)]
    processes = 1 + max(trial.spec.block for trial in done if trial.spec.rung == "ladder")
    if not said.sure and processes < _MOST_PROCESSES:
        wanted.append(("ladder", None, processes, 1.0))
    if compiles:
        informing = _informing(first) if said.bottleneck == "compute" else []
        modes = [mode for mode in _modes(first) if mode in asked]
        wanted += [(mode, None, 0, _MODE_SHARE) for mode in dict.fromkeys([*modes, *informing])]
    if _prefetches(pipeline) > 1:
        wanted.append(("fix", "drop-prefetch", 0, _READ_SHARE))
    return wanted


def _modes(first: TrialRecord) -> list[TrialKind]:
    """Modes other than the one that the step has."""
    if is_eager(first.anatomy):
        return ["graph", "xla"]
    return ["graph", "eager"] if _uses_xla(first) else ["xla", "eager"]


def _informing(first: TrialRecord) -> list[TrialKind]:
    """What else could make a step faster that computes: XLA or its absence, other precision, a larger batch.

    Precision is worth a trial where Keras layers made a part of the step. An eager step is launched from Python
    whatever the size of its batch.
    """
    ops = first.step_ops
    keras = first.target_kind == "dataset+model" or bool(ops and ops.keras_layers)
    precision: list[TrialKind] = ["precision"] if keras and _wait_share(first) < _COMPUTES else []
    if is_eager(first.anatomy):
        return ["xla", *precision]
    return [_modes(first)[0], *precision, "batch"]


def _recompiles(first: TrialRecord) -> bool:
    """Whether (nearly) every step of the target as it is traces or compiles."""
    segment = first.segment("as_is")
    return segment is not None and segment.steps > 0 and float(steps_of(segment).compiling.mean()) >= ALWAYS


def _uses_xla(first: TrialRecord) -> bool:
    return any(sum(segment.columns.get("xla_compiles", ())) for segment in first.segments)


def _wait_share(first: TrialRecord) -> float:
    segment = first.segment("as_is")
    if segment is None or segment.steps <= segment.warmup_steps:
        return 1.0
    rows = slice(segment.warmup_steps, None)
    wall = float(np.sum(segment.columns["wall_ns"][rows]))
    return float(np.sum(segment.columns["wait_ns"][rows])) / wall if wall else 1.0


def _fixes(pipeline: Pipeline | None) -> list[str]:
    """Rewrites that could help this pipeline; whether they do is measured."""
    if pipeline is None or pipeline.unserialisable:
        return []
    fixes: list[FixSet] = []
    ops = pipeline.ops
    blocking = any(function.gil in ("blocks", "unknown") for function in pipeline.python_functions)
    sequential = any(op.op == "MapDataset" for op in ops)
    parallel = [op.parallelism for op in ops if op.parallelism]  # -1 is AUTOTUNE
    pool = max([BLOCKING_POOL, *parallel]) if blocking and not pipeline.threadpool_size else None
    if sequential:
        # Calls that wait gain little without threads to wait in, so that is the better guess.
        calls = Fix.of("parallel-map", pool)
        fixes += [FixSet((calls, Fix.of("thread-pool", pool))), FixSet((calls,))] if pool else [FixSet((calls,))]
    if pool and parallel:
        fixes.append(FixSet((Fix.of("thread-pool", pool),)))
    if ops and not ops[-1].op.startswith("PrefetchDataset") and not pipeline.injects_prefetch:
        fixes.append(FixSet((Fix("prefetch"),)))
    return [str(one) for one in fixes]


def _prefetches(pipeline: Pipeline | None) -> int:
    return sum(op.op.startswith("PrefetchDataset") for op in pipeline.ops) if pipeline else 0


def _expected_s(first: TrialRecord, rung: TrialKind, block: int, window_s: float) -> float:
    """Seconds that a trial is expected to take, from what the first one took."""
    setup = first.setup_s or 0.0
    warm_up = sum(first.segment("warm_up").columns.get("wall_ns", ())) / 1e9 if first.segment("warm_up") else 0.0  # type: ignore[union-attr]
    if rung == "ladder":
        return first.duration_s + (IMPORT_S if block else 0.0)
    if rung == "pipeline":
        return setup + window_s + 1.5
    if rung == "fix":
        return setup + warm_up + window_s + 1.5
    if rung in ("precision", "batch"):  # both steps are warmed up, and for precision the target is built again
        return (2 if rung == "precision" else 1) * (setup + warm_up) + max(warm_up, 0.5) + 2 * window_s
    compiling = {"graph": 1.0, "xla": 2.0, "eager": 0.0}[rung] * max(warm_up, 0.5)
    return setup + warm_up + compiling + 2 * window_s
