"""What the process that trains finds in its environment, and which signals reach it."""

from __future__ import annotations

import os
import signal
from typing import Any
from unittest.mock import Mock

import pytest

from xttsbench.execution import ending, training
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


@pytest.fixture
def trains(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A process that trains, which notes what it is sent; and its session."""
    sent: list[int] = []
    real, process = os.kill, Mock(pid=-1)
    monkeypatch.setattr(
        training.os, "kill", lambda pid, number: sent.append(number) if pid == -1 else real(pid, number)
    )
    monkeypatch.setattr(training, "kill_group", lambda _: sent.append(signal.SIGKILL))
    monkeypatch.setattr(training, "ends_within", lambda *_: False)
    return process, Mock(signals=0), sent


def test_a_hang_up_asks_a_training_once_for_its_end_and_a_second_key_kills_it(trains: Any) -> None:
    process, session, sent = trains
    with ending.heeded(), training._signals_go_to(process, session):
        for _ in range(3):
            signal.raise_signal(signal.SIGHUP)
        assert sent == [signal.SIGTERM]
        signal.raise_signal(signal.SIGINT)
        assert sent == [signal.SIGTERM, signal.SIGKILL]
        assert ending.asked == [signal.SIGHUP, signal.SIGINT]
    assert session.listener.stopping.call_count == 1


def test_who_asked_while_a_training_was_started_is_passed_on(trains: Any) -> None:
    process, session, sent = trains
    with ending.heeded(), ending.finishes():
        signal.raise_signal(signal.SIGTERM)
        with training._signals_go_to(process, session):
            assert sent == [signal.SIGTERM]


def test_under_nohup_a_training_hears_no_hang_up(trains: Any) -> None:
    process, session, sent = trains
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with training._signals_go_to(process, session):
            signal.raise_signal(signal.SIGHUP)
        assert sent == []
    finally:
        signal.signal(signal.SIGHUP, before)
