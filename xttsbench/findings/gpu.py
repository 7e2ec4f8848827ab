"""The rules on GPUs: `gpu-shared`, `gpu-throttled`; profiled `exposed-copies`, `gpu-imbalance`, `gpu-collectives`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from xttsbench.analysis.readings import measured_span, own_gpus
from xttsbench.evidence import Evidence
from xttsbench.findings.rule import Findings, rule
from xttsbench.records.readings import HEAT, POWER, SLOWED, GpuReadings, throttle_reason_names
from xttsbench.records.trial import TrialRecord

_HELD_SHARE: Final = 0.05
_HELD_BYTES: Final = 2 << 30  # Drivers keep some hundred megabytes for themselves, so less than this names nobody
_SLOWED_SHARE: Final = 0.1
_SLOW_CLOCK: Final = 0.9


@rule(
    "gpu-shared",
    threshold="another process, or more than 2 GiB and 5 % of the memory taken before the run; never a bottleneck",
    remedy="End the others (nvidia-smi names them) or choose another GPU with CUDA_VISIBLE_DEVICES, and measure again.",
    false_alarms="none known",
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
    threshold="10 % of the samples; a bottleneck only where the verdict is compute",
    remedy="nvidia-smi -q -d PERFORMANCE,CLOCK shows what holds the clocks back.",
    false_alarms="a GPU at full load reaches its power limit",
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
            share = _mean([bool(set(throttle_reason_names(mask)) & SLOWED) for mask in masks]) or 0.0
            if share < _SLOWED_SHARE:
                continue
            clock = _mean([gpu.sm_clock_mhz[n] for n in where if n < len(gpu.sm_clock_mhz)])
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
    counts = Counter(name for mask in masks for name in throttle_reason_names(mask) if name in SLOWED)
    return {name: count / len(masks) for name, count in counts.most_common()}


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


_SHARE: Final = 0.10  # Of a step, from which time that a GPU loses is worth a finding
_UNEVEN: Final = 0.10  # By which the busiest GPU's kernels take longer than the mean of all


@rule(
    "exposed-copies",
    threshold="copies while nothing else runs take 10 % of the profiled steps on a GPU; never a bottleneck",
    remedy="End the pipeline with tf.data.experimental.prefetch_to_device, so that a batch is copied while the step "
    "before it runs; copy smaller types (uint8, float16) and fewer, larger tensors; fetch results every tenth step.",
    false_alarms="profiled steps wait for the device at their end, so that a copy which begins with its step overlaps "
    "no step before it, as it may in training",
)
def exposed_copies(evidence: Evidence) -> Findings:
    """Copies to and from the GPU run while the GPU computes nothing: they are not overlapped with the step."""
    found = evidence.gpu
    for device in found.devices if found is not None else ():
        share = device.copy_alone_s / found.step_s if found is not None and found.step_s else 0.0
        if share < _SHARE:
            continue
        yield exposed_copies.finding(
            f"GPU {device.index} copies for {share:.0%} of the step and computes nothing meanwhile",
            {
                "gpu": device.index,
                "copy_alone_s_per_step": device.copy_alone_s,
                "copy_s_per_step": device.copy_s,
                "share": share,
            },
            severity="warning",
        )


@rule(
    "gpu-imbalance",
    threshold="the busiest GPU is 10 % above the mean of those that compute, or a visible one computes nothing; never "
    "a bottleneck",
    remedy="Give every replica the same work: batches of equal size and padding (drop_remainder, buckets by length), "
    "no layer on one device alone; look at a slow one's clocks and at who else uses it.",
    false_alarms="a visible GPU that was not meant to be used; hide it with CUDA_VISIBLE_DEVICES",
)
def gpu_imbalance(evidence: Evidence) -> Findings:
    """Several GPUs do not do the same work: the others wait for the slowest, or one does nothing at all."""
    found = evidence.gpu
    if found is None or len(found.devices) < 2:
        return
    working = [device for device in found.devices if device.kernel_s > 0]
    unused = [device.index for device in found.devices if not device.kernel_s]
    uneven = found.imbalance is not None and found.imbalance >= _UNEVEN
    if not working or not (uneven or unused):
        return
    mean_s = sum(device.kernel_s for device in working) / len(working)
    said = []
    if uneven:
        busiest = max(working, key=lambda device: device.kernel_s)
        said.append(f"GPU {busiest.index} computes {found.imbalance:.0%} longer than the mean of {len(working)}")
    if unused:
        names = ", ".join(map(str, unused))
        said.append(f"GPU {names} runs no kernel" if len(unused) == 1 else f"GPUs {names} run no kernel")
    yield gpu_imbalance.finding(
        "; ".join(said),
        {
            "gpus": len(found.devices),
            "imbalance": found.imbalance,
            "slowest": found.slowest,
            "slowest_in_share_of_steps": found.slowest_share,
            "kernel_s_per_step_highest": max(device.kernel_s for device in working),
            "kernel_s_per_step_mean": mean_s,
            "without_kernels": len(unused),
        },
        severity="warning" if uneven else "info",
    )


@rule(
    "gpu-collectives",
    threshold="collectives without a kernel beside them take 10 % of the profiled steps; never a bottleneck",
    remedy="Do more per synchronisation: larger batches per GPU, or gradients accumulated over several steps; send "
    "less (float16 gradients); look at how the GPUs are connected (nvidia-smi topo -m).",
    false_alarms="a collective waits for the slowest replica: where gpu-imbalance is found too, mend that first",
)
def gpu_collectives(evidence: Evidence) -> Findings:
    """GPUs spend a good part of the step exchanging gradients, or waiting for one another to do so."""
    found = evidence.gpu
    devices = found.devices if found is not None else ()
    if found is None or not devices:
        return
    worst = max(devices, key=lambda device: device.collective_alone_s)
    share = worst.collective_alone_s / found.step_s if found.step_s else 0.0
    if share >= _SHARE:
        yield gpu_collectives.finding(
            f"GPU {worst.index} is in collectives for {share:.0%} of the step and computes nothing meanwhile",
            {
                "gpu": worst.index,
                "collective_alone_s_per_step": worst.collective_alone_s,
                "collective_s_per_step": worst.collective_s,
                "share": share,
                "imbalance": found.imbalance,
            },
            severity="warning",
        )
