"""Batches that a script makes itself, in its training's own thread, told like those of a dataset.

Where a loop that trains asks for one is in its code (:mod:`xttsbench.targets.source.training_loops`). The first time it
is only looked at what happens there: where a dataset is asked, its own requests are what is told; where no array comes,
it is no batch.
"""

from __future__ import annotations

import os
import queue
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from xttsbench.owners import owner
from xttsbench.records.code import OwnBatches
from xttsbench.records.pipeline import CallSite
from xttsbench.stacks import stacks
from xttsbench.targets.source.training_loops import Hearing, Loops, Place
from xttsbench.worker.script.eager import LOOP_MARK

if TYPE_CHECKING:
    from xttsbench.worker.script.watched import Watched

_SIZES: Final = re.compile(r"\b(\d+|None)\b")
_THEIRS: Final = ("user", "workload", "library")  # owners of what may make a batch
_QUEUES: Final = ("queue.py", "queues.py")  # of Python, and of its multiprocessing
_LOOKED_AT: Final = 200  # calls within which a queue is asked, if one is


class Source:
    """One place that gives batches; it stands for their iterator.

    Attributes:
        found: what is known of it, once it was looked at.
        tells: whether its batches are told; ``None`` as long as it is looked at.
    """

    def __init__(self, place: Place, number: int) -> None:
        self.place, self.number = place, number
        self.how = f"{place.text} (no tf.data.Dataset)"
        self.tells: bool | None = None
        self.found: OwnBatches | None = None
        self.shapes: set[int] = set()
        self.requests = 0
        self.began_ns = self.ended_ns = 0
        self._maker: tuple[CallSite, str] | None = None  # with its name
        self._elsewhere, self._events = False, 0

    def called(self, frame: FrameType, event: str, given: Any) -> None:
        """The first function of the user's that runs meanwhile is what makes the batch, unless a queue has it."""
        code = frame.f_code
        if code.co_name == "<lambda>" and code.co_firstlineno == self.place.line:
            return  # ours, around an argument
        if event == "call" and self._maker is None and owner(code.co_filename) in _THEIRS:
            self._maker = _named(code) if f"{os.sep}numpy{os.sep}" not in code.co_filename else None
        self._events += 1
        if event == "c_call":
            self._elsewhere = given.__name__ == "get" and isinstance(
                getattr(given, "__self__", None), queue.SimpleQueue
            )
        elif event == "call" and code.co_name == "get" and os.path.basename(code.co_filename) in _QUEUES:
            self._elsewhere = owner(code.co_filename) == "python"
        if self._elsewhere:
            self._maker = _filler() or self._maker
        if self._elsewhere or (self._maker is not None and self._events > _LOOKED_AT):
            sys.setprofile(None)

    def looked(self, batch: Any, requests: int) -> None:
        """A batch came while it was looked at, and that many requests were made of datasets."""
        self.tells = not requests and _arrays(batch)
        if self.tells:
            maker, name = self._maker or (None, None)
            self.found = OwnBatches(
                place=CallSite(file=self.place.file, line=self.place.line),
                text=self.place.text,
                names=self.place.names,
                number=self.number,
                maker=maker,
                maker_name=name,
                elsewhere=self._elsewhere,
                signature=signature_of(batch),
                kind=kind_of(batch),
            )

    def widen(self, batch: Any) -> None:
        """A batch of other sizes came: those that vary are left open in the signature."""
        if self.found is not None:
            signature = joined(self.found.signature, signature_of(batch))
            self.found = self.found.model_copy(update={"signature": signature})


