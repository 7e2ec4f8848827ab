"""What functions of a graph do: what they pass on, read, draw at random and capture, and where they cut a file's bytes.

A ``FunctionDef`` names its arguments, its nodes and, per result, the node's output that it is. The functions of
``tf.data`` take the element's components first and what they capture after them. Calls are followed; a branch or a
loop counts as depending on all that it is given.

The header of a ``.npy`` file is 128 bytes for most arrays and longer for some; a constant in the graph reads garbage
from those. A cut of a few bytes (a length field of the header) is how a header is read properly, so only what takes
the rest of the file counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.pipeline.nodes import (
    FunctionLibrary,
    behind_identities,
    called,
    captured_inputs,
    constant,
    constant_input,
    data_inputs,
    is_dataset,
)

_CALLS: Final = ("PartitionedCall", "StatefulPartitionedCall")
_DEEPEST: Final = 30
"""Calls inside calls that are followed; beyond, an answer is "not known" or "all of it"."""


def reads(library: FunctionLibrary, name: str | None, components: int) -> tuple[int, ...] | None:
    """Numbers of the element's components that a function's result depends on.

    Stateful ops run whatever becomes of their result, so what they are given counts as read.
    """
    function = library.get(name)
    if function is None:
        return None
    found = _dependencies(library, function, [*function.ret.values(), *_control_returns(function)], {}, 0)
    return tuple(sorted(number for number in found if number < components))


def passes(library: FunctionLibrary, name: str | None, components: int) -> dict[int, int]:
    """Number of each result that is a component of the element, untouched -> that component's number."""
    function = library.get(name)
    if function is None:
        return {}
    found = {}
    for number, output in enumerate(function.signature.output_arg):
        source = _argument_behind(library, function, function.ret[output.name], 0)
        if source is not None and source < components:
            found[number] = source
    return found


def callee(library: FunctionLibrary, node: Any) -> Any | None:
    """The definition of the function that a node calls with its own inputs as arguments; ``None`` for other ops."""
    return library.get(node.attr["f"].func.name) if node.op in _CALLS else library.get(node.op)


def returned(function: Any, reference: str) -> str | None:
    """The reference inside ``function`` of the result that a call's output (``call:output:1``) stands for."""
    outputs = [output.name for output in function.signature.output_arg]
    parts = reference.split(":")
    if len(parts) == 3 and parts[1] in function.ret and parts[1] != "output":
        return str(function.ret[parts[1]])
    number = int(parts[-1]) if len(parts) > 1 and parts[-1].isdecimal() else 0
    return str(function.ret[outputs[number]]) if number < len(outputs) else None


def arguments(function: Any) -> dict[str, int]:
    """Name of each of a function's arguments -> its number."""
    return {argument.name: number for number, argument in enumerate(function.signature.input_arg)}


def _control_returns(function: Any) -> list[str]:
    return [f"^{name}" for name in function.control_ret.values()]


def _dependencies(
    library: FunctionLibrary,
    function: Any,
    references: Iterable[str],
    known: dict[tuple[str, str], set[int]],
    depth: int,
) -> set[int]:
    """Numbers of the arguments from which the references can be reached; ``known`` has the results looked at before."""
    nodes, numbers = {node.name: node for node in function.node_def}, arguments(function)
    found: set[int] = set()
    seen: set[str] = set()
    waiting = list(references)
    while waiting:
        reference = waiting.pop()
        if reference in seen:
            continue
        seen.add(reference)
        name = reference.removeprefix("^").split(":")[0]
        if name in numbers:
            found.add(numbers[name])
        node = nodes.get(name)
        if node is None:
            continue
        target = callee(library, node)
        inside = None if target is None or reference.startswith("^") else returned(target, reference)
        if target is None or inside is None or depth == _DEEPEST:
            waiting.extend(node.input)
            continue
        data = data_inputs(node)
        result = (str(target.signature.name), inside)
        if result not in known:
            known[result] = _dependencies(library, target, [inside, *_control_returns(target)], known, depth + 1)
        waiting.extend(data[number] for number in known[result] if number < len(data))
        waiting.extend(one for one in node.input if one.startswith("^"))
    return found


def _argument_behind(library: FunctionLibrary, function: Any, reference: str, depth: int) -> int | None:
    """The argument that a reference is, with identities and calls looked through."""
    nodes, numbers = {node.name: node for node in function.node_def}, arguments(function)
    for _ in range(1000):  # longer than any chain of identities that a trace leaves
        name = reference.split(":", maxsplit=1)[0]
        if name in numbers:
            return numbers[name]
        node = nodes.get(name)
        if node is None:
            return None
        target = callee(library, node)
        if node.op == "Identity":
            reference = node.input[0]
        elif node.op == "IdentityN":
            reference = node.input[int(reference.split(":")[-1])]
        elif target is not None and depth < _DEEPEST:
            inside = returned(target, reference)
            number = None if inside is None else _argument_behind(library, target, inside, depth + 1)
            if number is None:
                return None
            reference = node.input[number]
        else:
            return None
    return None


