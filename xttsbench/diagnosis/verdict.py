"""The verdict in a record and in one sentence, and a measured gain that contradicts it.

Without what a step loses it can be so much faster and no more. A change of its input that was measured to give more, by
the low end of its interval and the high end of all losses together, shows that the attribution is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from xttsbench.analysis.steps import SteadyState, Steps
from xttsbench.diagnosis import Diagnosis
from xttsbench.evidence import Evidence
from xttsbench.evidence.pipeline import explains_wait, no_op_explains, slowest_op
from xttsbench.evidence.step import heaviest_line
from xttsbench.fixes.registry import said
from xttsbench.records.base import Estimate
from xttsbench.records.fix import FixResult, FixSet
from xttsbench.records.report import SPOKEN, Attribution, Oscillation, Variant, Verdict
from xttsbench.records.trial import TrialRecord


@dataclass(frozen=True)
class RunVerdict:
    """The verdict on what a run measured as it is, and what else is told of that.

    Attributes:
        trial: the one with the most steps, which the oscillation and the warm-up are told from; ``None`` without any.
        steps: its steady steps.
        steady: how they were found.
        unmeasured: path in the report -> reason.
    """

    verdict: Verdict
    oscillation: Oscillation = field(default_factory=Oscillation)
    trial: TrialRecord | None = None
    steps: Steps | None = None
    steady: SteadyState | None = None
    unmeasured: Mapping[str, str] = field(default_factory=dict)


_ITS_OWN: Final = 0.5  # Share of a computing step from which the emulated accelerator, and not the target, is its limit
_SENTENCES: Final = {
    "dispatch": "The step spends {share} of its time launching ops from Python{detail}.",
    "compute": "The {device}'s own work is the limit ({compute} of the step); nothing avoidable reaches 10 % of "
    "it{detail}.",
    "compile": "The step spends {share} of its time tracing or compiling again after the first step{detail}.",
    "host": "Host work between steps takes {share} of the time{detail}.",
    "transfer": "Copying batches to the device takes {share} of the step{detail}.",
    "contention": "Input and step compete for the same processors: running at once costs {share} of the step{detail}.",
}


def unmeasured_verdict(summary: str) -> Verdict:
    """The verdict where no step was measured."""
    missing: dict[str, Any] = dict.fromkeys(name for name, one in Verdict.model_fields.items() if one.is_required())
    return Verdict(**missing | {"bottleneck": "inconclusive", "summary": summary, "confidence": 0.0})


def verdict(diagnosis: Diagnosis) -> Verdict:
    """The verdict record; figures that were not measured are ``None``."""
    evidence, figures = diagnosis.evidence, diagnosis.figures
    if not figures:
        return unmeasured_verdict(f"Nothing could be concluded: {_why(diagnosis)}.")
    return Verdict(
        bottleneck=evidence.bottleneck,
        summary=summary(diagnosis),
        confidence=diagnosis.probability,
        at_threshold=diagnosis.at_threshold,
        step_time_s=figures["wall_s"].estimate(),
        step_time_median_s=figures["median"].estimate(),
        step_time_p95_s=figures["p95"].estimate(),
        input_wait_fraction=_at_most_all(diagnosis.input_wait_fraction),
        accelerator_utilization=_at_most_all(diagnosis.accelerator_utilization),
        attribution_s=Attribution(**dict(evidence.parts)),
    )


def _at_most_all(share: Estimate | None) -> Estimate | None:
    """A share with an interval that ends at 1 where that of a ratio goes on."""
    if share is None:
        return None
    return Estimate(estimate=min(share.estimate, 1.0), low=min(share.low, 1.0), high=min(share.high, 1.0))


def summary(diagnosis: Diagnosis) -> str:
    """One sentence for a person."""
    evidence = diagnosis.evidence
    name = evidence.bottleneck
    if name == "inconclusive":
        return f"No bottleneck can be named: {_why(diagnosis)}."
    if diagnosis.at_threshold and (share := diagnosis.loss_share) is not None:
        return (
            f"At the threshold: {SPOKEN.get(diagnosis.loss, diagnosis.loss)} {share.estimate:.0%} "
            f"({share.low:.0%} to {share.high:.0%}) of the step, worth at most {1 / (1 - share.high):.2f} times."
        )
    if name == "input":
        return _input(evidence)
    if name == "dispatch" and not evidence.facts.eager:
        takes = f"{evidence.share(name):.0%}"
        return f"Handing over batches to the compiled step takes {takes} of its time{_beside_compute(evidence)}."
    if name == "compute" and evidence.emulated:
        used = diagnosis.accelerator_utilization
        return _emulated(evidence.share("compute"), used.estimate if used is not None else 1.0)
    return _SENTENCES[name].format(
        share=f"{evidence.share(name):.0%}",
        compute=f"{evidence.share('compute'):.0%}",
        detail=_detail(evidence, name),
        device="GPU" if evidence.on_gpu else "device" if evidence.devices is None else "CPU",
    )


def _emulated(computes: float, waits: float) -> str:
    """Sentence on a step that computes for a share of its time, of which the wait may be a small part."""
    if waits < _ITS_OWN * computes:
        return f"The target's own step is the limit ({computes:.0%}); the emulated accelerator waits for {waits:.0%}."
    return f"The emulated accelerator is the limit ({computes:.0%} of the step); it hardly waits."


def _why(diagnosis: Diagnosis) -> str:
    return (diagnosis.why_undecided or "nothing was measured").rstrip(". ")


def _input(evidence: Evidence) -> str:
    op = slowest_op(evidence)
    where = "" if explains_wait(evidence) else f"; {no_op_explains(evidence)}"
    if op is not None:
        place = f" ({op.location.file}:{op.location.line})" if op.location.file else ""
        where = f"; the most costly op is {op.name}{place}"
    if not evidence.has_step and not evidence.emulated:
        rate = f"{float(f'{1 / evidence.wall_s:.3g}'):,g} batches/s" if evidence.wall_s else "no rate"
        return f"A dataset alone has only its input side to judge: {rate}{where}."
    return f"The step waits {evidence.share('input'):.0%} of its time for data{_beside_compute(evidence)}{where}."


def _beside_compute(evidence: Evidence) -> str:
    """Clause on why a loss is the bottleneck where computing takes more of the step; empty where it does not."""
    computes = evidence.share("compute")
    smaller = computes > evidence.share(evidence.bottleneck)
    return f", its largest loss (computing takes {computes:.0%})" if smaller else ""


def _detail(evidence: Evidence, name: str) -> str:
    if name == "dispatch":
        return _launched(evidence)
    if name == "compute" and (slower := evidence.slower_beside_input) is not None:
        return f", but beside its input it is slower by {slower.estimate:.0%} of its time than alone, cause not known"
    if name == "compile" and evidence.steps:
        return f" ({int(evidence.steps.compiling.sum())} of {len(evidence.steps)} steps){_beside_compute(evidence)}"
    if name == "compute":
        return ""
    line = heaviest_line(evidence, ("python", "io", "sync"))
    where = f", most of it at {line.file}:{line.line}" if name == "host" and line else ""
    return f"{_beside_compute(evidence)}{where}"


def _launched(evidence: Evidence) -> str:
    """Clause on what compiling the step gives; where that was not timed, launching is not told from computing."""
    graph, anatomy = evidence.modes.get("graph"), evidence.anatomy
    if graph is not None and graph.speedup is not None:
        return "; compiled into one tf.function it launches them at once"
    why = "the compiled step was not timed by itself" if graph is None else "it could not be compiled as it stands"
    least = ""
    if anatomy is not None and evidence.wall_s:
        share = min(anatomy.eager_ops_per_step * anatomy.op_floor_s / evidence.wall_s, evidence.share("dispatch"))
        least = f"; launching its {anatomy.eager_ops_per_step:.0f} ops takes {share:.0%} at least"
    return f" or computing; which of the two is not known: {why}{least}"


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
