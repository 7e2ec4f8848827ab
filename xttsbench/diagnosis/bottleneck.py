"""From what each process measured to the bottleneck: samples, pooled figures, how probable each is, when none is named.

Of a watched run that goes on it comes from the sums of its stretches (:func:`likely`), in no time that a step would
notice; at its end :func:`xttsbench.diagnosis.build_diagnosis` says the same of the same sums.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from xttsbench.analysis.attribution import SATURATED, THRESHOLD, Means, StepFacts, attribute, largest, verdicts
from xttsbench.analysis.disturbance import Gate, without
from xttsbench.analysis.pooling import (
    STRETCHES,
    Columns,
    Pooled,
    Sample,
    Statistic,
    mean_of,
    pool_together,
    ratio,
    sample,
)
from xttsbench.analysis.steps import FloatArray, Steps, batches_per_epoch, measured, steady
from xttsbench.evidence import Evidence, profile_facts
from xttsbench.records.base import Estimate
from xttsbench.records.report import SPOKEN, Attribution
from xttsbench.records.trial import StepProfile, TrialRecord
from xttsbench.records.watch import Stretch, WatchedRun

PARTS_OF: Final = ("wall_s", "wait_s", "step_s", "emulated_s", "compile_s", "outside_s", "cpu_s")
"""Columns of :class:`~xttsbench.analysis.steps.Steps` whose means are attributed."""
OF_STEPS: Final[dict[str, Statistic]] = {
    **{name: mean_of(name) for name in PARTS_OF},
    "median": lambda columns: np.asarray(np.median(columns["wall_s"], axis=1)),
    "p95": lambda columns: np.asarray(np.quantile(columns["wall_s"], 0.95, axis=1)),
}
"""The figures of a process's steps."""
DISTURBED_SPREAD: Final = 2.0
"""Times the spread of processes where most of what was measured was disturbed, so that nothing could be left out."""
Samples = tuple[Mapping[Any, Sample], ...]
"""As it is, step alone where it could not be matched, input alone: each trial id -> sample."""


def samples_of(trials: Sequence[TrialRecord], as_is: Mapping[str, Steps], judged: Gate) -> Samples:
    """Samples of each condition, by process.

    The steady steps ``as_is`` are by trial, of the processes that have a vote; ``judged`` says which rounds count.
    """
    by_id = {trial.spec.trial_id: trial for trial in trials}
    beside: dict[str, Sample] = {}
    alone: dict[str, Sample] = {}
    matched = {name: _matched_alone_s(steps, measured(by_id[name], "step_only")) for name, steps in as_is.items()}
    # One group has one set of figures: matched where every process could be, else none of them.
    match = bool(matched) and all((~np.isnan(times)).any() for times in matched.values())
    data = _data_of(as_is)
    for name, steps in as_is.items():
        if (watched := by_id[name].watched) is not None and watched.stretches:
            beside[name] = _sample_of_run(watched)
            continue
        columns = {column: np.asarray(getattr(steps, column), dtype=np.float64) for column in PARTS_OF}
        columns |= {"batch_size": steps.batch_size.astype(np.float64)}
        statistics = OF_STEPS | {"samples": mean_of("batch_size")}
        if match:
            columns |= {"alone_s": matched[name], "working_s": steps.working_s}
            statistics["alone_s"] = _alone_on_these
        # A stretch without the step alone says what a step takes, and not how surely its parts are known.
        pairs = np.isin(steps.round, steps.round[~np.isnan(matched[name])]) if match else np.full(len(steps), True)
        parts = whole = sample(columns, statistics, steps.round)
        if not pairs.all():
            paired = {column: values[pairs] for column, values in columns.items()}
            parts = sample(paired, statistics, steps.round[pairs])
        beside[name] = replace(whole, stretches=_without_gaps(parts).stretches, data=data[name])
        cached = measured(by_id[name], "step_only")
        if not match and cached is not None and len(cached := without(cached, by_id[name].spec.block, judged.invalid)):
            alone[name] = sample({"alone_s": cached.working_s}, {"alone_s": mean_of("alone_s")}, cached.round)
    inputs: dict[str, Sample] = {}
    for trial in trials:
        rows = measured(trial, "input_only")
        if rows is not None and len(steps := without(steady(rows)[0], trial.spec.block, judged.invalid)):
            columns = {"wall_s": steps.wall_s, "cpu_s": np.maximum(steps.cpu_s - steps.main_cpu_s, 0.0)}
            wanted = {"input_alone_s": mean_of("wall_s"), "input_cpu_s": mean_of("cpu_s")}
            name = trial.spec.trial_id
            inputs[name] = replace(sample(columns, wanted, steps.round), data=data.get(name))
    return beside, alone, inputs


