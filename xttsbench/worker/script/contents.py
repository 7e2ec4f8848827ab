"""What the batches of a script's training loop hold, in the trials that time it; digested when a turn is over.

A loop in Python hands its batches over. One inside a graph puts them into a staging area on the processor: that is one
op, which holds the tensors themselves and copies nothing. It is emptied when the turn is over, or when it grows large.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.framework import ops

from xttsbench.worker.batches import size_bytes
from xttsbench.worker.contents import ContentLook
from xttsbench.worker.script.loops.graph_clock import DEVICE, tensors_of
from xttsbench.worker.script.loops.loop import Loop
from xttsbench.worker.script.turns import AgainLoops

_STAGED_BYTES: Final = 1 << 25
"""That an area may hold before it is emptied within a turn."""


class ScriptContents:
    """Digests of the batches of a script's loop.

    Args:
        loops: those of the script.
    """

    def __init__(self, loops: AgainLoops) -> None:
        self.look = ContentLook()
        self._loops = loops
        self._areas: list[_Area] = []
        self._lock = threading.Lock()

    def got(self, loop: Loop, batch: Any, shape_id: int) -> None:
        """A request from Python gave a batch."""
        if self._loops.counts(loop) and self._loops.is_own(loop):
            self.look.see(max(loop.epochs - 1, 0), loop.taken, batch, shape_id)
        loop.taken += 1

    def traced(self, number: Any, batch: Any) -> None:
        """Have the graph that is being traced keep what a request gives.

        Args:
            number: of the request, of those that are made at its place.
            batch: the batch, or an ``Optional`` of it.
        """
        given = batch.element_spec if isinstance(batch, tf.experimental.Optional) else batch
        parts = tf.nest.flatten(given, expand_composites=True)
        dtypes = [one.dtype for one in parts if isinstance(one, tf.Tensor | tf.TensorSpec)]
        plain = dtypes and not any(one in (tf.variant, tf.resource) for one in dtypes)
        if plain and not tf.config.list_logical_devices("GPU"):  # a copy would cost more than a step may
            self._areas.append(_Area(f"xttsbench/batches/{len(self._areas)}", [tf.int64, *dtypes]))
            self._areas[-1].write(number, batch)

    def relieve(self) -> None:
        """Take what areas hold that grow large; once as much is kept as may be, let go of it."""
        with self._lock:
            for index, area in enumerate(self._areas):
                if area.is_large:
                    self._take(index, area)

    def digest(self) -> None:
        """Take the digests of what was kept, off the clock, and let go of it."""
        with self._lock:
            for index, area in enumerate(self._areas):
                self._take(index, area)
            self.look.digest()

    def _take(self, index: int, area: _Area) -> None:
        if self.look.full:
            area.clear()
        for number, *batch in area.read():
            self.look.see(index, int(number._numpy_internal()), tuple(batch), -1 - index)


class _Area:
    """Batches that one place of a graph has kept; it is found by its name, as rings of time stamps are."""

    def __init__(self, name: str, dtypes: list[Any]) -> None:
        self._given = {"dtypes": dtypes, "shared_name": name, "container": ""}
        self._bytes = 0

    def write(self, number: Any, batch: Any) -> None:
        """Add the op that keeps a batch to the graph that is being traced."""
        given = {"shared_name": self._given["shared_name"], "container": ""}

        def put(value: Any) -> Any:
            with tf.device(DEVICE):
                tf.raw_ops.Stage(values=[number, *tensors_of(value)], **given)
                return tf.constant(True)

        with tf.name_scope("xttsbench"), ops.colocate_with(None, ignore_existing=True), tf.device(DEVICE):
            if isinstance(batch, tf.experimental.Optional):
                tf.cond(batch.has_value(), lambda: put(batch.get_value()), lambda: tf.constant(False))
            else:
                put(batch)

    @property
    def is_large(self) -> bool:
        """Whether it should be emptied; also where it is not known how large a batch is."""
        count = self._count()
        return bool(count) and (not self._bytes or count * self._bytes >= _STAGED_BYTES)

    def read(self) -> list[list[Any]]:
        """All that is in it, which it lets go of."""
        with tf.device(DEVICE):
            found = [tf.raw_ops.Unstage(**self._given) for _ in range(self._count())]
        self._bytes = size_bytes(found[-1]) if found else self._bytes
        return found

    def clear(self) -> None:
        """Let go of what is in it."""
        with tf.device(DEVICE):
            tf.raw_ops.StageClear(**self._given)

    def _count(self) -> int:
        with tf.device(DEVICE):
            return int(tf.raw_ops.StageSize(**self._given)._numpy_internal())
