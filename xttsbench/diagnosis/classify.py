"""Which bottleneck the figures say, how probable it is, and when none is to be named.

Of a watched run that goes on it comes from the sums of its stretches (:func:`likely`), in no time that a step would
notice; at its end :func:`xttsbench.diagnosis.diagnosis.build_diagnosis` says the same of the same sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from xttsbench.analysis.attribution import PARTS, SATURATED, THRESHOLD, Means, StepFacts, attribute, verdicts
from xttsbench.analysis.pooling import Pooled
from xttsbench.analysis.steps import FloatArray, Steps
from xttsbench.diagnosis.samples import PARTS_OF, pooled, sample_of_run
from xttsbench.evidence.evidence import Evidence, profile_facts
from xttsbench.records.report import SPOKEN, Attribution
from xttsbench.records.trial import StepProfile, TrialRecord
from xttsbench.records.watch import WatchedRun

MIN_STEPS: Final = 2
MIN_BATCHES: Final = 5
"""A dataset that ends after fewer is begun again so often that its starts are what is measured."""
SURE: Final = 0.95
"""From this probability on a verdict is final, and more measuring would not be worth its time."""
_MASKED: Final = 0.25
"""Share of the processors that neighbours take from which contention may not show."""
CONFIDENT: Final = 0.60
"""Below this probability no bottleneck is named; beside neighbours, whose doings look like losses of the target's own,
nothing avoidable is below :data:`SURE`."""


@dataclass(frozen=True)
class Classified:
    """A bottleneck, how probable it is, and what is next most probable (``None`` where nothing else is)."""

    bottleneck: str
    probability: float
    runner_up: str | None = None


def classify_bottleneck(base: Evidence, parts: Mapping[str, Any], drawn: Mapping[str, Any], wall: Pooled) -> Classified:
    """The bottleneck that most draws name.

    The attribution is that of the means, as arrays of one entry, and that of each draw.
    """
    if not base.has_step and not base.emulated:
        return Classified("input", 1.0)  # a bare dataset has nothing else to wait for
    names, counts = np.unique(verdicts(dict(drawn), wall.resamples), return_counts=True)
    votes = {str(name): int(count) for name, count in zip(names, counts, strict=True)}
    said = str(verdicts(dict(parts), np.array([wall.value]))[0])
    # Where the draws are of two minds what the means say breaks the tie.
    bottleneck = max(votes, key=lambda name: (votes[name], name == said))
    probability = votes.pop(bottleneck) / len(wall.resamples)
    return Classified(bottleneck, probability, max(votes, key=lambda name: votes[name]) if votes else None)


def why_undecided(
    records: Sequence[TrialRecord],
    series: Sequence[Steps],
    found: Classified,
    each: Sequence[Classified] = (),
    *,
    taken_share: float = 0.0,
) -> str | None:
    """Why no bottleneck is to be named, or ``None`` where one can be.

    Beside what all processes say together stands what each says by itself, where there are several and none was
    disturbed; ``taken_share`` is what neighbours took of the processors.
    """
    steps = sum(len(one) for one in series)
    if steps < MIN_STEPS:
        return f"only {steps} step(s) were measured after the warm-up"
    batches = min(_batches_per_epoch(one) for one in series)
    if batches < MIN_BATCHES:
        return (
            f"the dataset ends after {max(round(batches), 1)} batch(es), so starting it over is most of what was "
            f"measured; give it {MIN_BATCHES} at least, or .repeat()"
        )
    failed = next((trial for trial in records if trial.status != "ok" and not _script_was_over(trial)), None)
    if failed is not None and len(records) == 1:
        return f"the trial ended early ({failed.cause})"
    sure = [one for one in each if one.probability >= SURE]
    if len({one.bottleneck for one in sure}) > 1:
        said = ", ".join(f"{_spoken(one.bottleneck)} {one.probability:.0%}" for one in sure)
        return f"fresh processes of the same target disagree ({said}): something differs from process to process"
    beside = taken_share > 0 and found.bottleneck != "compute"
    if found.probability < (SURE if beside else CONFIDENT):
        others = f"beside others, who used {taken_share:.0%} of the processor, " if beside else ""
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
    if trial.watched is not None:  # however it ended, what was seen of it was seen
        return True
    return trial.script is not None and trial.script.ended in ("returned", "exited", "stopped")


def _batches_per_epoch(steps: Steps) -> float:
    """Mean number of batches before the dataset ended; infinite where it never did."""
    epochs = int(steps.epoch.max() - steps.epoch.min()) if len(steps) else 0
    return len(steps) / epochs if epochs else math.inf


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
    figures = pooled(({"run": sample_of_run(watched)}, {}, {}), np.random.default_rng(0))
    compiling = sum(one.compiling_steps for one in watched.stretches) / max(watched.steps, 1)
    facts = replace(profile_facts(profile, has_step=True, compiling=compiling), handoff_s=handoff_s)

    def parts(of: Any) -> dict[str, Any]:
        return attribute(Means(**{name: of(figures[name]) for name in PARTS_OF}), facts)

    found = parts(lambda one: np.array([one.value]))
    names = verdicts(parts(lambda one: one.resamples), figures["wall_s"].resamples)
    each, counts = np.unique(names, return_counts=True)
    most = int(counts.argmax())
    attribution = Attribution(**{name: float(found[name][0]) for name in PARTS})
    return Likely(str(each[most]), float(counts[most] / len(names)), attribution, figures)
