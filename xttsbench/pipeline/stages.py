"""Cost of each op by itself: a prefix of the pipeline is run op by op, each on elements held from the op before.

The beginnings of the graph could be timed and neighbours subtracted; sending held elements through one op after
another gives the same differences without the noise of subtracting, and with each op run once. Nothing runs beside
the op: parallel ops are run as their sequential twins, so a cost is that of one thread that has a processor.

Caches, prefetches, ``repeat``, ``take`` and ``skip`` only hand elements on; they are stepped over, which keeps a
cache from being filled, or read, by this. A shuffle gets all that it is given into its buffer and out again, so that
filling it is spread over the elements.

Windows of many elements are drawn at once, within TensorFlow, so that Python's hand-over (some 50 microseconds each) is
no part of what a cheap op costs; where an element takes long, windows of one keep to the time limit.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import tensorflow as tf

from xttsbench.pipeline.clocks import Clock, Timed, least_contended, queued_s, uncontended_s
from xttsbench.pipeline.cut import TRANSPARENT, Cut, Spec, bypassed, dataset, sequential, windowed
from xttsbench.pipeline.op_costs import StageCost

MOST_ELEMENTS: Final = 8192
"""Elements that a drain draws at most."""
_HELD_BYTES: Final = 8 * 2**20
_HELD_ELEMENTS: Final = 256
"""Most elements held for the next op: few enough to stay in the processor's cache, as fresh ones are."""
_WINDOW_BYTES: Final = 2**19
_WINDOW_S: Final = 0.03  # time that one window should take; an element that takes longer is a window of its own
_PROBED: Final = 3
_FIRST: Final = 0.5
"""A second element that takes less than this share of a slow first one shows that the first paid for a start."""
_LONGEST_S: Final = 30.0  # after a first element that takes longer no second one is waited for
_SIZED: Final = 8  # elements whose size is looked at
_ERRORS: Final = 16  # elements in a row that may raise before the dataset is given up; ``ignore_errors`` may follow


@dataclass(frozen=True, slots=True)
class _Held:
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
class _Drained:
    """Time and elements of a drain, hand-over taken off."""

    elements: int
    wall_s: float  # as it would be where this process had the processors to itself (:func:`uncontended_s`)
    cpu_s: float
    exhausted: bool  # whether the dataset ended
    held: _Held | None
    raised: str | None = None  # the last error of the elements that raised, where some did
    start_up_s: float = 0.0
    """Seconds of the first element beyond the second: imports, compilation, opening what it reads."""


def drain(variant: Any, spec: Spec, *, max_s: float, handover: Clock, max_elements: int = MOST_ELEMENTS) -> _Drained:
    """Draw up to ``max_elements`` elements, begun within ``max_s`` seconds, from the start of the dataset.

    A few elements are drawn beforehand, which pays for first calls and tells how large a window may be. One that
    takes longer than ``max_s`` is waited for. Errors of elements are kept, not raised. ``handover`` is what
    :func:`_measure_handover` gave.
    """
    probe = _Drawing(variant, spec, 1, handover)
    deadline = time.perf_counter() + max_s / 3
    while probe.drawn < _PROBED and time.perf_counter() < deadline and probe.draw():
        pass
    if not probe.windows:
        return _Drained(0, 0.0, 0.0, probe.ended, None, probe.raised)
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


def _measure_handover() -> Clock:
    """Time to draw one window, by itself: the median of some draws that compute nothing."""
    spec = (tf.TensorSpec([], tf.int64),)
    iterator = iter(windowed(tf.data.Dataset.range(1000)._variant_tensor, spec, 1))
    seen = []
    for _ in range(25):
        before = Clock.read()
        next(iterator)
        seen.append(Clock.read() - before)
    return Clock(statistics.median(s.wall_s for s in seen), statistics.median(s.cpu_s for s in seen))


