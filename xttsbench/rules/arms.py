"""From the trials of a comparison to its arms: what each gives, costs and is worth against the baseline of its group.

Pure: the same plan, trials and seed give the same arms. Where the data of an arm differ from the baseline's it is
refused, and where the session is noisy no winner is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from xttsbench.planning.trials import parity_arms
from xttsbench.records.base import Estimate
from xttsbench.records.plan import Comparison
from xttsbench.records.report import AA, Arm
from xttsbench.records.trial import TrialRecord
from xttsbench.rules.arm_effects import Effect, Noise, effects, noise
from xttsbench.rules.arm_figures import figures_of
from xttsbench.rules.arm_runs import ArmRuns, GroupRuns, ParityFound, collect, parity_found
from xttsbench.rules.arm_sentence import sentence

_NO_FRAMES: Final = "the workload does not say where its frames are (Workload.frames and Workload.lengths)"
ARM_NUMBERS: Final = (
    "step_time_s",
    "throughput_per_s",
    "effect",
    "utilization",
    "valid_frames_per_s",
    "padding_efficiency",
    "cv",
    "std_over_mean",
    "input_wait_fraction",
    "p_value",
)


@dataclass(frozen=True)
class ComparedArms:
    """What a comparison comes to.

    Attributes:
        groups: the trials sorted, one entry for each accelerator.
        arms: of all groups, in the order of the plan.
        aa: of the first group.
        sentences: one for each group.
        noisy: accelerator's label -> why its group names no winner.
        parity: for the report; ``None`` where no data were compared.
        unknown: arm -> why it is not known whether it feeds the baseline's data.
        failed: how the baseline ended while its data were read, where it did.
        unmeasured: path in the report -> reason.
    """

    groups: tuple[GroupRuns, ...]
    arms: tuple[Arm, ...]
    aa: AA
    sentences: tuple[str, ...]
    noisy: Mapping[str, str]
    parity: dict[str, Any] | None
    unknown: Mapping[str, str]
    failed: str | None
    unmeasured: Mapping[str, str]

    @property
    def refused(self) -> Mapping[str, str]:
        """Arms whose data differ from the baseline's, and where."""
        return self.parity["differences"] if self.parity else {}


def compare(
    comparison: Comparison, trials: Sequence[TrialRecord], *, seed: int = 0, first_arm: int = 0
) -> ComparedArms:
    """The arms of every group, decided.

    Args:
        comparison: as planned.
        trials: of the run; those of other rungs are left alone.
        seed: of the bootstrap.
        first_arm: index in the report of the first arm, for the paths of ``unmeasured``.
    """
    rng = np.random.default_rng(seed)
    data = parity_found(comparison, trials)
    groups = collect(comparison, trials)
    arms: list[Arm] = []
    said: list[str] = []
    unmeasured: dict[str, str] = {}
    noisy: dict[str, str] = {}
    first_noise = None
    for group in groups:
        session = noise(group, rng)
        first_noise = first_noise or session
        if session.noisy and session.ratio is not None:
            noisy[group.accelerator.label] = _noisy(session.ratio)
        found = effects(group, comparison.margin, rng)
        own: list[Arm] = []
        for runs in group.arms:
            effect = _allowed(runs, found.get(runs.arm.id), group, data, noisy.get(group.accelerator.label))
            arm, reasons = _arm(comparison, group, runs, effect, session, data, rng)
            path = f"arms.{first_arm + len(arms) + len(own)}"
            unmeasured |= {f"{path}.{name}": reason for name, reason in reasons.items()}
            own.append(arm)
        arms += own
        said.append(
            sentence(own, group, noisy.get(group.accelerator.label), labelled=len(groups) > 1, refused=data.differences)
        )
    aa, reasons = _aa(first_noise or Noise())
    parity, why = _parity(comparison, data)
    if why is not None:
        unmeasured["parity"] = why
    return ComparedArms(
        groups, tuple(arms), aa, tuple(said), noisy, parity, data.unknown, data.why_failed, unmeasured | reasons
    )


def _allowed(
    runs: ArmRuns, effect: Effect | None, group: GroupRuns, data: ParityFound, noisy: str | None
) -> Effect | None:
    """The effect, with its decision withheld where none may be named."""
    if effect is None or effect.decision == "inconclusive":
        return effect
    why = data.unknown.get(runs.arm.id)
    if why is not None:
        why = f"whether it yields the baseline's data is not known: {why}"
    elif group.ended is not None:
        why = f"the baseline ended ({group.ended})"
    else:
        why = noisy
    if why is None:
        return effect
    return Effect(effect.blocks, effect.ratio, "inconclusive", effect.p_value, why)


