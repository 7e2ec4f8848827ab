"""Environment variables of the process that trains: what TensorFlow reads once, before any of our lines can tell it."""

from __future__ import annotations

from typing import Final

from xttsbench.records.training import TrainJob

_ONE_THREAD_EACH: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def training_environment(job: TrainJob, *, has_gpu: bool) -> dict[str, str]:
    """Return the variables of a training process, to be put below those that the user has set. Pure.

    - Input processes share the cores, so NumPy gets one thread in each of them; they inherit it.
    - A GPU's kernels are launched by threads of their own, which a busy input pipeline cannot hold up. Its memory is
      taken as needed, from CUDA's own pool, which batches of several shapes fragment less; but where it is limited,
      from TensorFlow's own allocator, whose limit is a hard one.

    Args:
        job: what is trained.
        has_gpu: whether the machine has an NVIDIA driver.
    """
    variables = dict.fromkeys(_ONE_THREAD_EACH, "1") if job.input_workers else {}
    if has_gpu and job.logical_cpus is None:
        variables["TF_GPU_THREAD_MODE"] = "gpu_private"
        if job.device_memory_mb is None:
            variables |= {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_GPU_ALLOCATOR": "cuda_malloc_async"}
    return variables
