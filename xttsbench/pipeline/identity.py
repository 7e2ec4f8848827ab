"""Identity of a pipeline across processes: its ops, functions and Python code, apart from the data that it reads.

Names of nodes and functions count up within a process, tokens of Python functions too, and addresses and the seeds that
TensorFlow draws are new in each; none of them counts here. A node is hashed by its op, its attributes and the hashes
of its inputs, a function by its results; what is not reached from there does not change what is yielded.
"""

from __future__ import annotations

import functools
import hashlib
import random
import re
import types
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.pipeline.nodes import FunctionLibrary, data_inputs, dataset_inputs, is_dataset, named_inputs, node_inputs
from xttsbench.pipeline.source import PYTHON_OPS, call_of, cells, is_users, lookup
from xttsbench.records.pipeline import GraphIdentity

_DEEPEST: Final = 20


class _PythonHasher:
    """Hashes Python functions by their code and by the plain values that they see."""

    def __init__(self, data: set[str]) -> None:
        self._data = data
        self._seen: dict[int, str] = {}
        self._alive: list[Any] = []
        """Objects whose addresses are in ``_seen``, kept alive because an address may be used again."""

    def of(self, function: Any, depth: int = 0) -> str:
        """The hash of a function, bound method, partial or callable object."""
        if id(function) in self._seen or depth > _DEEPEST:
            return self._seen.get(id(function), "deep")
        self._seen[id(function)] = "recursion"
        self._alive.append(function)
        self._seen[id(function)] = found = self._of(function, depth)
        return found

    def _of(self, function: Any, depth: int) -> str:
        if isinstance(function, functools.partial):
            parts = [self._value(one, depth) for one in (*function.args, *sorted(function.keywords.items()))]
            return digest("partial", self.of(function.func, depth + 1), *parts)
        if isinstance(function, types.MethodType):
            return digest("method", self.of(function.__func__, depth + 1), self._object(function.__self__, depth))
        code = getattr(function, "__code__", None)
        if not isinstance(code, types.CodeType):
            wrapped = getattr(function, "__wrapped__", None)
            if wrapped is not None:
                return digest("wrapped", self.of(wrapped, depth + 1))
            call = call_of(function)
            if isinstance(call, types.FunctionType):
                return digest("object", self.of(call, depth + 1), self._object(function, depth))
            return digest("callable", str(getattr(function, "__qualname__", type(function).__qualname__)))
        parts = [_code(code)]
        parts.extend(self._value(one, depth) for one in (function.__defaults__ or ()))
        parts.extend(self._value(one, depth) for one in sorted((function.__kwdefaults__ or {}).items()))
        captured = cells(function)
        parts.extend(f"{name}={self._value(captured[name], depth)}" for name in sorted(captured))
        used = {name: function.__globals__[name] for name in sorted(_names(code)) if name in function.__globals__}
        own = {name: value for name, value in used.items() if is_users(value) or not callable(value)}
        parts.extend(f"{name}={self._value(value, depth)}" for name, value in own.items())
        return digest(*parts)

    def _object(self, value: Any, depth: int) -> str:
        """An object that a method belongs to: its type and the plain values that it holds."""
        if isinstance(value, type | types.ModuleType):
            return value.__name__
        held = getattr(value, "__dict__", {})
        parts = [f"{key}={self._value(held[key], depth + 1)}" for key in sorted(held, key=str)]
        return digest(type(value).__qualname__, *parts)

    def _value(self, value: Any, depth: int) -> str:
        """A plain value by its value, an array as data, a function of the user's by its code, all else by its type."""
        if depth > _DEEPEST:
            return "deep"
        if isinstance(value, PurePath) or (isinstance(value, str) and ("/" in value or "\\" in value)):
            self._data.add(digest("path", str(value)))
            return "path"
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, tuple | list | set | frozenset) and len(value) <= 1000:
            inner, ordered = [self._value(one, depth + 1) for one in value], isinstance(value, tuple | list)
            return digest(type(value).__name__, *inner) if ordered else digest("set", *sorted(inner))
        if isinstance(value, dict) and len(value) <= 1000:
            pairs = [self._value(key, depth + 1) + self._value(one, depth + 1) for key, one in value.items()]
            return digest("dict", *sorted(pairs))
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            if array.dtype != object and array.nbytes < 1 << 28:
                self._data.add(digest(array.dtype.name, str(array.shape), array.tobytes()))
            return f"array {array.dtype.name} {array.ndim}"
        if is_users(value) or is_users(call_of(value)) or isinstance(value, functools.partial | types.MethodType):
            return self.of(value, depth + 1)
        return type(value).__qualname__


