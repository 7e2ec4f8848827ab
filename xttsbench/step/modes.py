"""The training step as ``step(batch)``: in another mode, or that of ``model.fit``; its loss, its wait, compilations.

A step that fetches values (``loss.numpy()``, ``float(loss)``) cannot be traced. To learn what compiling it would give,
its fetches are answered with a constant while it is traced; that serves a timing and nothing else, and is said.

Keras compiles the iteration together with the step, which hides the wait for data; here the step alone is compiled,
with the model's own ``run_eagerly`` and ``jit_compile``, and metrics are read as ``fit`` reads them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.framework import ops

from xttsbench.records.rows import SegmentRows

if TYPE_CHECKING:
    import keras

Mode = Literal["eager", "graph", "xla"]
Step = Callable[[Any], Any]


def in_mode(step: Step, mode: Mode) -> Step:
    """``step`` in ``mode``; one that is eager runs op by op whatever tf.functions it calls."""
    if mode == "eager":
        return functions_run(step, eagerly=True)
    return tf.function(step, jit_compile=True if mode == "xla" else None, autograph=True)


def functions_run(step: Step, *, eagerly: bool) -> Step:
    """``step`` with the whole process switched before each call, so that the two can take turns in one."""

    def run(batch: Any) -> Any:
        tf.config.run_functions_eagerly(eagerly)
        return step(batch)

    return run


@contextlib.contextmanager
def without_xla() -> Iterator[None]:
    """Within, every new tf.function ignores ``jit_compile=True``: what a target's own XLA gives is seen without it."""
    original = polymorphic_function.Function.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self._jit_compile:
            self._jit_compile = None

    with mock.patch.object(polymorphic_function.Function, "__init__", init):
        yield


@dataclass
class Fetches:
    """Number of times that a traced step asked for a value that does not exist yet."""

    count: int = 0


@contextlib.contextmanager
def fetches_answered() -> Iterator[Fetches]:
    """Within, a symbolic tensor answers ``numpy()``, ``float()``, ``int()`` and ``item()`` with ones of its shape."""
    fetches = Fetches()

    def ones(tensor: Any) -> np.ndarray[Any, Any]:
        fetches.count += 1
        shape = tensor.shape.as_list() if tensor.shape.rank is not None else []
        return np.ones([size or 1 for size in shape], tensor.dtype.as_numpy_dtype)

    answers: dict[str, Any] = {
        "numpy": ones,
        "__float__": lambda tensor: float(ones(tensor).ravel()[0]),
        "__int__": lambda tensor: int(ones(tensor).ravel()[0]),
        "item": lambda tensor: ones(tensor).ravel()[0].item(),
    }
    with mock.patch.multiple(ops.SymbolicTensor, create=True, **answers):
        yield fetches


def keras_package() -> str:
    """Name of the package that ``tf.keras`` is: Keras 3's, or 2's where ``TF_USE_LEGACY_KERAS=1`` asks for that."""
    return str(tf.keras.Model.__module__.partition(".")[0])


def keras_step(model: keras.Model) -> Callable[[Any], Any]:
    """One training step of a compiled Keras model on a batch of its dataset."""

    def train_step(batch: Any) -> Any:
        return model.train_step(batch)

    compiled, built = train_step, False
    if not model.run_eagerly:
        as_written = tf.autograph.experimental.do_not_convert(train_step)
        compiled = tf.function(as_written, reduce_retracing=True, jit_compile=bool(model.jit_compile) or None)

    def step(batch: Any) -> Any:
        nonlocal built
        if not built:
            # As `fit` of Keras 3 does: variables are made outside of the traced function.
            if (build := getattr(model, "_maybe_symbolic_build", None)) is not None:
                build(data_batch=tf.keras.utils.unpack_x_y_sample_weight(batch))
            built = True
        return compiled(batch)

    return step


def synchroniser() -> Callable[[], None] | None:
    """A function that blocks until all devices are idle, or ``None`` where every op already runs in place."""
    return tf.test.experimental.sync_devices if tf.config.list_physical_devices("GPU") else None


def loss_of(value: Any) -> float | None:
    """Loss in a step's result as a float: a number, a tensor of one, or the entry ``loss``, as Keras returns it."""
    if isinstance(value, Mapping):
        value = value.get("loss")
    if value is None or isinstance(value, bool | str | bytes):
        return None
    try:
        array = np.asarray(value)
        dtype = tf.as_dtype(array.dtype)
    except (TypeError, ValueError):
        return None
    return float(array.reshape(())) if dtype.is_floating and array.size == 1 else None


_REGISTRY = "_ZN3tsl10monitoring18CollectionRegistry7DefaultEv"
_COUNTERS = (b"/tensorflow/core/xla_compilations", b"/tensorflow/core/xla_compilation_time_usecs")

