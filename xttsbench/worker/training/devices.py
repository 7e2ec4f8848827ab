"""Devices, their memory, and the batches that fit into it, as a training job wants them, before TensorFlow starts."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

import pynvml  # nvidia-ml-py; it ships no types
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.probes.procfs import CpuAllowance, cpu_allowance, obtainable_bytes
from xttsbench.records.training import Fitted, TrainJob
from xttsbench.training.memory import Plan, ends, fit_tokens
from xttsbench.training.order import clip_frames, planned_epoch
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.recipe import Recipe

_MIB: Final = 2**20
_AMPERE: Final = (8, 0)
"""Compute capability from which on a GPU has TF32 and bfloat16."""
_NEED_AMPERE: Final = ("tf32", "mixed_bfloat16")


def configure(job: TrainJob) -> list[str]:
    """Set up what TensorFlow reads when its runtime starts; returns a sentence for each wish that had no effect.

    Raises:
        InvalidInputError: the job asks for what this machine cannot be.
        RuntimeError: the runtime has started already.
    """
    gpus = tf.config.list_physical_devices("GPU")
    notes = _configure_threads(job, cpu_allowance())
    if job.logical_cpus is not None:
        notes += _divide_processor(job, job.logical_cpus, gpus)
        gpus = []
    if job.device_memory_mb is not None:
        notes += _limit_memory(job.device_memory_mb, gpus)
    else:
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    return notes + _doubts(job, gpus)


def memory_bytes(job: TrainJob) -> int:
    """Return what a step may take: of the smallest GPU's memory, or else of what this process can still get.

    To be asked before the model is made. The processor's memory is that of the machine or of the control group,
    whichever leaves less.
    """
    if tf.config.list_physical_devices("GPU") and job.logical_cpus is None:
        if job.device_memory_mb is not None:
            return job.device_memory_mb * _MIB
        if totals := _gpu_memory_bytes():
            return min(totals)
    return obtainable_bytes()


def _configure_threads(job: TrainJob, allowance: CpuAllowance) -> list[str]:
    """Set the threads that the job asks for; without a wish, no more than there are processors to run them."""
    allowed = max(1, math.ceil(allowance.allowed_cpus))
    # TensorFlow counts the machine's processors, and the kernel throttles what a control group may not use.
    usual = allowed if allowed < allowance.machine_cpus else None
    notes = []
    for kind, wish, set_threads in (
        ("intra", job.intra_op_threads, tf.config.threading.set_intra_op_parallelism_threads),
        ("inter", job.inter_op_threads, tf.config.threading.set_inter_op_parallelism_threads),
    ):
        if wish is not None and wish > allowed:
            notes.append(
                f"{wish} {kind}-op threads are more than the {allowed} processors that may be used; they take turns"
            )
        if threads := wish or usual:
            set_threads(threads)
    return notes


def _divide_processor(job: TrainJob, count: int, gpus: list[Any]) -> list[str]:
    if count > 1 and job.strategy == "one":
        raise InvalidInputError(
            f"logical_cpus is {count}, and the strategy one trains on one device; take mirrored, or one logical CPU"
        )
    (processor, *_) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * count)
    if not gpus:
        return []
    tf.config.set_visible_devices([], "GPU")
    return [f"{len(gpus)} GPU(s) stay idle, for logical_cpus asks for the processor"]


def _limit_memory(limit_mb: int, gpus: list[Any]) -> list[str]:
    if not gpus:
        return [f"device_memory_mb {limit_mb} limits a GPU's memory, and there is none in use: nothing is limited"]
    if (totals := _gpu_memory_bytes()) and limit_mb * _MIB > min(totals):
        raise InvalidInputError(
            f"device_memory_mb is {limit_mb}, and the smallest GPU has {min(totals) // _MIB} MiB; ask for less"
        )
    for gpu in gpus:
        tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=limit_mb)])
    return []


def _doubts(job: TrainJob, gpus: list[Any]) -> list[str]:
    """What is possible and hardly wanted."""
    precision = job.config.get("precision", "float32")
    notes = []
    if precision in _NEED_AMPERE:
        old = [gpu.name for gpu in gpus if _capability(gpu) < _AMPERE]
        if old:
            notes.append(f"precision {precision} needs compute capability 8.0, which {', '.join(old)} lacks")
    if precision == "mixed_float16" and not gpus:
        notes.append("precision mixed_float16 is slower than float32 on a processor")
    return notes


def _capability(gpu: Any) -> tuple[int, ...]:
    # Where the driver does not say, nothing is known against it.
    return tuple(tf.config.experimental.get_device_details(gpu).get("compute_capability", _AMPERE))


def _gpu_memory_bytes() -> list[int]:
    """Return the memory of each GPU of the machine; none where the driver does not say."""
    try:
        pynvml.nvmlInit()
        try:
            handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
            return [int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) for handle in handles]
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return []


_UPDATES: Final = 8
"""Of an epoch at least, unless the recipe's own batches leave fewer: many updates teach more than large ones."""


def fitted(job: TrainJob, recipe: Recipe, data: SpeechData, *, parts: int) -> Fitted:
    """Return the largest ``tokens_per_batch`` whose steps fit into the memory of the device.

    Raises:
        InvalidInputError: a batch of a single clip does not fit.
        XttsbenchError: a step failed otherwise.
    """
    epoch = planned_epoch(data, recipe, recipe.batches, job.seed, epoch=0)
    own = max(len(batch.clips) * batch.frames for batch in epoch)
    wanted = max(own, int(clip_frames(data, recipe).sum()) // (_UPDATES * parts))
    plan = Plan(recipe, str(job.config["mode"]), str(job.config["precision"]), job.strategy)
    found = fit_tokens(
        plan,
        ends(epoch),
        limit_bytes=memory_bytes(job),
        at_most=wanted,
        prepare=partial(configure, job),
    )
    return Fitted(**found._asdict())


def with_tokens(recipe: Recipe, tokens: int) -> Recipe:
    """Return the recipe with batches of so many mel frames."""
    batches = recipe.batches.model_copy(update={"batch_size": None, "tokens_per_batch": tokens})
    return recipe.model_copy(update={"batches": batches})
