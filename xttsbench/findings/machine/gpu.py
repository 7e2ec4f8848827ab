"""The rules `gpu-shared` and `gpu-throttled`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from xttsbench.analysis.readings import measured_span, own_gpus
from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.rule import Findings, rule
from xttsbench.records.readings import HEAT, POWER, SLOWED, GpuReadings, throttle_reason_names
from xttsbench.records.trial import TrialRecord

_HELD_SHARE: Final = 0.05
_HELD_BYTES: Final = 2 << 30
"""Drivers keep some hundred megabytes for themselves, so less than this names nobody."""
_SLOWED_SHARE: Final = 0.1
_SLOW_CLOCK: Final = 0.9


@rule(
    "gpu-shared",
    evidence="other processes, and memory used before the run beside the total",
    threshold="another process, or more than 2 GiB and 5 % of the memory taken before the run; never a bottleneck",
    remedy="End the others (nvidia-smi names them) or choose another GPU with CUDA_VISIBLE_DEVICES, and measure again.",
    false_alarms="in a container the driver's process numbers are the host's, so that own ones may not be recognised",
)
def gpu_shared(evidence: Evidence) -> Findings:
    """Other processes hold memory or compute contexts of a GPU that the steps use."""
    before = _before(evidence)
    for trial in evidence.ladder[:1]:
        own = set(trial.readings.host.pids) if trial.readings.host else set()
        for gpu in _used(evidence, trial):
            known = before.get(gpu.uuid, {})
            # In a container the driver's process ids are those of the host and ours are not among them.
            others = len(set(gpu.processes) - own) if own & set(gpu.processes) else 0
            others = max(others, _number(known.get("processes_before")) or 0)
            held, total = _number(known.get("memory_used_before_bytes")), gpu.memory_total_bytes
            much = bool(held and total and held > max(_HELD_SHARE * total, _HELD_BYTES))
            if not others and not much:
                continue
            who = f"{others} other process(es)" if others else "others"
            memory = f"; {held / 1e9:.3g} GB were taken before the run began" if held and much else ""
            yield gpu_shared.finding(
                f"GPU {gpu.index} ({gpu.name}) is shared with {who}{memory}",
                {
                    "gpu": gpu.index,
                    "other_processes": others,
                    "memory_used_before_bytes": held,
                    "memory_total_bytes": total,
                },
                "Times on a shared GPU vary with what the others do. End them (nvidia-smi names them), choose "
                "another GPU with CUDA_VISIBLE_DEVICES, and measure again.",
                severity="warning",
            )


@rule(
    "gpu-throttled",
    evidence="share of the samples by reason, mean clock beside the highest, and power",
    threshold="10 % of the samples; a bottleneck for heat or a fault, in half of them, with clocks below 90 %, where "
    "the step computes",
    remedy="nvidia-smi -q -d PERFORMANCE,CLOCK shows what holds the clocks back.",
    false_alarms="a GPU at full load reaches its power limit; that is for information",
)
def gpu_throttled(evidence: Evidence) -> Findings:
    """The GPU's clocks were held back by heat, power or a fault while the steps ran."""
    for trial in evidence.ladder[:1]:
        span = measured_span(trial)
        for gpu in _used(evidence, trial):
            where = span.inside(gpu.t_ns) if span else ()
            masks = [
                mask for n in where if n < len(gpu.throttle_reasons) and (mask := gpu.throttle_reasons[n]) is not None
            ]
            shares = _shares(masks)
            clocks = [mhz for n in where if n < len(gpu.sm_clock_mhz) and (mhz := gpu.sm_clock_mhz[n]) is not None]
            share = (
                float(np.mean([bool(set(throttle_reason_names(mask)) & SLOWED) for mask in masks])) if masks else 0.0
            )
            if share < _SLOWED_SHARE:
                continue
            clock = float(np.mean(clocks)) if clocks else None
            speed = clock / gpu.max_sm_clock_mhz if clock and gpu.max_sm_clock_mhz else None
            faulty = bool(shares.keys() - POWER)
            slow = speed is not None and speed < _SLOW_CLOCK
            reasons = ", ".join(f"{name} {part:.0%}" for name, part in shares.items())
            yield gpu_throttled.finding(
                f"GPU {gpu.index}: clocks held back in {share:.0%} of the samples ({reasons})",
                {
                    "gpu": gpu.index,
                    "share": share,
                    **{f"share_{name}": part for name, part in shares.items()},
                    "sm_clock_mhz": clock,
                    "max_sm_clock_mhz": gpu.max_sm_clock_mhz,
                    "clock_share": speed,
                    "power_w": _mean([gpu.power_w[n] for n in where if n < len(gpu.power_w)]),
                },
                _remedy(shares),
                # Power is what a GPU at full load is bounded by; heat and brakes are not meant to be.
                severity="warning" if faulty or slow else "info",
                limiting=faulty and slow and share >= 0.5 and evidence.bottleneck == "compute",
            )


def _remedy(shares: Mapping[str, float]) -> str:
    if shares.keys() & HEAT:
        return "Cool it: fans, air flow, dust, a lower power limit (nvidia-smi -pl) that keeps the clocks even."
    if "hw_power_brake_slowdown" in shares or "hw_slowdown" in shares:
        return "The machine's power supply or cooling slows the GPU: check its power cables and the chassis' limits."
    if "sw_power_cap" in shares:
        return "The GPU is at its power limit, which full load may well reach; nvidia-smi -q -d POWER shows the limit."
    return gpu_throttled.remedy


def _shares(masks: Sequence[int]) -> dict[str, float]:
    """Share of the samples by reason that holds the clocks back, the most frequent first."""
    counts: dict[str, int] = {}
    for mask in masks:
        for name in throttle_reason_names(mask):
            if name in SLOWED:
                counts[name] = counts.get(name, 0) + 1
    return {name: counts[name] / len(masks) for name in sorted(counts, key=lambda name: -counts[name])}


def _used(evidence: Evidence, trial: TrialRecord) -> tuple[GpuReadings, ...]:
    """GPUs that the trial computes on; where the driver does not tell, those that it may see."""
    if not evidence.on_gpu:
        return ()
    return own_gpus(trial.readings, evidence.known("variables").get("CUDA_VISIBLE_DEVICES"))


def _before(evidence: Evidence) -> dict[str, Mapping[str, Any]]:
    gpus = evidence.environment.get("gpus")
    found = gpus if isinstance(gpus, list | tuple) else ()
    return {str(gpu["uuid"]): gpu for gpu in found if isinstance(gpu, Mapping) and "uuid" in gpu}


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
