"""Drawing elements from a dataset within TensorFlow, timed, and holding them for the op that comes next.

Windows of many elements are drawn at once, so that Python's hand-over (some 50 microseconds each) is no part of what
a cheap op costs; where an element takes long, windows of one keep to the time limit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import tensorflow as tf

from xttsbench.pipeline.cost.clocks import Clock, Timed, least_contended, queued_s, uncontended_s
from xttsbench.pipeline.cost.cut import Spec, dataset, windowed

MOST_ELEMENTS: Final = 8192
"""Elements that a drain draws at most."""
_HELD_BYTES: Final = 8 * 2**20
_HELD_ELEMENTS: Final = 256
"""What is held for the next op at most: few enough to stay in the processor's cache, as what has just been made is."""
_WINDOW_BYTES: Final = 2**19
_WINDOW_S: Final = 0.03
"""Time that one window should take; an element that takes longer is a window of its own."""
_PROBED: Final = 3
_FIRST: Final = 0.5
"""A second element that takes less than this share of a slow first one shows that the first paid for a start."""
_LONGEST_S: Final = 30.0
"""After a first element that takes longer no second one is waited for."""
_SIZED: Final = 8
"""Elements whose size is looked at."""
_ERRORS: Final = 16
"""Elements in a row that may raise before the dataset is given up; ``ignore_errors`` may follow."""


@dataclass(frozen=True, slots=True)
class Held:
    """Elements in memory, as a dataset that yields them without work."""

    variant: Any
    count: int
    spec: Spec
    element_bytes: float | None

    def repeated(self, count: int) -> Self:
        """The elements again and again until there are ``count``; only references are copied."""
        if count == self.count:
            return self
        again = tf.raw_ops.RepeatDataset(input_dataset=self.variant, count=-1, **_shapes(self.spec))
        window = next(iter(windowed(again, self.spec, count)))
        return type(self)(_zipped(window, self.spec), count, self.spec, self.element_bytes)


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain took, hand-over taken off."""

    elements: int
    wall_s: float
    """As it would be where this process had the processors to itself (:func:`uncontended_s`)."""
    cpu_s: float
    exhausted: bool
    """Whether the dataset ended."""
    held: Held | None
    raised: str | None = None
    """The last error of the elements that raised, where some did."""
    start_up_s: float = 0.0
    """What the first element took beyond the second: imports, compilation, opening what it reads."""


def drain(variant: Any, spec: Spec, *, max_s: float, handover: Clock, max_elements: int = MOST_ELEMENTS) -> Drained:
    """Draw up to ``max_elements`` elements, begun within ``max_s`` seconds, from the start of the dataset.

    A few elements are drawn beforehand, which pays for first calls and tells how large a window may be. One that
    takes longer than ``max_s`` is waited for. Errors of elements are kept, not raised. ``handover`` is what
    :func:`measure_handover` gave.
    """
    probe = _Drawing(variant, spec, 1, handover)
    deadline = time.perf_counter() + max_s / 3
    while probe.drawn < _PROBED and time.perf_counter() < deadline and probe.draw():
        pass
    if not probe.windows:
        return Drained(0, 0.0, 0.0, probe.ended, None, probe.raised)
    first = _held(probe.windows, spec)
    last_s = probe.last_s
    start_up_s = 0.0
    if probe.drawn == 1 and last_s > max_s / 3 and last_s < _LONGEST_S and probe.draw():
        # Of a first call that imports or compiles nothing can be said until there is a second.
        start_up_s = probe.forget_first() if probe.last_s < _FIRST * last_s else 0.0
        last_s = probe.last_s
    if time.perf_counter() > deadline and last_s > max_s / 3:  # another one would take as long
        return replace(probe.drained(first), start_up_s=start_up_s)
    room = max(1, int(_WINDOW_BYTES / max(1.0, first.element_bytes or 1.0)))
    size = max(1, min(max_elements, room, int(min(_WINDOW_S, max_s / 3) / max(last_s, 5e-6))))
    drawing = _Drawing(variant, spec, size, handover)
    deadline = time.perf_counter() + 2 * max_s / 3
    while drawing.drawn < max_elements and drawing.draw() and time.perf_counter() < deadline:
        if drawing.raised and size > 1:  # an error takes the whole window with it
            size = 1
            drawing = _Drawing(variant, spec, size, handover)
        drawing.hold(first.element_bytes)
    if not drawing.drawn:
        return replace(probe.drained(first), raised=drawing.raised, start_up_s=start_up_s)
    found = drawing.drained(_held(drawing.windows, spec))
    return replace(found, raised=drawing.raised or probe.raised, start_up_s=start_up_s)


def measure_handover() -> Clock:
    """What drawing one window costs by itself: the median of some draws that compute nothing."""
    spec = (tf.TensorSpec([], tf.int64),)
    iterator = iter(windowed(tf.data.Dataset.range(1000)._variant_tensor, spec, 1))
    seen = []
    for _ in range(25):
        before = Clock.read()
        next(iterator)
        seen.append(Clock.read() - before)
    middle = len(seen) // 2
    return Clock(sorted(s.wall_s for s in seen)[middle], sorted(s.cpu_s for s in seen)[middle])


class _Drawing:
    """One iterator over windows, what it took, and the windows that it keeps."""

    def __init__(self, variant: Any, spec: Spec, size: int, handover: Clock) -> None:
        self._size = size
        self._handover = handover
        self._iterator = iter(windowed(variant, spec, size))
        self.windows: list[tuple[Any, int]] = []
        self.drawn = 0
        self.last_s = 0.0
        self.ended = False
        self.raised: str | None = None
        self._timed: list[Timed] = []
        self._queued_s = queued_s()

    def draw(self) -> bool:
        """Draw a window; ``False`` at the end or after too many errors."""
        for _ in range(_ERRORS):
            before = Clock.read()
            try:
                window = next(self._iterator, None)
            except tf.errors.OpError as error:
                self.raised = one_line(error)
                if self._size > 1:
                    return True
                continue
            spent = Clock.read() - before
            if window is None:
                self.ended = True
                return False
            count = int(tf.raw_ops.DatasetCardinality(input_dataset=window[0]).numpy()) if window else 0
            self.windows.append((window, count))
            self.drawn += count
            self.last_s = max(0.0, spent.wall_s - self._handover.wall_s) / max(1, count)
            now_s = queued_s()
            self._timed.append(
                Timed(
                    count,
                    max(0.0, spent.wall_s - self._handover.wall_s),
                    max(0.0, spent.cpu_s - self._handover.cpu_s),
                    max(0.0, now_s - self._queued_s),
                )
            )
            self._queued_s = now_s
            return True
        return False

    def forget_first(self) -> float:
        """Leave the first window out of what is counted; seconds that it took beyond the newest one."""
        first = self._timed.pop(0)
        self.drawn -= first.elements
        return max(0.0, first.wall_s - self._timed[-1].wall_s)

    def drained(self, held: Held | None) -> Drained:
        """What was drawn so far."""
        kept = least_contended(self._timed)
        share = self.drawn / max(1, sum(timed.elements for timed in kept))
        wall_s, cpu_s, waited_s = (
            sum(values) * share for values in zip(*((t.wall_s, t.cpu_s, t.queued_s) for t in kept), strict=True)
        )
        return Drained(self.drawn, uncontended_s(wall_s, cpu_s, waited_s), cpu_s, self.ended, held, self.raised)

    def hold(self, element_bytes: float | None) -> None:
        """Let go of the newest window where enough is held, so that its memory is used again at once."""
        count = sum(number for _, number in self.windows)
        if len(self.windows) > 1 and (count > _HELD_ELEMENTS or count * (element_bytes or 0.0) > _HELD_BYTES):
            del self.windows[-1]


def one_line(error: BaseException) -> str:
    """An error in one line: TensorFlow puts the place first and what happened last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and "[Op:" not in line.split("name:")[0]]
    text = re.sub(r"\{\{.*?\}\}\s*", "", lines[0]) if lines else ""
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def _held(windows: Sequence[tuple[Any, int]], spec: Spec) -> Held:
    parts = [_zipped(window, spec) for window, _ in windows]
    count = sum(number for _, number in windows)
    joined = parts[0]
    for part in parts[1:]:
        joined = tf.raw_ops.ConcatenateDataset(input_dataset=joined, another_dataset=part, **_shapes(spec))
    if len(parts) > 1:  # one level again, so that reading it costs the same everywhere
        joined = _zipped(next(iter(windowed(joined, spec, count))), spec)
    return Held(joined, count, spec, _element_bytes(joined, spec))