def _code(code: types.CodeType) -> str:
    """Instructions, constants and names; no lines, no file, and no docstring."""
    constants = [
        _code(one) if isinstance(one, types.CodeType) else sorted(map(repr, one)) if isinstance(one, frozenset) else one
        for one in code.co_consts
    ]
    return digest(code.co_code, repr(constants), repr(code.co_names), str(code.co_argcount))


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return set(code.co_names).union(*inner)


def digest(*parts: str | bytes) -> str:
    """A hash of several parts, each with its length."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()


_SMALL_BYTES: Final = 4096  # constants up to this size are parameters, larger ones data
_PASSING: Final = frozenset(  # attributes that name things, and say nothing about what is yielded
    {"metadata", "token", "shared_name", "container", "debug_name", "allowed_devices", "_class"}
)
_SEEDS: Final = ("seed", "seed2")
_DRAWS: Final = 20_000  # seeds that a process may have drawn before, at most


def identity(dataset: Any, graph: Any) -> GraphIdentity:
    """The identity of a dataset with this graph, while its Python functions are registered.

    Contents of variables and tables are left out, and the seeds of random ops inside functions (TensorFlow fills in
    numbers of its own there). A Python function counts with its code, its defaults, the plain values that it captures,
    and the user's own functions that it calls by name; arrays that it captures are data.
    """
    del dataset  # what the graph refers to is registered as long as it lives
    hasher = _Hasher(FunctionLibrary(graph.library.function))
    by_name = {node.name: node for node in graph.node}
    ends = [name for node in graph.node if node.op == "_Retval" for name in node.input]
    hasher.outermost = by_name
    found = [hasher.reference(name, by_name, {}) for name in ends]
    return GraphIdentity(graph=digest(*found), data=digest(*sorted(hasher.data)))


class _Hasher:
    """Hashes nodes by what they are made of; what is data is set aside."""

    def __init__(self, library: FunctionLibrary) -> None:
        self.data: set[str] = set()
        self.outermost: Mapping[str, Any] = {}
        self._library = library
        self._nodes: dict[tuple[int, str], str] = {}
        self._tables: list[Mapping[str, Any]] = []
        """Tables of nodes, kept because their addresses tell them apart."""
        self._functions: dict[str, str] = {}
        self._python = _PythonHasher(self.data)

    def reference(self, text: str, by_name: Mapping[str, Any], arguments: Mapping[str, int]) -> str:
        """The hash of what an input refers to: an argument, or one output of a node."""
        name, _, output = text.partition(":")
        if name in arguments:
            return f"argument {arguments[name]}"
        node = by_name.get(name)
        if node is None:
            return "unknown"
        return f"{self._node(node, by_name, arguments)}:{output or '0'}"

    def _node(self, node: Any, by_name: Mapping[str, Any], arguments: Mapping[str, int]) -> str:
        """The hash of one node, inputs first; chains may be longer than Python's stack."""
        scope = id(by_name)
        waiting = [node.name]
        while waiting:
            name = waiting[-1]
            if (scope, name) in self._nodes:
                waiting.pop()
                continue
            one = by_name[name]
            before = [i for i in node_inputs(one) if i in by_name and i not in arguments]
            missing = [i for i in before if (scope, i) not in self._nodes and i not in waiting]
            if missing:
                waiting.extend(missing)
                continue
            self._nodes[scope, name] = self._of(one, by_name, arguments)
            waiting.pop()
        return self._nodes[scope, node.name]

    def _of(self, node: Any, by_name: Mapping[str, Any], arguments: Mapping[str, int]) -> str:
        if node.op in ("Identity", "StopGradient"):
            return self.reference(next(iter(node.input)), by_name, arguments)
        parts = [node.op]
        reads = is_dataset(node) and not dataset_inputs(node, by_name)
        seeds = _seeds(node, by_name) if by_name is self.outermost else "seed: not recorded"
        names = dict(enumerate(name for name, _ in named_inputs(node)))
        for number, text in enumerate(data_inputs(node)):
            source = by_name.get(text.split(":")[0]) if text.split(":")[0] not in arguments else None
            if names.get(number) in _SEEDS and seeds is not None:
                parts.append(seeds)
            elif reads and source is not None and source.op == "Const":
                self.data.add(digest(node.op, names.get(number, ""), _constant_bits(source)))
                parts.append(_signature(source))
            else:
                parts.append(self.reference(text, by_name, arguments))
        told = [key for key in sorted(node.attr) if key not in (*_PASSING, *_SEEDS) and not key.startswith("_")]
        parts.extend(f"{key}={self._attribute(node, key)}" for key in told)
        if node.op in PYTHON_OPS:
            found = lookup(node.attr["token"].s.decode())
            function = getattr(found, "called", None)
            if found is not None and found.kind == "generator":
                function = len if found.helper else found.generator_state._generator
            parts.append("gone" if found is None else self._python.of(function))
        return digest(*parts)

    def _attribute(self, node: Any, key: str) -> str:
        value = node.attr[key]
        if node.op == "Const" and key == "value":
            if value.tensor.ByteSize() <= _SMALL_BYTES:
                return _constant_bits(node)
            if tf.as_dtype(value.tensor.dtype) not in (tf.resource, tf.variant):
                self.data.add(digest(_constant_bits(node)))
            return _signature(node)
        if value.HasField("func"):
            return self.function(value.func.name)
        if value.list.func:
            return digest(*[self.function(one.name) for one in value.list.func])
        return digest(value.SerializeToString(deterministic=True).hex())

    def function(self, name: str) -> str:
        """The hash of a function by its results, and by what it does besides."""
        if name in self._functions:
            return self._functions[name]
        self._functions[name] = "recursion"
        definition = self._library.get(name)
        if definition is None:
            return re.sub(r"\d+", "", name)
        by_name = {node.name: node for node in definition.node_def}
        self._tables.append(by_name)
        arguments = {argument.name: number for number, argument in enumerate(definition.signature.input_arg)}
        types_ = [str(argument.type) for argument in definition.signature.input_arg]
        results = [self.reference(definition.ret[o.name], by_name, arguments) for o in definition.signature.output_arg]
        effects = sorted(self.reference(one, by_name, arguments) for one in definition.control_ret.values())
        called = [self.function(node.op) for node in definition.node_def if self._library.get(node.op) is not None]
        self._functions[name] = digest(*types_, *results, *effects, *sorted(called))
        return self._functions[name]


