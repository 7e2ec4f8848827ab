"""Functions of a graph: components that they pass on, reads, random draws and captures.

A ``FunctionDef`` names its arguments, its nodes and, per result, the node's output that it is. The functions of
``tf.data`` take the element's components first and what they capture after them. Calls are followed; a branch or a
loop counts as depending on all that it is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from xttsbench.pipeline import nodes

_CALLS: Final = ("PartitionedCall", "StatefulPartitionedCall")
_DEEPEST: Final = 30  # calls inside calls that are followed; beyond, an answer is "not known" or "all of it"


def reads(library: nodes.FunctionLibrary, name: str | None, components: int) -> tuple[int, ...] | None:
    """Numbers of the element's components that a function's result depends on.

    Stateful ops run whatever becomes of their result, so what they are given counts as read.
    """
    function = library.get(name)
    if function is None:
        return None
    found = _Body(library, function).dependencies(function.ret.values(), {})
    return tuple(sorted(number for number in found if number < components))


def passes(library: nodes.FunctionLibrary, name: str | None, components: int) -> dict[int, int]:
    """Number of each result that is a component of the element, untouched -> that component's number."""
    function = library.get(name)
    if function is None:
        return {}
    results = [function.ret[output.name] for output in function.signature.output_arg]
    found = {number: _Body(library, function).argument(result) for number, result in enumerate(results)}
    return {number: source for number, source in found.items() if source is not None and source < components}


def callee(library: nodes.FunctionLibrary, node: Any) -> Any | None:
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


class _Body:
    """One function, its nodes by name and its arguments by number, so many calls below the one that is asked of."""

    def __init__(self, library: nodes.FunctionLibrary, function: Any, depth: int = 0) -> None:
        self._library, self._function, self._depth = library, function, depth
        self._nodes = {node.name: node for node in function.node_def}
        self._arguments = {argument.name: number for number, argument in enumerate(function.signature.input_arg)}

    def _called(self, node: Any) -> _Body | None:
        target = callee(self._library, node) if self._depth < _DEEPEST else None
        return None if target is None else _Body(self._library, target, self._depth + 1)

    def _result(self, node: Any, reference: str) -> tuple[_Body, str] | None:
        """Called function's body, and the reference in it of the result that a reference to the node stands for."""
        body = self._called(node)
        inside = None if body is None or reference.startswith("^") else returned(body._function, reference)
        return None if body is None or inside is None else (body, inside)

    def dependencies(self, references: Iterable[str], known: dict[tuple[str, str], set[int]]) -> set[int]:
        """Numbers of the arguments from which references, and what has effects, can be reached.

        ``known`` has the results of called functions that were looked at before.
        """
        found, seen = set[int](), set[str]()
        waiting = [*references, *(f"^{name}" for name in self._function.control_ret.values())]
        while waiting:
            reference = waiting.pop()
            name = nodes.node_of(reference)
            if name in self._arguments:
                found.add(self._arguments[name])
            if reference in seen or name not in self._nodes:
                continue
            seen.add(reference)
            node = self._nodes[name]
            if (result := self._result(node, reference)) is None:
                waiting.extend(node.input)
                continue
            body, inside = result
            key, data = (body._function.signature.name, inside), nodes.data_inputs(node)
            if key not in known:
                known[key] = body.dependencies([inside], known)
            waiting.extend(data[number] for number in known[key] if number < len(data))
            waiting.extend(one for one in node.input if one.startswith("^"))
        return found

    def argument(self, reference: str) -> int | None:
        """The argument that a reference is, with identities and calls looked through."""
        while (name := nodes.node_of(reference)) not in self._arguments:
            node, number = self._nodes.get(name), None
            if node is None:
                return None
            if node.op in ("Identity", "IdentityN"):
                number = int(reference.rsplit(":", maxsplit=1)[-1]) if node.op == "IdentityN" else 0
            elif (result := self._result(node, reference)) is not None:
                number = result[0].argument(result[1])
            if number is None:
                return None
            reference = node.input[number]
        return self._arguments[name]

    def consumers(self, place: int) -> set[str]:
        """Types of the ops that use an argument."""
        found: set[str] = set()
        names = {name for name, number in self._arguments.items() if number == place}
        for node in self._function.node_def:
            positions = [number for number, one in enumerate(nodes.data_inputs(node)) if nodes.node_of(one) in names]
            if not positions:
                continue
            if node.op == "Identity":
                names.add(node.name)
            elif (body := self._called(node)) is not None:
                found.update(*map(body.consumers, positions))
            elif captured := nodes.captured_inputs(node):
                own = [number for number, one in enumerate(captured) if nodes.node_of(one) in names]
                found.update(*(_uses(self._library, node, number) for number in own))
            else:
                found.add(node.op)
        return found


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
_VARIABLE: Final = re.compile(r"ReadVariableOp|Assign\w*Variable|Resource")
_RESOURCES: Final = {
    "generator": re.compile(r"Stateful|Rng"),
    "table": re.compile(r"LookupTable"),
    "iterator": re.compile(r"(Optional)?Iterator"),
}
"""Ops that use resources as variables are, by what they use."""


