"""Rules on the processors of a step.

They are `gpu-invisible`, `cpu-quota`, `core-contention`, `slower-beside-input`, `device-copies` and `outgrown-machine`.
"""

from __future__ import annotations

from typing import Final

from xttsbench.analysis.readings import measured_span
from xttsbench.evidence import Evidence, allowed_cpus, known_cpus
from xttsbench.findings.rule import Findings, rule
from xttsbench.fixes.service.leaving import at, leaving


@rule(
    "gpu-invisible",
    threshold="TensorFlow lists no GPU; critical where the driver shows one, else for information; never a bottleneck",
    remedy="Unset CUDA_VISIBLE_DEVICES, or pip install 'tensorflow[and-cuda]'.",
    false_alarms="a GPU that is hidden on purpose",
)
def gpu_invisible(evidence: Evidence) -> Findings:
    """TensorFlow sees no GPU, and why."""
    if evidence.devices is None or evidence.devices.gpus:
        return
    gpus = evidence.environment.get("gpus") or []
    mask = evidence.known("variables").get("CUDA_VISIBLE_DEVICES")
    if not gpus:
        reason = evidence.known("unmeasured").get("gpus", "the driver's library shows none")
        yield gpu_invisible.finding(
            "no GPU on this machine: the processor is the device",
            {"reason": str(reason), "built_with_cuda": evidence.devices.built_with_cuda},
            "Nothing to mend here: the device is emulated."
            if evidence.emulated
            else "Nothing to mend here. To judge the input side of a GPU run, use --accelerator emulated:MS.",
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
            "it names the library; 'tensorflow[and-cuda]' brings them all."
        )
    yield gpu_invisible.finding(
        f"{len(gpus)} GPU(s) here, and TensorFlow sees none: {cause}",
        {"gpus": len(gpus), "built_with_cuda": evidence.devices.built_with_cuda, "mask": mask},
        remedy,
        severity="critical",
    )


_STOPPED_SHARE: Final = 0.05
"""Share of the time, summed over processors, that the quota may stop threads without a finding."""


@rule(
    "cpu-quota",
    threshold="a quota below the visible processors and more threads than it, or threads stopped for 5 % of the "
    "time; a bottleneck where input and step compete for cores",
    remedy="Set the threads of TensorFlow to the quota before anything runs; or raise the quota.",
    false_alarms="threads that wait use no quota",
)
def cpu_quota(evidence: Evidence) -> Findings:
    """More threads than the control group's processor quota has processors, or a quota that stopped threads."""
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
        {"quota_cpus": float(quota), "visible_cpus": float(visible), "threads": threads, "stopped_s_per_s": stopped},
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


@rule(
    "core-contention",
    threshold="CPU contention is the verdict, or takes 10 % of the step; always a bottleneck",
    remedy="Take work from the input: compute features once and cache them, decode less, use fewer parallel calls; "
    "or add cores.",
    false_alarms="other processes that take the cores look alike",
)
def core_contention(evidence: Evidence) -> Findings:
    """Input and step want the same cores, and slow each other down."""
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


@rule(
    "slower-beside-input",
    threshold="10 % of the step that CPU contention does not explain, its interval above 0; never a bottleneck",
    remedy="Hyper-threads that share a core, memory bandwidth or caches may be the cause. Try fewer parallel "
    "calls of the input, features computed once and cached, or fewer threads of the step.",
    false_alarms="clocks that fall when more cores are busy",
)
def slower_beside_input(evidence: Evidence) -> Findings:
    """The step is slower beside its input than alone, beyond what CPU contention explains: cause not known."""
    slower = evidence.slower_beside_input
    if slower is None:
        return
    yield slower_beside_input.finding(
        f"the step is slower beside its input by {slower.estimate:.0%} of its time, cause not known",
        {
            "share_of_step": slower.estimate,
            "share_low": slower.low,
            "share_high": slower.high,
            "cores_busy": evidence.facts.cores_busy,
            "cores_wanted_over_allowed": evidence.cores_wanted,
            "allowed_cpus": allowed_cpus(evidence),
        },
        severity="warning",
    )


@rule(
    "device-copies",
    threshold="copying is the verdict, or takes 10 % of the step; always a bottleneck",
    remedy="End the pipeline with tf.data.experimental.prefetch_to_device; copy smaller types (uint8, float16).",
    false_alarms="none known",
)
def device_copies(evidence: Evidence) -> Findings:
    """Copying batches to the device takes a good part of the step."""
    if not evidence.limits("transfer"):
        return
    yield device_copies.finding(
        f"copying batches to the device is {evidence.share('transfer'):.0%} of the step",
        {"transfer_s_per_step": evidence.parts.get("transfer")},
        severity="warning",
        limiting=True,
        predicted_speedup=evidence.max_speedups.get("transfer"),
    )


_FULL: Final = 0.85
"""Share of the processors' time that batches take, from which on too little is left to make more of them."""
_MOST: Final = 3  # pins that are named


@rule(
    "outgrown-machine",
    threshold="the step waits for data, and making batches takes 85 % of the processors; a bottleneck",
    remedy="Take work from the input first (caches, features computed once); what is left can run on other machines.",
    false_alarms="an input whose work can be saved: see what else was found",
)
def outgrown_machine(evidence: Evidence) -> Findings:
    """The input uses all processors of the machine, and the step still waits for it: what of it could run elsewhere."""
    cpus, cpu_s = known_cpus(evidence.environment), evidence.input_cpu_s
    steps = evidence.has_step or evidence.emulated
    if evidence.pipeline is None or not (steps and evidence.limits("input") and cpus and cpu_s and evidence.wall_s):
        return
    busy = cpu_s.estimate / (cpus * evidence.wall_s)
    if busy < _FULL:
        return
    found = leaving(evidence.pipeline)
    held = [pin for pin in found.pins if not pin.only_other_hosts]
    keeps = "; ".join(f"{at(pin)}: {pin.why}" + (f" ({pin.frees})" * bool(pin.frees)) for pin in held[:_MOST])
    files = next((pin for pin in found.pins if pin.only_other_hosts), None)
    hosts = f" Other hosts need the files: {files.frees}." if files is not None else ""
    could = "" if found.share is None else f": {found.share:.0%} of its work can run on others"
    shown = "" if found.refused else " The option --try service:2 of optimize tries that on this machine."
    yield outgrown_machine.finding(
        f"the input uses {'all processors' if cpus > 1 else 'the processor'} of this machine"
        + (could if found.refused is None else ", and nothing of it can run elsewhere yet"),
        {
            "input_share_of_processors": busy,
            "allowed_cpus": cpus,
            "share_that_can_leave": found.share,
            "after": found.after,
            "pins": len(held),
            "sharding": ", ".join(one.policy for one in found.shardings if one.once) or None,
        },
        f"{outgrown_machine.remedy}{shown}{f' Here stays {keeps}.' if keeps else ''}{hosts}",
        severity="warning",
        at=found.location if found.after else held[0].location if held else None,
        limiting=True,
    )
