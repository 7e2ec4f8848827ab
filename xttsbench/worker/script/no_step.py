"""A script in which no step is seen: what it does instead, and when waiting for one is given up.

A script may prepare data for minutes before its first step, and xttsbench waits as long as something is imported, read
from files or compiled. Where it trains already, and no batch of a data set is taken, waiting for one is for nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from xttsbench.pipeline.places import user_calls
from xttsbench.probes.procfs import own_reads
from xttsbench.stacks import stacks

if TYPE_CHECKING:
    from xttsbench.worker.script.watched import Watched

TOLD_AFTER_S: Final = 20.0
_TRAINS: Final = 10
"""Times that gradients are taken, or calls of tf.functions once they were: fewer may be a model that is tried once."""
_LOADS_BYTES: Final = 1 << 20  # read between two looks; what looking reads itself is far less
_GRACE_S: Final = 5.0
_REMEDY: Final = (
    "What is seen are batches of a tf.data.Dataset, those of fit, and those that a loop takes whose own text trains on "
    "them: put a dataset around what yields the batches, or name a function that returns the dataset and the step "
    "(FILE.py:FUNCTION)"
)


class NoStep:
    """Watches a script until its first step.

    Args:
        watched: the script.
        patience_s: seconds without a step, in which nothing is imported, read or compiled, after which the script is
            stopped; one that trains already, after 20 of them.
        clock: seconds.
        read_bytes: what this process has read so far.
    """

    def __init__(
        self,
        watched: Watched,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
        read_bytes: Callable[[], int] | None = None,
    ) -> None:
        self._watched = watched
        self._patience_s = patience_s
        self._clock = clock
        self._read_bytes = read_bytes or _read_bytes
        self._since_s = self._began_s = clock()
        self._trains = False
        self._known = self._activity()
        self._calls = 0
        self._main = threading.main_thread().ident
        self.over = self.told = False

    def look(self) -> None:
        """Look whether there was a step, and say where there was none for long; called from another thread."""
        if self.over:
            return
        recorder = self._watched.recorder
        if (
            self._watched.graph
            or self._watched.expects_steps
            or (recorder.has_results and any(one.steps for one in recorder.results.loops.all()))
        ):
            self.over = True
            return
        now_s, before, self._known = self._clock(), self._known, self._activity()
        calls = recorder.watch.counts[0]
        trains = recorder.tapes >= _TRAINS or (recorder.tapes > 0 and calls >= _TRAINS)
        (imports, traces, read), (imports_before, traces_before, read_before) = self._known, before
        loads = imports != imports_before or traces != traces_before or read - read_before > _LOADS_BYTES
        one_call = recorder.watch.calling and calls == self._calls  # XLA compiles, or all of the training is in it
        self._calls = calls
        fits = self._watched.fitting or recorder.keras_calls.within == "fit"
        prepares = loads or one_call or self._watched.requesting or fits
        if not self._trains and (trains or prepares):  # once it trains, nothing that it does is a preparation
            self._since_s = now_s
        self._trains = trains
        silent_s = now_s - self._since_s
        if silent_s >= TOLD_AFTER_S and not self.told:
            self.told = True
            recorder.report.channel.phase(f"no step for {silent_s:.0f} s{self._place()}")
        if silent_s >= (min(TOLD_AFTER_S, self._patience_s) if trains else self._patience_s):
            self.over = True
            recorder.report.channel.send({"status": "empty", "cause": f"{self._said(now_s)}. {_REMEDY}"})
            recorder.grace_s = _GRACE_S
            recorder.stop()

    def _said(self, now_s: float) -> str:
        """The sentence of what was seen instead of a step, without its full stop."""
        tapes, calls = self._watched.recorder.tapes, self._watched.recorder.watch.counts[0]
        seen = [f"gradients were taken {tapes:,} times" if tapes else "no gradients were taken"]
        seen += [f"tf.functions called {calls:,} times"] if calls else []
        seen += [
            f"{one.method}() called {one.calls:,} times, for a batch or two each: `{one.on_batch}` takes less"
            for one in self._watched.recorder.keras_calls.record()
            if one.for_each_batch
        ]
        since = f"no step was seen in {now_s - self._began_s:.0f} s: {' and '.join(seen)}"
        return f"{since}{self._place()}"

    def _place(self) -> str:
        """Phrase for the user's line at which the script is now; empty where it is at none."""
        with stacks() as frames:
            calls = user_calls(frames.get(self._main or 0))
        return f", the script is at {os.path.basename(calls[0].file)}:{calls[0].line}" if calls else ""

    def _activity(self) -> tuple[int, int, int]:
        return len(sys.modules), len(self._watched.recorder.watch.traces), self._read_bytes()


def _read_bytes() -> int:
    reads = own_reads()
    return (reads.call_bytes or 0) if reads is not None else 0
