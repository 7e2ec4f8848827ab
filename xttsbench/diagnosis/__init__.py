"""From the trials of a run to its diagnosis: pooled figures, attribution, the bottleneck and how probable it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from xttsbench.analysis.attribution import (
    PARTS,
    SATURATED,
    SATURATED_SPREAD,
    THRESHOLD,
    Means,
    StepFacts,
    attribute,
    cores_wanted,
    unexplained,
)
from xttsbench.analysis.disturbance import gate, without
from xttsbench.analysis.pooling import DRAWS, Pooled, mean_of, pool, ratio
from xttsbench.analysis.readings import gpu_samples
from xttsbench.analysis.steps import (
    FloatArray,
    Steps,
    batches_per_epoch,
    in_one_stretch,
    measured,
    never_alone,
    steady,
)
from xttsbench.analysis.variation import explain, oscillation
from xttsbench.diagnosis.bottleneck import (
    DISTURBED_SPREAD,
    MIN_BATCHES,
    PARTS_OF,
    SURE,
    classify_bottleneck,
    hidden_contention,
    pooled,
    samples_of,
    why_undecided,
)
from xttsbench.evidence import Evidence, given_mode, step_facts
from xttsbench.evidence.step import compiled_share, modes
from xttsbench.fixes.cache import behind_cache
from xttsbench.fixes.predictions import predictions
from xttsbench.records.base import Estimate
from xttsbench.records.trial import MAIN_KINDS, TrialRecord


@dataclass(frozen=True)
class Diagnosis:
    """Diagnosis of a run's target, between the trials' rows and the words of a report.

    Attributes:
        evidence: for the rules.
        probability: of the verdict, 0..1.
        figures: name -> figure of the target as it is (``wall_s``, ``median``, ``p95`` ...), of its step alone
            (``alone_s``) and of its input alone (``input_alone_s``), as far as they were measured.
        input_wait_fraction, accelerator_utilization, throughput_per_s: ``None`` where not measured.
        why_undecided: why no bottleneck is named, where none is.
        at_threshold: the largest avoidable loss is so near the threshold that either word will do.
        loss, loss_share: that loss, and its share of the step.
        at_most: speed-up of the step if nothing that is shown as lost were; ``None`` without a figure.
        disturbed: neighbours disturbed a part of what this is from; what they disturbed was left out where that could
            be.
        unmeasured: path in the report -> reason.
    """

    evidence: Evidence
    probability: float = 0.0
    figures: Mapping[str, Pooled] = field(default_factory=dict)
    input_wait_fraction: Estimate | None = None
    accelerator_utilization: Estimate | None = None
    throughput_per_s: Estimate | None = None
    why_undecided: str | None = None
    at_threshold: bool = False
    loss: str = ""
    loss_share: Estimate | None = None
    at_most: Estimate | None = None
    disturbed: bool = False
    unmeasured: Mapping[str, str] = field(default_factory=dict)

    @property
    def bottleneck(self) -> str:
        """The verdict's name."""
        return self.evidence.bottleneck

    @property
    def sure(self) -> bool:
        """Whether more of the same would not change what is said."""
        return (self.probability >= SURE or self.at_threshold) and not self.disturbed


