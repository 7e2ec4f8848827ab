"""Contradictions between the losses that a diagnosis shows and the gains that were measured on the same target.

Without what a step loses it can be so much faster and no more. A change of its input that was measured to give more, by
the low end of its interval and the high end of all losses together, shows that the attribution is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from xttsbench.diagnosis import Diagnosis
from xttsbench.fixes.registry import said
from xttsbench.records.base import Estimate
from xttsbench.records.fix import FixResult, FixSet
from xttsbench.records.report import Variant

_OF_INPUT: Final = frozenset({"loader", "prefetch", "workers", "threads", "deterministic", "cache", "device_prefetch"})
"""Keys of a configuration that change how batches are made, and nothing of the step."""


def gains(fixes: Iterable[FixResult], arms: Iterable[Variant], accelerator: str) -> dict[str, Estimate]:
    """Measured gains of changes of the input alone, by name: of fixes, and of configurations on that accelerator."""
    found = {
        fix.name: fix.verified_speedup
        for fix in fixes
        if fix.verified_speedup is not None and not FixSet.of(fix.fixes).of_step
    }
    compared = [arm for arm in arms if arm.accelerator == accelerator]
    baseline = next((arm.config for arm in compared if arm.role == "baseline"), {})
    for arm in compared:
        other = {key for key in {*arm.config, *baseline} if arm.config.get(key) != baseline.get(key)}
        if arm.role == "candidate" and arm.effect is not None and other <= _OF_INPUT:
            found[arm.id] = arm.effect
    return found


def contradiction(diagnosis: Diagnosis, measured: Mapping[str, Estimate]) -> str | None:
    """Sentence on the measured gain that the losses allow least; ``None`` where they allow all."""
    most, evidence = diagnosis.at_most, diagnosis.evidence
    beyond = {name: gain for name, gain in measured.items() if most is not None and gain.low > most.high}
    if most is None or not beyond or not (evidence.has_step or evidence.emulated):
        return None
    name, gain = max(beyond.items(), key=lambda one: one[1].low)
    words = said(FixSet.parse(name))
    return (
        "the attribution and a measured gain contradict each other, and the gain is the one to trust: "
        f"{words} was {gain.estimate:.2f} times as fast ({gain.low:.2f} to {gain.high:.2f}), and without all losses "
        f"that are shown a step could be {most.estimate:.2f} times as fast ({most.low:.2f} to {most.high:.2f})"
    )
