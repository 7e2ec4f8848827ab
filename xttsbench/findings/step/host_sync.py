"""The rule `host-sync`."""

from __future__ import annotations

from xttsbench.analysis.attribution import THRESHOLD
from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.step import heaviest_line, place_of
from xttsbench.findings.rule import Findings, rule


@rule(
    "host-sync",
    evidence="fetches a step, their seconds, and their share of the step",
    threshold="a fetch in every second step; a bottleneck where host work is, and fetching takes 10 %",
    remedy="Keep metrics on the device and fetch them every hundred steps.",
    false_alarms="on a CPU a fetch costs next to nothing",
)
def host_sync(evidence: Evidence) -> Findings:
    """Values of the device are fetched to Python in every step."""
    steps = evidence.steps
    if steps is None or len(steps) == 0 or steps.syncs.mean() < 0.5 or not evidence.has_step:
        return
    per_step, cost_s = float(steps.syncs.mean()), float(steps.sync_s.mean())
    share = cost_s / evidence.wall_s if evidence.wall_s else 0.0
    limiting = evidence.limits("host") and share >= THRESHOLD
    yield host_sync.finding(
        f"{per_step:.1f} values a step are fetched from the device",
        {"fetches_per_step": per_step, "fetch_s_per_step": cost_s, "share": share, "gpu": evidence.on_gpu},
        host_sync.remedy
        + (
            ""
            if evidence.on_gpu
            else " On this CPU it costs next to nothing; on a GPU each fetch waits for the step to end."
        ),
        severity="warning" if evidence.on_gpu or limiting else "info",
        limiting=limiting,
        location=place_of(heaviest_line(evidence, ("sync",))),
    )
