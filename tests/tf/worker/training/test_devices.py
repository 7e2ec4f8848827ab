"""Devices, memory and threads of a training process: in processes of their own, for each has one runtime."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.probes.quota import CpuAllowance
from xttsbench.records.training import TrainJob
from xttsbench.worker.training import devices

SCRIPT = """
import json, sys
import tensorflow as tf
from xttsbench.records.training import TrainJob
from xttsbench.worker.training.devices import configure, memory_bytes

notes = configure(TrainJob.model_validate_json(sys.argv[1]))
print(json.dumps({
    "notes": notes,
    "cpus": len(tf.config.list_logical_devices("CPU")),
    "intra": tf.config.threading.get_intra_op_parallelism_threads(),
    "inter": tf.config.threading.get_inter_op_parallelism_threads(),
    "works": float(tf.reduce_sum(tf.ones([3]))),
    "memory_bytes": memory_bytes(TrainJob.model_validate_json(sys.argv[1])),
}))
"""
ONE_GPU = [type("Gpu", (), {"name": "/physical_device:GPU:0"})()]


def job(**wishes: Any) -> TrainJob:
    return TrainJob(**{"directory": "run", "recipe": {}, "config": {}, "data": "data", **wishes})


def test_what_is_asked_for_is_what_the_runtime_has() -> None:
    asked = job(
        strategy="mirrored",
        logical_cpus=3,
        intra_op_threads=1,
        inter_op_threads=3000,
        device_memory_mb=100,
        config={"precision": "mixed_float16"},
    )
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, asked.model_dump_json()],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["cpus"], found["intra"], found["inter"], found["works"]) == (3, 1, 3000, 3.0)
    threads, *others = (note for note in found["notes"] if "stay idle" not in note)
    assert threads.startswith("3000 inter-op threads are more than the ")
    assert others == [
        "device_memory_mb 100 limits a GPU's memory, and there is none in use: nothing is limited",
        "precision mixed_float16 is slower than float32 on a processor",
    ]
    assert 0 < found["memory_bytes"] < 2**50


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What TensorFlow is told, in place of telling it: the runtime of these tests has started."""
    told: list[Any] = []
    config = devices.tf.config
    for place, name in (
        (config.threading, "set_intra_op_parallelism_threads"),
        (config.threading, "set_inter_op_parallelism_threads"),
        (config, "set_logical_device_configuration"),
        (config, "set_visible_devices"),
        (config.experimental, "set_memory_growth"),
    ):
        monkeypatch.setattr(place, name, lambda *arguments, name=name: told.append((name, *arguments)))
    processor = config.list_physical_devices("CPU")
    monkeypatch.setattr(config, "list_physical_devices", lambda kind: ONE_GPU if kind == "GPU" else processor)
    monkeypatch.setattr(config.experimental, "get_device_details", lambda gpu: {"compute_capability": (7, 5)})
    monkeypatch.setattr(devices, "cpu_allowance", lambda: CpuAllowance(8, 8, 2.5, 2.5))
    monkeypatch.setattr(devices, "_gpu_memory_bytes", lambda: [2**33, 2**34])
    return told


def test_a_gpu_grows_and_threads_follow_the_quota(calls: list[Any]) -> None:
    assert devices.configure(job()) == []
    assert ("set_memory_growth", ONE_GPU[0], True) in calls
    assert [call for call in calls if "op_parallelism" in call[0]] == [
        ("set_intra_op_parallelism_threads", 3),
        ("set_inter_op_parallelism_threads", 3),
    ]
    assert devices.memory_bytes(job()) == 2**33


def test_a_gpu_is_limited(calls: list[Any]) -> None:
    assert devices.configure(job(device_memory_mb=4096)) == []
    ((gpu, (limited,)),) = (call[1:] for call in calls if call[0] == "set_logical_device_configuration")
    assert (gpu, limited.memory_limit) == (ONE_GPU[0], 4096)
    assert not [call for call in calls if call[0] == "set_memory_growth"]
    assert devices.memory_bytes(job(device_memory_mb=4096)) == 2**32


def test_a_gpu_that_is_too_old_or_left_idle_is_said(calls: list[Any]) -> None:
    (note,) = devices.configure(job(config={"precision": "tf32"}))
    assert note == "precision tf32 needs compute capability 8.0, which /physical_device:GPU:0 lacks"
    (note,) = devices.configure(job(logical_cpus=2, strategy="mirrored"))
    assert note == "1 GPU(s) stay idle, for logical_cpus asks for the processor"
    assert ("set_visible_devices", [], "GPU") in calls


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"device_memory_mb": 9000}, "device_memory_mb is 9000, and the smallest GPU has 8192 MiB; ask for less"),
        ({"logical_cpus": 2}, "logical_cpus is 2, and the strategy one trains on one device; take mirrored"),
    ],
)
def test_what_cannot_be_is_refused(calls: list[Any], wishes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        devices.configure(job(**wishes))
