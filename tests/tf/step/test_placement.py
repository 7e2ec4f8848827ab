"""Why an op is where it is: what was asked for comes before what there is, and that before what its types demand."""

from __future__ import annotations

import pytest

from xttsbench.step.graph_ops import (
    ASKED,
    INT32,
    NO_GPU,
    NO_KERNEL,
    PLACER,
    RESOURCE,
    STRINGS,
    PlacedOp,
    short_device,
    why,
)

BOTH = ("CPU", "GPU")


@pytest.mark.parametrize(
    ("placed", "reason"),
    [
        (PlacedOp("MatMul", "CPU:0", requested="/device:CPU:0", kernels=BOTH), ASKED),
        (PlacedOp("MatMul", "CPU:0", requested="/CPU:0", kernels=BOTH), ASKED),
        (PlacedOp("MatMul", "CPU:0", requested="/job:localhost/replica:0/task:0/device:CPU:0", kernels=BOTH), ASKED),
        (PlacedOp("Unique", "CPU:0", requested="/GPU:0", kernels=("CPU",)), NO_KERNEL),
        (PlacedOp("Unique", "CPU:0", kernels=("CPU",), dtypes=("string",)), NO_KERNEL),
        (PlacedOp("ReadVariableOp", "CPU:0", kernels=BOTH, resource_device="CPU:0"), RESOURCE),
        (PlacedOp("ReadVariableOp", "CPU:0", kernels=BOTH, resource_device="GPU:0"), PLACER),
        (PlacedOp("Identity", "CPU:0", kernels=BOTH, dtypes=("string",)), STRINGS),
        (PlacedOp("Sum", "CPU:0", kernels=BOTH, dtypes=("int32",)), INT32),
        (PlacedOp("Sum", "CPU:0", kernels=BOTH, dtypes=("float32", "int32")), PLACER),
        (PlacedOp("Sum", "CPU:0"), PLACER),
        (PlacedOp("MatMul", "GPU:0", kernels=BOTH), PLACER),
        (PlacedOp("MatMul", "GPU:0", requested="/GPU:0", kernels=BOTH), ASKED),
    ],
)
def test_why_beside_a_gpu(placed: PlacedOp, reason: str) -> None:
    assert why(placed, gpus=1) == reason


def test_without_a_gpu_there_is_no_choice() -> None:
    assert why(PlacedOp("MatMul", "CPU:0", requested="/CPU:0", kernels=BOTH), gpus=0) == NO_GPU


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ("/job:localhost/replica:0/task:0/device:GPU:1", "GPU:1"),
        ("/device:cpu:0", "CPU:0"),
        ("/GPU:0", "GPU:0"),
        ("GPU", "GPU:0"),
        ("", "CPU:0"),
    ],
)
def test_a_device_by_its_short_name(long: str, short: str) -> None:
    assert short_device(long) == short
