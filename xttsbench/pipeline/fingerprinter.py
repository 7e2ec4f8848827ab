"""Fingerprints of what a dataset yields: hashes that tell the same bits, and sketches that tell nearly the same floats.

The data themselves never leave the process. A batch is taken apart into its rows, since rows are what ``shuffle``
moves and what two pipelines that cut batches differently share; padding is taken off a row, since how much of it there
is depends on the row's neighbours (the element's shapes say it, where the order is fixed).
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from xttsbench.pipeline import nodes
from xttsbench.records.pipeline import Element, Row
from xttsbench.samedata.epochs import scattered

_BATCHES: Final = re.compile(r"(ParallelBatch|Batch|PaddedBatch|MapAndBatch|DenseToSparseBatch|Rebatch)Dataset(V\d+)?")
_KEEPS: Final = re.compile(
    r"(Experimental)?(Options|Prefetch|Model|Take|TakeWhile|Skip|Repeat|Shuffle|ShuffleAndRepeat|Cache|Map|ParallelMap"
    r"|Filter|ParallelFilter|Shard|AssertCardinality|ParseExample|Concatenate|Zip|Snapshot|Scan|ChooseFastest)"
    r"Dataset(V\d+)?"
)
"""Ops after which batches are still batches; what a function makes of them shows in their first dimension."""
_MAPS: Final = ("MapDataset", "ParallelMapDataset", "ScanDataset")


@dataclass(frozen=True, slots=True)
class Batching:
    """Way in which elements are cut into batches."""

    batched: bool = False
    size: int | None = None  # rows at most, where all of the pipeline's batches say so
    padding: tuple[Any, ...] | None = None
    """Values that fill rows up, by component; empty where they are not known by component, ``None`` where no row is
    filled up.
    """
    node: str | None = field(default=None, compare=False)
    """Op of the graph that makes the batches; ``None`` where several do, or a function has it."""


def batching(graph: Any) -> Batching:
    """Reads the batching from the last data ops of a graph; an op that takes batches apart ends the search."""
    by_name = {node.name: node for node in graph.node}
    ends = nodes.results(graph)
    return _of(ends[0], by_name, nodes.FunctionLibrary(graph.library.function), mapped=False) if ends else Batching()


def _of(name: str, by_name: Mapping[str, Any], library: nodes.FunctionLibrary, *, mapped: bool) -> Batching:
    """Batching at one dataset node; ``mapped`` where a function comes between it and the result."""
    while (node := by_name.get(name)) is not None:
        if _BATCHES.fullmatch(node.op):
            size = nodes.constant_input(node, "batch_size", by_name)
            return Batching(True, size, _padding(node, by_name, mapped), name)
        if node.op == "GroupByWindowDataset":
            return _of_windows(node, library, mapped)
        inputs = nodes.dataset_inputs(node, by_name)
        if not _KEEPS.fullmatch(node.op) or not inputs:
            return Batching()
        mapped = mapped or node.op.startswith(_MAPS)
        if node.op.startswith(("Zip", "Concatenate")):
            return _together([_of(one, by_name, library, mapped=mapped) for one in inputs])
        name = inputs[0]
    return Batching()


def _of_windows(node: Any, library: nodes.FunctionLibrary, mapped: bool) -> Batching:
    """Batching by ``group_by_window`` and ``bucket_by_sequence_length``, whose function batches each window."""
    reduce = node.attr["reduce_func"].func.name if "reduce_func" in node.attr else next(iter(nodes.called(node)), "")
    for function in library.functions([reduce]):
        inside = {one.name: one for one in function.node_def}
        for one in function.node_def:
            if _BATCHES.fullmatch(one.op):
                return Batching(True, None, _padding(one, inside, mapped))
    return Batching()


def _together(parts: list[Batching]) -> Batching:
    if not all(part.batched for part in parts):
        return Batching()
    sizes = [part.size for part in parts if part.size is not None]
    size = max(sizes) if len(sizes) == len(parts) else None
    return Batching(True, size, () if any(part.padding is not None for part in parts) else None)


def _padding(node: Any, by_name: Mapping[str, Any], mapped: bool) -> tuple[Any, ...] | None:
    if not node.op.startswith("PaddedBatch"):
        return None
    try:
        values = [
            nodes.constant(name, by_name) for argument, name in nodes.named_inputs(node) if argument == "padding_values"
        ]
    except ValueError:  # strings in a form that TensorFlow itself does not read
        return ()
    known = tuple(value.item() for value in values if value is not None)
    return known if len(known) == len(values) and not mapped else ()


Array = npt.NDArray[Any]
Sketch = tuple[float, ...]

PROJECTIONS: Final = 6
"""Random +-1 projections in a sketch, after mean, standard deviation and the share of values that are not finite."""
_CHUNK: Final = 1 << 16
_LARGEST: Final = 1e150  # magnitude that values are clipped to in a sketch, so that their squares are numbers
_NAN, _INFINITE, _MINUS_INFINITE = 701.0, 1103.0, -1301.0  # stand for such values in a projection, so that they show
SEGMENTS: Final = 64
_NAN, _INFINITE, _MINUS_INFINITE = 701.0, 1103.0, -1301.0  # stand for such values in a projection, and show there


def sketch_of(array: Array) -> Sketch:
    """The sketch of a whole array of numbers, such as a variable."""
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    return sketches([array])[0]


def sketches(arrays: Sequence[Array]) -> list[Sketch]:
    """Sketches of floats and complex numbers, empty ones of all else; rows of equal length in one product."""
    if not arrays or arrays[0].dtype.kind == "O" or not _inexact(arrays[0]):
        return [() for _ in arrays]
    found: list[Sketch] = [()] * len(arrays)
    sizes: dict[int, list[int]] = {}
    for number, array in enumerate(arrays):
        sizes.setdefault(array.size, []).append(number)
    for size, numbers in sizes.items():
        step = max(1, (1 << 22) // max(size, 1))
        for some in (numbers[begin : begin + step] for begin in range(0, len(numbers), step)):
            flat = [arrays[number].ravel() for number in some]
            if flat[0].dtype.kind == "c":
                flat = [np.concatenate([one.real, one.imag]) for one in flat]
            block = np.stack(flat).astype(np.float64)
            parts = _segments(block) if arrays[0].dtype.itemsize == 2 else [()] * len(some)
            for number, row, more in zip(some, _block(block), parts, strict=True):
                found[number] = row + more
    return found


def _inexact(array: Array) -> bool:
    """Whether an array holds floats, also such as NumPy itself does not know (bfloat16), or complex numbers."""
    dtype = tf.as_dtype(array.dtype)
    return bool(dtype.is_floating or dtype.is_complex)


def _block(values: Array) -> list[Sketch]:
    """Sketches of the rows of ``[rows, n]`` float64.

    A projection is ``sum(sign * value) / sqrt(n)``: of independent values it varies as one value does, and a change of
    one value by ``d`` moves it by ``d / sqrt(n)`` (the sign projections of Achlioptas, 2003).
    """
    count = values.shape[1]
    if count == 0:
        return [(0.0,) * (3 + PROJECTIONS)] * len(values)
    finite = np.isfinite(values)
    if finite.all():
        known = np.clip(values, -_LARGEST, _LARGEST)
        mean, std = known.mean(axis=1), known.std(axis=1)
    else:
        known = np.clip(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0), -_LARGEST, _LARGEST)
        many = np.maximum(finite.sum(axis=1), 1)
        mean = known.sum(axis=1) / many
        std = np.sqrt((np.where(finite, known - mean[:, None], 0.0) ** 2).sum(axis=1) / many)
        known = np.where(finite, known, np.nan_to_num(values, nan=_NAN, posinf=_INFINITE, neginf=_MINUS_INFINITE))
    projected = np.zeros((len(values), PROJECTIONS))
    for begin in range(0, count, _CHUNK):
        part = known[:, begin : begin + _CHUNK]
        projected += part @ _signs(begin // _CHUNK)[: part.shape[1]]
    table = np.column_stack([mean, std, 1.0 - finite.mean(axis=1), projected / math.sqrt(count)])
    return [tuple(float(f"{number:.9g}") for number in row) for row in np.nan_to_num(table)]


def _segments(values: Array) -> list[Sketch]:
    """A projection of each of ``SEGMENTS`` parts of the rows, zeros where there are fewer values.

    In a part that is louder than its row all values may be rounded by more, so that it is scaled down to the row.
    """
    known = np.clip(np.nan_to_num(values, nan=_NAN, posinf=0.0, neginf=0.0), -_LARGEST, _LARGEST)
    size = max(-(-known.shape[1] // SEGMENTS), 1)
    signed = np.zeros((len(known), SEGMENTS * size))
    for begin in range(0, known.shape[1], _CHUNK):
        part = known[:, begin : begin + _CHUNK]
        signed[:, begin : begin + part.shape[1]] = part * _signs(begin // _CHUNK)[: part.shape[1], 0]
    parts = signed.reshape(len(known), SEGMENTS, size)
    powers = (parts**2).mean(axis=2)
    louder = np.sqrt(powers / np.maximum(powers.mean(axis=1, keepdims=True), 1e-300))
    table = parts.sum(axis=2) / math.sqrt(size) / np.maximum(louder, 1.0)
    return [tuple(float(f"{number:.6g}") for number in row) for row in table]


@functools.lru_cache(maxsize=64)
def _signs(chunk: int) -> Array:
    """+-1 by index, ``[_CHUNK, PROJECTIONS]``: random bits, the same in every process."""
    index = np.arange(chunk * _CHUNK, (chunk + 1) * _CHUNK, dtype=np.uint64)
    mixed = scattered((index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    bits = (mixed[:, None] >> np.arange(PROJECTIONS, dtype=np.uint64)) & np.uint64(1)
    return bits.astype(np.float64) * 2.0 - 1.0


MOST_ROWS: Final = 1000
"""Rows of a batch from which on it is one sample: a record holds a few thousand."""


@dataclass
class Fingerprinter:
    """Turns elements into :class:`xttsbench.records.pipeline.Element`, all in the same way."""

    cut: Batching = Batching()  # how elements are cut into rows; each is one sample where nothing is said
    most_rows: int = MOST_ROWS  # of a batch that is cut into rows
    components: tuple[str, ...] = ()  # path of each component, of the last element seen
    unknown: dict[str, str] = field(default_factory=dict)  # path of a component -> why it has no bits to compare

    def element(self, value: Any) -> Element:
        """The fingerprint of one element; a component without bits has an empty hash."""
        parts, count = self._taken_apart(value)
        padding = self.cut.padding or ()
        pads = padding if len(padding) == len(parts) else [None] * len(parts)
        columns = [self._column(part, count, pad) for part, pad in zip(parts, pads, strict=True)]
        rows = tuple(
            Row(hashes=tuple(hashes[i] for hashes, _ in columns), sketches=tuple(some[i] for _, some in columns))
            for i in range(1 if count is None else count)
        )
        return Element(shapes=tuple("unknown" if part is None else part.shape for part in parts), rows=rows)

    def values(self, value: Any, row: int | None) -> dict[str, Array]:
        """Values of each component by its path, of one row as :meth:`element` counts them, or of all."""
        parts, count = self._taken_apart(value)
        pairs = zip(self.components, parts, strict=True)
        known = [(path, part) for path, part in pairs if part is not None]
        return {path: (part.whole if None in (row, count) else part.row(row or 0))[-1] for path, part in known}

    def _taken_apart(self, value: Any) -> tuple[list[_Part | None], int | None]:
        """Parts of an element, and in how many rows all of them are cut; ``None`` for one row."""
        leaves = list(leaves_of(value))
        self.components = tuple(path for path, _ in leaves)
        parts = [self._part(path, leaf) for path, leaf in leaves]
        return parts, self._rows([part for part in parts if part is not None])

    def _part(self, path: str, leaf: Any) -> _Part | None:
        try:
            return _part(leaf)
        except _NoBitsError as error:
            self.unknown.setdefault(path or "element", str(error))
            return None

    def _rows(self, parts: Sequence[_Part]) -> int | None:
        counts = {part.rows for part in parts}
        count = counts.pop() if self.cut.batched and len(counts) == 1 else None
        most = min(self.most_rows, self.cut.size or self.most_rows)
        return count if count is not None and count <= most else None

    def _column(self, part: _Part | None, count: int | None, pad: Any) -> tuple[list[str], list[Sketch]]:
        if part is None:
            return [""] * (count or 1), [()] * (count or 1)
        pieces = [part.whole] if count is None else [part.row(i) for i in range(count)]
        if self.cut.padding is not None and count is not None:
            pieces = [_unpadded(piece, pad) for piece in pieces]
        return [_hash(piece) for piece in pieces], sketches([piece[-1] for piece in pieces])


def leaves_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path such as ``features.mel`` or ``[0].text`` and value of each component, in the order of ``tf.nest``."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from leaves_of(value[key], f"{path}.{key}" if path else str(key))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for key, item in zip(value._fields, value, strict=True):
            yield from leaves_of(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, tuple | list):
        for number, item in enumerate(value):
            yield from leaves_of(item, f"{path}[{number}]")
    elif not isinstance(value, tf.Tensor) and tf.nest.is_nested(value):  # attrs and data classes
        for number, item in enumerate(tf.nest.flatten(value)):
            yield from leaves_of(item, f"{path}[{number}]")
    else:
        yield path, value


class _NoBitsError(TypeError):
    """A component has no bits to compare."""


Piece = tuple[Array, ...]
"""Arrays that a row is hashed from: the layout first, the values last."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A component of an element: its shape in words, and the piece of the whole and of each row."""

    shape: str
    rows: int | None
    whole: Piece
    row: Callable[[int], Piece]


