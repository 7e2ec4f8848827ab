"""The rules on a profiled window of steps: `exposed-copies`, `gpu-imbalance`, `gpu-collectives`."""

from __future__ import annotations

from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.rule import Findings, rule

_SHARE: Final = 0.10
"""Of a step, from which time that a GPU loses is worth a finding."""
_UNEVEN: Final = 0.10
"""By which the busiest GPU's kernels take longer than the mean of all."""


@rule(
    "exposed-copies",
    evidence="seconds of copying a step, of those the ones in which nothing else ran, bytes to the device and back",
    threshold="copies while nothing else runs take 10 % of the profiled steps on a GPU; the verdict says whether that "
    "is the bottleneck",
    remedy="End the pipeline with tf.data.experimental.prefetch_to_device, so that a batch is copied while the step "
    "before it runs; copy smaller types (uint8, float16) and fewer, larger tensors; fetch results every tenth step.",
    false_alarms="profiled steps wait for the device at their end, so that no step overlaps the next one's copy there",
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
                "bytes_to_device": device.bytes.get("to_device"),
                "bytes_from_device": device.bytes.get("from_device"),
            },
            severity="warning",
        )


@rule(
    "gpu-imbalance",
    evidence="seconds of kernels a step on the slowest GPU and on average, the share of steps in which it is the "
    "slowest, GPUs without a kernel",
    threshold="the busiest GPU is 10 % above the mean of those that compute, or a visible one computes nothing",
    remedy="Give every replica the same work: batches of equal size and padding (drop_remainder, buckets by length), "
    "no layer on one device alone; look at a slow one's clocks and at who else uses it.",
    false_alarms="a GPU that was never to be used is visible; hide it with CUDA_VISIBLE_DEVICES",
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
    evidence="seconds a step in collectives, of those the ones in which nothing was computed",
    threshold="collectives without a kernel beside them take 10 % of the profiled steps",
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
