"""Parts of the process that trains that need TensorFlow: what watching costs, the emulated step, failures in words."""

from __future__ import annotations

import os
import socket
from typing import Any

import numpy as np
import pytest

from xttsbench.execution.child import SharedRows
from xttsbench.records.training import TrainJob
from xttsbench.training.order import Position
from xttsbench.training.stream import Fetched
from xttsbench.worker.parent import Stop
from xttsbench.worker.training import session
from xttsbench.worker.training.session import EmulatedStep, watching_overhead
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


def test_a_signal_is_remembered() -> None:
    stop = Stop()
    assert not stop()
    stop.ask(15, None)
    assert stop()


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
        assert session.serve(theirs, os.dup(rows.fileno()), Stop(), 0.0) == 0
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
        assert session.serve(theirs, os.dup(rows.fileno()), Stop(), 0.0) == 1
