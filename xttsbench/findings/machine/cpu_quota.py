"""The rule `cpu-quota`."""

from __future__ import annotations

from typing import Final

from xttsbench.analysis.readings import measured_span
from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.rule import Findings, rule

_STOPPED_SHARE: Final = 0.05
"""Of the time, summed over processors, that the quota may stop threads without being worth a word."""


@rule(
    "cpu-quota",
    evidence="quota, visible processors, threads, and seconds stopped for each second",
    threshold="more threads than the quota, or stopped for 5 % of the time; a bottleneck where input and step compete "
    "for cores",
    remedy="Set the threads of TensorFlow to the quota before anything runs; or raise the quota.",
    false_alarms="threads that wait cost no quota; for information where none was stopped",
)
def cpu_quota(evidence: Evidence) -> Findings:
    """More threads than the control group's processor quota allows, or a quota that did stop them."""
    cpu = evidence.known("cpu")
    quota, visible = cpu.get("quota_cpus"), cpu.get("affinity_cpus")
    if not isinstance(quota, int | float) or not isinstance(visible, int | float):
        return
    devices = evidence.devices
    threads = max(devices.inter_op_threads, devices.intra_op_threads) if devices else 0
    threads = threads or int(visible)
    stopped = _stopped_share(evidence)
    held_back = stopped is not None and stopped >= _STOPPED_SHARE
    if (quota >= visible or threads <= quota + 0.5) and not held_back:
        return
    said = f"; it stopped them for {stopped:.0%} of the time" if held_back else ""
    harmless = stopped is not None and not held_back and not evidence.limits("contention")
    yield cpu_quota.finding(
        f"{threads} threads on a quota of {quota:g} processors ({visible:g} are visible){said}",
        {
            "quota_cpus": float(quota),
            "visible_cpus": float(visible),
            "threads": threads,
        }
        | ({"stopped_s_per_s": stopped} if stopped is not None else {}),
        f"tf.config.threading.set_intra_op_parallelism_threads({max(int(quota), 1)}) and the same for inter-op, "
        "before anything runs; or raise the quota.",
        severity="info" if harmless else "warning",
        limiting=evidence.limits("contention"),
    )


def _stopped_share(evidence: Evidence) -> float | None:
    """Seconds for which the quota stopped threads, summed over processors, per second of the measured steps."""
    for trial in evidence.ladder:
        span, host = measured_span(trial), trial.readings.host
        if span is not None and host is not None and (stopped_s := span.growth(host, "throttled_s")) is not None:
            return stopped_s / span.seconds
    return None
