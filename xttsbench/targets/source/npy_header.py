"""Headers of .npy files that a source cuts off at a fixed length, though it varies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from xttsbench.records.code import SourceFact
from xttsbench.targets.source.module import Module, argument_of

_LENGTHS: Final = frozenset({80, 96, 128})  # what small headers come to: 128 since NumPy 1.14, 80 or 96 before
_READ_FILE: Final = "tensorflow.io.read_file"
_READS: Final = {_READ_FILE, "tensorflow.io.gfile.GFile", "tensorflow.io.FixedLengthRecordDataset"}
_DECODES: Final = {"tensorflow.io.decode_raw", "numpy.frombuffer", "numpy.fromfile", "numpy.memmap"}
_OFFSETS: Final = {"numpy.frombuffer": 3, "numpy.fromfile": 4, "numpy.memmap": 3}
_SUBSTR: Final = "tensorflow.strings.substr"


def fixed_npy_header(module: Module) -> Iterator[SourceFact]:
    """Bytes cut at a constant near the reading of ``.npy`` files, and text of no dimension that is sliced."""
    for call, name in module.calls:
        seeks = isinstance(call.func, cst.Attribute) and call.func.attr.value == "seek" and len(call.args) == 1
        position = 1 if name == _SUBSTR else 0 if seeks else _OFFSETS.get(name)
        given = None if position is None else argument_of(call, position, "pos" if name == _SUBSTR else "offset")
        at = module.integer(given)
        if at not in _LENGTHS:
            continue
        near = _near(module, call) if name == _SUBSTR else _names_npy(module)
        if near and (not seeks or _called(module, call) & _DECODES):
            yield module.fact("fixed-npy-header", call, _detail(at))
    for node in module.of(cst.Subscript):
        cut = node.slice[0].slice
        if len(node.slice) != 1 or not isinstance(cut, cst.Slice) or cut.step is not None or not module.reads(node):
            continue
        of = _origin(module, node.value)
        at = module.integer(cut.lower) if cut.lower is not None else None
        if of == "tensor":
            detail = "what tf.io.read_file gives has no dimension to slice: this raises; tf.strings.substr cuts it"
            yield module.fact("fixed-npy-header", node, detail)
        elif of == "bytes" and at in _LENGTHS and _near(module, node):
            yield module.fact("fixed-npy-header", node, _detail(at))


def _detail(at: int | None) -> str:
    return f"the header is taken to be {at} bytes; it grows with the shape, the type and the order that it names"


def _names_npy(module: Module) -> bool:
    text = (*module.of(cst.SimpleString), *module.of(cst.FormattedStringText))
    return any(".npy" in module.code(one) for one in text)


def _near(module: Module, node: cst.CSTNode) -> bool:
    """Whether the function around reads a file and decodes it, or the module names ``.npy`` files."""
    called = _called(module, node)
    does = [bool(called & {*_READS, "open", "read", "read_bytes"}), bool(called & _DECODES)]
    return all(does) or (any(does) and _names_npy(module))


def _called(module: Module, node: cst.CSTNode) -> set[str]:
    """Dotted names of what the function around a node calls, and of methods the last part too."""
    scope = module.scope(node)
    calls = [(call, name) for call, name in module.calls if module.scope(call) is scope]
    return {name for _, name in calls} | {
        call.func.attr.value for call, _ in calls if isinstance(call.func, cst.Attribute)
    }


def _origin(module: Module, node: cst.BaseExpression, depth: int = 4) -> str | None:
    """``tensor`` or ``bytes`` where the expression is a file's content, else ``None``."""
    if isinstance(node, cst.Call):
        if module.dotted(node.func) == _READ_FILE:
            return "tensor"
        method = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
        if method == "numpy" and isinstance(node.func, cst.Attribute):
            return "bytes" if _origin(module, node.func.value, depth) == "tensor" else None
        return "bytes" if method in ("read", "read_bytes") else None
    values = module.values(node) if isinstance(node, cst.Name) and depth else []
    return _origin(module, values[-1], depth - 1) if values else None
