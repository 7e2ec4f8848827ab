"""Choice of the next trial: time goes where it decides, within the budget.

Pure: from the trials so far, what they say so far, and the seconds left to the next specification. The order is what a
verdict needs first: the target as it is with its input and its step alone; the graph and costs of the pipeline; what
compiling an eager step gives; the whole again in a fresh process, where the verdict is not sure yet or neighbours
disturbed it (before the pipeline, where there is no verdict yet); and last, of a step that computes, what else could
make it faster. Fixes of the pipeline are no part of it: they are verified afterwards, beside the original.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from xttsbench.analysis.steps import measured, steps_of
from xttsbench.diagnosis import Diagnosis
from xttsbench.diagnosis.bottleneck import SURE
from xttsbench.evidence import ALWAYS, is_eager, is_opaque
from xttsbench.planning import IMPORT_S, Job
from xttsbench.records.trial import TrialKind, TrialRecord, TrialSpec

_COMPUTES: Final = 0.5
"""A step that waits for less than this share of its time has something to gain from other precision."""
_SKIP_S: Final = 2.0
"""Longest that a repeat may pass over the batches of others, to start where none of them was."""
PROCESSES: Final = 3
"""Most processes of the target as it is: a verdict that three leave open is open, unless more time is given."""


MODES: Final[tuple[TrialKind, ...]] = ("eager", "graph", "xla")
"""Modes of the step; the one that takes the least time to be measured comes first."""


class _Wanted(NamedTuple):
    """A trial that is worth running; ``share`` is that of the window in which it measures."""

    kind: TrialKind
    block: int = 0
    share: float = 0.5
    also: TrialKind | None = None


def next_trial(
    job: Job,
    done: Sequence[TrialRecord],
    left_s: float,
    *,
    said: Diagnosis | None = None,
    only: Collection[TrialKind] | None = None,
    processes: int = PROCESSES,
) -> TrialSpec | None:
    """The next trial, or ``None`` when nothing is left that is worth its time, of which there are ``left_s``.

    The trials ``done`` say what is ``said``. Without ``only`` all kinds may be run; modes of the step that it names are
    asked for, whatever the verdict. The target as it is gets so many ``processes`` at most.
    """
    if job.script:
        return _next_script(job, done, left_s, once=only is not None)
    if not done:
        return job.spec(0, "ladder")
    first = done[0]
    if first.status != "ok":
        return None
    for one in _wanted(done, said, asked=only or (), most=processes):
        if (only is not None and one.kind not in only) or _ran(done, one):
            continue
        window_s = job.window_s * one.share
        if _expected_s(first, one.kind, one.block, window_s) + (window_s if one.also else 0.0) <= left_s:
            # What is not replicated runs in the block at hand: a helper is started only for another whole repeat.
            block = max(one.block, done[-1].spec.block)
            spec = job.spec(len(done), one.kind, block=block, share=one.share)
            skip = _measured_before(done) if one.kind == "ladder" else 0
            return spec.model_copy(update={"also": one.also, "skip": skip})
    return None


def _measured_before(done: Sequence[TrialRecord]) -> int:
    """Batches that processes of the target as it is have measured, from the beginning on.

    0 where passing over them would take too long, or the data began anew, so that there are no others.
    """
    ladder = [trial for trial in done if trial.spec.kind == "ladder"]
    series = [steps for trial in ladder if (steps := measured(trial, "as_is")) is not None]
    if not series or any(steps.epoch.any() for steps in series):
        return 0
    inputs = [steps for trial in ladder if (steps := measured(trial, "input_only")) is not None] or series
    count = 1 + max(int(steps.batch.max()) for steps in series)
    return count if count * float(inputs[0].wall_s.mean()) <= _SKIP_S else 0


def _next_script(job: Job, done: Sequence[TrialRecord], left_s: float, *, once: bool) -> TrialSpec | None:
    """The script itself, and once more in a fresh process where it may be repeated and there is time.

    ``once``: a verdict that is surer is not worth the time.
    """
    if not done:
        return job.spec(0, "script")
    again = job.repeat and not once and len(done) == 1 and done[0].status == "ok" and done[0].duration_s <= left_s
    return job.spec(1, "script", block=1) if again else None


def _ran(done: Sequence[TrialRecord], one: _Wanted) -> bool:
    own = [trial for trial in done if one.kind in (trial.spec.kind, trial.spec.also)]
    if one.kind == "ladder":
        return any(trial.spec.block == one.block for trial in own)
    # Where one of two modes ended the process of both, each gets one of its own.
    return any(trial.status == "ok" or trial.spec.also is None for trial in own)


def skipped(done: Sequence[TrialRecord], said: Diagnosis | None = None) -> list[str]:
    """Names of the trials that were wanted and not run, for the report."""
    if not done or done[0].status != "ok" or done[0].spec.kind == "script":
        return []
    return [
        one.kind + (f" (repeat {one.block})" if one.block else "") for one in _wanted(done, said) if not _ran(done, one)
    ]


def _wanted(
    done: Sequence[TrialRecord], said: Diagnosis | None, asked: Collection[TrialKind] = (), most: int = PROCESSES
) -> list[_Wanted]:
    first = done[0]
    compiles = first.segment("warm_up") is not None and not is_opaque(first.anatomy)
    compiling = [_Wanted("graph")] if compiles and (is_eager(first.anatomy) or _recompiles(first)) else []
    processes = 1 + max(trial.spec.block for trial in done if trial.spec.kind == "ladder")
    again = [_Wanted("ladder", block=processes, share=1.0)]
    if (said is not None and (said.sure or _was_final(done, said))) or processes >= most:
        again = []
    if said is not None and said.bottleneck == "inconclusive":
        # What each op costs names no bottleneck, where another process may.
        wanted = [*compiling, *again, _Wanted("pipeline")]
    else:
        wanted = [_Wanted("pipeline"), *compiling, *again]
    if compiles:
        informing = _informing(first) if said is not None and said.bottleneck == "compute" else []
        modes = [mode for mode in _modes(first) if mode in asked]
        if modes == ["xla", "eager"] and not any(trial.spec.also for trial in done):
            wanted.append(_Wanted("xla", also="eager"))
        wanted += [_Wanted(mode) for mode in dict.fromkeys([*modes, *informing])]
    return wanted


def _was_final(done: Sequence[TrialRecord], said: Diagnosis) -> bool:
    """Whether a look at the last process made this verdict final: what disturbed the rest of it turned nothing."""
    looks = [trial for trial in done if trial.spec.kind == "ladder"][-1].looks
    return bool(looks) and looks[-1].final and looks[-1].bottleneck == said.bottleneck and said.probability >= SURE


def _modes(first: TrialRecord) -> list[TrialKind]:
    if is_eager(first.anatomy):
        return ["graph", "xla"]
    uses_xla = any(sum(segment.columns.get("xla_compiles", ())) for segment in first.segments)
    return ["graph", "eager"] if uses_xla else ["xla", "eager"]


def _informing(first: TrialRecord) -> list[TrialKind]:
    """Trials of what else could make a computing step faster: XLA or its absence, other precision, a larger batch.

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
    segment = first.segment("as_is")
    return segment is not None and segment.steps > 0 and float(steps_of(segment).compiling.mean()) >= ALWAYS


def _wait_share(first: TrialRecord) -> float:
    steps = measured(first, "as_is")
    return float(steps.wait_s.sum() / steps.wall_s.sum()) if steps is not None and steps.wall_s.any() else 1.0


def _expected_s(first: TrialRecord, kind: TrialKind, block: int, window_s: float) -> float:
    """Seconds that a trial is expected to take, from what the first one took."""
    setup, segment = first.setup_s or 0.0, first.segment("warm_up")
    warm_up = sum(segment.columns.get("wall_ns", ())) / 1e9 if segment else 0.0
    if kind == "ladder":
        return first.duration_s - first.stretch_s + (IMPORT_S if block else 0.0)
    if kind == "pipeline":
        return setup + window_s + 1.5
    if kind in ("precision", "batch"):  # both steps are warmed up, and for precision the target is built again
        return (2 if kind == "precision" else 1) * (setup + warm_up) + max(warm_up, 0.5) + 2 * window_s
    compiling = {"graph": 1.0, "xla": 2.0, "eager": 0.0}[kind] * max(warm_up, 0.5)
    return setup + warm_up + compiling + 2 * window_s
