"""Trials that verify fixes: the elements that they yield, each fix alone, then the good ones together.

Pure. Every trial says by its group, arm and fix what it is for, so that a journal alone tells what was verified.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from xttsbench.comparison.effects import MIN_PROCESSES
from xttsbench.evidence import Evidence
from xttsbench.fixes.registry import combined
from xttsbench.planning import AGAIN, Job
from xttsbench.records.fix import FixSet
from xttsbench.records.plan import Accelerator, Comparison, PlannedVariant
from xttsbench.records.trial import TrialRecord, TrialSpec

GUARD: Final = "guard"
ALONE: Final = "fixes alone"
TOGETHER: Final = "fixes together"
"""Groups of trials: what is yielded, those worth it alone, and what may be proposed. What is measured in one counts in
all."""
ROUNDS: Final = (ALONE, TOGETHER)
"""Groups of timed trials."""
ORIGINAL: Final = "original"
PATCHED: Final = "patched source"
"""Configurations that are no fix."""
LEAST_BLOCKS: Final = MIN_PROCESSES
"""Processes of each side that a fix is accepted with, unless it is clearly faster in one."""
_ROWS: Final = 512
"""Samples that a pass over a shortened dataset should give: enough for a distribution, few enough for a minute."""
_PASS_S: Final = 1.5  # seconds that a pass of the original should take
_LEAST_BATCHES: Final = 4
_PASSES: Final = 2
PART_S: Final = 4.0
"""Seconds that the original should take for the part of its data on which a fix with a cache is measured."""
WHOLE_S: Final = 1.5 * PART_S
"""Seconds of a first pass over all of the data, above which a part of them is what a cache is measured on."""
_GUARD_S: Final = 8.0  # seconds that one trial of the guard may read


@dataclass(frozen=True)
class Size:
    """Amount of a dataset that the same-data check reads."""

    source_limit: int | None
    batches: int
    pass_s: float = 0.0
    """Seconds that all passes of the original should take."""
    part: int = 0
    """Elements of each source of which a pass of the original takes ``PART_S``."""


def guard_size(evidence: Evidence) -> Size:
    """Elements that each source is cut to, and batches of a pass at most: two epochs of some hundred samples."""
    pipeline = evidence.pipeline
    batch_s = max(evidence.wall_s or 0.0, evidence.input_alone_s.estimate if evidence.input_alone_s else 0.0, 1e-4)
    ops = pipeline.ops if pipeline else ()
    # Generators are opened behind a source of one element, and cut as sources are.
    opened = [op for op in ops if not op.inputs or any(one.op.startswith("Generator") for one in op.inner)]
    sources = [op.elements_per_batch for op in opened if op.elements_per_batch]
    per_batch = max(max(sources, default=1.0), 1e-3)
    rows = max((op.batch_size or 1 for op in ops), default=1)
    batches = max(min(_PASS_S / batch_s, _ROWS / rows, _ROWS), _LEAST_BATCHES)
    # One more than fit whole batches, so that a last, smaller batch is seen where the pipeline lets one through.
    limit = max(math.ceil(batches * per_batch) + 1, 2)
    part = math.ceil(PART_S / batch_s * per_batch) + 1
    return Size(limit, math.ceil(2.5 * batches) + 2, min(_PASSES * batches * batch_s, _GUARD_S), max(part, limit))


def guard_trial(
    job: Job,
    number: int,
    size: Size,
    *,
    block: int,
    arm: str,
    fix: str | None = None,
    patched: Mapping[str, str] | None = None,
    again: int = 0,
) -> TrialSpec:
    """The trial that takes the fingerprints of the elements of ``original``, of a fix, or of the ``patched source``.

    ``size`` is the same for all configurations. With ``again`` 0 and 1 the trial runs with the job's seed, with 2 with
    another one.
    """
    spec = job.spec(number, "elements", block=block)
    return spec.model_copy(
        update={
            "trial_id": f"{number:03d}-elements-{slug(arm)}" + (f"-{again}" if arm == ORIGINAL else ""),
            "emulated_ms": (),
            "fix": fix,
            "patched": dict(patched or {}),
            "arm": arm,
            "group": GUARD,
            "seed": job.seed + (1 if again == 2 else 0),
            "source_limit": size.source_limit,
            "steps": size.batches,
            "epochs": _PASSES,
            "window_s": _GUARD_S,
            "jitter": arm != ORIGINAL,
        }
    )


def slug(name: str) -> str:
    """A fix's name as part of a file's."""
    return "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in name.replace(" + ", "+"))[:60]


def comparison(
    job: Job,
    accelerator: Accelerator,
    group: str,
    arms: Iterable[PlannedVariant],
    *,
    window_s: float,
    trial_s: float,
    fill_s: float | None = None,
    twice: bool = False,
    source_limit: int | None = None,
) -> Comparison:
    """The comparison of some configurations with the original, measured ``twice`` where its noise is unknown.

    A trial of a configuration with a cache may take ``fill_s`` more. With a ``source_limit`` all configurations read a
    part of the data.
    """
    original = PlannedVariant(id=ORIGINAL, role="baseline", kwargs=dict(job.kwargs))
    again = original.model_copy(update={"id": ORIGINAL + AGAIN, "role": "aa"})
    return Comparison(
        name=group,
        target=job.target,
        arguments=job.arguments,
        script=job.again,
        arms=(original, *arms, *((again,) if twice else ())),
        accelerators=(accelerator,),
        blocks=LEAST_BLOCKS,
        steps=job.steps,
        window_s=window_s,
        trial_s=trial_s + (fill_s or 0.0),
        stall_s=max(trial_s / 2, 15.0) + (fill_s or 0.0),
        hashed=True,
        fill_caches=True,
        fill_s=fill_s,
        source_limit=source_limit,
    )


def arm_of(job: Job, name: str, *, patched: Mapping[str, str] | None = None) -> PlannedVariant:
    """The configuration of a fix, or of the user's source with a patch; some fixes of a step are both."""
    fix = None if name == PATCHED else name
    config = {"fix": name} if fix else {"source": "patched"}
    return PlannedVariant(
        id=name, role="candidate", config=config, kwargs=dict(job.kwargs), fix=fix, patched=dict(patched or {})
    )


