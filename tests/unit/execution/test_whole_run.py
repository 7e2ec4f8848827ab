"""What the process that trains finds in its environment, and a script that is interrupted before it begins."""

from __future__ import annotations

import signal
import threading
from typing import Any
from unittest.mock import Mock

import pytest

from xttsbench.execution import held_back, trial
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
