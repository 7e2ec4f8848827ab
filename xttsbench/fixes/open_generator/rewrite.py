"""A dataset in whose graph generators are data sets of item numbers with a parallel map of the loop's body.

The new ops are made by TensorFlow itself (``from_generator`` and ``map``), and put into a copy of the graph in the
place of the original's. What the body gives is checked and converted by the function with which TensorFlow checks what
the generator yields, so that structure, types and shapes are held to the same signature.
"""

from __future__ import annotations

import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import script_ops

from xttsbench.fixes.graph.edit import add_functions, does_not_apply, end, flat_spec, from_graph, graph_of
from xttsbench.fixes.graph.functions import node_of
from xttsbench.fixes.graph.hazards import STOPS, Reader
from xttsbench.pipeline.nodes import (
    FunctionLibrary,
    array_of,
    behind_identities,
    called,
    copied,
    data_inputs,
    dataset_nodes,
    free_name,
)
from xttsbench.pipeline.python.items import Items, ItemSource, NotAlikeError, items_of
from xttsbench.pipeline.python.opened import Compiled, Opened, Shared, compiled, made_of
from xttsbench.pipeline.python.split import CannotSplitError
from xttsbench.pipeline.python.state import python_state, state_effects
from xttsbench.pipeline.read import read_graph
from xttsbench.pipeline.source import Registered, cells, display_name, locate, lookup, unwrap
from xttsbench.records.fix import Fix, FixSet

_FIX: Final = "open-generator"
_finished: Final[deque[Any]] = deque(maxlen=32)  # what datasets that are gone referred to
_MOST_WAITING: Final = 4096  # items whose elements wait to be fetched; more are left of epochs that were given up


class ElementOfItem:
    """Makes the element of an item that comes as tensors.

    Attributes:
        items: what items are, with the function that makes an element of one.
        structure: of the element, with the dtype of each leaf.
        reads: what it reads and other code changes, in words; ``None`` where there is nothing.
        of: TensorFlow's table of the generator's iterators, by which the generator is known.
    """

    def __init__(
        self, items: Items, convert: Callable[[Any], Any], state: Any, structure: Any, reads: str | None
    ) -> None:
        self.items, self.structure, self.reads, self.of = items, structure, reads, state
        self._convert = convert
        self.__wrapped__ = state._generator  # for those who look for the user's function behind a token

    def __call__(self, *parts: Any) -> Any:
        """The element as flat arrays."""
        try:
            return self._convert(self.items.function(*parts))
        except StopIteration as error:
            raise RuntimeError("generator raised StopIteration") from error


class Body:
    """Makes the elements of items, in this process unless ``made`` is exchanged.

    Attributes:
        opened: the generator's table of items.
        convert: the check and conversion of an element.
        of: TensorFlow's table of the generator's iterators, by which the generator is known.
        in_python: why its items are no tensors, where they were to be, as a phrase after "it".
    """

    def __init__(self, opened: Opened, convert: Callable[[Any], Any], state: Any, in_python: str | None = None) -> None:
        self.opened, self.convert, self.of, self.in_python = opened, convert, state, in_python
        self.made: Callable[[Shared, tuple[Any, ...]], list[Any]] = self._made
        self.__wrapped__ = state._generator  # for those who look for the user's function behind a token

    def elements(self, number: Any) -> list[Any]:
        """All elements of an item, converted; what came from a generator that was not read is an element itself."""
        shared, item = self.opened.taken(int(number))
        return [self.convert(item)] if shared is None else self.made(shared, item)

    def _made(self, shared: Shared, item: tuple[Any, ...]) -> list[Any]:
        return made_of(shared.function, (*shared.values, *item), self.convert)


class OneElement(Body):
    """For bodies that give one element an item."""

    def __call__(self, number: Any) -> Any:
        """The element as flat arrays or tensors."""
        return self.elements(number)[0]


class AllElements(Body):
    """For bodies that give several: the elements wait here until they are fetched one by one."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._lock = threading.Lock()
        self._waiting: dict[int, list[Any]] = {}

    def __call__(self, number: Any) -> Any:
        """Reads all elements of an item, keeps them for their turn, and returns their number."""
        made = self.elements(number)
        with self._lock:
            if made:
                self._waiting[int(number)] = made[::-1]
            if len(self._waiting) > _MOST_WAITING:
                del self._waiting[min(self._waiting)]
        return np.int64(len(made))

    def fetched(self, number: Any) -> Any:
        """The next element of an item."""
        with self._lock:
            waiting = self._waiting[int(number)]
            element = waiting.pop()
            if not waiting:
                del self._waiting[int(number)]
        return element


def open_generators(dataset: Any, calls: int = tf.data.AUTOTUNE, *, traceable: bool = False) -> Any:
    """A dataset in which every generator that can be opened is, with ``calls`` calls of its body at a time.

    Elements, their order and the epochs stay; an item's number is handed from the generator to the map, the item itself
    stays in Python. With ``traceable`` the item is handed on as tensors where all items are alike, so that its element
    may be made by ops. Generators inside the function of ``interleave`` or ``flat_map`` stay as they are.

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
            other, kept = _opened(graph, node, registered, calls, traceable)
        except CannotSplitError as error:
            reasons.append(_reason(registered, error))
            continue
        graph = grafted(graph, node.name, other)
        held.append(kept)
    if not held:
        raise does_not_apply(_FIX, "; ".join(reasons))
    return made_of_graph(graph, dataset, held)


