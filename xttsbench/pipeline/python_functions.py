"""Times of the Python functions in a pipeline: their calls recorded in a short run, then an experiment.

During the run the functions are called as the pipeline calls them and no more. The experiment then calls each one a
few times more with arguments from the run, which a function with side effects may not want: it is bounded, and
``calls=0`` leaves it out. For a generator it opens one more generator.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.pipeline.clocks import measure_shares
from xttsbench.pipeline.cut import without_rewrites
from xttsbench.pipeline.definitions import place
from xttsbench.pipeline.python.opened import compiled
from xttsbench.pipeline.python.slow_line import Lines, sampled
from xttsbench.pipeline.python.split import CannotOpenError
from xttsbench.pipeline.python.state import python_state, state_effects
from xttsbench.pipeline.source import Registered, generator_start_token, lookup, recording
from xttsbench.records.pipeline import GeneratorParts, GilClass, Pipeline, PythonFunction, PythonKind

_KEPT_BYTES: Final = 256 * 2**20  # copies of arguments kept per function
_MOST_COUNTED: Final = 1_000_000  # items of a generator that are counted
_MOST_COMPUTED: Final = 0.5  # share of its calls' wall time that a function which waits may compute
_TRIES: Final = 3  # of the experiment, where it says of a function that computed that it waits
_CALLS: Final = 64  # of a function that does nothing, in a row, which are timed together
_ROWS: Final = 8  # of which the fastest counts
_DRAIN_S: Final = 2.0  # how long calls already under way may take to end once the iterator is gone


def classify(
    dataset: Any,
    pipeline: Pipeline,
    *,
    batches: int = 4,
    max_s: float = 10.0,
    calls: int = 8,
    experiment_s: float = 0.5,
    assumed: Collection[str] = (),
) -> Pipeline:
    """Fill in the times, the calls per batch and the class of a pipeline's Python functions.

    Runs ``batches`` batches after the first (or ``max_s`` seconds), then makes at most ``calls`` calls within
    ``experiment_s`` seconds of each function. Without the experiment, with too little evidence (under 3 ms of calls),
    or where the function raises outside the pipeline, the class stays ``unknown``. A function that is not reached
    (behind a full cache) has 0 calls and no times. What is ``assumed`` to be pure (``module.function``) is not read.

    Raises:
        tf.errors.OpError: what the pipeline itself raises; the registry is restored first.
    """
    registered = {f.token: found for f in pipeline.python_functions if (found := lookup(f.token)) is not None}
    if not registered:
        return pipeline
    recorders = {token: _Recorder(kept=calls) for token in registered}
    starts = {token: start for token, found in registered.items() if (start := generator_start_token(found))}
    openings = {token: _Recorder(kept=1) for token in starts}
    recorded = recorders | {starts[token]: opening for token, opening in openings.items()}
    lines = [recorder.lines for recorder in recorders.values()]
    with recording({token: recorder.wrap for token, recorder in recorded.items()}), sampled(lines):
        drawn, at_first = _run(dataset, batches, max_s, recorders)
        _drain(list(recorded.values()))
    around_s = {kind: call_s(kind) for kind in {one.kind for one in pipeline.python_functions}}

    def filled(function: PythonFunction) -> PythonFunction:
        if function.token not in registered:
            return function
        found, recorder, opening = registered[function.token], recorders[function.token], openings.get(function.token)
        for _ in range(_TRIES):
            gil = _experiment(found, recorder, opening, calls, experiment_s)
            if gil != "blocks" or not recorder.computes():
                break
            gil = "unknown"  # the run showed otherwise: neighbours held the experiment up
        if function.kind == "generator":
            given = opening.arguments[0] if opening is not None and opening.arguments else None
            function = _parts(function, found, given, calls, experiment_s)
        wall_s, cpu_s = recorder.mean_s() or (None, None)
        before, after = at_first[function.token]
        state = python_state(_of_user(found), assumed=assumed)
        update = {
            "gil": gil,
            "calls": recorder.calls,
            "call_time_s": wall_s,
            "call_cpu_s": cpu_s,
            "calls_per_batch": (after - before) / (drawn - 1) if drawn > 1 else None,  # buffers fill before the first
            "around_call_s": around_s[function.kind],
            "settings": state.settings,
            "random": state.random,
            "slow_line": recorder.lines.line if function.whole_because is not None else None,
        }
        return function.model_copy(update=update)

    return pipeline.model_copy(update={"python_functions": tuple(map(filled, pipeline.python_functions))})


def _of_user(found: Registered) -> Any:
    return found.generator_state._generator if found.kind == "generator" else found.called


def call_s(kind: PythonKind) -> float:
    """Seconds that TensorFlow takes to call a Python function that does nothing, of the fastest of some rows of calls.

    A generator's next element is a call of a ``numpy_function``. Calls in two threads take as long as calls in one, so
    that it is time under the interpreter lock (tried on TensorFlow 2.21: 70 to 100 microseconds either way).
    """

    def called(index: Any) -> Any:
        if kind == "py_function":
            return tf.py_function(lambda given: given, [index], tf.int64)
        return tf.numpy_function(lambda given: given, [index], tf.int64)

    rows = tf.data.Dataset.range(_CALLS * (_ROWS + 1)).map(called).batch(_CALLS)
    ends_s = [time.perf_counter() for _ in without_rewrites(rows)]
    return float(np.diff(ends_s).min()) / _CALLS


class _Recorder:
    """Counts and times the calls of one function in whatever threads they come, and keeps some arguments."""

    def __init__(self, kept: int) -> None:
        self.calls = 0
        self.under_way = 0
        self.arguments: list[tuple[Any, ...]] = []
        self.lines = Lines()
        self._kept = kept
        self._kept_bytes = 0
        self._wall_s: list[float] = []
        self._cpu_s: list[float] = []
        self._lock = threading.Lock()

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The recording function to put in the original's place."""

        def recorded(*arguments: Any) -> Any:
            self._begin(arguments)
            wall_s, cpu_s = time.perf_counter(), time.thread_time()
            try:
                return original(*arguments)
            finally:
                self._end(time.perf_counter() - wall_s, time.thread_time() - cpu_s)

        return recorded

    def mean_s(self) -> tuple[float, float] | None:
        """Mean wall and processor time of a call; the first, which pays for imports and such, only if alone."""
        skip = 1 if len(self._wall_s) > 1 else 0
        every = [self._wall_s[skip:], self._cpu_s[skip:]]
        return (float(np.mean(every[0])), float(np.mean(every[1]))) if self._wall_s else None

    def computes(self) -> bool:
        """Whether calls spent more of their time on a processor than what waits may."""
        mean = self.mean_s()
        return mean is not None and mean[1] > _MOST_COMPUTED * mean[0]

    def _begin(self, arguments: tuple[Any, ...]) -> None:
        with self._lock:
            self.under_way += 1
            self.lines.threads.add(threading.get_ident())
            size = sum(a.nbytes for a in arguments if isinstance(a, np.ndarray))
            if len(self.arguments) < self._kept and self._kept_bytes + size <= _KEPT_BYTES:
                self._kept_bytes += size
                # Arrays are views of TensorFlow's buffers, which are used again; eager tensors do not change.
                self.arguments.append(tuple(np.array(a) if isinstance(a, np.ndarray) else a for a in arguments))

    def _end(self, wall_s: float, cpu_s: float) -> None:
        with self._lock:
            self.under_way -= 1
            self.lines.threads.discard(threading.get_ident())
            self.calls += 1
            self._wall_s.append(wall_s)
            self._cpu_s.append(cpu_s)