class _Drawing:
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
            wall_s = max(0.0, spent.wall_s - self._handover.wall_s)
            cpu_s = max(0.0, spent.cpu_s - self._handover.cpu_s)
            now_s = queued_s()
            self._timed.append(Timed(count, wall_s, cpu_s, max(0.0, now_s - self._queued_s)))
            self.last_s, self._queued_s = wall_s / max(1, count), now_s
            return True
        return False

    def forget_first(self) -> float:
        """Leave the first window out of what is counted; seconds that it took beyond the newest one."""
        first = self._timed.pop(0)
        self.drawn -= first.elements
        return max(0.0, first.wall_s - self._timed[-1].wall_s)

    def drained(self, held: _Held | None) -> _Drained:
        """Time and elements drawn so far."""
        kept = least_contended(self._timed)
        share = self.drawn / max(1, sum(timed.elements for timed in kept))
        wall_s, cpu_s, waited_s = (
            sum(values) * share for values in zip(*((t.wall_s, t.cpu_s, t.queued_s) for t in kept), strict=True)
        )
        return _Drained(self.drawn, uncontended_s(wall_s, cpu_s, waited_s), cpu_s, self.ended, held, self.raised)

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


def _held(windows: Sequence[tuple[Any, int]], spec: Spec) -> _Held:
    parts = [_zipped(window, spec) for window, _ in windows]
    count = sum(number for _, number in windows)
    joined = parts[0]
    for part in parts[1:]:
        joined = tf.raw_ops.ConcatenateDataset(input_dataset=joined, another_dataset=part, **_shapes(spec))
    if len(parts) > 1:  # one level again, so that reading it costs the same everywhere
        joined = _zipped(next(iter(windowed(joined, spec, count))), spec)
    return _Held(joined, count, spec, _element_bytes(joined, spec))


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


_LEAST_S: Final = 0.05  # time that an op gets even where the whole reading is short of it
_SHARE: Final = 1.2  # an op may take this many times an even share of what is left; most take far less
_REMOTE: Final = ("DataServiceDataset", "DataServiceDatasetV2", "DataServiceDatasetV3", "DataServiceDatasetV4")
"""Sources that work elsewhere: a second reader could wait for ever."""
_LEFT_OUT: Final = re.compile(f"{TRANSPARENT.pattern}|^Shuffle")
_WRITING: Final = ("Snapshot", "Save")
_IN_TURNS: Final = ("Concatenate", "DirectedInterleave", "ExperimentalDirectedInterleave", "ChooseFastest")
"""Ops that read their inputs in an order of their own, so that running them dry tells no ratio."""
_DROPPING: Final = re.compile(r"^(Filter|TakeWhile|GroupByWindow|IgnoreErrors)")
"""Ops that may go through many elements for one of theirs: they are given few at first."""


def read_stages(graph: Any, *, max_s: float) -> dict[str, StageCost]:
    """Run the ops of a pipeline one by one, sources first; a stage for every dataset op of the graph, by name.

    ``max_s`` bounds the whole; one element that takes longer is waited for, and what is left then gets little time.
    The user's functions are called on as many elements as that allows, ``MOST_ELEMENTS`` at most.

    Raises:
        tf.errors.OpError, ValueError: TensorFlow does not take the graph apart.
    """
    cut = Cut(sequential(graph))
    handover = _measure_handover()
    deadline = time.perf_counter() + max_s
    held: dict[str, _Held] = {}
    stages: dict[str, StageCost] = {}
    for number, name in enumerate(cut.names):
        left_s = deadline - time.perf_counter()
        share_s = max(_LEAST_S, _SHARE * left_s / (len(cut.names) - number))
        cardinality = cut.cardinality(name)
        why_not = _why_not(cut, name, held, stages, left_s + max_s / 2)
        if why_not is not None:
            stages[name] = StageCost(cardinality, why_not=why_not)
            continue
        if TRANSPARENT.match(cut.op(name)):
            held[name] = given_on = held[cut.inputs(name)[0]]
            stages[name] = StageCost(
                cardinality,
                element_bytes=given_on.element_bytes,
                why_not="it only hands elements on",
                handed_on_s=_handed_on_s(cut, name, given_on, handover),
            )
            continue
        try:
            drained, given = _run(cut, name, held, min(share_s, max(_LEAST_S, left_s)), handover)
        except (tf.errors.OpError, ValueError, TypeError) as error:
            stages[name] = StageCost(cardinality, why_not=one_line(error))
            continue
        deadline += drained.start_up_s  # paid once in a process, and no reason to read less of the other ops
        if drained.held is not None:
            held[name] = drained.held
        stages[name] = _stage(cut, name, drained, given, held, handover, cardinality)
    return stages


