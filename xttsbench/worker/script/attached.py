"""This very process, watched from now on: for a Keras callback, and for loops around their own data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras  # noqa: F401 - patched below
import tensorflow as tf

from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialSpec
from xttsbench.worker.channel import DirectChannel
from xttsbench.worker.script.patches import Patches, around_request, patch_keras, patch_tensorflow
from xttsbench.worker.script.report import ScriptReport
from xttsbench.worker.script.samples import RareSamples
from xttsbench.worker.script.watched import Watched
from xttsbench.worker.script.whole_run import WholeRunRecorder


class Attached:
    """Watches the process it is made in, on the main thread, until it is told that all is over.

    There is one at most: functions that are traced while it watches tell it of their waits, and no other.

    Args:
        spec: says what is watched.
        take: hears what is told.
        rows: gets the rows.
    """

    def __init__(self, spec: TrialSpec, take: Callable[[dict[str, Any]], None], rows: RowMemory) -> None:
        channel = DirectChannel(take, rows)
        report = ScriptReport(spec, channel)
        self.watched = Watched(report, lambda _: None, WholeRunRecorder(report))
        patches = Patches()
        patch_tensorflow(self.watched, patches)
        patch_keras(self.watched, patches)
        patches.put(Requests, "__next__", around_request(self.watched))
        self.watched.begin()
        self._samples = RareSamples(
            lambda held: channel.send({"samples": held}) if held else None, lambda: self.watched.requesting
        )
        self._samples.start()

    def tell(self) -> None:
        """Have everything told that is known by now: what was stamped in graphs, and which loop trains."""
        recorder = self.watched.recorder
        if not recorder.has_results:
            return
        self.watched.eager.steady.settle()
        with recorder.results.lock:
            if self.watched.fit.loop is not None:
                self.watched.fit.drain()
            elif self.watched.graph:
                self.watched.drain()
                self.watched.graph.add_rows()
            recorder.results.loops.choose(over=True)
            recorder.results.tell()

    def around(self, data: Iterable[Any]) -> Iterator[Any]:
        """An iterator over data; one over a dataset of TensorFlow's is seen by itself."""
        iterator = iter(data)
        seen = isinstance(data, tf.data.Dataset | tf.distribute.DistributedDataset)
        return iterator if seen else Requests(iterator)


class Requests:
    """Requests for batches from an iterator that TensorFlow knows nothing of."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)