def is_random(library: nodes.FunctionLibrary, names: Iterable[str]) -> bool:
    """Whether a function draws numbers that differ from pass to pass.

    A seed of the op's own does not prevent that: its numbers go on where the last pass of a ``repeat`` ended. What a
    Python function draws is not seen here.
    """
    return any(_RANDOM.fullmatch(node.op) for node in library.reach(names))


def shuffles(node: Any, by_name: Mapping[str, Any]) -> bool:
    """Whether a dataset node yields another order, or other numbers, in every pass or run."""
    if node.op.startswith("Shuffle"):
        return not (_fixed_seed(node, by_name) and not node.attr["reshuffle_each_iteration"].b)
    if node.op.startswith("RandomDataset"):
        return not _fixed_seed(node, by_name) or bool(node.attr["rerandomize_each_iteration"].b)
    return False


def has_side_effects(library: nodes.FunctionLibrary, names: Iterable[str]) -> bool:
    """Whether a function runs Python, prints, writes, assigns or advances an iterator."""
    return any(_EFFECTS.fullmatch(node.op) for node in library.reach(names))


def captures(node: Any, by_name: Mapping[str, Any], library: nodes.FunctionLibrary) -> tuple[str, ...]:
    """State that a dataset node's functions capture, in words, each once: ``variable`` is what a step may assign."""
    found: dict[str, None] = {}
    for number, name in enumerate(nodes.captured_inputs(node)):
        uses, source = _uses(library, node, number), nodes.behind_identities(nodes.node_of(name), by_name)
        made = source is not None and source.op == "VarHandleOp"
        words = [word for word, uses_of in _RESOURCES.items() if any(map(uses_of.match, uses))]
        if not words and (made or any(map(_VARIABLE.match, uses))):
            words = ["variable"]
        found |= dict.fromkeys(words)
    return tuple(found)


def _fixed_seed(node: Any, by_name: Mapping[str, Any]) -> bool:
    """Whether the seed is a constant; two zeros ask TensorFlow to draw one."""
    seeds = [nodes.constant_input(node, name, by_name) for name in ("seed", "seed2")]
    return None not in seeds and any(seeds)


def _uses(library: nodes.FunctionLibrary, node: Any, number: int) -> set[str]:
    """Op types that use the captured input of that number in a dataset node's functions."""
    names = nodes.called(node)
    function = library.get(names[0]) if len(names) == 1 else None  # several functions: which one it goes to is not told
    if function is None:
        return set()
    place = len(function.signature.input_arg) - len(nodes.captured_inputs(node)) + number
    return _Body(library, function).consumers(place) if place >= 0 else set()
