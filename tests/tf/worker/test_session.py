"""Parts of the process that trains that need TensorFlow: what watching costs, the emulated step, failures in words."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tf.forks import Forks
from xttsbench.errors import InvalidInputError
from xttsbench.execution.child import SharedRows
from xttsbench.probes.procfs import CpuAllowance
from xttsbench.records.training import TrainJob
from xttsbench.training.course import Position
from xttsbench.training.stream import Fetched
from xttsbench.worker import session
from xttsbench.worker.session import EmulatedStep, watching_overhead
from xttsbench.xtts.data.batches import Batch, LossCounts


@pytest.fixture
def fetched() -> Fetched:
    clips = np.arange(3, dtype=np.int32)
    batch = Batch(clips, clips, clips, frames=256, characters=32, reference_frames=64)
    counts = LossCounts(1.0, 1.0, 1.0)
    return Fetched(Position(), ("a", "b", "c"), (), counts, batch, frames=768, valid_frames=600)


def test_watching_costs_microseconds_and_says_how_that_was_measured(fetched: Fetched) -> None:
    found = watching_overhead(fetched)
    assert found.overhead_s > 0
    assert found.pairs >= 10
    assert "in turn" in found.method


def test_an_emulated_step_waits_and_learns_nothing(fetched: Fetched) -> None:
    step = EmulatedStep([2.0, 4.0])
    waits = []
    for number in range(4):
        result = step((), fetched.counts, number=number, learning_rate=1.0)
        waits.append(step.waited_ns / 1e6)
    assert bool(result.applied)
    assert all(wait >= asked for wait, asked in zip(waits, [2.0, 4.0, 2.0, 4.0], strict=True))


@pytest.mark.parametrize(
    ("error", "status", "exit_code"),
    [
        (session.XttsbenchError("off course"), "raised", 1),
        (MemoryError("no room"), "out_of_memory", 1),
        (ValueError("a fault of ours"), "raised", 1),
    ],
)
def test_whatever_happens_the_parent_is_told(monkeypatch, error: Exception, status: str, exit_code: int) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(session, "Session", fails)
    ours, theirs = socket.socketpair()
    with ours, theirs, SharedRows(1) as rows:
        ours.sendall(TrainJob(directory="d", recipe={}, config={}, data="s").model_dump_json().encode() + b"\n")
        assert session.serve(theirs, os.dup(rows.fileno()), lambda: False, 0.0) == 0
        theirs.shutdown(socket.SHUT_WR)
        told, done, _ = ours.makefile().read().split("\n")
    assert f'"status":"{status}"' in told
    assert f'"exit_code":{exit_code}' in told
    assert str(error) in told
    assert done == '{"done":true}'


def test_a_parent_that_is_gone_is_no_error() -> None:
    ours, theirs = socket.socketpair()
    with theirs, SharedRows(1) as rows:
        ours.sendall(TrainJob(directory="d", recipe={}, config={}, data="s").model_dump_json().encode() + b"\n")
        ours.close()
        assert session.serve(theirs, os.dup(rows.fileno()), lambda: False, 0.0) == 1


SCRIPT = """
import json, sys
import tensorflow as tf
from xttsbench.records.training import TrainJob
from xttsbench.worker.session import configure

notes = configure(TrainJob.model_validate_json(sys.argv[1]))
print(json.dumps({
    "notes": notes,
    "cpus": len(tf.config.list_logical_devices("CPU")),
    "works": float(tf.reduce_sum(tf.ones([3]))),
}))
"""
ONE_GPU = [type("Gpu", (), {"name": "/physical_device:GPU:0"})()]


def job(**wishes: Any) -> TrainJob:
    return TrainJob(**{"directory": "run", "recipe": {}, "config": {}, "data": "data", **wishes})


def test_what_is_asked_for_is_what_the_runtime_has(forks: Forks, tmp_path: Path) -> None:
    asked = job(
        strategy="mirrored",
        logical_cpus=3,
        device_memory_mb=100,
        config={"precision": "mixed_float16"},
    )
    (tmp_path / "configures.py").write_text(SCRIPT)
    with forks.start(tmp_path / "configures.py", asked.model_dump_json()) as process:
        (line,) = [one for one in process.succeed().splitlines() if one.startswith("{")]
    found = json.loads(line)
    assert (found["cpus"], found["works"]) == (3, 3.0)
    assert [note for note in found["notes"] if "stay idle" not in note] == [
        "device_memory_mb 100 limits a GPU's memory, and there is none in use: nothing is limited",
        "precision mixed_float16 is slower than float32 on a processor",
    ]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What TensorFlow is told, in place of telling it: the runtime of these tests has started."""
    told: list[Any] = []
    config = session.tf.config
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
    monkeypatch.setattr(session, "cpu_allowance", lambda: CpuAllowance(8, 8, 2.5, 2.5))
    monkeypatch.setattr(session, "_gpu_memory_bytes", lambda: [2**33, 2**34])
    return told


def test_a_gpu_grows_and_threads_follow_the_quota(calls: list[Any]) -> None:
    assert session.configure(job()) == []
    assert ("set_memory_growth", ONE_GPU[0], True) in calls
    assert [call for call in calls if "op_parallelism" in call[0]] == [
        ("set_intra_op_parallelism_threads", 3),
        ("set_inter_op_parallelism_threads", 3),
    ]


def test_a_gpu_is_limited(calls: list[Any]) -> None:
    assert session.configure(job(device_memory_mb=4096)) == []
    ((gpu, (limited,)),) = (call[1:] for call in calls if call[0] == "set_logical_device_configuration")
    assert (gpu, limited.memory_limit) == (ONE_GPU[0], 4096)
    assert not [call for call in calls if call[0] == "set_memory_growth"]


def test_a_gpu_that_is_too_old_or_left_idle_is_said(calls: list[Any]) -> None:
    (note,) = session.configure(job(config={"precision": "tf32"}))
    assert note == "precision tf32 needs compute capability 8.0, which /physical_device:GPU:0 lacks"
    (note,) = session.configure(job(logical_cpus=2, strategy="mirrored"))
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
        session.configure(job(**wishes))
