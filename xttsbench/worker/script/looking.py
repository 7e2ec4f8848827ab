"""What it costs to watch a script, per step: small steps with the patches and without, in turn, in its own process."""

from __future__ import annotations

import statistics
import time
from typing import Any, Final

import tensorflow as tf

from xttsbench.records.script import ScriptRun
from xttsbench.records.trial import Looking, TrialSpec
from xttsbench.worker.channel import Channel

_PAIRS: Final = 20
_STEPS: Final = 50


class _Nobody(Channel):
    """A channel to nobody."""

    def __init__(self) -> None:
        pass

    def send(self, message: dict[str, Any]) -> None:
        """Forget the message."""


class _NoProcess:
    """What a watched script needs of its process, with nobody to tell."""

    def __init__(self, spec: TrialSpec) -> None:
        self.spec = spec
        self.channel = _Nobody()
        self.run = ScriptRun()

    def tell(self, **changed: Any) -> None:
        """Change the record."""
        self.run = self.run.model_copy(update=changed)


def measure_looking(spec: TrialSpec, *, in_graph: bool) -> Looking:
    """Mean cost of watching a step, as the median over pairs of the difference.

    Args:
        spec: the trial's.
        in_graph: whether the script's requests for data are inside a graph (``fit``), with their stamps.
    """
    dataset = tf.data.Dataset.from_tensors(tf.zeros([4, 4])).repeat()
    long = spec.model_copy(update={"steps": 10**9, "window_s": 1e6, "emulated_ms": ()})
    differences = []
    iterator = iter(dataset)
    steps = {watched: _step(long, iterator, watched=watched, in_graph=in_graph) for watched in (True, False)}
    for pair in range(_PAIRS):
        times = {}
        for watched in (True, False) if pair % 2 else (False, True):
            began = time.perf_counter_ns()
            steps[watched]()
            times[watched] = time.perf_counter_ns() - began
        differences.append((times[True] - times[False]) / _STEPS)
    how = "a request inside a graph" if in_graph else "a request from Python and a small compiled step"
    return Looking(
        overhead_s=max(statistics.median(differences), 0.0) / 1e9,
        pairs=_PAIRS,
        method=f"{_PAIRS} pairs of {_STEPS} steps ({how}), watched and bare in turn, median difference",
    )


def _step(spec: TrialSpec, iterator: Any, *, watched: bool, in_graph: bool) -> Any:
    from xttsbench.worker.script.patches import Patches, patch_tensorflow
    from xttsbench.worker.script.watched import Watched

    one = Watched(_NoProcess(spec))  # type: ignore[arg-type]
    # Traced anew for each side: the stamps are in the trace.
    request = tf.function(lambda: next(iterator) + 1) if in_graph else tf.function(lambda batch: batch + 1)

    def run() -> None:
        patches = Patches()
        one.eager.open = None  # else the bare steps since then would be one long step
        if watched:
            patch_tensorflow(one, patches)
            one.watch.__enter__()
            one.fitting = in_graph
            one.active = True
        try:
            if in_graph:
                for _ in range(_STEPS):
                    request()
            else:
                for _ in range(_STEPS):
                    request(next(iterator))
        finally:
            one.active = False
            if watched:
                one.watch.__exit__()
            patches.undo()

    one.results  # noqa: B018 - made here, as it is paid once
    one.bouts.leave_out()
    run()
    return run
