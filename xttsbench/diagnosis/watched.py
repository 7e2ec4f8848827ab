"""What a watched run comes to while it goes on: from the sums of its stretches, in no time that a step would notice.

At its end :func:`xttsbench.diagnosis.diagnosis.build_diagnosis` says the same of the same sums, and what its rules see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xttsbench.analysis.attribution import PARTS, Means, attribute, verdicts
from xttsbench.analysis.pooling import Pooled
from xttsbench.diagnosis.samples import PARTS_OF, pooled, sample_of_run
from xttsbench.evidence.facts import profile_facts
from xttsbench.records.report import Attribution
from xttsbench.records.trial import StepProfile
from xttsbench.records.watch import WatchedRun


@dataclass(frozen=True)
class Likely:
    """The likely bottleneck, how probable it is given what was seen, and where a mean step goes."""

    bottleneck: str
    probability: float
    parts: Attribution
    figures: Mapping[str, Pooled]


def likely(watched: WatchedRun, profile: StepProfile | None, handoff_s: float) -> Likely | None:
    """The likely bottleneck of a run; ``None`` without steps.

    Args:
        watched: the run so far.
        profile: what was sampled and counted of its steps.
        handoff_s: the part of a wait that handing over a batch takes.
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
