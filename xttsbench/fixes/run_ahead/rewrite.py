"""A dataset whose generators run in processes of their own, each ahead by a bounded number of elements.

The process is a fresh interpreter with a copy of the generator, as for functions (:mod:`xttsbench.fixes.processes`):
a fork of a process in which TensorFlow runs may hang. It is started when the first epoch begins, with the random
generators as they are then, serves all epochs, and ends with its dataset or its parent. Half of the elements that are
kept ready are there, and one request takes them all; the other half are here, checked and converted as TensorFlow does.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import script_ops

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.fixes.graph.edit import does_not_apply, flat_spec, graph_of, named
from xttsbench.fixes.graph.hazards import Reader
from xttsbench.fixes.open_generator.rewrite import arguments, converter, generators, grafted, made_of_graph
from xttsbench.fixes.pool.packing import objection, packed
from xttsbench.fixes.pool.work import RunningGenerator
from xttsbench.fixes.pool.workers import WorkerPool
from xttsbench.fixes.run_ahead import ELEMENTS
from xttsbench.pipeline.python.split import CannotSplitError
from xttsbench.pipeline.python.state import state_effects
from xttsbench.records.fix import Fix, FixSet

_FIX: Final = "run-ahead"


def run_ahead(dataset: Any, elements: int = ELEMENTS) -> Any:
    """A dataset whose generators run in processes of their own, at most ``elements`` elements ahead.

    Random numbers are those that the generator would have drawn here, as long as nobody else draws from the same
    generator meanwhile; what it changes in objects that others see is changed in its own process alone.

    Raises:
        InvalidInputError: there is no generator, or one that another process cannot have: each with file and line.
    """
    graph = graph_of(dataset, _FIX)
    found = generators(graph)
    if not found:
        raise does_not_apply(_FIX, "the dataset has no generator in its outer pipeline")
    held = []
    for node, registered in found:
        name = named(registered, "the generator")
        if isinstance(registered.entry, script_ops.EagerFunc):
            raise does_not_apply(_FIX, f"{name} yields tensors that are not plain arrays")
        spec, there = flat_spec(node, _FIX), max(elements // 2, 1)
        ahead = Ahead(registered.generator_state._generator, converter(registered), name, there)
        try:
            given = arguments(graph, node) or None
        except CannotSplitError as error:
            raise does_not_apply(_FIX, f"{name}: {error}") from error
        signature = spec if len(spec) > 1 else spec[0]
        made = tf.data.Dataset.from_generator(ahead, output_signature=signature, args=given)
        made = made.prefetch(max(elements - there, 1))
        graph = grafted(graph, node.name, made)
        held.append(made)
    return made_of_graph(graph, dataset, held)


def hazards(reader: Reader, _fix: Fix, _every: FixSet) -> Iterator[str]:
    """What generators change besides the random generators that they draw from, or read and others here change."""
    for node, registered in generators(reader.graph):
        for told in state_effects(registered.generator_state._generator):
            if " draws from " not in told:
                yield f"only the generator's own process would see the change: {told}"
        yield from (f"the generator's own process would not see the change: {told}" for told in reader.reads(node.name))


class Ahead:
    """What ``from_generator`` is given in the generator's place: asks its process for elements."""

    def __init__(self, generator: Callable[..., Any], convert: Callable[[Any], Any], name: str, elements: int) -> None:
        """Take the generator, TensorFlow's conversion of an element, its name and place, and how far ahead it runs.

        Raises:
            InvalidInputError: another process cannot have the generator.
        """
        self.__wrapped__ = generator
        self._convert, self._name, self._elements = convert, name, elements
        self._lock, self._numbers = threading.Lock(), itertools.count()
        self._running: WorkerPool | None = None
        reason = objection(generator)
        if reason is not None:
            raise InvalidInputError(f"{name} cannot run in another process: {reason}. Leave run-ahead out.")

    def __call__(self, *arguments: Any) -> Iterator[Any]:
        """The elements of an epoch.

        Raises:
            XttsbenchError: the process died.
            BaseException: what the generator raised, with its traceback there as the cause.
        """
        number = next(self._numbers)
        with self._lock:
            pool = self._running = self._running or self._begun()
        pool.call(0, ("begin", number, arguments), attempts=1)
        try:
            over = False
            while not over:
                elements, over = pool.call(0, ("next", number), attempts=1)
                for element in elements:
                    flat = self._convert(element)
                    yield tuple(flat) if len(flat) > 1 else flat[0]
        finally:
            with suppress(XttsbenchError):
                pool.call(0, ("end", number), attempts=1)

    def _begun(self) -> WorkerPool:
        states = (random.getstate(), np.random.get_state())
        pickled = packed([(RunningGenerator(self.__wrapped__, *states, self._elements), False)], exact=True)
        return WorkerPool(pickled, [self._name], 1)
