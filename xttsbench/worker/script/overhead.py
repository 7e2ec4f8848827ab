"""What it costs to watch a script, per step: small steps with the patches and without, in turn, in its own process."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import MeasurementOverhead, ScriptRun, TrialSpec
from xttsbench.worker.channel import Channel
from xttsbench.worker.overhead import Steps, overhead_of


class Nobody(Channel):
    """A channel to nobody."""

    def __init__(self) -> None:
        self.rows = RowMemory(bytearray(RowMemory.size_bytes(64)))

    def send(self, message: dict[str, Any]) -> None:
        """Forget the message."""


class _NoProcess:
    """What a watched script needs of its process, with nobody to tell."""

    def __init__(self, spec: TrialSpec) -> None:
        self.spec = spec
        self.channel = Nobody()
        self.run = ScriptRun()

    def tell(self, **changed: Any) -> None:
        """Change the record."""
        self.run = self.run.model_copy(update=changed)


def measure_overhead(spec: TrialSpec, *, in_graph: bool) -> MeasurementOverhead:
    """Mean cost of watching a step.

    Args:
        spec: the trial's.
        in_graph: whether the script's requests for data are inside a graph (``fit``), with their stamps.
    """
    iterator = iter(tf.data.Dataset.from_tensors(tf.zeros([4, 4])).repeat())
    long = spec.model_copy(update={"steps": 10**9, "window_s": 1e6, "emulated_ms": ()})
    watched, bare = (_steps(long, iterator, watched=watched, in_graph=in_graph) for watched in (True, False))
    how = "a request inside a graph" if in_graph else "a request from Python and a small compiled step"
    return overhead_of(watched, bare, how, clock=time.process_time_ns if in_graph else time.thread_time_ns)


def _steps(spec: TrialSpec, iterator: Any, *, watched: bool, in_graph: bool) -> Steps:
    from xttsbench.worker.script.patches import Patches, patch_tensorflow
    from xttsbench.worker.script.watched import Watched

    one = Watched(_NoProcess(spec))  # type: ignore[arg-type]
    # Traced anew for each side: the stamps are in the trace.
    request = tf.function(lambda: next(iterator) + 1) if in_graph else tf.function(lambda batch: batch + 1)

    def run(steps: int) -> None:
        patches = Patches()
        one.eager.open = None  # else the bare steps since then would be one long step
        if watched:
            patch_tensorflow(one, patches)
            one.watch.__enter__()
            one.fitting = in_graph
            one.active = True
        try:
            if in_graph:
                for _ in range(steps):
                    request()
            else:
                for _ in range(steps):
                    request(next(iterator))
        finally:
            one.active = False
            if watched:
                one.watch.__exit__()
            patches.undo()

    one.results  # noqa: B018 - made here, as it is paid once
    one.bouts.leave_out()
    run(10)
    return run
