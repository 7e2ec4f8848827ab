"""Evidence by hand: what the step loses to which part, and whatever facts a test plants beside it."""

from __future__ import annotations

from typing import Any

from xttsbench.analysis.attribution import PARTS, StepFacts
from xttsbench.evidence import Evidence
from xttsbench.records.base import Estimate

WALL_S = 0.1


def make_evidence(bottleneck: str = "compute", **fields: Any) -> Evidence:
    """A step of 100 ms: half of it goes to the bottleneck and the rest computes."""
    parts = dict.fromkeys(PARTS, 0.0) | {"compute": WALL_S}
    if bottleneck not in ("compute", "inconclusive"):
        parts |= {bottleneck: WALL_S / 2, "compute": WALL_S / 2}
    two = Estimate(estimate=2.0, low=1.9, high=2.1)
    given = {
        "kind": "dataset+step",
        "has_step": True,
        "emulated": False,
        "bottleneck": bottleneck,
        "wall_s": WALL_S,
        "parts": parts,
        "max_speedups": {bottleneck: two} if bottleneck in PARTS else {},
        "facts": StepFacts(has_step=True),
        "given_mode": "graph",
        "environment": {"cpu": {"allowed_cpus": 2.0}},
    }
    return Evidence(**(given | fields))
