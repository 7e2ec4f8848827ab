"""A dataset as its fingerprints are taken: its sources end early, its random seeds are each epoch's, its calls jitter.

Sources end early so that whole epochs can be seen, and more than one of them. Of a source whose elements are numbered
some come from its beginning, some from its end and the others from random places between (:func:`places_of`). The same
cut is made in a pipeline and in its fixed copy: sources stay as they are, and what is inside the functions that open
files, ranges or generators is no fix's business. What comes after the sources (shuffle, cache) stays, but for a
repetition without an end: it repeats twice, since samples that are never all seen cannot be told to be the same. A
cache on disk is one in memory here, since its file would be read later as if it held the whole. A last, smaller batch
that is dropped behind a shuffle is kept: it holds other samples in each epoch, so that no two epochs would have the
same.

A trial sets the seed of the whole process, so that two runs draw the same. TensorFlow then gives the random ops inside
a function a fixed seed, and each new iterator begins their numbers anew: an epoch would repeat the one before, which a
training without that seed does not see. So each pass has seeds of its own, as a run without a seed has them.

Calls of Python functions are held up at random, so that parallel ones end in another order than they began. A function
that keeps count, or draws its data from something shared, gives other data then; one that computes from its arguments
alone does not. On a quiet machine parallel calls may keep their order by luck for a long while.
"""

from __future__ import annotations

import functools
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.pipeline import nodes
from xttsbench.pipeline.source import lookup, recording

_OPENS: Final = re.compile(r"(FlatMap|Interleave|ParallelInterleave|LegacyParallelInterleave)Dataset(V\d+)?")
"""Ops whose function makes a dataset for each element."""
_READERS: Final = re.compile(r"(TFRecord|TextLine|FixedLengthRecord|Range|Generator)Dataset(V\d+)?")
"""Sources inside functions that go on for long; slices of an element are as long as the element says."""
_STRINGS: Final = re.compile(r"(TFRecord|TextLine|FixedLengthRecord|MatchingFiles)Dataset(V\d+)?")
"""Sources that name no type: each element is one string."""

_INT32, _INT64 = tf.int32.as_datatype_enum, tf.int64.as_datatype_enum

_BATCHES: Final = re.compile(r"(Padded|Parallel)?BatchDataset(V\d+)?|RebatchDatasetV2")
_HANDS_ON: Final = re.compile(r"(Prefetch|Repeat|Options|Model|Cache)Dataset(V\d+)?")
"""Ops that do not look at the size of a batch."""
_ROUNDS: Final = 2  # of what repeats for ever: what is drawn anew in each of them shows in two

Places = Mapping[int, Sequence[tuple[int, int]]]
"""Length of a source -> first element and number of elements of each stretch that is taken of it."""


def shortened(graph: Any, count: int, places: Places | None = None) -> Any:
    """The graph with at most ``count`` elements of each source; where files are read, of all of them together.

    The elements are the first ones, but for sources of which ``places`` tells others.

    A dataset node without dataset inputs is a source. In functions of ``flat_map`` and ``interleave`` (readers of
    files, generators and ranges are opened there) the readers are cut as well, each to its share of ``count``, at least
    one element.
    """
    edited = nodes.copied(graph)
    by_name = {node.name: node for node in edited.node}
    datasets = nodes.dataset_nodes(edited)
    sources = [node for node in datasets if not nodes.dataset_inputs(node, by_name) and _signature(node) is not None]
    library = nodes.FunctionLibrary(edited.library.function)
    found = {source.name: (places or {}).get(length_of(source, by_name) or 0, ((0, count),)) for source in sources}
    for node in datasets:
        if _OPENS.fullmatch(node.op):
            share = _share(node, by_name, count)
            for function in library.functions(nodes.called(node)):
                readers = [
                    one for one in function.node_def if _READERS.fullmatch(one.op) and _signature(one) is not None
                ]
                _cut(function, readers, dict.fromkeys((reader.name for reader in readers), ((0, share),)))
    _cut(edited, sources, found)
    for node in sources:
        _count_less(edited, node, by_name, places or {}, count)
    _end_repetitions(edited, datasets)
    _keep_in_memory(edited, datasets)
    return edited