def _seeds(node: Any, by_name: Mapping[str, Any]) -> str | None:
    """Text for the seeds of a dataset op: the user's number, or that there is none; ``None`` for an op without seeds.

    TensorFlow makes a pair of the process's seed and the op's own. Where an op has none, it draws one from Python's
    generator, seeded with the process's seed, or writes two zeros where the process has none either.
    """
    found = {}
    for argument, text in named_inputs(node):
        source = by_name.get(text.split(":")[0])
        if argument in _SEEDS and source is not None and source.op == "Const":
            value = np.asarray(tf.make_ndarray(source.attr["value"].tensor))
            found[argument] = int(value) if value.ndim == 0 and value.dtype.kind in "iu" else None
    first, second = found.get("seed"), found.get("seed2")
    if first is None or second is None:
        return None
    return "seed: none" if (first, second) == (0, 0) or second in _drawn(first) else f"seed: {second}"


@functools.lru_cache(maxsize=16)
def _drawn(seed: int) -> frozenset[int]:
    """The seeds that TensorFlow draws for ops without one, under a process's seed."""
    generator = random.Random(seed)
    return frozenset(generator.randint(0, 2**31 - 1) for _ in range(_DRAWS))


def _signature(node: Any) -> str:
    tensor = node.attr["value"].tensor
    return f"constant {tensor.dtype} of rank {len(tensor.tensor_shape.dim)}"


def _constant_bits(node: Any) -> str:
    """A hash of a constant's type, shape and values, whichever way they are written down."""
    tensor = node.attr["value"].tensor
    if tf.as_dtype(tensor.dtype) in (tf.resource, tf.variant):
        return _signature(node)
    if tf.as_dtype(tensor.dtype) == tf.string and tensor.tensor_content:
        return digest(str(tensor.dtype), str([one.size for one in tensor.tensor_shape.dim]), tensor.tensor_content)
    array = np.asarray(tf.make_ndarray(tensor))
    values: Sequence[Any] = list(array.ravel()) if array.dtype == object else [array.tobytes()]
    return digest(str(tensor.dtype), str(array.shape), *values)
