"""Steps of loops in Python: each from one request for a batch to the next one of the same loop.

The function of the script that takes a whole batch is found by the identity of its arguments when it is called. A step
that runs op by op calls no tf.function that could be kept. Python tells of every call to whoever asks, which takes far
too long for a step that is timed; so it is asked in a step of a sampling window, which is not.
"""

from __future__ import annotations

import gc
import inspect
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import tensorflow as tf

from xttsbench.owners import owner
from xttsbench.pipeline.places import place_of as dataset_place
from xttsbench.step.watch import Moment, step_row
from xttsbench.worker.script.loop import Loop, original
from xttsbench.worker.script.recorder import Recorder
from xttsbench.worker.script.steady import SteadyLoop


def _takes_batch(batch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[int, int]] | None:
    """Positions of the batch's tensors among the arguments.

    Returns:
        Pairs (position among the flat arguments, position in the flat batch); ``None`` unless every tensor of the batch
        is handed on as it is.
    """
    wanted = {id(leaf): index for index, leaf in enumerate(tf.nest.flatten(batch))}
    if not wanted:
        return None
    found = [(at, wanted[id(leaf)]) for at, leaf in enumerate(tf.nest.flatten((args, kwargs))) if id(leaf) in wanted]
    return found if {index for _, index in found} == set(wanted.values()) else None


def _as_step(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], places: list[tuple[int, int]]
) -> Callable[[Any], Any]:
    """``step(batch)``: the function with its last arguments, the batch's tensors replaced by those of another batch."""
    kept = tf.nest.flatten((args, kwargs))
    for at, _ in places:
        kept[at] = None  # the old batch is not kept alive
    structure = tf.nest.map_structure(lambda _: None, (args, kwargs))

    def step(batch: Any) -> Any:
        leaves, flat = tf.nest.flatten(batch), list(kept)
        for at, index in places:
            flat[at] = leaves[index]
        own_args, own_kwargs = tf.nest.pack_sequence_as(structure, flat)
        return function(*own_args, **own_kwargs)

    return step


def place_of(function: Any) -> str:
    """``name (file:line)`` of a tf.function or a Python function."""
    plain = inspect.unwrap(getattr(function, "python_function", function))
    plain = getattr(plain, "__func__", plain)
    code = getattr(plain, "__code__", None)
    name = getattr(plain, "__name__", type(plain).__name__)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


_LOOKS: Final = 3  # Steps in which it is looked for at most


class PythonStep:
    """Looks for the user's outermost function that takes every tensor of a batch; tells its step and its place."""

    def __init__(self, found: Callable[[Callable[[Any], Any], str], None]) -> None:
        self._found = found
        self._batch: Any = None
        self._looks = 0

    def begin(self, batch: Any) -> None:
        """The step on this batch begins; nothing happens where the script has a profiler of its own."""
        if self._looks < _LOOKS and sys.getprofile() is None and threading.current_thread() is threading.main_thread():
            self._looks += 1
            self._batch = batch
            sys.setprofile(self._called)

    def end(self) -> None:
        """Ends the current step."""
        if self._batch is not None:
            self._batch = None
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or owner(frame.f_code.co_filename) not in ("user", "workload"):
            return
        try:
            args, kwargs = _arguments(frame)
            places = _takes_batch(self._batch, args, kwargs)
            function = _function_of(frame) if places is not None else None
        except Exception:  # a value of the script's that does not bear being looked at
            return
        if places is not None and function is not None:
            self.end()
            self._found(_as_step(function, args, kwargs, places), place_of(function))