def build_diagnosis(
    trials: Sequence[TrialRecord], environment: Mapping[str, Any], *, seed: int = 0, holds_gil: bool | None = None
) -> Diagnosis:
    """Diagnoses one run from its trials.

    The same trials, environment and seed give the same answer. ``holds_gil`` supposes of the pipeline's Python that it
    holds the interpreter lock, or does not, whatever the trials say.
    """
    rng = np.random.default_rng(seed)
    ladder = [trial for trial in trials if trial.spec.kind in MAIN_KINDS]
    base = _known(trials, ladder, environment)
    found = [(trial, steady(rows)) for trial in ladder if (rows := measured(trial, "as_is")) is not None]
    if not found:
        seen = sum(one.steps for trial in ladder for one in trial.segments if one.name == "warm_up")
        nothing = f"only {seen} step(s) ended, which are warm-up" if seen else "no step ended"
        cause = next((trial.cause for trial in ladder if trial.cause), nothing)
        return Diagnosis(replace(base, predictions=predictions(base)), why_undecided=cause)
    found.sort(key=lambda one: -len(one[1][0]))  # the process with the most steady steps stands for the run
    records, series = [trial for trial, _ in found], [steps for _, (steps, _) in found]

    judged = gate(records)
    voting = {
        trial.spec.trial_id: left
        for trial, (steps, _) in found
        if len(left := without(steps, trial.spec.block, judged.invalid))
    }
    samples = samples_of(trials, voting, judged)
    unclear = judged.widened or any(map(never_alone, records))
    spread = DISTURBED_SPREAD if unclear else 1.0
    figures = pooled(samples, rng, spread=spread, device_ms=records[0].spec.emulated_ms)
    facts = step_facts(records, series, base.anatomy, base.pipeline, environment, has_step=base.has_step, judged=judged)
    if holds_gil is not None:
        facts = replace(facts, holds_gil=holds_gil)
    # On a GPU a wait for results looks like it; and a loop of many batches makes none of those calls.
    if base.script is not None and not base.on_gpu and min(map(batches_per_epoch, records)) < MIN_BATCHES:
        facts = replace(facts, anew_share=base.script.anew_share)
    saved = compiled_share(trials, rng) if facts.eager or facts.recompiles else None
    # In eager scripts, work of the loop cannot be separated from work of the step.
    gate_at = np.append(SATURATED, rng.normal(SATURATED, SATURATED_SPREAD, DRAWS))
    attributing = _Attributing(facts, saved, gate_at, with_loop=base.script is not None and not facts.eager)
    parts, wall = attributing.parts(figures), figures["wall_s"]
    said = classify_bottleneck(base, parts, wall)
    alone = [pooled(samples, rng, only={name}) for name in voting] if len(voting) > 1 else []
    each = [classify_bottleneck(base, attributing.parts(own), own["wall_s"]) for own in alone]
    slower = None if samples[1] else attributing.slower(figures, parts)
    means = attributing.means(figures)
    wanted = cores_wanted(means, facts)
    why = why_undecided(
        records, series, said, each, taken_share=facts.taken_share, anew_share=facts.anew_share
    ) or hidden_contention(means, wanted, facts, said)

    stretch = series[0][in_one_stretch(series[0])]
    vector, missing = oscillation(stretch.wall_s, np.concatenate([one.wall_s for one in series]))
    if (own := len(stretch)) < len(series[0]):
        in_a_row = rf"\g<0> in a row (of {len(series[0])})"
        missing = {name: re.sub(rf"(only|in) {own} steps", in_a_row, reason) for name, reason in missing.items()}
    explanation = explain(series[0].wall_s - series[0].compile_s, series[0].batch_elements)
    evidence = replace(
        base,
        ladder=records,
        steps=series[0],
        steady=found[0][1][1],
        bottleneck="inconclusive" if why else said.bottleneck,
        wall_s=wall.value,
        parts={name: float(parts[name][0]) for name in PARTS},
        max_speedups=_max_speedups(parts, wall),
        slower_beside_input=ratio(slower, wall),
        facts=facts,
        given_mode=given_mode(records, facts),
        input_alone_s=_estimate(figures, "input_alone_s"),
        input_cpu_s=_estimate(figures, "input_cpu_s"),
        cores_wanted=float(wanted[0]) if wanted is not None else None,
        traces=records[0].traces,
        modes=modes(trials, figures.get("alone_s"), facts, rng),
        oscillation=vector,
        explanation=explanation,
        length_has_the_period=vector.period_steps is not None and _period_is_of_length(stretch),
    )
    # Compilation that recurs is the step's, whatever the input costs.
    step = attributing.alone(figures)
    recurring = Pooled.of(step.entries + figures["compile_s"].entries) if step else None
    model = predictions(evidence, wall=wall.estimate(), alone=recurring.estimate() if recurring else None)
    emulated = figures["emulated_s"]
    return Diagnosis(
        replace(evidence, predictions=model),
        probability=said.probability,
        figures=figures,
        input_wait_fraction=ratio(figures["wait_s"], wall),
        accelerator_utilization=ratio(emulated, wall) if base.emulated else _gpu_utilization(records, rng),
        throughput_per_s=ratio(figures["samples"], wall),
        why_undecided=why,
        at_threshold=said.at_threshold and not why,
        loss=said.loss,
        loss_share=said.loss_share,
        at_most=_at_most(parts, wall, slower),
        disturbed=bool(judged.disturbed),
        unmeasured={f"oscillation.{name}": reason for name, reason in missing.items()},
    )


def _known(trials: Sequence[TrialRecord], ladder: Sequence[TrialRecord], environment: Mapping[str, Any]) -> Evidence:
    """Evidence that the trials hold before any computation."""

    def first(name: str) -> Any:
        return next((value for trial in trials if (value := getattr(trial, name)) is not None), None)

    script, emulated = first("script"), any(trial.spec.emulated_ms for trial in ladder)
    # Behind an emulated accelerator a script that trains runs its step once, and what was measured has none.
    replaced = emulated and script is not None and script.trains
    pipeline = first("pipeline")
    if pipeline is not None and any(trial.cache_filled for trial in ladder):
        pipeline = behind_cache(pipeline)
    return Evidence(
        kind=first("target_kind") or "unknown",
        has_step=not replaced and any(trial.segment("step_only") or trial.segment("warm_up") for trial in ladder),
        emulated=emulated,
        environment=environment,
        anatomy=first("anatomy"),
        step_ops=first("step_ops"),
        gpu=profile.gpu if (profile := first("profile")) is not None else None,
        script=script,
        source=next((trial.source for trial in trials if trial.source), ()),
        batches=first("batches"),
        pipeline=pipeline,
        devices=first("devices"),
    )