def _run(
    cut: Cut, name: str, held: Mapping[str, _Held], max_s: float, handover: Clock
) -> tuple[_Drained, dict[str, _Held]]:
    inputs = cut.inputs(name)
    if not inputs:
        return drain(cut.variant(name), cut.spec(name), max_s=max_s, handover=handover), {}
    most = max(MOST_ELEMENTS, 16 * (cut.batch_size(name) or 1))
    count = 8 if _DROPPING.match(cut.op(name)) else most
    while True:
        began = time.perf_counter()
        given = {upstream: held[upstream].repeated(count) for upstream in dict.fromkeys(inputs)}
        over = cut.over(name, {upstream: elements.variant for upstream, elements in given.items()})
        drained = drain(over, cut.spec(name), max_s=max_s, handover=handover)
        took_s = time.perf_counter() - began
        if count == most or took_s > max_s / 8:
            return drained, given
        count = min(most, 8 * count)


def _stage(
    cut: Cut,
    name: str,
    drained: _Drained,
    given: Mapping[str, _Held],
    held: Mapping[str, _Held],
    handover: Clock,
    cardinality: int,
) -> StageCost:
    if not drained.elements:
        counts = ", ".join(str(elements.count) for elements in given.values())
        reason = drained.raised or (f"none of {counts} elements passed" if given else "it yielded nothing")
        return StageCost(cardinality, why_not=reason)
    consumed: dict[str, float] | None = None
    if given and drained.exhausted and not cut.op(name).startswith(_IN_TURNS):
        consumed = {upstream: elements.count / drained.elements for upstream, elements in given.items()}
    ratios = consumed or dict.fromkeys(given, float(cut.batch_size(name) or 1))
    reading_s = sum(_reading_s(given[upstream], handover) * taken for upstream, taken in ratios.items())
    return StageCost(
        cardinality,
        wall_s=max(0.0, drained.wall_s / drained.elements - reading_s),
        cpu_s=max(0.0, drained.cpu_s / drained.elements - reading_s),
        elements=drained.elements,
        consumed=consumed,
        element_bytes=held[name].element_bytes if name in held else None,
        why_not=drained.raised,
        start_up_s=drained.start_up_s,
    )


def _handed_on_s(cut: Cut, name: str, held: _Held, handover: Clock) -> float | None:
    """Seconds for one held element to be handed on; ``None`` for an op that writes elements, or computes with them."""
    if cut.op(name).startswith("Prefetch"):
        most = min(MOST_ELEMENTS, 16 * held.count)
        over = cut.over(name, {cut.inputs(name)[0]: held.repeated(most).variant})
        drained = drain(over, cut.spec(name), max_s=_LEAST_S, handover=handover, max_elements=most)
        return drained.wall_s / drained.elements if drained.elements else None
    return None if cut.op(name).startswith(_WRITING) else _reading_s(held, handover)


def _reading_s(held: _Held, handover: Clock) -> float:
    """Seconds for one held element to be read: what an op that does nothing would take."""
    skipped = tf.raw_ops.SkipDataset(input_dataset=held.variant, count=held.count, **_shapes(held.spec))
    iterator = iter(windowed(skipped, held.spec, 1))
    before = Clock.read()
    next(iterator, None)
    return max(0.0, (Clock.read() - before).cpu_s - handover.cpu_s) / held.count


def _why_not(
    cut: Cut, name: str, held: Mapping[str, _Held], stages: Mapping[str, StageCost], left_s: float
) -> str | None:
    missing = next((upstream for upstream in cut.inputs(name) if upstream not in held), None)
    if missing is not None:
        return f"no elements to run it on: {stages[missing].why_not or 'its input was not run'}"
    if cut.op(name) in _REMOTE:
        return "it reads from the tf.data service"
    return "the time for reading costs was over" if left_s <= 0 else None


def sequential_run(graph: Any, *, max_s: float) -> tuple[float, int] | None:
    """Seconds of one batch of the whole pipeline run sequentially, and of how many; ``None`` where none came.

    What only hands elements on, and shuffles, are taken out, so that neither a cache nor a full buffer serves it.
    """
    cut = Cut(bypassed(sequential(graph), _LEFT_OUT))
    name = cut.names[-1]
    drained = drain(cut.variant(name), cut.spec(name), max_s=max_s, handover=_measure_handover())
    return (drained.wall_s / drained.elements, drained.elements) if drained.elements else None