# Offsets of libstdc++ on 64-bit machines: the header of a map is {color, root, first, last, size}, a node of it {color,
# parent, left, right, key, value}. The registry has a map of {name: {definition, ...}}; a counter has its map of {no
# label: number} beside its definition.
_ROOT, _FIRST, _LAST, _SIZE = 8, 16, 24, 32
_PARENT, _LEFT, _RIGHT, _KEY, _DEFINITION, _NUMBER = 8, 16, 24, 32, 48, 40
_BESIDE: Final = range(-64, 128, 8)
"""Distances from a place at which the header of its map is looked for: what else lies there differs among versions."""
_LONGEST: Final = 1024  # of names; an address is greater
_MOST: Final = 20_000  # of nodes, where there are some hundreds


@dataclass(frozen=True)
class XlaCounters:
    """Compilations since the process started, and their time in nanoseconds."""

    compiles: int = 0
    compile_ns: int = 0


class XlaMetrics:
    """Reads XLA's counters; ``available`` is False, with a ``reason``, where this TensorFlow does not allow it.

    TensorFlow counts compilations and their time in C++ (``/tensorflow/core/xla_compilations``) and exports them to
    monitoring systems only. What gives the registry of its counters is an exported symbol of
    ``libtensorflow_framework``; from there the two are looked for once, by what a map of libstdc++ must look like, and
    by reads that fail where there is no memory. Having them collected instead leaves 50 to 200 kB behind each time.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._cells: list[int] = []
        if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
            self.reason = "XLA's counters are read on 64-bit Linux only"
            return
        try:
            library = ctypes.CDLL(os.path.join(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2"))
            registry = getattr(library, _REGISTRY)
            registry.restype = ctypes.c_void_p
            with open("/proc/self/mem", "rb", buffering=0) as memory:
                self._cells = _cells(memory.fileno(), registry())
        except (OSError, AttributeError, LookupError) as error:
            self.reason = f"this TensorFlow does not export its metric registry as it is known ({error})"

    @property
    def available(self) -> bool:
        """Whether :meth:`read` gives counters."""
        return bool(self._cells)

    def read(self) -> XlaCounters:
        """The counters now; zeros before the first compilation (they have no number until then)."""
        roots = [ctypes.c_uint64.from_address(cells + _ROOT).value for cells in self._cells]
        numbers = [ctypes.c_int64.from_address(root + _NUMBER).value if root else 0 for root in roots]
        return XlaCounters(numbers[0], numbers[1] * 1000) if numbers else XlaCounters()


def _cells(memory: int, registry: int) -> list[int]:
    """Addresses of the maps that hold the numbers of the two counters.

    Raises:
        LookupError: something does not look as it should.
    """

    def word(address: int) -> int:
        try:
            return int.from_bytes(os.pread(memory, 8, address), sys.byteorder)
        except (OSError, OverflowError):
            return 0  # no memory is there

    def headers(beside: int) -> Iterator[int]:
        for at in (beside + offset for offset in _BESIDE):
            root, first, last, size = (word(at + offset) for offset in (_ROOT, _FIRST, _LAST, _SIZE))
            if (word(root + _PARENT) == at) if root and size else (first == last == at):
                yield at

    def definitions(header: int) -> dict[bytes, int]:
        nodes, found = [word(header + _ROOT)], {}
        for node in nodes:  # which grow
            if node and len(nodes) < _MOST:
                nodes += [word(node + _LEFT), word(node + _RIGHT)]
                length, text = sorted((word(node + _KEY), word(node + _KEY + 8)))  # two versions, two orders
                if length < _LONGEST:
                    with contextlib.suppress(OSError, OverflowError):  # of another map than the registry's
                        found[os.pread(memory, length, text)] = word(node + _DEFINITION)
        return found

    # The registry is on the heap, where another object may lie beside it that has a map, too.
    for known in map(definitions, headers(registry)):
        if all(name in known for name in _COUNTERS):
            cells = [next(headers(known[name]), None) for name in _COUNTERS]
            if None not in cells:
                return [cell for cell in cells if cell is not None]
    raise LookupError("no map where one should be")


_SLOWER_NS: Final = 15_000_000  # a step this much slower than the fastest with its shape may have compiled


class Compilations:
    """Says in which steps XLA compiled.

    A compilation makes a step slow: the counters are read where a step took longer than others with the same shape, and
    what was added since the reading before is put down to that step.
    """

    def __init__(self, xla: XlaMetrics | None = None) -> None:
        self.xla = xla or XlaMetrics()
        self._known = XlaCounters()
        self._fastest_ns: dict[tuple[SegmentRows, int], int] = {}

    def begin(self) -> None:
        """A segment begins: what was compiled before is in none of its steps."""
        self._known = self.xla.read()

    def step_ended(self, rows: SegmentRows, index: int, step_ns: int, shape_id: int) -> None:
        """A step ended and its row was written."""
        fastest_ns = self._fastest_ns.get((rows, shape_id), 0)
        if not 0 < fastest_ns <= step_ns:
            self._fastest_ns[rows, shape_id] = step_ns
        if step_ns - fastest_ns < _SLOWER_NS:
            return
        before, self._known = self._known, self.xla.read()
        if (compiles := self._known.compiles - before.compiles) > 0:
            rows.add_to(index, "xla_compiles", compiles)
            rows.add_to(index, "xla_ns", self._known.compile_ns - before.compile_ns)