def _data_of(as_is: Mapping[str, Steps]) -> dict[str, str]:
    """The first process that measured most of the batches that a process measured, which may be that one itself."""
    seen: dict[str, set[tuple[int, int]]] = {}
    found = {}
    for name, steps in as_is.items():
        own = {(int(epoch), int(batch)) for epoch, batch in zip(steps.epoch, steps.batch, strict=True) if batch >= 0}
        found[name] = next((other for other, batches in seen.items() if 2 * len(own & batches) > len(own)), name)
        seen[name] = own
    return found


def _sample_of_run(watched: WatchedRun) -> Sample:
    """The figures of a watched run over all of its steps, of which the rows are the newest part.

    Quantiles are those of the whole run, and vary from stretch to stretch as the mean does.
    """
    groups = [group for group in np.array_split(np.arange(len(watched.stretches)), STRETCHES) if len(group)]
    stretches = [[watched.stretches[index] for index in group] for group in groups]
    names = (*PARTS_OF, "samples")

    def mean(parts: Sequence[Stretch], name: str) -> float:
        return float(sum(getattr(part, name) for part in parts)) / max(sum(part.steps for part in parts), 1)

    values = {name: mean(watched.stretches, name) for name in names}
    each = {name: np.array([mean(parts, name) for parts in stretches]) for name in names}
    pace = each["wall_s"] / max(values["wall_s"], 1e-12)
    for name in ("median", "p95"):
        values[name] = watched.quantiles_s.get(name, values["wall_s"])
        each[name] = values[name] * pace
    return Sample(values, each, float(watched.steps))


def pooled(
    samples: Samples,
    rng: np.random.Generator,
    *,
    only: Collection[str] | None = None,
    spread: float = 1.0,
    device_ms: Sequence[float] = (),
) -> dict[str, Pooled]:
    """Every figure by name, all from the same draws.

    Without ``only`` all processes are wanted; ``spread`` multiplies what they are taken to differ by before data say
    so; ``device_ms`` are the waits of an emulated accelerator, which takes one after another for a step.
    """
    groups = [
        {name: one for name, one in group.items() if only is None or name in only or name not in samples[0]}
        for group in samples
    ]
    found: dict[str, Pooled] = {}
    for figures in pool_together([group for group in groups if group], rng, spread=spread):
        found |= figures
    found = _possible(found, device_ms)
    if "wall_s" in found:  # what is drawn of the parts adds up as what was measured of them does
        wall, wait, step = found["wall_s"], found["wait_s"], found["step_s"]
        gap_s = wall.value - wait.value - step.value
        least_s = 0.5 * (wait.resamples + step.resamples)
        if "median" in found:  # half of the steps take it or longer
            least_s = np.maximum(least_s, 0.5 * found["median"].resamples)
        found["wall_s"] = Pooled(wall.value, np.maximum(wait.resamples + step.resamples + gap_s, least_s))
    return found


def _possible(found: Mapping[str, Pooled], device_ms: Sequence[float]) -> dict[str, Pooled]:
    """The figures without draws of what cannot be; what was measured stays as it is.

    No step is shorter than the wait of an emulated device, which is known. Quantiles, of which nothing is a sum, are
    less by a factor and not by a difference, so that none comes near 0; and no 95th percentile is below its median.
    """
    mean_s = 1e-3 * sum(device_ms) / max(len(device_ms), 1)
    if "emulated_s" in found:
        mean_s = min(mean_s, found["emulated_s"].value)
    low: dict[str, Any] = dict.fromkeys(("emulated_s", "step_s", "alone_s"), mean_s)
    low |= {"median": 1e-3 * min(device_ms, default=0.0)}
    held = {name: np.maximum(one.resamples, low.get(name, -np.inf)) for name, one in found.items()}
    for name in ("median", "p95"):
        if name in found and (value := found[name].value) > 0:
            less = value / (1 + np.maximum(1 - held[name] / value, 0.0))
            held[name] = np.maximum(np.maximum(held[name], less), held["median"])
    return {name: Pooled(one.value, held[name]) for name, one in found.items()}


