"""What the process that trains finds in its environment, and a script that is interrupted before it begins."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any
from unittest.mock import Mock

import pytest

from xttsbench.execution import ending, held_back, trial, whole_run
from xttsbench.execution.child import SharedRows
from xttsbench.execution.whole_run import run_whole, training_environment
from xttsbench.records.readings import HostReadings, Readings
from xttsbench.records.training import TrainJob
from xttsbench.records.trial import TrialSpec

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


GIB = 2**30


@pytest.mark.parametrize(("held_gib", "suspected"), [(1, False), (6, False), (7.5, True), (10, True)])
def test_a_killed_trial_that_held_most_of_the_memory_ran_out_of_it(held_gib, suspected, monkeypatch) -> None:
    monkeypatch.setattr(trial, "memory_limit_bytes", lambda: 10 * GIB)
    readings = Readings(host=HostReadings(t_ns=(1, 2), rss_bytes=(GIB, int(held_gib * GIB))))
    said = trial._out_of_memory(readings)
    assert (said is not None) is suspected
    if said:
        assert f"{held_gib:.1f} of 10.0 GiB" in said


def test_without_readings_nothing_is_suspected() -> None:
    assert trial._out_of_memory(Readings()) is None


@pytest.fixture
def trains(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A process that trains, which notes what it is sent; and its session."""
    sent: list[int] = []
    real, process = os.kill, Mock(pid=-1)
    monkeypatch.setattr(
        whole_run.os, "kill", lambda pid, number: sent.append(number) if pid == -1 else real(pid, number)
    )
    monkeypatch.setattr(whole_run, "kill_group", lambda _: sent.append(signal.SIGKILL))
    monkeypatch.setattr(whole_run, "ends_within", lambda *_: False)
    return process, Mock(signals=0), sent


def test_a_hang_up_asks_a_training_once_for_its_end_and_a_second_key_kills_it(trains: Any) -> None:
    process, session, sent = trains
    with ending.heeded(), whole_run._signals_go_to(process, session):
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
        with whole_run._signals_go_to(process, session):
            assert sent == [signal.SIGTERM]


def test_under_nohup_a_training_hears_no_hang_up(trains: Any) -> None:
    process, session, sent = trains
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with whole_run._signals_go_to(process, session):
            signal.raise_signal(signal.SIGHUP)
        assert sent == []
    finally:
        signal.signal(signal.SIGHUP, before)


def test_who_interrupts_before_there_is_a_script_gets_none() -> None:
    spec = TrialSpec(trial_id="t", kind="script", target="train.py")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    listener = Mock()
    with SharedRows(1) as shared, held_back():
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            run_whole(spec, listener, shared, print_to_stderr=True)
    assert listener.mock_calls == []
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert not signal.sigpending()
