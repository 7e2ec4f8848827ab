"""The rule `gpu-invisible`."""

from __future__ import annotations

from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.rule import Findings, rule


@rule(
    "gpu-invisible",
    evidence="GPUs of the machine, whether TensorFlow is built with CUDA, and CUDA_VISIBLE_DEVICES",
    threshold="TensorFlow lists no GPU; critical where the driver has one, for information where there is none",
    remedy="Unset CUDA_VISIBLE_DEVICES, or pip install 'tensorflow[and-cuda]'.",
    false_alarms="a GPU that is hidden on purpose",
)
def gpu_invisible(evidence: Evidence) -> Findings:
    """A GPU that the driver sees and TensorFlow does not, and why."""
    if evidence.devices is None or evidence.devices.gpus:
        return
    gpus = evidence.environment.get("gpus") or []
    variables = evidence.known("variables")
    mask = variables.get("CUDA_VISIBLE_DEVICES")
    if not gpus:
        reason = evidence.known("unmeasured").get("gpus", "the driver's library shows none")
        yield gpu_invisible.finding(
            "no GPU on this machine: the processor is the device",
            {"reason": str(reason), "built_with_cuda": evidence.devices.built_with_cuda},
            "Nothing to mend here. To judge the input side of a GPU run, use --accelerator emulated:MS.",
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
    yield gpu_invisible.finding(
        f"{len(gpus)} GPU(s) here, and TensorFlow sees none: {cause}",
        {"gpus": len(gpus), "built_with_cuda": evidence.devices.built_with_cuda, "mask": mask},
        remedy,
        severity="critical",
    )
