"""Why a fix may change the data whatever a run shows: read from the graph and from the code of its Python functions.

A function that counts its calls may give the same elements a hundred times in a row and other ones the next time. What
draws random numbers is no objection to running it in parallel, since its numbers are compared in distribution; keeping
them in a cache is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from xttsbench.fixes.cache.rewrite import orderings_before
from xttsbench.pipeline.graph.library import FunctionLibrary, called
from xttsbench.pipeline.graph.nodes import constant_input
from xttsbench.pipeline.graph.read import dataset_inputs, dataset_nodes, inspect
from xttsbench.pipeline.graph.registry import lookup
from xttsbench.pipeline.purity.state import PythonState, python_state
from xttsbench.records.pipeline import PipelineOp

_STATE: Final = re.compile(
    r"Assign\w*|Resource(Scatter|Apply|SparseApply|Count)\w*|Scatter\w+Ref|LookupTable(Insert|Import|Remove)\w*"
    r"|Queue(Enqueue|Dequeue)\w*|Barrier\w+|(Ordered)?Map(Un)?[Ss]tage\w*|(Un)?[Ss]tage|Iterator(GetNext|Save|Restore)\w*"
    r"|OptionalGetValue|TensorArray\w*V1|Stack(Push|Pop)\w*|WriteFile|DeleteFile|RenameFile|SaveV2"
)
"""TensorFlow ops through which one call of a function is felt by another, or by somebody outside."""
_MAPS: Final = re.compile(r"(Experimental)?(Parallel)?Map(AndBatch)?Dataset(V\d+)?")
_BATCHES: Final = re.compile(r"(Parallel|Padded)?BatchDataset(V\d+)?")
_OPENS: Final = re.compile(r"(FlatMap|Interleave|ParallelInterleave|LegacyParallelInterleave)Dataset(V\d+)?")
_STOPS: Final = re.compile(r"\w*(Take|Zip|DirectedInterleave)\w*Dataset(V\d+)?")
"""Ops that may end before what they read does."""
_ENDLESS: Final = 2**62
_AHEAD: Final = ("parallel-map", "parallel-interleave", "parallel-batch", "prefetch", "calls", "buffer", "processes")
"""Fixes that run functions earlier than the step asks for their results."""


@dataclass(frozen=True)
class _Reader:
    """What there is to be asked of one pipeline."""

    dataset: Any
    graph: Any
    state_of: Callable[[Any], PythonState]

    @cached_property
    def ops(self) -> Mapping[str, PipelineOp]:
        return {op.name: op for op in inspect(self.dataset, self.graph).ops}

    @cached_property
    def nodes(self) -> Mapping[str, Any]:
        return {node.name: node for node in dataset_nodes(self.graph)}

    @cached_property
    def constants(self) -> Mapping[str, Any]:
        return {node.name: node for node in self.graph.node}

    @cached_property
    def library(self) -> FunctionLibrary:
        return FunctionLibrary(self.graph.library.function)

    def above(self, name: str) -> list[str]:
        """The named node and all that feeds it, as far as what a cache downstream of them has not fixed already."""
        found, waiting = dict[str, bool](), [(name, True)]
        while waiting:
            one, whole = waiting.pop()
            node = self.nodes.get(one)
            if node is None or (one in found and found[one] <= whole):
                continue
            if node.op.startswith("CacheDataset") and one != name and whole:
                continue
            found[one] = whole
            inputs = dataset_inputs(node, self.nodes)
            # What is not read to its end is never kept: TensorFlow drops a cache that is not full, and fills it anew.
            counted = [self.nodes[one] for one in inputs if not _is_endless_range(self.nodes[one], self.constants)]
            whole = whole and not (_STOPS.fullmatch(node.op) and (len(inputs) == 1 or len(counted) > 1))
            waiting.extend((input_, whole) for input_ in inputs)
        return list(found)

    def python(self, name: str, kinds: Sequence[str]) -> Iterator[PythonState]:
        """What the Python functions of one node do; ``kinds`` are ``function`` and ``generator``."""
        node = self.nodes.get(name)
        for token in self.library.python_tokens(called(node)) if node is not None else ():
            found = lookup(token)
            if found is None:
                continue
            if found.kind == "generator":
                if "generator" in kinds:
                    yield self.state_of(found.generator_state._generator)
            elif "function" in kinds:
                yield self.state_of(found.entry._func if found.kind == "py_function" else found.entry)

    def state(self, name: str, kinds: Sequence[str] = ("function",)) -> Iterator[str]:
        """The state that the functions of a node keep, in words."""
        for one in self.python(name, kinds):
            if one.state is not None:
                yield one.state
        node = self.nodes.get(name)
        ops = {one.op for one in self.library.reach(called(node))} if node is not None else set[str]()
        for op in sorted(ops):
            if _STATE.fullmatch(op):
                yield f"{name} runs {op}, which changes what other calls see"

    def reads(self, name: str) -> Iterator[str]:
        """What Python functions of a node read and others change, in words."""
        for one in self.python(name, ("function", "generator")):
            if one.reads is not None:
                yield one.reads

    def random(self, name: str) -> Iterator[str]:
        """What differs from pass to pass in a node, in words."""
        op = self.ops.get(name)
        if op is not None:
            for one in (op, *_inside(op)):
                if one.random and not any(inner.random for inner in one.inner):
                    what = "shuffles" if "Shuffle" in one.op else "draws random numbers"
                    yield f"{one.name} {what}"
        for state in self.python(name, ("function", "generator")):
            if state.random is not None:
                yield state.random


def objections(
    dataset: Any,
    graph: Any,
    fixes: Sequence[str],
    *,
    state_of: Callable[[Any], PythonState] = python_state,
) -> tuple[str, ...]:
    """Why fixes may change what a dataset yields, one sentence each; empty where nothing speaks against them.

    Args:
        dataset: the original, before any fix.
        graph: its graph.
        fixes: names of fixes, each alone or several joined by `` + ``.
        state_of: what a Python function does; exchanged in tests.
    """
    reader = _Reader(dataset, graph, state_of)
    found: list[str] = []
    parts = [one.strip() for text in fixes for one in text.split("+")]
    for fix in parts:
        name = re.split(r"[:@]", fix, maxsplit=1)[0]
        for reason in _of(reader, name, fix, parts):
            sentence = f"{fix}: {reason}"
            if sentence not in found:
                found.append(sentence)
    return tuple(found)


def _of(reader: _Reader, name: str, fix: str, parts: Sequence[str]) -> Iterator[str]:
    if name in ("cache", "cache-file"):
        op = fix.partition("@")[2]
        # A filter that is moved before the map stands between it and what orders its elements.
        moved = () if "filter-first" in parts else orderings_before(reader.graph, op)
        yield from _cached(reader, op, moved)
    elif name == "processes":
        for node in reader.nodes:
            for state in reader.python(node, ("function",)):
                if state.state is not None:
                    yield f"each process would have state of its own: {state.state}"
                if state.reads is not None:
                    yield f"each process would have a copy of its own: {state.reads}"
    elif name in ("parallel-map", "calls", "parallel-interleave"):
        for node in _touched(reader, name):
            kinds = ("function", "generator") if name == "parallel-interleave" else ("function",)
            for told in reader.state(node, kinds):
                yield f"calls that run at once would share state: {told}"
    elif name in ("filter-first", "batch-first"):
        words = "fewer calls, in another order" if name == "filter-first" else "calls on whole batches"
        for node in _touched(reader, name):
            for told in reader.state(node):
                yield f"{words} would change its state: {told}"
    if name in _AHEAD:
        yield from _variables(reader)


def _cached(reader: _Reader, op: str, moved: Sequence[str]) -> Iterator[str]:
    """Why a cache after an op may change the data, if the named ops come after it."""
    names = reader.above(op) if op in reader.nodes else list(reader.nodes)
    for name in names:
        if name in moved:
            continue
        for told in reader.random(name):
            yield f"a cache would repeat the first pass: {told}"
        for told in reader.state(name, ("function", "generator")):
            yield f"a cache would leave out calls that change state: {told}"
        for told in reader.reads(name):
            yield f"a cache would keep what was read in the first pass: {told}"
        described = reader.ops.get(name)
        if described is not None and "variable" in described.captures:
            yield f"a cache would keep what {name} read of a variable in the first pass"


def _variables(reader: _Reader) -> Iterator[str]:
    for op in reader.ops.values():
        if "variable" in op.captures:
            yield f"{op.name} reads a variable, and running ahead of the step changes what it finds there"
    for name in reader.nodes:
        for told in reader.reads(name):
            yield f"running ahead of the step changes what is found there: {told}"


def _touched(reader: _Reader, name: str) -> list[str]:
    """Nodes of the outer pipeline whose functions a fix runs in another way."""
    nodes = reader.nodes
    if name == "parallel-map":
        return [one for one, node in nodes.items() if node.op == "MapDataset"]
    if name == "calls":
        return [one for one, node in nodes.items() if _MAPS.fullmatch(node.op)]
    if name == "parallel-interleave":
        return [one for one, node in nodes.items() if _OPENS.fullmatch(node.op)]
    if name == "filter-first":
        filters = [one for one, node in nodes.items() if node.op.endswith("FilterDataset")]
        return [*filters, *_maps_above(reader, filters)]
    return _maps_above(reader, [one for one, node in nodes.items() if _BATCHES.fullmatch(node.op)])


def _maps_above(reader: _Reader, names: Sequence[str]) -> list[str]:
    """The maps right above the named nodes, one or several in a row."""
    found = []
    for name in names:
        inputs = dataset_inputs(reader.nodes[name], reader.nodes)
        while len(inputs) == 1 and _MAPS.fullmatch(reader.nodes[inputs[0]].op):
            found.append(inputs[0])
            inputs = dataset_inputs(reader.nodes[inputs[0]], reader.nodes)
    return found


def random_ops(dataset: Any, graph: Any, *, state_of: Callable[[Any], PythonState] = python_state) -> tuple[str, ...]:
    """What shuffles or draws random numbers in a pipeline, Python functions among it, in words."""
    reader = _Reader(dataset, graph, state_of)
    return tuple(dict.fromkeys(told for name in reader.nodes for told in reader.random(name)))


def _inside(op: PipelineOp) -> Iterator[PipelineOp]:
    for one in op.inner:
        yield one
        yield from _inside(one)


def _is_endless_range(node: Any, by_name: Mapping[str, Any]) -> bool:
    """Whether a node counts without end, as ``enumerate`` does."""
    stop = constant_input(node, "stop", by_name) if node.op == "RangeDataset" else None
    return stop is not None and stop >= _ENDLESS