def hazards(reader: Reader, _fix: Fix, _every: FixSet) -> Iterator[str]:
    """State that the bodies of generators read and other code changes, and errors that are passed over."""
    for node, registered in generators(reader.graph):
        user = registered.generator_state._generator
        try:
            cut = compiled(user)
        except CannotSplitError:
            continue
        drawn = state_effects(user)
        if not drawn and (cut.split.kept or cut.split.drawn):
            drawn = tuple(filter(None, (python_state(user).random,)))
        ending = [name for name in reader.nodes if STOPS.fullmatch(reader.nodes[name].op)]
        if drawn and ending:
            yield f"{ending[0]} may end an epoch of it early, and it has run ahead then: {drawn[0]}"
        reads = cut.reads_within_epoch if reader.ends_with_epoch else cut.reads
        if reads is not None:
            yield f"calls that run ahead would find something else: {reads}"
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
    return [one.on_epoch_end for one in owners if type(one).__module__.startswith("keras.")]


def arguments(graph: Any, node: Any) -> list[Any]:
    """The arrays that ``from_generator`` was given as ``args``.

    Raises:
        CannotSplitError: one is not constant.
    """
    by_name = {one.name: one for one in graph.node}
    found = []
    for name in data_inputs(node)[1:]:
        source = behind_identities(name.split(":")[0], by_name)
        if source is None or source.op != "Const":
            raise CannotSplitError("an argument that it is given is no constant")
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


def _opened(graph: Any, node: Any, registered: Registered, calls: int, traceable: bool) -> tuple[Any, Any]:
    """The dataset in a generator's place, and what it keeps alive."""
    user = registered.generator_state._generator
    cut, given = compiled(user), arguments(graph, node) or None
    spec, convert = flat_spec(node, _FIX), converter(registered)
    eager = isinstance(registered.entry, script_ops.EagerFunc)
    in_python: str | None = None
    if traceable:
        try:
            if eager:
                raise NotAlikeError("gives elements with parts that are no plain tensors")
            return _of_tensors(registered, cut, given, spec, calls)
        except NotAlikeError as error:
            in_python = str(error)
    opened = Opened(user, cut)
    signature = tf.TensorSpec([None], tf.int64)
    numbers = tf.data.Dataset.from_generator(opened.groups, output_signature=signature, args=given).unbatch()

    def call(function: Any, number: Any) -> Any:
        return _called(tf.py_function if eager else tf.numpy_function, function, [number], spec)

    if opened.compiled.split.once:
        body: Any = OneElement(opened, convert, registered.generator_state, in_python)
        made = _mapped(numbers, lambda number: call(body, number), calls)
    else:
        body = AllElements(opened, convert, registered.generator_state, in_python)
        count = [tf.TensorSpec([], tf.int64)]
        counted = _mapped(numbers, lambda n: (n, _called(tf.numpy_function, body, [n], count)), calls)
        each = tf.autograph.experimental.do_not_convert(lambda n, count: tf.data.Dataset.from_tensors(n).repeat(count))
        fetch = tf.autograph.experimental.do_not_convert(lambda number: call(body.fetched, number))
        made = counted.flat_map(each).map(fetch)
    return made, (numbers, made, body)


def _of_tensors(
    registered: Registered, cut: Compiled, given: list[Any] | None, spec: Sequence[tf.TensorSpec], calls: int
) -> tuple[Any, Any]:
    """The same with items that are tensors."""
    user = registered.generator_state._generator
    items = items_of(cut, user, given or [])
    handed = ItemSource(items, cut, user)
    signature = tuple(tf.TensorSpec(shape, tf.as_dtype(dtype)) for dtype, shape in handed.specs)
    source = tf.data.Dataset.from_generator(handed.handed_on, output_signature=signature, args=given)
    source = source.unbatch() if handed.in_groups else source
    structure = cells(unwrap(registered.called))["output_types"]
    body = ElementOfItem(items, converter(registered), registered.generator_state, structure, cut.reads)
    made = _mapped(source, lambda *parts: _called(tf.numpy_function, body, parts, spec), calls)
    return made, (source, made, body)


def _called(how: Any, function: Any, given: Sequence[Any], spec: Sequence[tf.TensorSpec]) -> Any:
    made = how(function, given, [one.dtype for one in spec])
    flat = list(made) if isinstance(made, list | tuple) else [made]
    for one, wanted in zip(flat, spec, strict=True):
        one.set_shape(wanted.shape)
    return tuple(flat) if len(flat) > 1 else flat[0]


def _mapped(numbers: Any, function: Any, calls: int) -> Any:
    unconverted = tf.autograph.experimental.do_not_convert(function)
    return numbers.map(unconverted, num_parallel_calls=calls, deterministic=True)


def _reason(registered: Registered, error: CannotSplitError) -> str:
    place = locate(registered.user)
    line = error.line or place.line
    where = f" ({place.file}:{line})" if place.file is not None else ""
    return f"{display_name(registered.user)}{where} cannot be opened: {error}"