def _part(leaf: Any) -> _Part:
    if isinstance(leaf, tf.RaggedTensor):
        return _ragged(leaf)
    if isinstance(leaf, tf.SparseTensor):
        return _sparse(leaf)
    array = np.zeros(0) if leaf is None else _array(leaf)
    rows = array.shape[0] if array.ndim else None
    return _Part(_text(array.dtype, array.shape), rows, (array,), lambda number: (np.asarray(array[number]),))


def _ragged(value: Any) -> _Part:
    """Lists of rows of unequal length: values, and for each level where its rows begin."""
    values, levels = _array(value.flat_values), [np.asarray(splits.numpy()) for splits in value.nested_row_splits]

    def row(number: int) -> Piece:
        low, high = int(levels[0][number]), int(levels[0][number + 1])
        lengths = []
        for splits in levels[1:]:
            lengths.append(np.diff(splits[low : high + 1]))
            low, high = int(splits[low]), int(splits[high])
        return (*lengths, values[low:high])

    count = len(levels[0]) - 1
    shape = f"ragged {_text(values.dtype, (count, *([None] * len(levels)), *values.shape[1:]))}"
    return _Part(shape, count, (*map(np.diff, levels), values), row)


def _sparse(value: Any) -> _Part:
    indices, values, dense = (_array(one) for one in (value.indices, value.values, value.dense_shape))

    def row(number: int) -> Piece:
        mine = indices[:, 0] == number
        return (dense[1:], indices[mine, 1:], values[mine])

    count = int(dense[0]) if len(dense) else None
    return _Part(f"sparse {_text(values.dtype, tuple(dense))}", count, (dense, indices, values), row)


