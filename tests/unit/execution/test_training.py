"""What the process that trains finds in its environment."""

from __future__ import annotations

from typing import Any

import pytest

from xttsbench.execution.training import training_environment
from xttsbench.records.training import TrainJob

THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
OWN_THREADS = {"TF_GPU_THREAD_MODE": "gpu_private"}
GROWTH = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_GPU_ALLOCATOR": "cuda_malloc_async"}


@pytest.mark.parametrize(
    ("wishes", "has_gpu", "expected"),
    [
        ({}, False, {}),
        ({"input_workers": 2}, False, THREADS),
        ({}, True, OWN_THREADS | GROWTH),
        ({"device_memory_mb": 4096}, True, OWN_THREADS),
        ({"logical_cpus": 2, "input_workers": 1}, True, THREADS),
        ({"device_memory_mb": 4096}, False, {}),
    ],
)
def test_each_wish_sets_what_it_is_about(wishes: dict[str, Any], has_gpu: bool, expected: dict[str, str]) -> None:
    job = TrainJob(directory="run", recipe={}, config={}, data="data", **wishes)
    assert training_environment(job, has_gpu=has_gpu) == expected