@dataclass(frozen=True)
class _Attributing:
    """Attribution of figures to the parts of the mean step.

    Attributes:
        facts: what is known of the step.
        saved: share of the step that one compiled graph saves; ``None`` where that was not measured or matters not.
        saturated_from: see :class:`~xttsbench.analysis.attribution.Means`; for the means, then for each draw.
        with_loop: the step alone is that of a script, whose function leaves out what the loop does around it.
    """

    facts: StepFacts
    saved: Pooled | None
    saturated_from: FloatArray
    with_loop: bool

    def parts(self, figures: Mapping[str, Pooled]) -> dict[str, FloatArray]:
        """Seconds by part: of the means, then of each draw."""
        return attribute(self.means(figures), self.facts)

    def means(self, figures: Mapping[str, Pooled]) -> Means:
        """The figures as the attribution takes them: the means, then each draw."""

        def of(figure: Pooled | None) -> Any:
            return None if figure is None else figure.entries

        return Means(
            **{name: of(figures[name]) for name in PARTS_OF},
            alone_s=of(self.alone(figures)),
            compiled_gain_s=None if self.saved is None else of(self.saved) * _given_s(figures),
            input_alone_s=of(figures.get("input_alone_s")),
            input_cpu_s=of(figures.get("input_cpu_s")),
            saturated_from=self.saturated_from,
        )

    def slower(self, figures: Mapping[str, Pooled], parts: Mapping[str, FloatArray]) -> Pooled | None:
        """Seconds by which the step is slower beside its input, cause not known; ``None`` below the threshold."""
        lost_s = unexplained(self.means(figures), parts)
        lost = None if lost_s is None else Pooled.of(lost_s)
        share = ratio(lost, figures["wall_s"])
        return lost if share is not None and share.estimate >= THRESHOLD and share.low > 0 else None

    def alone(self, figures: Mapping[str, Pooled]) -> Pooled | None:
        """The step alone, with what a script's loop does around its function."""
        alone = figures.get("alone_s")
        if alone is None or not self.with_loop:
            return alone
        return Pooled.of(alone.entries + figures["outside_s"].entries)


def _given_s(figures: Mapping[str, Pooled]) -> FloatArray:
    """The step as given without what its input costs it, which is what a graph saves a share of."""
    step_s, alone = figures["step_s"].entries, figures.get("alone_s")
    return step_s if alone is None else np.minimum(step_s, alone.entries + figures["compile_s"].entries)


def _estimate(figures: Mapping[str, Pooled], name: str) -> Estimate | None:
    return figures[name].estimate() if name in figures else None


def _period_is_of_length(steps: Steps) -> bool:
    """Whether the steps, as they would be if all batches had one length, have no period any more."""
    explanation = explain(steps.wall_s - steps.compile_s, steps.batch_elements)
    if explanation.length is None or explanation.length.p_value >= 0.01:
        return False
    adjusted = explanation.adjusted_s + steps.compile_s
    left, _ = oscillation(adjusted)
    periodic_share = left.variance_share or 0.0 if left.period_steps is not None else 0.0
    # What is still periodic, as a share of the variance that there was
    return periodic_share * float(adjusted.var()) < 0.1 * float(steps.wall_s.var())


def _max_speedups(parts: Mapping[str, FloatArray], wall: Pooled) -> dict[str, Estimate]:
    found = {name: _speedup(wall, wall.entries - lost_s) for name, lost_s in parts.items() if name != "residual"}
    return {name: speedup for name, speedup in found.items() if speedup is not None}


def _at_most(parts: Mapping[str, FloatArray], wall: Pooled, slower: Pooled | None) -> Estimate | None:
    """Speed-up of the step without all that is shown as lost: all but the device's work and the rest."""
    left_s = parts["compute"] + parts["residual"]
    return _speedup(wall, left_s if slower is None else left_s - slower.entries)


def _speedup(wall: Pooled, left_s: FloatArray) -> Estimate | None:
    """Speed-up of a step of which so much is left; ``None`` where that is nothing."""
    if left_s[0] <= 1e-3 * wall.value:
        return None
    return Pooled.of(wall.entries / np.maximum(left_s, 1e-3 * wall.entries)).estimate()


def _gpu_utilization(records: Sequence[TrialRecord], rng: np.random.Generator) -> Estimate | None:
    """Mean of the driver's own utilisation samples while the target ran as it is; ``None`` without a GPU."""
    found = [{"wall_s": busy} for trial in records if len(busy := gpu_samples(trial))]
    return pool(found, {"mean": mean_of("wall_s")}, rng)["mean"].estimate() if found else None