def _arguments(frame: FrameType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a frame that has just been entered."""
    names, more, others, values = inspect.getargvalues(frame)
    count = frame.f_code.co_argcount
    args = (*(values[name] for name in names[:count]), *(values[more] if more else ()))
    return args, {name: values[name] for name in names[count:]} | (values[others] if others else {})


def _function_of(frame: FrameType) -> FunctionType | None:
    """The function that a frame runs: of those with its code the one that closes over the same variables."""
    code: CodeType = frame.f_code
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return None
    functions = (one for one in gc.get_referrers(code) if isinstance(one, FunctionType) and one.__code__ is code)
    return next((one for one in functions if _closes_over(one, frame)), None)


def _closes_over(function: FunctionType, frame: FrameType) -> bool:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            if cell.cell_contents is not frame.f_locals.get(name):
                return False
        except ValueError:  # not assigned yet
            return name not in frame.f_locals
    return True


def call_site() -> tuple[str, int]:
    """File and line of the innermost frame that is neither ours, TensorFlow's nor Python's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if owner(file) not in ("ours", "framework", "python"):
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0


def _dataset_of(iterator: Any) -> Any:
    """The dataset of an iterator; ``None`` where it is not known."""
    if (dataset := getattr(iterator, "_dataset", None)) is not None:
        return dataset
    inner = next(iter(getattr(iterator, "_iterators", ())), None)
    return getattr(inner, "_dataset", None)


LOOP_MARK: Final = "_xttsbench_loop"
"""Attribute of an iterator, or of what stands for one, that has its loop: without it an epoch begins."""
_LOOKED_AT: Final = 20  # Steps of a loop in whose calls its step function is looked for
_ALIKE: Final = 4  # Steps of a loop with nothing between them after which the next ones are taken to be like them


@dataclass
class Open:
    """A step that has begun and not ended: what was there at its begin, and what is known of it by now."""

    loop: Loop
    last_ns: int
    start_ns: int
    moment: Moment
    tapes: int
    wait_ns: int = 0
    got_ns: int = 0
    batch: Any = None
    others: dict[int, tuple[int, int, Moment]] = field(default_factory=dict)
    """Other loops that asked for one batch within it: when, the wait until then, the counters then."""


class EagerLoops:
    """The open step, and the loops that run within one another.

    Two data sets that are iterated side by side (``zip``) ask once each a step: the second request is a part of the
    first one's step. A loop that asks twice runs within (validation): the outer step ends where it began.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.steady = SteadyLoop(recorder)
        self._current: Open | None = None
        self._iterator: Any = None
        self._alike = 0
        self.step: Any = None
        self.step_trains = False
        self.step_mode = "graph"
        self._recorder = recorder
        self._outer: list[Loop] = []
        self.requesting: Loop | None = None
        self._python = PythonStep(self._found)
        self._closed: Moment | None = None

    @property
    def open(self) -> Open | None:
        """The step that has begun and not ended, with all that is known of it."""
        self.steady.leave()
        return self._current

    @open.setter
    def open(self, step: Open | None) -> None:
        self.steady.leave()
        self._current = step

    @property
    def batch(self) -> Any:
        """The batch of the open step; ``None`` where there is none, or it has not come yet."""
        return self._current.batch if self._current is not None else None

    @property
    def trains(self) -> bool:
        """Whether gradients are known to be taken in the loop of the open step."""
        return self._current is not None and self._current.loop.trains

    def takes_gradients(self) -> None:
        """Gradients were taken in the open step."""
        if self._current is not None:
            self._current.loop.trains = True

    @property
    def looks(self) -> bool:
        """Whether the step function is looked for among the calls of the open step."""
        return self._current is not None and self._current.loop.steps < _LOOKED_AT

    def before_next(self, iterator: Any) -> None:
        """A request begins: it ends the step before it, where it is the same loop's."""
        self._python.end()
        loop, current = self._loop_of(iterator), self.open
        now = time.perf_counter_ns()
        self.requesting, self._iterator = loop, weakref.ref(iterator)
        if current is None:
            self._open(loop, now)
        elif current.loop is loop:
            if current.got_ns:
                self._open(loop, self._close(now))
        elif loop in self._outer:
            self._close(now)
            del self._outer[self._outer.index(loop) :]
            self._open(loop, time.perf_counter_ns())
        elif id(loop) not in current.others and loop.key not in current.loop.inner:
            current.others[id(loop)] = (now, current.wait_ns, Moment.now(self._recorder.watch))
            self._alike = 0
        else:
            self._nest(current, loop, now)
        self._recorder.windows.asking(True)

    def waited(self, began_ns: int, ended_ns: int) -> None:
        """Time within requests, and while an iterator is made."""
        if self.open is not None:
            self.open.wait_ns += ended_ns - began_ns
        self._recorder.windows.asking(False)

    def got(self, began_ns: int, got_ns: int, batch: Any) -> None:
        """A request gave a batch."""
        self.waited(began_ns, got_ns)
        if self.open is not None and self.requesting is self.open.loop:
            self.open.got_ns, self.open.batch = got_ns, batch
            windows = self._recorder.windows
            if self.step is None and windows.runs_in(self.open.loop):
                self._python.begin(batch)  # no tf.function took the batch so far: perhaps a Python function does
            elif self._is_steady():
                self.steady.begin(self._iterator, self.open)

    def called(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, trains: bool) -> None:
        """An outermost call of a tf.function within a step: is it the one that takes the batch?"""
        current = self.open
        if current is None or current.batch is None:
            return
        current.loop.trains = current.loop.trains or trains
        if current.loop.steps >= _LOOKED_AT or (self.step is not None and (self.step_trains or not trains)):
            return
        places = _takes_batch(current.batch, args, kwargs)
        if places is not None:
            self.step, self.step_trains = _as_step(function, args, kwargs, places), trains
            self.step_mode = "xla" if getattr(function, "_jit_compile", None) else "graph"
            self._recorder.results.step_function = place_of(function)

    def _is_steady(self) -> bool:
        recorder, current = self._recorder, self._current
        if recorder.stops or self._alike < _ALIKE or self._outer or current is None or current.batch is None:
            return False
        loop, main = current.loop, recorder.results.loops.main
        known = (loop.trains or loop is main) and loop.steps >= _LOOKED_AT and "as_is" in loop.segments
        return known and not (recorder.windows.running or recorder.windows.due(loop, main=loop is main))

    def _found(self, step: Callable[[Any], Any], place: str) -> None:
        self.step, self.step_mode = step, "eager"
        self._recorder.results.step_function = place

    def _nest(self, current: Open, loop: Loop, now: int) -> None:
        """``loop`` runs within the open step, which ends where that one asked first."""
        began, wait_ns, moment = current.others.get(id(loop), (now, current.wait_ns, None))
        current.loop.inner.add(loop.key)
        current.wait_ns = wait_ns
        self._alike = 0
        if self._recorder.results.bench.accelerator is None:  # else its end had to be emulated before
            self._close(began, moment)
        self._outer.append(current.loop)
        self._open(loop, now)

    def _open(self, loop: Loop, now: int) -> None:
        recorder = self._recorder
        recorder.watch.step = loop.steps
        closed, self._closed = self._closed, None
        self.open = Open(loop, now, time.perf_counter_ns(), recorder.opening(closed), recorder.tapes)

    def _close(self, now: int, moment: Moment | None = None) -> int:
        """End the open step; returns when it ended, so that what we do ourselves is in the next one's pause."""
        recorder, current = self._recorder, self.open
        self.open = None
        if current is None or not current.got_ns:
            return now
        bench, loop, device_ns, emulated_ns, end_ns = recorder.results.bench, current.loop, 0, 0, now
        loop.trains = loop.trains or recorder.tapes != current.tapes
        if moment is None and recorder.results.loops.counts(loop):
            device_ns, emulated_ns = bench.finish_step()
            end_ns = time.perf_counter_ns() if bench.synchronise or emulated_ns else now
        recorder.watch.step_ended()
        self._closed = closed = moment or recorder.closing()
        real = recorder.replaced is not None and recorder.replaced.step_ended()
        is_timed = not recorder.in_window(loop) and (loop.warming or not real)
        if is_timed:
            row = step_row(
                current.start_ns,
                end_ns - current.last_ns,
                current.wait_ns,
                closed.since(current.moment)[0],
                recorder.results.shape_of(current.batch),
                epoch=max(loop.epochs - 1, 0),
                device_ns=device_ns,
                emulated_ns=emulated_ns,
                pause_ns=current.start_ns - current.last_ns,
            )
            recorder.results.add(loop, row, traced=row.traces > 0)
        self._alike += 1
        paused = recorder.after_step(loop)
        return end_ns if is_timed and not paused else time.perf_counter_ns()

    def _loop_of(self, iterator: Any) -> Loop:
        loop: Loop | None = iterator.__dict__.get(LOOP_MARK)
        if loop is None:
            dataset = _dataset_of(iterator)
            made = dataset_place(original(dataset))
            key = (call_site(), made if made is not None else str(getattr(iterator, "element_spec", "")))
            loop = self._recorder.results.loops.get(key, getattr(iterator, "how", "next()"))
            loop.own = iterator if hasattr(iterator, "found") else None
            loop.epochs, loop.taken = loop.epochs + 1, 0
            loop.takes(dataset)
            self._recorder.results.datasets = len({id(one.dataset) for one in self._recorder.results.loops.all()})
            iterator.__dict__[LOOP_MARK] = loop
        return loop