def _run(
    dataset: Any, batches: int, max_s: float, recorders: dict[str, _Recorder]
) -> tuple[int, dict[str, tuple[int, int]]]:
    deadline = time.perf_counter() + max_s
    iterator = iter(dataset)
    drawn = 0
    first = dict.fromkeys(recorders, 0)
    while drawn <= batches and time.perf_counter() < deadline and next(iterator, None) is not None:
        drawn += 1
        if drawn == 1:
            first = {token: recorder.calls for token, recorder in recorders.items()}
    return drawn, {token: (first[token], recorder.calls) for token, recorder in recorders.items()}


def _drain(recorders: list[_Recorder]) -> None:
    """Wait until the threads of the iterator just dropped are out of the user's functions."""
    gc.collect()
    deadline = time.perf_counter() + _DRAIN_S
    while any(recorder.under_way for recorder in recorders) and time.perf_counter() < deadline:
        time.sleep(0.005)


def _experiment(
    found: Registered, recorder: _Recorder, opening: _Recorder | None, calls: int, max_s: float
) -> GilClass:
    if found.kind == "generator":
        if opening is None or not opening.arguments:
            return "unknown"
        elements = _without_end(found.generator_state._generator, opening.arguments[0])
        return _majority(lambda: next(elements, None), [()], calls - 1, max_s)
    return _majority(found.called, recorder.arguments, calls, max_s)