def _zipped(window: Any, spec: Spec) -> Any:
    if len(spec) == 1:
        return window[0]
    return tf.raw_ops.ZipDataset(input_datasets=list(window), **_shapes(spec))


def _shapes(spec: Spec) -> dict[str, Any]:
    return {"output_types": [s.dtype for s in spec], "output_shapes": [s.shape for s in spec]}


def _element_bytes(variant: Any, spec: Spec) -> float | None:
    """Mean bytes of some elements; ``None`` where a component is a dataset or otherwise has no size."""
    sizes: list[int] = []
    for element in iter(dataset(tf.raw_ops.TakeDataset(input_dataset=variant, count=_SIZED, **_shapes(spec)), spec)):
        try:
            sizes.append(sum(_tensor_bytes(tensor) for tensor in element))
        except tf.errors.OpError:
            return None
    return sum(sizes) / len(sizes) if sizes else None


def _tensor_bytes(tensor: Any) -> int:
    if tensor.dtype == tf.string:
        return int(tf.reduce_sum(tf.strings.length(tensor)).numpy())
    if tensor.dtype in (tf.variant, tf.resource):  # a ragged tensor can be written out, a dataset cannot
        return int(tf.strings.length(tf.io.serialize_tensor(tensor)).numpy())
    return int(tf.size(tensor).numpy()) * int(tensor.dtype.size)
