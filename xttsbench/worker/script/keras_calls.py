"""Calls of a Keras model's own loops: each makes a dataset, an iterator and callbacks ready, for one row as for all."""

from __future__ import annotations

import ast
import linecache
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from xttsbench.pipeline.places import user_calls
from xttsbench.records.code import KerasCalls, for_each_batch
from xttsbench.records.pipeline import CallSite
from xttsbench.step.watch import Watch

ON_BATCH: Final = {"fit": "train_on_batch", "evaluate": "test_on_batch", "predict": "predict_on_batch"}
"""The method of a Keras model for one batch, by the one that loops over batches."""
_TAKEN: Final = ("x", "y", "sample_weight", "class_weight", "return_dict")


class KerasCallsHeard:
    """Counts and times the calls of the script's main thread; those that such a call makes itself belong to it."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.within = ""  # The method that runs now
        self._began_ns = self._ended_ns = 0  # the first of them, and the last
        self._sums: dict[tuple[str, CallSite], list[int]] = {}
        """Calls, and of all but the first: batches, nanoseconds, and those within tf.functions."""

    def around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a method of the model."""
        main, me, clock = threading.main_thread().ident, threading.get_ident, time.perf_counter_ns

        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            if self.within or me() != main:
                return original(model, *args, **kwargs)
            self.within = original.__name__
            before, began = self._watch.counters(), clock()
            try:
                return original(model, *args, **kwargs)
            finally:
                self.within, self._began_ns, self._ended_ns = "", self._began_ns or began, clock()
                after = self._watch.counters()
                added = [1, after[0] - before[0], self._ended_ns - began, after[1] - before[1]]
                for at in user_calls(sys._getframe(1))[:1]:
                    known = self._sums.get((original.__name__, at))
                    sums = [1, 0, 0, 0] if known is None else [sum(pair) for pair in zip(known, added, strict=True)]
                    self._sums[original.__name__, at] = sums

        return call

    @property
    def fits_each_batch(self) -> bool:
        """Whether a line calls ``fit`` for each batch."""
        sums = list(self._sums.items())
        return any(method == "fit" and for_each_batch(calls, batches) for (method, _), (calls, batches, *_) in sums)

    def record(self) -> tuple[KerasCalls, ...]:
        """The lines so far, but for those that were reached once, and those whose functions were not counted."""
        return tuple(
            KerasCalls(
                method=method,
                place=at,
                on_batch=on_batch("".join(linecache.getlines(at.file)[at.line - 1 : at.end_line or at.line]), method),
                calls=calls,
                batches=batches,
                time_s=time_ns / 1e9,
                function_s=function_ns / 1e9,
                span_s=(self._ended_ns - self._began_ns) / 1e9,
            )
            for (method, at), (calls, batches, time_ns, function_ns) in list(self._sums.items())
            if batches
        )


def on_batch(text: str, method: str) -> str:
    """The call in lines of source, made for one batch; without its arguments where they are no whole statement."""
    for whole in (text.strip(), f"{text.strip()} pass"):
        try:
            nodes = list(ast.walk(ast.parse(whole)))
        except SyntaxError:
            continue
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
                node.func.attr, most = ON_BATCH[method], 1 if method == "predict" else 2
                node.args, node.keywords = node.args[:most], [one for one in node.keywords if one.arg in _TAKEN]
                return ast.unparse(node)
    return f"{ON_BATCH[method]}(...)"