def _majority(function: Callable[..., Any], arguments: list[tuple[Any, ...]], calls: int, max_s: float) -> GilClass:
    try:
        shares = measure_shares(function, arguments, calls=calls, max_s=max_s)
    except Exception:  # the user's function may raise anything when called out of order; that is no fault of the run
        return "unknown"
    return "unknown" if shares is None else shares.majority()


def _parts(
    function: PythonFunction, found: Registered, arguments: tuple[Any, ...] | None, calls: int, max_s: float
) -> PythonFunction:
    """Adds the split of a generator to its record, and the measured time of the head, if it may be begun once more."""
    generator = found.generator_state._generator
    parts: GeneratorParts | None = None
    times_s, ended = list[float](), False
    most = calls if state_effects(generator) else _MOST_COUNTED
    try:
        cut = compiled(generator)
        given = tuple(name for name in (*cut.split.shared, *cut.split.items) if name not in cut.known)
        if arguments is not None:
            times_s, ended = _gone_through(cut.items, arguments, most, max_s)
        file = place(cut.function.__code__)[0]
        parts = GeneratorParts(file=file, line=cut.split.line, given=given, reads=cut.reads)
        if len(times_s) > 1:
            parts = parts.model_copy(update={"head_s": float(np.median(times_s[1:]))})
    except CannotOpenError as error:
        function = function.model_copy(update={"whole_because": str(error)})
        if arguments is not None:
            times_s, ended = _gone_through(generator, arguments, most, max_s)
    return function.model_copy(update={"parts": parts, "elements": len(times_s) if ended else None})


def _gone_through(
    generator: Callable[..., Any], arguments: tuple[Any, ...], most: int, max_s: float
) -> tuple[list[float], bool]:
    """Seconds of each item of a generator, and whether it came to its end; no items where it raises.

    Raises:
        CannotOpenError: it is the head of one that cannot be opened.
    """
    times_s: list[float] = []
    began = until = time.perf_counter()
    until += max_s
    try:
        for _ in generator(*arguments):
            now = time.perf_counter()
            times_s.append(now - began)
            if len(times_s) >= most or now > until:
                return times_s, False
            began = time.perf_counter()
    except CannotOpenError:
        raise
    except Exception:  # as above
        return [], False
    return times_s, bool(times_s)


def _without_end(generator: Callable[..., Any], arguments: tuple[Any, ...]) -> Iterator[bool]:
    """An item for each element of a generator of its own, opened anew where it ends."""
    yielded = True
    while yielded:
        yielded = False
        for _ in generator(*arguments):
            yielded = True
            yield True