def _array(value: Any) -> Array:
    if isinstance(value, np.ndarray | np.generic | int | float | bool | bytes | str):
        return np.asarray(value)
    if not isinstance(value, tf.Tensor):
        raise _NoBitsError(f"a {type(value).__name__} has no bits to compare")
    if value.dtype in (tf.variant, tf.resource):
        raise _NoBitsError(f"a tensor of type {value.dtype.name} has no bits to compare")
    return np.asarray(value.numpy())


def _text(dtype: Any, shape: Sequence[int | None]) -> str:
    name = "string" if dtype.kind == "O" else tf.as_dtype(dtype).name
    return f"{name}[{','.join('?' if size is None else str(size) for size in shape)}]"


def _hash(piece: Piece) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for array in piece:
        digest.update(f"{array.dtype.name}{array.shape}".encode())
        if array.dtype.kind == "O":
            for item in array.ravel():
                data = item if isinstance(item, bytes) else str(item).encode()
                digest.update(len(data).to_bytes(8, "little") + data)
        else:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _unpadded(piece: Piece, pad: Any) -> Piece:
    """A dense row without the padding at the end of each of its axes; zeros and empty strings where ``pad`` is None.

    Padding has the bits of ``pad``: a negative zero is none.
    """
    if len(piece) != 1 or not piece[0].ndim or not piece[0].size:
        return piece
    array = piece[0]
    if array.dtype.kind == "O":
        other = np.asarray(array != (b"" if pad is None else pad))
    else:
        ours, theirs = (_bits(one) for one in (array, np.full((1,), 0 if pad is None else pad, array.dtype)))
        other = (ours != theirs).reshape(*array.shape, -1).any(axis=-1)
    places = np.nonzero(other)
    return (array[tuple(slice(0, int(axis.max()) + 1 if axis.size else 0) for axis in places)],)


def _bits(array: Array) -> Array:
    """The bits of the values as numbers, ``[values, 1]``; of the largest ones two numbers each."""
    size = array.dtype.itemsize
    return np.ascontiguousarray(array).view(f"u{min(size, 8)}").reshape(array.size, -1)