_RANDOM: Final = re.compile(
    r"Random(Uniform|UniformInt|StandardNormal|Shuffle|Gamma|GammaGrad|Poisson|PoissonV2|Crop)|TruncatedNormal"
    r"|ParameterizedTruncatedNormal|Multinomial|SampleDistortedBoundingBox(V2)?|\w*CandidateSampler|Timestamp"
    r"|Stateful(Uniform\w*|StandardNormal(V2)?|TruncatedNormal|RandomBinomial)|RngReadAndSkip|RngSkip|NonDeterministicInts"
)
"""Ops that give other numbers on every call. Stateless ones give the same for the same seed, and are none of them."""
_EFFECTS: Final = re.compile(
    r"PyFunc|EagerPyFunc|Print(V2)?|Write\w+|Save\w*|Assign\w*|Resource(Scatter|Apply|SparseApply|Count)\w*|Scatter\w+Ref"
    r"|LookupTable(Insert|Import|Remove)\w*|Queue(Enqueue|Dequeue)\w*|(Un)?[Ss]tage|Iterator(GetNext|Save|Restore)\w*"
    r"|\w*Summary\w*Writer\w*|CollectiveReduce\w*|DeleteFile|RenameFile"
)
"""Ops that leave a trace. ``PyFuncStateless`` is not one: there the user promised that the function computes only."""
_USES: Final = (
    (re.compile(r"Stateful|Rng"), "random generator"),
    (re.compile(r"LookupTable"), "table"),
    (re.compile(r"(Optional)?Iterator"), "iterator"),
    (re.compile(r"(ReadVariableOp|Assign\w*Variable|Resource)"), "variable"),
)
"""What a captured resource is, by the ops that use it; the first that fits counts."""
_LARGE_BYTES: Final = 1_000_000
"""A captured tensor is told from this size on."""


def is_random(library: FunctionLibrary, names: Iterable[str]) -> bool:
    """Whether a function draws numbers that differ from pass to pass.

    A seed of the op's own does not prevent that: its numbers go on where the last pass of a ``repeat`` ended. What a
    Python function draws is not seen here.
    """
    return any(_RANDOM.fullmatch(node.op) is not None for node in library.reach(names))


def shuffles(node: Any, by_name: Mapping[str, Any]) -> bool:
    """Whether a dataset node yields another order, or other numbers, in every pass or run."""
    if node.op.startswith("Shuffle"):
        return not (_fixed_seed(node, by_name) and not node.attr["reshuffle_each_iteration"].b)
    if node.op.startswith("RandomDataset"):
        return not _fixed_seed(node, by_name) or bool(node.attr["rerandomize_each_iteration"].b)
    return False


def has_side_effects(library: FunctionLibrary, names: Iterable[str]) -> bool:
    """Whether a function runs Python, prints, writes, assigns or advances an iterator."""
    return any(_EFFECTS.fullmatch(node.op) is not None for node in library.reach(names))


def captures(node: Any, by_name: Mapping[str, Any], library: FunctionLibrary) -> tuple[str, ...]:
    """The state that a dataset node's functions capture, in words; small tensors are not worth one."""
    words: list[str] = []
    for number, name in enumerate(captured_inputs(node)):
        word = _word(name.split(":")[0], by_name, _uses(library, node, number))
        if word is not None and word not in words:
            words.append(word)
    return tuple(words)


def _fixed_seed(node: Any, by_name: Mapping[str, Any]) -> bool:
    """Whether the seed is a constant; two zeros ask TensorFlow to draw one."""
    seeds = [constant_input(node, name, by_name) for name in ("seed", "seed2")]
    return None not in seeds and any(seeds)


def _word(name: str, by_name: Mapping[str, Any], uses: set[str]) -> str | None:
    source = behind_identities(name, by_name)
    for pattern, word in _USES:
        if any(pattern.match(op) for op in uses):
            return word
    if source is None:
        return None
    if source.op == "VarHandleOp":
        return "variable"
    if "Table" in source.op:
        return "table"
    if source.op != "Const":
        return "dataset" if is_dataset(source) else None
    tensor = source.attr["value"].tensor
    kind = tf.as_dtype(tensor.dtype)
    if kind == tf.resource:
        return "resource"
    count = int(np.prod([dimension.size for dimension in tensor.tensor_shape.dim]))
    size = tensor.ByteSize() if kind in (tf.string, tf.variant) else count * (kind.size or 1)
    return f"tensor of {size / 1e6:.1f} MB" if size >= _LARGE_BYTES else None


def _uses(library: FunctionLibrary, node: Any, number: int, depth: int = 0) -> set[str]:
    """Op types that use the captured input of that number in a dataset node's functions."""
    names = called(node)
    function = library.get(names[0]) if len(names) == 1 else None  # several functions: which one it goes to is not told
    if function is None:
        return set()
    place = len(function.signature.input_arg) - len(captured_inputs(node)) + number
    return _consumers(library, function, place, depth) if place >= 0 else set()


def _consumers(library: FunctionLibrary, function: Any, place: int, depth: int) -> set[str]:
    found: set[str] = set()
    names = {name for name, number in arguments(function).items() if number == place}
    for node in function.node_def:
        data = data_inputs(node)
        positions = [number for number, one in enumerate(data) if one.split(":")[0] in names]
        if not positions:
            continue
        target = callee(library, node)
        if node.op == "Identity":
            names.add(node.name)
        elif depth == _DEEPEST:
            continue
        elif target is not None:
            for number in positions:
                found |= _consumers(library, target, number, depth + 1)
        elif captured := captured_inputs(node):
            for number, one in enumerate(captured):
                if one.split(":")[0] in names:
                    found |= _uses(library, node, number, depth + 1)
        else:
            found.add(node.op)
    return found


_UNCHANGED: Final = ("Identity", "StopGradient", "Reshape", "Squeeze", "ExpandDims", "EnsureShape")
_DECODERS: Final = ("DecodeRaw", "DecodePaddedRaw", "DecodeCompressed")
_CUTS: Final = ("Substr", "StridedSlice", "Slice")
_FIELD_BYTES: Final = 1024
"""A cut of no more bytes than this is a field of a header, not the data after it."""


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
        data = data_inputs(node)
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
