"""A dataset in whose graph generators are data sets of item numbers with a parallel map of the loop's body.

The new ops are made by TensorFlow itself (``from_generator`` and ``map``), and put into a copy of the graph in the
place of the original's. What the body gives is checked and converted by the function with which TensorFlow checks what
the generator yields, so that structure, types and shapes are held to the same signature.
"""

from __future__ import annotations

import itertools
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.ops import script_ops

from xttsbench.fixes.graph.edit import add_functions, does_not_apply, end, flat_spec, from_graph, graph_of, named
from xttsbench.fixes.graph.hazards import STATELESS, STOPS, Reader
from xttsbench.owners import of_keras
from xttsbench.pipeline.nodes import (
    FunctionLibrary,
    array_of,
    behind_identities,
    called,
    copied,
    data_inputs,
    dataset_nodes,
    free_name,
    node_of,
)
from xttsbench.pipeline.python.opened import Compiled, compiled
from xttsbench.pipeline.python.split import CannotOpenError
from xttsbench.pipeline.python.state import python_state
from xttsbench.pipeline.read import read_graph
from xttsbench.pipeline.source import Registered, cells, lookup, unwrap
from xttsbench.records.fix import Fix, FixSet

_FIX: Final = "open-generator"
_MOST_WAITING: Final = 4096  # items that wait for their turn; more are left of epochs that were given up
_finished: Final[deque[Any]] = deque(maxlen=32)  # what datasets that are gone referred to


class Body:
    """Makes the element of an item by its number, in this process unless ``made`` is exchanged; has the table of items.

    Attributes:
        cut: the generator in two parts.
        made: makes an element of the values of an item.
    """

    def __init__(self, cut: Compiled, registered: Registered) -> None:
        self.cut = cut
        self.made: Callable[[dict[str, Any]], Any] = lambda values: cut.body(**values)
        self._items: dict[int, dict[str, Any]] = {}
        self._numbers = itertools.count()
        self._convert = converter(registered)
        self.__wrapped__ = cut.generator  # for those who look for the user's function behind a token

    def numbers(self, *arguments: Any) -> Iterator[int]:
        """The numbers of an epoch's items, in order."""
        for values in self.cut.items(*arguments):
            number = next(self._numbers)
            self._items[number] = values
            if len(self._items) > _MOST_WAITING:
                del self._items[min(self._items)]
            yield number

    def __call__(self, number: Any) -> Any:
        """The element of an item as flat arrays, made once.

        Raises:
            RuntimeError: the user's code raised ``StopIteration``, which TensorFlow would take for the end.
        """
        values = self._items.pop(int(number))
        try:
            return self._convert(self.made(values))
        except StopIteration as error:
            raise RuntimeError("generator raised StopIteration") from error


def open_generators(dataset: Any, calls: int = tf.data.AUTOTUNE) -> Any:
    """A dataset in which every generator that can be opened is, with ``calls`` calls of its body at a time.

    Elements, their order and the epochs stay; an item's number is handed from the generator to the map, the item itself
    stays in Python. Generators inside the function of ``interleave`` or ``flat_map`` stay as they are.

    Raises:
        InvalidInputError: there is no generator, or none that can be opened: each with file, line and reason.
    """
    graph = graph_of(dataset, _FIX)
    found = generators(graph)
    if not found:
        raise does_not_apply(_FIX, "the dataset has no generator in its outer pipeline")
    reasons: list[str] = []
    held: list[Any] = []
    for node, registered in found:
        try:
            other, kept = _opened(graph, node, registered, calls)
        except CannotOpenError as error:
            reasons.append(f"{named(registered)} cannot be opened: {error}")
            continue
        graph = grafted(graph, node.name, other)
        held.append(kept)
    if not held:
        raise does_not_apply(_FIX, "; ".join(reasons))
    return made_of_graph(graph, dataset, held)


def hazards(reader: Reader, _fix: Fix, _every: FixSet) -> Iterator[str]:
    """State that the bodies of generators read and other code changes, what runs ahead, and errors passed over."""
    for node, registered in generators(reader.graph):
        user = registered.generator_state._generator
        try:
            cut = compiled(user)
        except CannotOpenError:
            continue
        drawn, ending = python_state(user), [name for name in reader.nodes if STOPS.fullmatch(reader.nodes[name].op)]
        if cut.split.goes_on and drawn.state is not None:
            yield f"an iterator that is given up has run ahead: {drawn.state}"
        if cut.split.goes_on and drawn.random is not None and ending:
            yield f"{ending[0]} may end an epoch of it early, and it has run ahead then: {drawn.random}"
        reads = cut.reads_within_epoch if reader.ends_with_epoch else cut.reads
        if reads is not None:
            yield f"calls that run ahead would find something else: {reads}; {STATELESS}"
        passing = [name for name in reader.nodes if reader.nodes[name].op.startswith("IgnoreErrors")]
        if passing:
            yield f"{passing[0]} passes over errors, after which {node.name} ends and its parallel calls go on"


