"""What the functions of a dataset op do besides computing: random numbers, side effects, and the state they capture."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.pipeline.graph.dataflow import arguments, callee
from xttsbench.pipeline.graph.library import FunctionLibrary, called
from xttsbench.pipeline.graph.nodes import captured_inputs, constant_input, is_dataset, node_inputs

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
_DEEPEST: Final = 20


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
    source = by_name.get(name)
    for _ in range(10):
        if source is None or source.op != "Identity":
            break
        source = by_name.get(node_inputs(source)[0])
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
        data = [one for one in node.input if not one.startswith("^")]
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
