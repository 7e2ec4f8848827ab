"""The rule `core-contention`."""

from __future__ import annotations

from xttsbench.evidence.evidence import Evidence, allowed_cpus
from xttsbench.findings.rule import Findings, rule


@rule(
    "core-contention",
    evidence="share of the cores in use, what both want over what there is, the input's processor time, and seconds "
    "lost a step",
    threshold="CPU contention is the verdict, or takes 10 % of the step; always a bottleneck",
    remedy="Take work from the input: compute features once and cache them, decode less, use fewer parallel calls; "
    "or add cores. More workers or a deeper prefetch cannot help.",
    false_alarms="neighbours that take the cores look alike; rounds that they disturbed are left out",
)
def core_contention(evidence: Evidence) -> Findings:
    """Input and step want the same cores: each is slower beside the other than alone."""
    if not evidence.limits("contention"):
        return
    facts = evidence.facts
    yield core_contention.finding(
        f"input and step slow each other down by {evidence.share('contention'):.0%} of the step",
        {
            "cores_busy": facts.cores_busy,
            "cores_wanted_over_allowed": evidence.cores_wanted,
            "allowed_cpus": allowed_cpus(evidence),
            "input_cpu_s_per_batch": evidence.input_cpu_s.estimate if evidence.input_cpu_s is not None else None,
            "input_holds_the_interpreter_lock": facts.holds_gil,
            "contention_s_per_step": evidence.parts.get("contention"),
        },
        severity="warning",
        limiting=True,
        predicted_speedup=evidence.max_speedups.get("contention"),
    )