def _matched_alone_s(steps: Steps, alone: Steps | None) -> FloatArray:
    """For each step as it is, the time of the step alone on the same batch in the same round; NaN without one."""
    found = np.full(len(steps), np.nan)
    times: dict[tuple[int, int], list[float]] = defaultdict(list)
    if alone is not None:
        for batch, turn, working_s in zip(alone.batch, alone.round, alone.working_s, strict=True):
            if batch >= 0:
                times[turn, batch].append(float(working_s))
    for row, place in enumerate(zip(steps.round, steps.batch, strict=True)):
        if place in times:
            found[row] = float(np.mean(times[place]))
    return found


def _alone_on_these(columns: Columns) -> FloatArray:
    """The step alone on the batches of these steps; where some have no partner, at the ratio of those that have one."""
    known = ~np.isnan(columns["alone_s"])
    alone_s = np.where(known, columns["alone_s"], 0.0).sum(axis=1)
    beside_s = np.where(known, columns["working_s"], 0.0).sum(axis=1)
    ratio = np.divide(alone_s, beside_s, out=np.full(len(alone_s), np.nan), where=beside_s > 0)
    return np.asarray(ratio * columns["working_s"].mean(axis=1))


def _without_gaps(found: Sample) -> Sample:
    """The sample with stretches that have no matched batch put at the ratio of the whole process."""
    stretches = found.stretches.get("alone_s")
    if stretches is None or not np.isnan(stretches).any():
        return found
    working_s = found.stretches["step_s"] - found.stretches["compile_s"]
    whole_s = max(found.values["step_s"] - found.values["compile_s"], 1e-12)
    filled = np.where(np.isnan(stretches), found.values["alone_s"] * working_s / whole_s, stretches)
    return replace(found, stretches={**found.stretches, "alone_s": filled})


MIN_STEPS: Final = 2
MIN_BATCHES: Final = 5
"""A dataset that ends after fewer is begun anew so often that its starts are what is measured."""
SURE: Final = 0.95
"""From this probability on a verdict is final, and more measuring would not be worth its time."""
_MASKED: Final = 0.25  # Share of the processors that neighbours take from which contention may not show
INDIFFERENT: Final = (0.07, 0.13)
"""Shares of the step about the threshold: where the interval of the largest loss lies within, no word is worth more
than another, and no more measuring either."""
CONFIDENT: Final = 0.60
"""Below this probability no bottleneck is named; beside neighbours, whose doings look like losses of the target's own,
nothing avoidable is below :data:`SURE`."""


@dataclass(frozen=True)
class Classified:
    """A bottleneck, how probable it is, and what is next most probable (``None`` where nothing else is).

    ``loss`` is the largest avoidable part and ``loss_share`` its share of the step.
    """

    bottleneck: str
    probability: float
    runner_up: str | None = None
    loss: str = ""
    loss_share: Estimate | None = None

    @property
    def at_threshold(self) -> bool:
        """Whether the word is open and worth nothing: the interval of the largest loss is about the threshold."""
        share, (least, most) = self.loss_share, INDIFFERENT
        return share is not None and self.probability < SURE and least <= share.low and share.high <= most


def classify_bottleneck(base: Evidence, parts: Mapping[str, FloatArray], wall: Pooled) -> Classified:
    """The bottleneck that most draws name; the attribution has one entry for the means, then one for each draw."""
    if not base.has_step and not base.emulated:
        return Classified("input", 1.0)  # a bare dataset has nothing else to wait for
    said, votes = _voted(parts, wall)
    # Where the draws are of two minds what the means say breaks the tie.
    bottleneck = max(votes, key=lambda name: (votes[name], name == said))
    probability = votes.pop(bottleneck) / len(wall.resamples)
    losses, lost_s = largest(parts)
    share = ratio(Pooled.of(lost_s), wall)
    return Classified(bottleneck, probability, max(votes, key=votes.__getitem__, default=None), str(losses[0]), share)


def _voted(parts: Mapping[str, FloatArray], wall: Pooled) -> tuple[str, Counter[str]]:
    """The bottleneck of the means, and the number of draws that name each, in the order of their names."""
    said, *drawn = verdicts(parts, wall.entries).tolist()
    return said, Counter(sorted(drawn))


