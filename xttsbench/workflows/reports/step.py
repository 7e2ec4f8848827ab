"""Section of a report on the step: its ops, the shapes of its batches, and its time under other conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from xttsbench.analysis.attribution import shape_costs
from xttsbench.evidence import Compared, Evidence
from xttsbench.records.trial import HALF_BATCH, PRECISIONS


def step_section(evidence: Evidence) -> dict[str, Any] | None:
    """``Report.step``: ``ops``, ``shapes``, ``conditions`` and ``unmeasured``; ``None`` for a target without a step.

    ``shapes`` are the costliest ones, of ``shapes_seen`` in all. ``conditions`` are other precisions and half a batch,
    each with its time and its speed beside the step as given, or why it does not apply.
    """
    if not evidence.has_step:
        return None
    trial = next(iter(evidence.ladder), None)
    known = trial.batches.shapes if trial is not None and trial.batches is not None else ()
    costs = shape_costs(trial.segments, known) if trial is not None else []
    unmeasured = dict(evidence.step_ops.unmeasured) if evidence.step_ops is not None else {}
    if evidence.step_ops is None:
        unmeasured["ops"] = "no trial came as far as the ops of the step"
    costliest = sorted(costs, key=lambda cost: -cost.lost_s)[:20]
    return {
        "ops": evidence.step_ops.model_dump(mode="json", exclude={"unmeasured"}) if evidence.step_ops else None,
        "shapes": [asdict(cost) for cost in costliest],
        "shapes_seen": len(costs),
        "conditions": _conditions(evidence.modes),
        "unmeasured": unmeasured,
    }


def _conditions(modes: Mapping[str, Compared]) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "step_time_s": found.time_s.model_dump(mode="json") if found.time_s else None,
            "speedup": found.speedup.model_dump(mode="json") if found.speedup else None,
            "status": found.status,
            "cause": found.cause,
        }
        for name in (*PRECISIONS, HALF_BATCH)
        if (found := modes.get(name)) is not None
    }
