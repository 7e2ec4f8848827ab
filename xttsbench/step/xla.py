"""XLA's own counters, read from TensorFlow's metric registry, and which steps it compiled in.

TensorFlow counts compilations and their time in C++ (``/tensorflow/core/xla_compilations``) and exports them to
monitoring systems only. The registry's functions are exported symbols of ``libtensorflow_framework``, so they can be
called through ctypes; the result is a ``std::map`` whose libstdc++ layout is walked here. A call takes about 0.6 ms
and leaves some 60 kB behind (the result's destructor is not exported), so the counters are read seldom: a compilation
makes a step slow, so steps that took longer than others with the same shape are remembered, and the counters are read
when such a stretch is over, and before only as long as all readings within loops together stay a small share of the
time that went by. What they show is put down to the slowest of the steps since the reading before.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import tensorflow as tf

from xttsbench.records.rows import SegmentRows

_DEFAULT = "_ZN3tsl10monitoring18CollectionRegistry7DefaultEv"
_COLLECT = "_ZNK3tsl10monitoring18CollectionRegistry14CollectMetricsERKNS1_21CollectMetricsOptionsE"
_COUNT = b"/tensorflow/core/xla_compilations"
_TIME = b"/tensorflow/core/xla_compilation_time_usecs"

# Offsets of libstdc++ on 64-bit machines: a map is {compare, header{color, parent, left, right}, count}; a node of it
# is {color, parent, left, right, key string (32 bytes), value}; PointSet is {string, vector}; Point is
# {vector labels, int value_type, int64 value, ...}.
_MAP_BYTES = 48
_HEADER, _PARENT, _LEFT, _RIGHT, _KEY, _VALUE = 8, 8, 16, 24, 32, 64
_POINTS, _POINT_VALUE = 32, 32


@dataclass(frozen=True)
class XlaCounters:
    """Compilations since the process started, and their time in nanoseconds."""

    compiles: int = 0
    compile_ns: int = 0


class XlaMetrics:
    """Reads XLA's counters; ``available`` is False, with a ``reason``, where this TensorFlow does not allow it."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._collect: Callable[..., object] | None = None
        if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
            self.reason = "XLA's counters are read on 64-bit Linux only"
            return
        try:
            library = ctypes.CDLL(os.path.join(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2"))
            self._default = getattr(library, _DEFAULT)
            collect = getattr(library, _COLLECT)
        except (OSError, AttributeError) as error:
            self.reason = f"this TensorFlow does not export its metric registry ({error})"
            return
        self._default.restype = ctypes.c_void_p
        collect.argtypes = [ctypes.c_void_p] * 3
        collect.restype = ctypes.c_void_p
        self._collect = collect

    @property
    def available(self) -> bool:
        """Whether :meth:`read` gives counters."""
        return self._collect is not None

    def read(self) -> XlaCounters:
        """The counters now; zeros before the first compilation (the metrics do not exist until then)."""
        if self._collect is None:
            return XlaCounters()
        result = ctypes.c_void_p()
        without_descriptors = ctypes.c_bool(False)
        self._collect(ctypes.addressof(result), self._default(), ctypes.addressof(without_descriptors))
        if not result.value:
            return XlaCounters()
        found = dict(_points(result.value + _MAP_BYTES, {_COUNT, _TIME}))
        return XlaCounters(found.get(_COUNT, 0), found.get(_TIME, 0) * 1000)


def _points(tree: int, wanted: set[bytes]) -> Iterator[tuple[bytes, int]]:
    """The int64 value of the first point of each wanted metric in a ``map<string, unique_ptr<PointSet>>``."""
    pending = [_word(tree + _HEADER + _PARENT)]
    while pending:
        node = pending.pop()
        if not node:
            continue
        pending += [_word(node + _LEFT), _word(node + _RIGHT)]
        name = ctypes.string_at(_word(node + _KEY), _word(node + _KEY + 8))
        if name in wanted:
            points = _word(node + _VALUE) + _POINTS
            first, end = _word(points), _word(points + 8)
            if first < end:
                yield name, ctypes.c_int64.from_address(_word(first) + _POINT_VALUE).value


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


_SLOWER_NS: Final = 15_000_000
"""A step this much slower than the fastest with its shape may have compiled."""
_SHARE: Final = 0.0005
"""Of the time that went by, for looks within loops."""
_LOOKS: Final = 400
"""At most, since each leaves some memory behind."""
_SUSPECTS: Final = 64
_LEAST: Final = 0.3
"""Of the mean compilation, by which a step that compiled is slow."""


class Compilations:
    """Looks for them in the rows of any segment.

    The clock is in nanoseconds.
    """

    def __init__(self, xla: XlaMetrics | None = None, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.xla = xla or XlaMetrics()
        self._clock = clock
        self._looks = 0
        self._known = XlaCounters()
        self._suspects: list[tuple[int, int, SegmentRows]] = []
        self._fastest_ns: dict[tuple[SegmentRows, int], int] = {}
        self._began_ns: int | None = None
        self._cost_ns = self._spent_ns = 0

    def begin(self) -> None:
        """A segment begins: what was compiled before is in none of its steps."""
        self._suspects.clear()
        self.look()

    def step_ended(self, rows: SegmentRows, index: int, step_ns: int, shape_id: int) -> None:
        """A step ended and its row was written; looks at the counters where it was slow and there is time for it."""
        fastest_ns = self._fastest_ns.get((rows, shape_id), 0)
        if not 0 < fastest_ns <= step_ns:
            self._fastest_ns[rows, shape_id] = step_ns
        excess_ns = step_ns - fastest_ns
        if excess_ns < _SLOWER_NS:
            return
        self._suspects.append((excess_ns, index, rows))
        if len(self._suspects) > _SUSPECTS:
            self._suspects.remove(min(self._suspects, key=lambda one: one[0]))
        now = self._clock()
        if self._began_ns is None:
            self._began_ns = now
        if self._spent_ns + self._cost_ns <= _SHARE * (now - self._began_ns):
            self.look()
            self._spent_ns += self._cost_ns

    def end(self) -> None:
        """A stretch of steps is over, and the clocks stand still."""
        if self._suspects:
            self.look()

    def look(self) -> None:
        """Read the counters, and put what was added down to the steps that it explains."""
        if not self.xla.available or self._looks >= _LOOKS:
            return
        began = self._clock()
        self._looks += 1
        found, before = self.xla.read(), self._known
        self._known, self._cost_ns = found, self._clock() - began
        compiles, compile_ns = found.compiles - before.compiles, found.compile_ns - before.compile_ns
        suspects = sorted(self._suspects, key=lambda one: one[0], reverse=True)[: max(compiles, 0)]
        self._suspects.clear()
        if not suspects:
            return
        mean_ns = compile_ns // compiles
        charged = [one for one in suspects if one[0] >= _LEAST * mean_ns] or suspects[:1]
        total_ns = max(sum(excess_ns for excess_ns, _, _ in charged), compile_ns, 1)
        for place, (excess_ns, index, rows) in enumerate(
            charged
        ):  # the slowest has those that have no step of their own
            rows.add_to(index, "xla_compiles", 1 if place else compiles - len(charged) + 1)
            rows.add_to(index, "xla_ns", compile_ns * excess_ns // total_ns)
