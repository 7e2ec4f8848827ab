"""``.npy`` files read as if their header were always of one length."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from xttsbench.records.source_fact import SourceFact
from xttsbench.targets.source_names import Scope, Source, argument

_LENGTHS: Final = frozenset({80, 96, 128})
"""What small headers come to: 128 since NumPy 1.14, 80 or 96 before."""
_READS: Final = ("tensorflow.io.read_file", "tensorflow.io.gfile.GFile", "tensorflow.io.FixedLengthRecordDataset")
_DECODES: Final = ("tensorflow.io.decode_raw", "numpy.frombuffer", "numpy.fromfile", "numpy.memmap")
_OFFSETS: Final = {"numpy.frombuffer": 3, "numpy.fromfile": 4, "numpy.memmap": 3}
_SUBSTR: Final = "tensorflow.strings.substr"
_READ_FILE: Final = "tensorflow.io.read_file"


def fixed_npy_header(source: Source) -> Iterator[SourceFact]:
    """Bytes cut at a constant near the reading of ``.npy`` files, and text of no dimension that is sliced."""
    names_npy = any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and ".npy" in node.value for node in source.nodes
    )
    for node in source.nodes:
        if isinstance(node, ast.Call):
            yield from _call(source, node, names_npy=names_npy)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load):
            yield from _slice(source, node, names_npy=names_npy)


def _call(source: Source, call: ast.Call, *, names_npy: bool) -> Iterator[SourceFact]:
    name = source.dotted(call.func) or ""
    seeks = isinstance(call.func, ast.Attribute) and call.func.attr == "seek" and len(call.args) == 1
    position = 1 if name == _SUBSTR else 0 if seeks else _OFFSETS.get(name)
    if position is None:
        return
    at = source.integer(argument(call, position, "pos" if name == _SUBSTR else "offset"))
    if at not in _LENGTHS:
        return
    if name == _SUBSTR:
        near = _near(source, call, names_npy=names_npy)
    else:
        near = names_npy and (not seeks or bool(_called(source, source.scope(call)) & {*_DECODES}))
    if near:
        yield source.fact("fixed-npy-header", call, _detail(at))


def _slice(source: Source, node: ast.Subscript, *, names_npy: bool) -> Iterator[SourceFact]:
    assert isinstance(node.slice, ast.Slice)
    if node.slice.step is not None:
        return
    of = _origin(source, node.value)
    if of == "tensor":
        detail = "what tf.io.read_file gives has no dimension to slice: this raises; tf.strings.substr cuts it"
        yield source.fact("fixed-npy-header", node, detail)
    elif of == "bytes" and source.integer(node.slice.lower) in _LENGTHS and _near(source, node, names_npy=names_npy):
        yield source.fact("fixed-npy-header", node, _detail(source.integer(node.slice.lower)))


def _detail(at: int | None) -> str:
    return f"the header is taken to be {at} bytes; it grows with the shape, the type and the order that it names"


def _near(source: Source, node: ast.AST, *, names_npy: bool) -> bool:
    """Whether the function around reads a file and decodes it, or the module names ``.npy`` files."""
    called = _called(source, source.scope(node))
    reads = bool(called & {*_READS, "open", "read", "read_bytes"})
    return (reads and bool(called & {*_DECODES})) or (names_npy and (reads or bool(called & {*_DECODES})))


def _called(source: Source, scope: Scope) -> set[str]:
    """Dotted names of what a body calls, and of methods the last part too."""
    found = set()
    for call, name in source.calls():
        if source.scope(call) is scope:
            found.add(name)
            if isinstance(call.func, ast.Attribute):
                found.add(call.func.attr)
    return found


def _origin(source: Source, node: ast.expr, depth: int = 4) -> str | None:
    """``tensor`` or ``bytes`` where the expression is a file's content, else ``None``."""
    if isinstance(node, ast.Call):
        if source.dotted(node.func) == _READ_FILE:
            return "tensor"
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("read", "read_bytes"):
            return "bytes"
        if isinstance(node.func, ast.Attribute) and node.func.attr == "numpy":
            return "bytes" if _origin(source, node.func.value, depth) == "tensor" else None
        return None
    if isinstance(node, ast.Name) and depth:
        values = source.values(node)
        return _origin(source, values[-1], depth - 1) if values else None
    return None