def why_undecided(
    records: Sequence[TrialRecord],
    series: Sequence[Steps],
    found: Classified,
    each: Sequence[Classified] = (),
    *,
    taken_share: float = 0.0,
    anew_share: float = 0.0,
) -> str | None:
    """Why no bottleneck is to be named, or ``None`` where one can be.

    Beside what all processes say together stands what each says by itself, where there are several and none was
    disturbed; ``taken_share`` is what neighbours took of the processors, and ``anew_share`` what starting over costs
    where that is known to be Keras's work in each of its calls.
    """
    steps = sum(len(one) for one in series)
    if steps < MIN_STEPS:
        return f"only {steps} step(s) were measured after the warm-up"
    batches = min(map(batches_per_epoch, records))
    if batches < MIN_BATCHES and anew_share < THRESHOLD:
        script = records[0].script
        for one in script.keras_calls if script is not None else ():
            if one.for_each_batch:
                return f"{one.method}() is called anew for each batch: what it makes ready is part of what was measured"
        return (
            f"the dataset ends after {batches:.0f} batch(es), so starting it over is most of what was "
            f"measured; give it {MIN_BATCHES} at least, or .repeat()"
        )
    failed = next((trial for trial in records if trial.status != "ok" and not _script_was_over(trial)), None)
    if failed is not None and len(records) == 1:
        return f"the trial ended early ({failed.cause})"
    if found.at_threshold:
        return None
    sure = [one for one in each if one.probability >= SURE]
    if len({one.bottleneck for one in sure}) > 1:
        said = ", ".join(f"{_spoken(one.bottleneck)} {one.probability:.0%}" for one in sure)
        return f"fresh processes of the same target disagree ({said}): something differs from process to process"
    beside = taken_share > 0 and found.bottleneck != "compute"
    if found.probability < (SURE if beside else CONFIDENT):
        others = "beside what others took of the processor " if beside else ""
        return (
            f"{others}{_spoken(found.bottleneck)} has a probability of {found.probability:.0%} only, "
            f"{_spoken(found.runner_up or 'nothing')} comes next: more seconds (--budget) would decide"
        )
    return None


def _spoken(name: str) -> str:
    return SPOKEN.get(name, name)


def hidden_contention(means: Means, wanted: FloatArray | None, facts: StepFacts, found: Classified) -> str | None:
    """Why "compute" cannot be told apart from contention beside neighbours, or ``None`` where it can.

    Where neighbours take a good part of the processors, what the input leaves goes to them and not to the step alone:
    what input and step cost one another is not seen, though on a quiet machine they would want more than there is.
    Time that the hypervisor steals is gone for both alike, and hides nothing.

    What is ``wanted`` comes from :func:`xttsbench.analysis.attribution.cores_wanted`.
    """
    if found.bottleneck != "compute" or facts.foreign_share < _MASKED or wanted is None or wanted[0] < SATURATED:
        return None
    if means.input_cpu_s is None or means.cpu_s is None or means.input_cpu_s[0] < THRESHOLD * means.cpu_s[0]:
        return None
    return (
        f"others used {facts.foreign_share:.0%} of the processor, which hides whether input and step compete for it: "
        "together they want more than there is; measure again when it is quieter"
    )


def _script_was_over(trial: TrialRecord) -> bool:
    """Whether a trial ended while it measured what a script had left behind: the script's own steps are all there."""
    over = trial.script is not None and trial.script.ended in ("returned", "exited", "stopped")
    return over or trial.watched is not None  # however a watched run ended, what was seen of it was seen


@dataclass(frozen=True)
class Likely:
    """The likely bottleneck, how probable it is given what was seen, and where a mean step goes."""

    bottleneck: str
    probability: float
    parts: Attribution
    figures: Mapping[str, Pooled]


def likely(watched: WatchedRun, profile: StepProfile | None, handoff_s: float) -> Likely | None:
    """The likely bottleneck of a run; ``None`` without steps.

    Of a wait, ``handoff_s`` is what handing over a batch takes.
    """
    if not watched.stretches:
        return None
    figures = pooled(({"run": _sample_of_run(watched)}, {}, {}), np.random.default_rng(0))
    compiling = sum(one.compiling_steps for one in watched.stretches) / max(watched.steps, 1)
    facts = replace(profile_facts(profile, has_step=True, compiling=compiling), handoff_s=handoff_s)
    parts = attribute(Means(**{name: figures[name].entries for name in PARTS_OF}), facts)
    _, votes = _voted(parts, figures["wall_s"])
    [(bottleneck, count)] = votes.most_common(1)
    attribution = Attribution(**{name: float(seconds[0]) for name, seconds in parts.items()})
    return Likely(bottleneck, count / votes.total(), attribution, figures)