def _arm(
    comparison: Comparison,
    group: GroupRuns,
    runs: ArmRuns,
    effect: Effect | None,
    session: Noise,
    data: ParityFound,
    rng: np.random.Generator,
) -> tuple[Arm, dict[str, str]]:
    """The record of one arm, and the reasons for what it lacks, by field."""
    status, why_absent = _status(runs, group, data)
    refused = data.differences.get(runs.arm.id)
    figures = figures_of(runs, group, rng)
    ratio, p_value, reasons = _against(runs, effect, session, refused)
    decision = None
    if runs.arm.role == "candidate":
        ended = runs.ended is not None or refused is not None
        decision = "ended" if ended else effect.decision if effect is not None else "inconclusive"
    arm = Arm(
        id=runs.arm.id,
        role=runs.arm.role,
        config=runs.arm.config,
        blocks=len(runs.steps),
        status=status,
        decision=decision,
        group=comparison.name,
        accelerator=group.accelerator.label,
        steps=sum(len(steps) for steps in runs.steps.values()),
        **figures.fields,
        effect=ratio,
        p_value=p_value,
    )
    reasons |= figures.reasons
    default = why_absent or _NO_FRAMES
    missing = {name: reasons.get(name, default) for name in ARM_NUMBERS if getattr(arm, name) is None}
    if decision == "inconclusive":
        missing["decision"] = why_absent or (effect.why if effect else None) or "nothing was compared"
    return arm, missing


def _status(runs: ArmRuns, group: GroupRuns, data: ParityFound) -> tuple[str, str | None]:
    """``ok``, or how the arm ended with its cause; and why it has no figures, where it has none."""
    refused = data.why_refused(runs.arm.id)
    if refused is not None:
        return f"refused: {refused}", "refused, so not measured"
    if runs.ended is not None:
        return runs.ended, None if runs.steps else runs.ended
    if runs.steps:
        return "ok", None
    ended = group.ended or data.why_failed
    why = f"the baseline ended ({ended})" if ended else "the run ended before its turn"
    return f"not run: {why}", why


def _against(
    runs: ArmRuns, effect: Effect | None, session: Noise, refused: str | None
) -> tuple[Estimate | None, float | None, dict[str, str]]:
    """Ratio and p value against the baseline, and why one of them is missing."""
    if runs.arm.role == "baseline":
        why = "it is the baseline that the others are compared with"
        return None, None, {"effect": why, "p_value": why}
    if runs.arm.role == "aa":
        why = "the baseline's second run is no candidate"
        return session.ratio, None, {"p_value": why, "effect": session.why or "no block has both runs of the baseline"}
    if effect is None or refused:
        why = "refused, so not measured" if refused else runs.ended or "not measured"
        return None, None, {"effect": why, "p_value": why}
    absent = effect.why or "not tested"
    return effect.ratio, effect.p_value, {"effect": "no block has both it and the baseline", "p_value": absent}


def _noisy(ratio: Estimate) -> str:
    return (
        f"the session is noisy (the baseline against itself: {ratio.estimate:.3f}x, {ratio.low:.3f} to "
        f"{ratio.high:.3f}), so no winner is named"
    )


def _aa(session: Noise) -> tuple[AA, dict[str, str]]:
    found = AA(effect=session.ratio, noisy=session.noisy, smallest_visible_effect=session.smallest_visible_effect)
    why = session.why or "the baseline was not measured twice in a block"
    return found, {f"aa.{name}": why for name, value in found if value is None}


def _parity(comparison: Comparison, data: ParityFound) -> tuple[dict[str, Any] | None, str | None]:
    """What the report says of the data, or why it says nothing."""
    wanted, skipped = parity_arms(comparison)
    told = (*data.same, *data.differences)
    if data.compared is None or not told:
        if not wanted:
            why = "; ".join(f"{arm}: {reason}" for arm, reason in skipped.items())
        else:
            why = "; ".join(dict.fromkeys(data.unknown.values()))
        return None, why or ("the run ended before the data were compared" if wanted else "there is nothing to compare")
    return {
        "same": not data.differences,
        "tolerance": data.compared.tolerance,
        "batches": data.compared.batches,
        "baseline": comparison.baseline.id,
        "arms": list(told),
        "difference": next((f"{arm}: {where}" for arm, where in data.differences.items()), None),
        "differences": dict(data.differences),
        "failed": dict(data.unknown),
        "skipped": skipped,
        **({"losses": dict(data.losses)} if data.losses else {}),
        **({"losses_unknown": dict(data.losses_unknown)} if data.losses_unknown else {}),
    }, None
