"""A bench of the real parts, whose channel keeps its messages and rows instead of sending them."""

from __future__ import annotations

import pytest

from xttsbench.execution.child import Collected
from xttsbench.records.readings import Readings
from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialSpec
from xttsbench.step.watch import Watch
from xttsbench.worker.bench import Bench
from xttsbench.worker.channel import Channel


class Kept(Channel):
    """A channel to nowhere; :meth:`record` reads the messages as the parent would."""

    def __init__(self):
        self.rows = RowMemory(bytearray(RowMemory.size_bytes(512)))
        self.messages = []

    def send(self, message):
        self.messages.append(message)

    def decided(self):
        return False

    def record(self):
        collected = Collected(TrialSpec(trial_id="000-test", kind="ladder", target="t:t"), self.rows)
        for message in self.messages:
            collected.take(message)
        return collected.record(started_utc="2026-01-01T00:00:00", duration_s=1.0, readings=Readings())


@pytest.fixture
def bench():
    with Watch() as watch:
        yield Bench(Kept(), watch, None, None)


@pytest.fixture
def segment(bench):
    """``segment(name)``: the segment of that name as the parent has it."""
    return lambda name: bench.channel.record().segment(name)