def planned(trials: Sequence[TrialRecord], accelerator: Accelerator) -> Comparison | None:
    """The comparison of all fixes that were measured, read from the specifications of their trials."""
    own = [trial.spec for trial in trials if trial.spec.group in ROUNDS and trial.spec.kind == "arm"]
    first = {spec.arm or "": spec for spec in reversed(own)}
    if ORIGINAL not in first:
        return None
    roles: dict[str, Literal["baseline", "aa", "candidate"]] = {ORIGINAL: "baseline", ORIGINAL + AGAIN: "aa"}
    arms = [
        PlannedVariant(
            id=name,
            role=roles.get(name, "candidate"),
            config={"fix": spec.fix} if spec.fix else {"source": "patched"} if spec.patched else {},
            kwargs=spec.kwargs,
            fix=spec.fix,
            patched=spec.patched,
        )
        for name, spec in first.items()
    ]
    arms.sort(key=lambda arm: (["baseline", "candidate", "aa"].index(arm.role), arm.id))
    return Comparison(
        name="fixes",
        target=own[0].target,
        arms=tuple(arms),
        accelerators=(accelerator,),
        blocks=len({spec.block for spec in own}),
        steps=own[0].steps,
        window_s=own[0].window_s,
        trial_s=1.0,
        stall_s=1.0,
    )


def combine(names: Sequence[str]) -> str:
    """All parts of some fixes as one, the faster first given."""
    return str(combined([FixSet.parse(name) for name in names]))