class OwnBatchesHeard(Hearing):
    """Hears of a script's own batches, and tells :class:`Watched` of them."""

    def __init__(self, watched: Watched, loops: Loops) -> None:
        self._watched = watched
        self._loops = loops
        self._sources: dict[int, Source] = {}
        self._main = threading.main_thread().ident

    def over(self, iterable: Any, number: int, anew: Callable[[], Any]) -> Any:
        """The iterable itself where it is TensorFlow's, or runs elsewhere; else one that tells of each batch."""
        if not self._hears() or type(iterable).__module__.startswith("tensorflow"):
            return iterable
        vars(self._source(number)).pop(LOOP_MARK, None)  # An epoch begins
        return _Telling(self, number, iter(iterable))

    def asks(self, number: int) -> None:
        """Statements that ask for a batch begin."""
        over = self._loops.places[number].over
        if not self._hears() or (over is not None and self._source(over).tells is not False):
            return
        self._begin(self._source(number))

    def came(self, number: int) -> None:
        """Statements that ask for a batch have ended, or raised."""
        if (source := self._sources.get(number)) is not None and source.began_ns:
            self._end(source)

    def got(self, batch: Any, number: int) -> None:
        """The batch is there."""
        if (source := self._sources.get(number)) is not None and source.began_ns:
            self._told(source, batch[0] if len(batch) == 1 else batch)

    def take(self, make: Callable[[], Any], number: int) -> Any:
        """The batch that a call gives."""
        source = self._source(number)
        if source.tells is False or not self._hears():
            return make()
        self._begin(source)
        try:
            batch = make()
        except BaseException:
            self._end(source)
            source.began_ns = 0
            raise
        self._end(source)
        self._told(source, batch)
        return batch

    def _hears(self) -> bool:
        watched = self._watched
        if watched.requesting or watched.fitting or not watched.active or threading.get_ident() != self._main:
            return False
        return bool(context.executing_eagerly())

    def _source(self, number: int) -> Source:
        if number not in self._sources:
            self._sources[number] = Source(self._loops.places[number], number)
        return self._sources[number]

    def _begin(self, source: Source) -> None:
        source.began_ns = 0
        if source.tells is False:
            return
        if source.tells:
            self._watched.before_next(source)
            self._watched.requesting = True
        else:
            source.requests = self._watched.requests
            if sys.getprofile() is None:
                sys.setprofile(source.called)
        source.began_ns = time.perf_counter_ns()

    def _end(self, source: Source) -> None:
        source.ended_ns = time.perf_counter_ns()
        if source.tells:
            self._watched.requesting = False
        elif sys.getprofile() == source.called:
            sys.setprofile(None)

    def _told(self, source: Source, batch: Any) -> None:
        began_ns, source.began_ns = source.began_ns, 0
        if source.tells:
            self._watched.after_next(began_ns, source.ended_ns, batch)
            shape = self._watched.recorder.results.shape_of(batch)[0]
            if shape not in source.shapes:
                source.shapes.add(shape)
                source.widen(batch)
        else:
            source.looked(batch, self._watched.requests - source.requests)
            self._watched.expects_steps = self._watched.expects_steps or bool(source.tells)


def _named(code: CodeType) -> tuple[CallSite, str]:
    return CallSite(file=code.co_filename, line=code.co_firstlineno), code.co_qualname


def _filler() -> tuple[CallSite, str] | None:
    """The outermost function of the user's in another thread, one of whose functions puts things into a queue."""
    with stacks() as frames:
        for thread, frame in frames.items():
            codes = [one.f_code for one, _ in traceback.walk_stack(frame) if owner(one.f_code.co_filename) in _THEIRS]
            if thread != threading.get_ident() and any({"put", "put_nowait"} & {*code.co_names} for code in codes):
                return _named(codes[-1])
    return None


class _Telling:
    """An iterator whose batches are told."""

    def __init__(self, heard: OwnBatchesHeard, number: int, iterator: Any) -> None:
        self._heard, self._number, self._take = heard, number, iterator.__next__

    def __iter__(self) -> _Telling:
        return self

    def __next__(self) -> Any:
        return self._heard.take(self._take, self._number)


def _arrays(batch: Any) -> bool:
    return any(len(getattr(leaf, "shape", ()) or ()) > 0 for leaf in _leaves(batch))


def _leaves(batch: Any) -> list[Any]:
    try:
        return list(tf.nest.flatten(batch))
    except (TypeError, ValueError):  # a dictionary whose keys cannot be sorted
        return [batch]


def kind_of(batch: Any) -> str | None:
    """Kind of a batch's parts, where all are of one."""
    kinds = {"arrays" if isinstance(one, np.ndarray | np.generic) else type(one).__name__ for one in _leaves(batch)}
    kind = {"arrays": "arrays", "EagerTensor": "tensors"}.get("".join(kinds))
    return f"lists of {kind}" if kind and isinstance(batch, list) else kind


def joined(one: str | None, other: str | None) -> str | None:
    """The signature of batches of two; ``None`` where they are not of the same structure and ranks."""
    if one is None or other is None:
        return None
    parts, others = _SIZES.split(one), _SIZES.split(other)
    if parts[::2] != others[::2]:
        return None
    return "".join(part if part == more else "None" for part, more in zip(parts, others, strict=True))


def signature_of(batch: Any) -> str | None:
    """The ``output_signature`` for batches like this one, as code; ``None`` where a part of it is no array.

    The first dimension is left open, since a last batch may be smaller.
    """

    def spec(leaf: Any) -> str:
        shape, dtype = tuple(leaf.shape), tf.as_dtype(leaf.dtype).name
        sizes = [None, *shape[1:]] if shape else []
        return f"tf.TensorSpec(({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''}), tf.{dtype})"

    def written(part: Any) -> str:
        if isinstance(part, dict):
            return "{" + ", ".join(f"{name!r}: {written(value)}" for name, value in part.items()) + "}"
        if isinstance(part, tuple | list):
            return "(" + ", ".join(map(written, part)) + ("," if len(part) == 1 else "") + ")"
        return spec(part)

    try:
        return written(batch)
    except (AttributeError, TypeError, ValueError):
        return None
