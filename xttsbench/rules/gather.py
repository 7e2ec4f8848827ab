"""From the trials of a run to the evidence: pooling over processes, attribution, and how sure the verdict is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from xttsbench.analysis.attribution import PARTS, Means, attribute
from xttsbench.analysis.oscillation import oscillation
from xttsbench.analysis.pooling import Columns, Pooled, Statistic, interval_of, mean_of, pool
from xttsbench.analysis.readings import gpu_samples
from xttsbench.analysis.steps import Steps, measured, steady
from xttsbench.analysis.variance import Explanation, explain
from xttsbench.records.base import Estimate
from xttsbench.records.trial import MAIN_RUNGS, TrialRecord
from xttsbench.rules.cached import behind_cache
from xttsbench.rules.compared import compiled_gain, fixes, input_alone, modes, step_alone
from xttsbench.rules.evidence import Evidence
from xttsbench.rules.facts import given_mode, step_facts
from xttsbench.rules.predictions import predictions
from xttsbench.rules.settle import settle, why_inconclusive

_NAMES: Final = ("wall_s", "wait_s", "step_s", "emulated_s", "compile_s", "outside_s")
_STATISTICS: Final[dict[str, Statistic]] = {
    **{name: mean_of(name) for name in _NAMES},
    "median": lambda columns: np.asarray(np.median(columns["wall_s"], axis=1)),
    "p95": lambda columns: np.asarray(np.quantile(columns["wall_s"], 0.95, axis=1)),
    "samples": mean_of("batch_size"),
}


@dataclass(frozen=True)
class Gathered:
    """The evidence, with what the verdict is made of.

    Attributes:
        evidence: for the rules.
        confidence: share of the resamples that give the verdict.
        figures: ``wall_s``, ``median``, ``p95`` and the other pooled statistics of the target as it is.
        input_wait_fraction, accelerator_utilization, throughput_per_s: ``None`` where not measured.
        alone, input_alone: mean step alone and mean ``next()`` alone.
        why_inconclusive: why no bottleneck is named, where none is.
        runner_up: the next most frequent verdict of the resamples.
        unmeasured: path in the report -> reason.
    """

    evidence: Evidence
    confidence: float = 0.0
    figures: Mapping[str, Pooled] = field(default_factory=dict)
    input_wait_fraction: Estimate | None = None
    accelerator_utilization: Estimate | None = None
    throughput_per_s: Estimate | None = None
    alone: Pooled | None = None
    input_alone: Pooled | None = None
    why_inconclusive: str | None = None
    runner_up: str | None = None
    unmeasured: Mapping[str, str] = field(default_factory=dict)


def gather(trials: Sequence[TrialRecord], environment: Mapping[str, Any], *, seed: int = 0) -> Gathered:
    """Pool the trials of one run. The same trials, environment and seed give the same answer."""
    rng = np.random.default_rng(seed)
    ladder = [trial for trial in trials if trial.spec.rung in MAIN_RUNGS]
    base = _known(trials, ladder, environment)
    found = [(trial, steady(rows)) for trial in ladder if (rows := measured(trial, "as_is")) is not None]
    if not found:
        cause = next((trial.cause for trial in ladder if trial.cause), "no step ended")
        return Gathered(replace(base, predictions=predictions(base)), why_inconclusive=cause)
    found.sort(key=lambda one: -len(one[1][0]))  # the process with the most steady steps stands for the run
    records, series = [trial for trial, _ in found], [steps for _, (steps, _) in found]

    figures = pool([_columns(steps) for steps in series], _STATISTICS, rng)
    alone = step_alone(records, rng)
    without_step, input_cpu = input_alone(trials, rng) or (None, None)
    facts = step_facts(
        records,
        series,
        base.anatomy,
        base.pipeline,
        environment,
        has_step=base.has_step,
        input_cpu_s=input_cpu.value if input_cpu else None,
    )
    gain = compiled_gain(trials, rng) if facts.eager or facts.recompiles else None
    # Op by op nothing tells what the script does around its function from the function's own work.
    beside = _with_the_loop(alone, figures) if base.script is not None and not facts.eager else alone
    parts = attribute(_means(figures, beside, gain, without_step, resampled=False), facts)
    cloud = attribute(_means(figures, beside, gain, without_step, resampled=True), facts)
    wall = figures["wall_s"]
    bottleneck, confidence, runner_up = settle(base, parts, cloud, wall)
    single = [pool([_columns(steps)], _STATISTICS, rng) for steps in series] if len(series) > 1 else []
    each = [attribute(_means(one, beside, gain, without_step, resampled=False), facts) for one in single]
    shares = [
        {name: float(part[name][0]) / one["wall_s"].value for name in PARTS}
        for part, one in zip(each, single, strict=True)
    ]
    why = why_inconclusive(records, series, bottleneck, confidence, runner_up, shares)

    vector, unmeasured = oscillation(series[0].wall_s)
    explanation = explain(series[0].wall_s - series[0].compile_s, series[0].batch_elements)
    evidence = replace(
        base,
        ladder=records,
        steps=series[0],
        steady=found[0][1][1],
        bottleneck="inconclusive" if why else bottleneck,
        wall_s=wall.value,
        parts={name: float(parts[name][0]) for name in PARTS},
        ceilings=_ceilings(parts, cloud, wall),
        facts=facts,
        given_mode=given_mode(records, facts),
        input_alone_s=without_step.estimate() if without_step else None,
        traces=records[0].traces,
        modes=modes(trials, records, facts, rng),
        fixes=fixes(trials, wall, rng),
        oscillation=vector,
        explanation=explanation,
        length_has_the_period=vector.period_steps is not None and _period_is_of_length(series[0], explanation),
    )
    # Compilation that recurs is the step's, whatever the input costs.
    recurring = _sum(beside, figures["compile_s"]) if beside else None
    model = predictions(evidence, wall=wall.estimate(), alone=recurring.estimate() if recurring else None)
    emulated = figures["emulated_s"]
    return Gathered(
        replace(evidence, predictions=model),
        confidence=confidence,
        figures=figures,
        input_wait_fraction=_fraction(figures["wait_s"], wall),
        accelerator_utilization=_fraction(emulated, wall) if base.emulated else _gpu_utilization(records, rng),
        throughput_per_s=_fraction(figures["samples"], wall),
        alone=alone,
        input_alone=without_step,
        why_inconclusive=why,
        runner_up=runner_up,
        unmeasured={f"oscillation.{name}": reason for name, reason in unmeasured.items()},
    )


def _known(trials: Sequence[TrialRecord], ladder: Sequence[TrialRecord], environment: Mapping[str, Any]) -> Evidence:
    """What is known before anything is computed."""

    def first(name: str) -> Any:
        return next((value for trial in trials if (value := getattr(trial, name)) is not None), None)

    kind = first("target_kind") or "unknown"
    pipeline = first("pipeline")
    if pipeline is not None and any(trial.cache_filled for trial in ladder):
        pipeline = behind_cache(pipeline)
    return Evidence(
        kind=kind,
        has_step=any(trial.segment("step_only") or trial.segment("warm_up") for trial in ladder),
        emulated=any(trial.spec.emulated_ms for trial in ladder),
        environment=environment,
        anatomy=first("anatomy"),
        step_ops=first("step_ops"),
        script=first("script"),
        source=next((trial.source for trial in trials if trial.source), ()),
        batches=first("batches"),
        pipeline=pipeline,
        devices=first("devices"),
    )


def _with_the_loop(alone: Pooled | None, figures: Mapping[str, Pooled]) -> Pooled | None:
    """The step alone with what the script does around its function, which running the function alone leaves out."""
    return alone and _sum(alone, figures["outside_s"])


def _sum(one: Pooled, other: Pooled) -> Pooled:
    return Pooled(one.value + other.value, one.resamples + other.resamples)


def _columns(steps: Steps) -> Columns:
    return {name: np.asarray(getattr(steps, name), dtype=np.float64) for name in (*_NAMES, "batch_size")}


def _means(
    figures: Mapping[str, Pooled],
    alone: Pooled | None,
    gain: Pooled | None,
    without_step: Pooled | None,
    *,
    resampled: bool,
) -> Means:
    def of(pooled: Pooled | None) -> Any:
        if pooled is None:
            return None
        return pooled.resamples if resampled else np.array([pooled.value])

    return Means(
        **{name: of(figures[name]) for name in _NAMES},
        alone_s=of(alone),
        compiled_gain_s=of(gain),
        input_alone_s=of(without_step),
    )


def _period_is_of_length(steps: Steps, explanation: Explanation) -> bool:
    """Whether the steps, as they would be if all batches had one length, have no period any more."""
    length = explanation.length
    if length is None or length.p_value >= 0.01:
        return False
    elements = steps.batch_elements - np.median(steps.batch_elements)
    adjusted = steps.wall_s - length.slope_s_per_element * elements
    left, _ = oscillation(adjusted)
    periodic_share = left.variance_share or 0.0 if left.period_steps is not None else 0.0
    # What is still periodic, as a share of the variance that there was
    return periodic_share * float(adjusted.var()) < 0.1 * float(steps.wall_s.var())


def _ceilings(parts: Mapping[str, Any], cloud: Mapping[str, Any], wall: Pooled) -> dict[str, Estimate]:
    """By part, how much faster the step would be without it."""
    found = {}
    for name in PARTS:
        left, left_cloud = wall.value - float(parts[name][0]), wall.resamples - cloud[name]
        if left > 0.001 * wall.value and name != "residual":
            found[name] = interval_of(wall.value / left, wall.resamples / np.maximum(left_cloud, 1e-3 * wall.resamples))
    return found


def _gpu_utilization(records: Sequence[TrialRecord], rng: np.random.Generator) -> Estimate | None:
    """Mean of the driver's own utilisation samples while the target ran as it is; ``None`` without a GPU."""
    found = [{"wall_s": busy} for trial in records if len(busy := gpu_samples(trial))]
    return pool(found, {"mean": mean_of("wall_s")}, rng)["mean"].estimate() if found else None


def _fraction(above: Pooled, below: Pooled) -> Estimate | None:
    if below.value <= 0:
        return None
    return interval_of(above.value / below.value, above.resamples / np.maximum(below.resamples, 1e-12))