def _share(node: Any, by_name: Mapping[str, Any], count: int) -> int:
    """Elements of each dataset that an op opens, so that there are ``count`` for all elements of its sources."""
    waiting, lengths = list(nodes.dataset_inputs(node, by_name)), []
    while waiting:
        above = by_name[waiting.pop()]
        if inputs := nodes.dataset_inputs(above, by_name):
            waiting.extend(inputs)
        elif (length := length_of(above, by_name)) is None:
            return count
        else:
            lengths.append(min(length, count))
    return max(1, -(-count // max(1, *lengths))) if lengths else count


_STRETCHES: Final = 4
_REACH: Final = 300_000  # elements of a source that are skipped at most, in some tenths of a second


def places_of(graph: Any, count: int) -> dict[int, tuple[tuple[int, int], ...]]:
    """Positions of ``count`` elements in each source that holds its elements or counts.

    Sources of one length have the same places, so that what ``zip`` puts together stays together; with several lengths
    beside a ``zip``, or with a ``skip``, which would skip what was taken, there are none.
    """
    by_name = {node.name: node for node in graph.node}
    datasets = nodes.dataset_nodes(graph)
    lengths = {node.name: length_of(node, by_name) for node in datasets if not nodes.dataset_inputs(node, by_name)}
    zipped = any(node.op.startswith("Zip") for node in datasets) and len(set(lengths.values())) > 1
    if zipped or any(node.op.startswith(("Skip", "TakeWhile")) for node in datasets):
        return {}
    ends = {length: length for length in lengths.values() if length}
    for node in (one for one in datasets if one.op == "TakeDataset"):
        (source,), most = nodes.dataset_inputs(node, by_name), nodes.constant_input(node, "count", by_name)
        length = lengths.get(source)
        if most is None or not length:
            return {}  # what is behind its end may be unfit
        ends[length] = min(ends[length], most) if most >= 0 else ends[length]
    return {length: _stretches(min(end, _REACH), count) for length, end in ends.items()}


def _stretches(length: int, count: int) -> tuple[tuple[int, int], ...]:
    """The beginning, the end, and two random stretches between, where there is room; the whole of what is no longer."""
    size = count // _STRETCHES
    if length <= count or not size:
        return ((0, min(length, count)),)
    end = (length - size, size)
    if length < 2 * count:
        return ((0, count - size), end)
    chosen, middle, first = random.Random(length), length // 2, count - (_STRETCHES - 1) * size
    second, third = chosen.randint(first, middle - size), chosen.randint(middle, length - 2 * size)
    return ((0, first), (second, size), (third, size), end)


def keep_last_batch(graph: Any) -> bool:
    """Have the batches that a graph ends with keep a smaller last one, in place; whether they dropped it.

    Only behind a shuffle, and where nothing after the batches looks at them, or gathers rows by what they hold; their
    size is not known any more then.
    """
    by_name = {node.name: node for node in graph.node}
    datasets, library = nodes.dataset_nodes(graph), nodes.FunctionLibrary(graph.library.function)
    last, after = datasets[-1], []
    while _HANDS_ON.fullmatch(last.op) or _only_gathers(last, library):
        inputs = nodes.dataset_inputs(last, by_name)
        if len(inputs) != 1:
            break
        after.append(last)
        last = by_name[inputs[0]]
    number = {"RebatchDatasetV2": 2, "BatchDatasetV2": 2, "ParallelBatchDataset": 3}.get(last.op, -1)
    drops = _BATCHES.fullmatch(last.op) and nodes.constant_input(last, "drop_remainder", by_name)
    if not drops or not any(node.op.startswith("Shuffle") for node in datasets):
        return False
    inputs = nodes.data_inputs(last)
    inputs[number] = nodes.add_constant(graph, f"{last.name}/whole", False)
    nodes.set_inputs(last, inputs)
    for node in (last, *after):
        for shape in node.attr["output_shapes"].list.shape:
            if shape.dim:
                shape.dim[0].size = -1
    return True


def _only_gathers(node: Any, library: nodes.FunctionLibrary) -> bool:
    """Whether a map takes rows of what it captures by the indices that its elements are, and does nothing else."""
    function = library.get(node.attr["f"].func.name) if node.op in ("MapDataset", "ParallelMapDatasetV2") else None
    if function is None or not all(one.op in ("GatherV2", "Const", "Identity") for one in function.node_def):
        return False
    element = function.signature.input_arg[0].name
    read = [one.input[0] for one in function.node_def if one.op != "Const"]
    return len(function.signature.input_arg) - len(nodes.captured_inputs(node)) == 1 and element not in read


def source_length(graph: Any) -> int | None:
    """Elements of the only source of a graph; ``None`` where there are several, or each gives several, or none can say.

    A generator is a source of one that gives several.
    """
    by_name = {node.name: node for node in graph.node}
    datasets = nodes.dataset_nodes(graph)
    sources = [node for node in datasets if not nodes.dataset_inputs(node, by_name)]
    several = len(sources) != 1 or any(_OPENS.fullmatch(node.op) for node in datasets)
    return None if several else length_of(sources[0], by_name)


def length_of(node: Any, by_name: Mapping[str, Any]) -> int | None:
    """Elements of a source that holds its tensors or counts; ``None`` where that cannot be read."""
    if node.op == "TensorDataset":
        return 1
    if node.op == "RangeDataset":
        start, stop, step = (nodes.constant_input(node, name, by_name) for name in ("start", "stop", "step"))
        return len(range(start, stop, step)) if start is not None and stop is not None and step else None
    names = nodes.node_inputs(node) if node.op == "TensorSliceDataset" else []
    first = nodes.behind_identities(names[0], by_name) if names else None
    if first is None or first.op != "Const":
        return None
    dimensions = first.attr["value"].tensor.tensor_shape.dim
    return int(dimensions[0].size) if dimensions else None


def _cut(graph: Any, sources: Sequence[Any], stretches: Mapping[str, Sequence[tuple[int, int]]]) -> None:
    """Have what reads some datasets of a graph or function read stretches of them, given by the dataset's name."""
    inside = hasattr(graph, "node_def")
    written = graph.node_def if inside else graph.node
    output, constant = (":handle:0", ":output:0") if inside else ("", "")

    def added(source: Any, op: str, *inputs: str) -> str:
        """Adds a node that yields elements such as those of the source; returns the reference to it."""
        node = written.add(name=nodes.free_name(graph, f"{source.name}/{op}"), op=op, input=inputs)
        types, shapes = _signature(source) or ([], [])
        node.attr["output_types"].list.type.extend(types)
        node.attr["output_shapes"].list.shape.extend(shapes)
        return str(node.name) + output

    readers, ends = list(written), dict[str, str]()
    for source in sources:
        parts = []
        for begin, size in stretches[source.name]:
            part = source.name + output
            for op, count in (("SkipDataset", begin), ("TakeDataset", size)):
                if op == "TakeDataset" or count:
                    given = nodes.add_constant(graph, f"{source.name}/{op}/count", count) + constant
                    part = added(source, op, part, given)
            parts.append(part)
        ends[source.name + output] = functools.reduce(functools.partial(added, source, "ConcatenateDataset"), parts)
    nodes.redirect(readers, ends, getattr(graph, "ret", None))


def _count_less(graph: Any, node: Any, by_name: Mapping[str, Any], places: Places, count: int) -> None:
    """Cut a tensor that counts from 0, the one element of a source, as a source of so many elements is cut."""
    names = nodes.node_inputs(node) if node.op == "TensorDataset" else []
    held = nodes.behind_identities(names[0], by_name) if len(names) == 1 else None
    tensor = held.attr["value"].tensor if held is not None and held.op == "Const" else None
    if tensor is None or len(tensor.tensor_shape.dim) != 1 or tensor.dtype not in (_INT32, _INT64):
        return
    numbers = nodes.array_of(tensor)
    if len(numbers) > 1 and np.array_equal(numbers, np.arange(len(numbers))):
        stretches = places.get(len(numbers), ((0, count),))
        left = graph.node.add(name=nodes.free_name(graph, f"{node.name}/fewer"), op="Const")
        left.attr["dtype"].type = tensor.dtype
        kept = np.concatenate([numbers[begin : begin + size] for begin, size in stretches])
        left.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(kept))
        nodes.set_inputs(node, [left.name])
        node.attr["output_shapes"].list.shape[0].dim[0].size = len(kept)


def _end_repetitions(graph: Any, datasets: list[Any]) -> None:
    by_name = {node.name: node for node in graph.node}
    for node in datasets:
        endless = node.op == "RepeatDataset" and (nodes.constant_input(node, "count", by_name) or 0) < 0
        if endless or node.op == "ForeverRepeatDataset":
            node.op = "RepeatDataset"
            nodes.set_inputs(node, [node.input[0], nodes.add_constant(graph, f"{node.name}/rounds", _ROUNDS)])


def _keep_in_memory(graph: Any, datasets: list[Any]) -> None:
    by_name = {node.name: node for node in graph.node}
    for node in datasets:
        if node.op.startswith("CacheDataset") and nodes.text_inputs(node, "filename", by_name) != ("",):
            with_own_store(graph, node)


def with_own_store(graph: Any, node: Any) -> None:
    """Have a cache keep its elements in memory of its own, in place."""
    inputs = [node.input[0], nodes.add_constant(graph, f"{node.name}/no_file", "")]
    if node.op == "CacheDatasetV2":
        inputs.append(nodes.free_name(graph, f"{node.name}/own_store"))
        graph.node.add(name=inputs[-1], op="DummyMemoryCache")
    nodes.set_inputs(node, inputs)


def _signature(source: Any) -> tuple[list[int], list[Any]] | None:
    """Types and shapes of a source's elements, ``None`` where nothing tells; readers of files yield strings."""
    for key in ("output_types", "Toutput_types"):
        if key in source.attr:
            types = list(source.attr[key].list.type)
            unknown = [tf.TensorShape(None).as_proto() for _ in types]
            return types, list(source.attr["output_shapes"].list.shape) or unknown
    if _STRINGS.fullmatch(source.op):
        return [tf.string.as_datatype_enum], [tf.TensorShape([]).as_proto()]
    return None


_APART: Final = 1_000_003


def draws_from_seeds(graph: Any) -> bool:
    """Whether a function of the graph draws from seeds that begin anew with each iterator."""
    return any(_seeded(node) for function in graph.library.function for node in function.node_def)


def reseeded(graph: Any, epoch: int) -> Any:
    """The graph with other seeds of the random ops in its functions: those of that epoch, the same in every run."""
    edited = nodes.copied(graph)
    for function in edited.library.function:
        for node in function.node_def:
            if _seeded(node):
                node.attr["seed"].i = (node.attr["seed"].i + epoch * _APART) % (2**31 - 1)
    return edited


def _seeded(node: Any) -> bool:
    seeds = [node.attr[name].i for name in ("seed", "seed2") if name in node.attr]
    return len(seeds) == 2 and any(seeds) and nodes.is_stateful(node)


_MOST_S: Final = 0.004  # longest that one call is held up
_TOTAL_S: Final = 1.5  # longest that the calls of all functions are held up together; later ones are not


@contextmanager
def jittered(graph: Any, seed: int, *, most_s: float = _MOST_S, total_s: float = _TOTAL_S) -> Iterator[int]:
    """While the block runs, hold the calls of the graph's Python functions up before their work.

    Generators are left alone: their elements are asked for one after the other. What is registered for a token when
    the block begins is what is held up, the front of a pool of processes as well.

    Yields:
        How many functions are held up.
    """
    every = {token: lookup(token) for token in nodes.FunctionLibrary(graph.library.function).all_tokens()}
    tokens = [token for token, found in every.items() if found is not None and found.kind != "generator"]
    with recording(dict.fromkeys(tokens, _Delay(seed, most_s, total_s).before)):
        yield len(tokens)


class _Delay:
    """Random delays from one seed, until they add up to the whole that may be spent."""

    def __init__(self, seed: int, most_s: float, total_s: float) -> None:
        self._random, self._most_s, self._left_s = random.Random(seed), most_s, total_s
        self._lock = threading.Lock()

    def before(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The function that waits and then does what the original does."""

        @functools.wraps(original)  # by which what reads the function while it is held up finds the user's
        def held_up(*arguments: Any) -> Any:
            delay_s = self._next_s()
            if delay_s > 0.0:
                time.sleep(delay_s)
            return original(*arguments)

        return held_up

    def _next_s(self) -> float:
        with self._lock:
            # Every second call at once and the others late: neighbours in time overtake one another.
            delay_s = self._random.choice((0.0, self._random.uniform(0.25, 1.0) * self._most_s))
            delay_s = min(delay_s, self._left_s)
            self._left_s -= delay_s
            return delay_s
