"""Rules about the machine: GPUs that are not seen or not free, and processor quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from xttsbench.analysis.spans import measured_span
from xttsbench.evidence.evidence import Evidence, allowed_cpus
from xttsbench.records.report import Finding

_STOPPED_SHARE: Final = 0.05
"""Of the time, summed over processors, that the quota may stop threads without being worth a word."""


def gpu_invisible(evidence: Evidence) -> Iterator[Finding]:
    """A GPU that the driver sees and TensorFlow does not; no GPU at all is a fact, not a fault."""
    if evidence.devices is None or evidence.devices.gpus:
        return
    gpus = evidence.environment.get("gpus") or []
    variables = _mapping(evidence.environment.get("variables"))
    mask = variables.get("CUDA_VISIBLE_DEVICES")
    if not gpus:
        reason = _mapping(evidence.environment.get("unmeasured")).get("gpus", "the driver's library shows none")
        yield Finding(
            rule="gpu-invisible",
            severity="info",
            limiting=False,
            title="no GPU on this machine: the processor is the device",
            evidence={"reason": str(reason), "built_with_cuda": evidence.devices.built_with_cuda},
            remedy="Nothing to mend here. To judge the input side of a GPU run, use --accelerator emulated:MS.",
        )
        return
    if mask is not None:
        cause, remedy = f"CUDA_VISIBLE_DEVICES={mask!r} hides it", "Unset CUDA_VISIBLE_DEVICES."
    elif not evidence.devices.built_with_cuda:
        cause, remedy = "this TensorFlow is built without CUDA", "pip install 'tensorflow[and-cuda]'."
    else:
        cause = "TensorFlow could not load a CUDA library"
        remedy = (
            "Run 'TF_CPP_MIN_LOG_LEVEL=0 python -c \"import tensorflow as tf; tf.config.list_physical_devices()\"': "
        )
        remedy += "it names the library; 'tensorflow[and-cuda]' brings them all."
    yield Finding(
        rule="gpu-invisible",
        severity="critical",
        limiting=False,
        title=f"{len(gpus)} GPU(s) here, and TensorFlow sees none: {cause}",
        evidence={"gpus": len(gpus), "built_with_cuda": evidence.devices.built_with_cuda, "mask": mask},
        remedy=remedy,
    )


def cpu_quota(evidence: Evidence) -> Iterator[Finding]:
    """More threads than the control group's processor quota allows, or a quota that did stop them during the steps."""
    cpu = _mapping(evidence.environment.get("cpu"))
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
    yield Finding(
        rule="cpu-quota",
        severity="info" if harmless else "warning",
        limiting=evidence.limits("contention"),
        title=f"{threads} threads on a quota of {quota:g} processors ({visible:g} are visible){said}",
        evidence={
            "quota_cpus": float(quota),
            "visible_cpus": float(visible),
            "threads": threads,
        }
        | ({"stopped_s_per_s": stopped} if stopped is not None else {}),
        remedy=f"tf.config.threading.set_intra_op_parallelism_threads({max(int(quota), 1)}) and the same for inter-op, "
        "before anything runs; or raise the quota.",
    )


def _stopped_share(evidence: Evidence) -> float | None:
    """Seconds for which the quota stopped threads, summed over processors, per second of the measured steps."""
    for trial in evidence.ladder:
        span, host = measured_span(trial), trial.readings.host
        if span is not None and host is not None and (stopped_s := span.growth(host, "throttled_s")) is not None:
            return stopped_s / span.seconds
    return None


def core_contention(evidence: Evidence) -> Iterator[Finding]:
    """Input and step want the same cores: each is slower beside the other than alone."""
    if not evidence.limits("contention"):
        return
    facts = evidence.facts
    yield Finding(
        rule="core-contention",
        severity="warning",
        limiting=True,
        title=f"input and step slow each other down by {evidence.share('contention'):.0%} of the step",
        evidence={
            "cores_busy": facts.cores_busy,
            "cores_wanted_over_allowed": evidence.cores_wanted,
            "allowed_cpus": allowed_cpus(evidence),
            "input_cpu_s_per_batch": evidence.input_cpu_s.estimate if evidence.input_cpu_s is not None else None,
            "input_holds_the_interpreter_lock": facts.holds_gil,
            "contention_s_per_step": evidence.parts.get("contention"),
        },
        remedy="Take work from the input: compute features once and cache them, decode less, use fewer parallel calls; "
        "or add cores. More workers or a deeper prefetch cannot help.",
        predicted_speedup=evidence.ceilings.get("contention"),
    )


def device_copies(evidence: Evidence) -> Iterator[Finding]:
    """Copying batches to the device takes a good part of the step."""
    if not evidence.limits("transfer"):
        return
    yield Finding(
        rule="device-copies",
        severity="warning",
        limiting=True,
        title=f"copying batches to the device is {evidence.share('transfer'):.0%} of the step",
        evidence={"transfer_s_per_step": evidence.parts.get("transfer")},
        remedy="End the pipeline with tf.data.experimental.prefetch_to_device; copy smaller types (uint8, float16).",
        predicted_speedup=evidence.ceilings.get("transfer"),
    )


RULES: Final = (gpu_invisible, cpu_quota, core_contention, device_copies)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