def generators(graph: Any) -> list[tuple[Any, Registered]]:
    """The generators of the outer pipeline: the node whose elements they are, and what it calls."""
    library = FunctionLibrary(graph.library.function)
    found = []
    for node in dataset_nodes(graph):
        if node.op != "FlatMapDataset" or not any(one.op == "GeneratorDataset" for one in library.reach(called(node))):
            continue
        known = [lookup(token) for token in library.python_tokens(called(node))]
        own = [one for one in known if one is not None and one.kind == "generator"]
        definition = library.get(called(node)[0])
        datasets = [] if definition is None else [one for one in definition.node_def if one.op.endswith("Dataset")]
        if len(own) == 1 and [one.op for one in datasets] == ["GeneratorDataset"]:
            found.append((node, own[0]))
    return found


def ends_of_epochs(graph: Any) -> list[Callable[[], Any]]:
    """Callbacks ``on_epoch_end`` of the ``PyDataset`` or the like from which Keras made the graph's generators."""
    owners: list[Any] = [getattr(one.generator_state._generator, "__self__", None) for _, one in generators(graph)]
    return [one.on_epoch_end for one in owners if of_keras(type(one).__module__)]


def arguments(graph: Any, node: Any) -> list[Any]:
    """The arrays that ``from_generator`` was given as ``args``.

    Raises:
        CannotOpenError: one is not constant.
    """
    by_name = {one.name: one for one in graph.node}
    found = []
    for name in data_inputs(node)[1:]:
        source = behind_identities(name.split(":")[0], by_name)
        if source is None or source.op != "Const":
            raise CannotOpenError("an argument that it is given is no constant")
        found.append(array_of(source.attr["value"].tensor))
    return found


def made_of_graph(graph: Any, dataset: Any, held: Any) -> Any:
    """A dataset of an edited graph that keeps ``held`` alive as long as itself, and for a while longer.

    The iterators of a dataset may end after it, and call what is held once more.
    """
    result = from_graph(graph, dataset.element_spec, source=dataset)
    weakref.finalize(result, _finished.append, held)
    return result


def grafted(graph: Any, name: str, other: Any) -> Any:
    """The graph with another dataset in a node's place, whose last op gets the node's name, so that fixes find it."""
    edited, graft = copied(graph), read_graph(other)
    add_functions(edited, graft.library.function)
    edited.node.remove(next(node for node in edited.node if node.name == name))
    nodes = [node for node in graft.node if node.op != "_Retval"]
    names = {node.name: free_name(edited, f"{name}/opened/{node.name}") for node in nodes}
    names[end(graft).name] = name
    for node in nodes:
        made = edited.node.add()
        made.CopyFrom(node)
        made.name = names[node.name]
        for number, given in enumerate(node.input):
            made.input[number] = given.replace(node_of(given), names[node_of(given)], 1)
    return edited


def converter(registered: Registered) -> Callable[[Any], Any]:
    """TensorFlow's own check and conversion of one element of a generator: a function of the element.

    It is the function that ``from_generator`` calls with an iterator's number, given an element in place of the number
    and, in place of the table of iterators, one that makes an iterator over that element.
    """
    function = unwrap(registered.called)
    table = types.SimpleNamespace(get_iterator=lambda given: iter((given.element,)))
    held = cells(function) | {"generator_state": table}
    closure = tuple(types.CellType(held[name]) for name in function.__code__.co_freevars)
    checked = types.FunctionType(function.__code__, function.__globals__, function.__name__, None, closure)
    return lambda element: checked(_InPlaceOfNumber(element))


class _InPlaceOfNumber:
    def __init__(self, element: Any) -> None:
        self.element = element

    def numpy(self) -> _InPlaceOfNumber:
        return self


def _opened(graph: Any, node: Any, registered: Registered, calls: int) -> tuple[Any, Any]:
    """The dataset in a generator's place, and what it keeps alive."""
    given = arguments(graph, node)
    if isinstance(registered.entry, script_ops.EagerFunc):
        raise CannotOpenError("it gives elements with parts that are no plain tensors")
    cut, spec = compiled(registered.generator_state._generator), flat_spec(node, _FIX)
    body, signature = Body(cut, registered), tf.TensorSpec([], tf.int64)
    source = tf.data.Dataset.from_generator(body.numbers, output_signature=signature, args=given or None)

    def mapped(number: Any) -> Any:
        made = tf.numpy_function(body, [number], [one.dtype for one in spec])
        flat = made if isinstance(made, list | tuple) else [made]
        for one, wanted in zip(flat, spec, strict=True):
            one.set_shape(wanted.shape)
        return tuple(flat) if len(flat) > 1 else flat[0]

    unconverted = tf.autograph.experimental.do_not_convert(mapped)
    made = source.map(unconverted, num_parallel_calls=calls, deterministic=True)
    return made, (source, made, body)
