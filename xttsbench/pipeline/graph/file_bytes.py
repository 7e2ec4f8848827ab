"""Where a function cuts the bytes of a file that it reads itself at a fixed position, as if every header were as long.

The header of a ``.npy`` file is 128 bytes for most arrays and longer for some; a constant in the graph reads garbage
from those. A cut of a few bytes (a length field of the header) is how a header is read properly, so only what takes
the rest of the file counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.pipeline.graph.dataflow import arguments, callee, returned
from xttsbench.pipeline.graph.library import FunctionLibrary
from xttsbench.pipeline.graph.nodes import constant, constant_input

_UNCHANGED: Final = ("Identity", "StopGradient", "Reshape", "Squeeze", "ExpandDims", "EnsureShape")
_DECODERS: Final = ("DecodeRaw", "DecodePaddedRaw", "DecodeCompressed")
_CUTS: Final = ("Substr", "StridedSlice", "Slice")
_FIELD_BYTES: Final = 1024
"""A cut of no more bytes than this is a field of a header, not the data after it."""
_DEEPEST: Final = 20


def byte_offset(library: FunctionLibrary, names: Iterable[str]) -> int | None:
    """The first constant position above 0 from which bytes of a file read in the same function are taken to the end."""
    functions = list(library.functions(names))
    if not any(node.op == "ReadFile" for function in functions for node in function.node_def):
        return None
    for function in functions:
        found = _Body(library, function, {}, 0).cut()
        if found is not None:
            return found
    return None


def header_bytes(node: Any, by_name: Mapping[str, Any]) -> int | None:
    """The bytes that a ``FixedLengthRecordDataset`` skips at the head of each file, where constant and above 0."""
    return constant_input(node, "header_bytes", by_name) or None


class _Body:
    """One function's nodes, with what is known of the arguments: number -> bytes per element where from a file."""

    def __init__(self, library: FunctionLibrary, function: Any, known: Mapping[int, int], depth: int) -> None:
        self._library, self._function, self._known, self._depth = library, function, known, depth
        self._nodes = {node.name: node for node in function.node_def}
        self._arguments = arguments(function)

    def cut(self) -> int | None:
        """The first fixed cut in this function, or in one that it calls with a file's bytes."""
        for node in self._function.node_def:
            found = self._cut_at(node) if node.op in _CUTS else None
            if found is None and self._depth < _DEEPEST and (target := callee(self._library, node)) is not None:
                found = self._inside(node, target).cut()
            if found is not None:
                return found
        return None

    def width(self, reference: str, steps: int = 0) -> int | None:
        """Bytes per element of a value made of a file's bytes; ``None`` for any other value."""
        name = reference.split(":", maxsplit=1)[0]
        if name in self._arguments:
            return self._known.get(self._arguments[name])
        node = self._nodes.get(name)
        if node is None or steps == 200:
            return None
        if node.op == "ReadFile":
            return 1
        if node.op in _DECODERS:
            inner = self.width(node.input[0], steps + 1)
            kind = node.attr["out_type"].type
            return inner if inner is None or not kind else int(tf.as_dtype(kind).size or 1)
        if node.op in (*_UNCHANGED, *_CUTS):
            return self.width(node.input[0], steps + 1)
        target = callee(self._library, node) if self._depth < _DEEPEST else None
        inside = None if target is None else returned(target, reference)
        return None if target is None or inside is None else self._inside(node, target).width(inside)

    def _inside(self, node: Any, target: Any) -> _Body:
        data = [one for one in node.input if not one.startswith("^")]
        widths = {number: self.width(reference) for number, reference in enumerate(data)}
        known = {number: width for number, width in widths.items() if width is not None}
        return _Body(self._library, target, known, self._depth + 1)

    def _cut_at(self, node: Any) -> int | None:
        width, begin = self.width(node.input[0]), self._first(node.input[1])
        if width is None or begin is None or begin <= 0:
            return None
        last = self._first(node.input[2])
        if node.op == "StridedSlice":
            if node.attr["begin_mask"].i & 1 or node.attr["shrink_axis_mask"].i & 1:
                return None
            open_end = bool(node.attr["end_mask"].i & 1)
            count = None if open_end or last is None or last < 0 else last - begin
        else:
            count = None if last is None or last < 0 else last
        if count is not None and count * width <= _FIELD_BYTES:
            return None
        return begin * width

    def _first(self, reference: str) -> int | None:
        value = constant(reference, self._nodes)
        return None if value is None or not np.size(value) else int(value.ravel()[0])
