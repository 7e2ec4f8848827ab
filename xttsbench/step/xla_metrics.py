"""XLA's own counters, read from TensorFlow's metric registry.

TensorFlow counts compilations and their time in C++ (``/tensorflow/core/xla_compilations``) and exports them to
monitoring systems only. The registry's functions are exported symbols of ``libtensorflow_framework``, so they can be
called through ctypes; the result is a ``std::map`` whose libstdc++ layout is walked here. A call takes about 0.6 ms
and leaves some 60 kB behind (the result's destructor is not exported), so callers poll only when a call took
unusually long.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import tensorflow as tf

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
