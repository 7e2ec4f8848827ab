"""Why a fix may change the data whatever a run shows: read from the graph and from the code of its Python functions.

A function that counts its calls may give the same elements a hundred times in a row and other ones the next time. What
draws random numbers is no objection to running it in parallel, since its numbers are compared in distribution; keeping
them in a cache is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pkgutil import resolve_name
from typing import Any, Final

from xttsbench.fixes.registry import spec_of
from xttsbench.pipeline.nodes import FunctionLibrary, called, constant_input, dataset_inputs, dataset_nodes
from xttsbench.pipeline.python.opened import compiled
from xttsbench.pipeline.python.split import CannotOpenError
from xttsbench.pipeline.python.state import PythonState, names_of, python_state
from xttsbench.pipeline.read import inspect
from xttsbench.pipeline.source import lookup
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import PipelineOp, every_op

_STATE: Final = re.compile(
    r"Assign\w*|Resource(Scatter|Apply|SparseApply|Count)\w*|Scatter\w+Ref|LookupTable(Insert|Import|Remove)\w*"
    r"|Queue(Enqueue|Dequeue)\w*|Barrier\w+|(Ordered)?Map(Un)?[Ss]tage\w*|(Un)?[Ss]tage|Iterator(GetNext|Save|Restore)\w*"
    r"|OptionalGetValue|TensorArray\w*V1|Stack(Push|Pop)\w*|WriteFile|DeleteFile|RenameFile|SaveV2"
)
"""TensorFlow ops through which one call of a function is felt by another, or by somebody outside."""
MAPS: Final = re.compile(r"(Experimental)?(Parallel)?Map(AndBatch)?Dataset(V\d+)?")
_BATCHES: Final = re.compile(r"(Parallel|Padded)?BatchDataset(V\d+)?")
STOPS: Final = re.compile(r"\w*(Take|Zip|DirectedInterleave)\w*Dataset(V\d+)?")
"""Ops that may end before what they read does."""
_BEGINS_ANEW: Final = re.compile(r"\w*(Repeat|Cache)\w*Dataset(V\d+)?")
_ENDLESS: Final = 2**62
_MOST_NAMES: Final = 8  # Of functions that a sentence lists
STATELESS: Final = "make the function depend on its arguments alone"
_HANDED: Final = "hand it over as a part of each element"
"""Remedies: they would settle a hazard."""


@dataclass(frozen=True)
class Reader:
    """Queries about one pipeline's graph and its Python functions."""

    dataset: Any
    graph: Any
    state_of: Callable[[Any], PythonState]

    @cached_property
    def ops(self) -> Mapping[str, PipelineOp]:
        """The record of each op by its name."""
        return {op.name: op for op in inspect(self.dataset, self.graph).ops}

    @cached_property
    def nodes(self) -> Mapping[str, Any]:
        """The dataset nodes of the outer pipeline by their names, sources first."""
        return {node.name: node for node in dataset_nodes(self.graph)}

    @cached_property
    def constants(self) -> Mapping[str, Any]:
        """All nodes of the graph by their names."""
        return {node.name: node for node in self.graph.node}

    @cached_property
    def library(self) -> FunctionLibrary:
        """The functions of the graph."""
        return FunctionLibrary(self.graph.library.function)

    @cached_property
    def ends_with_epoch(self) -> bool:
        """Whether the loop begins the next epoch, since no op of the pipeline does."""
        return not self.named(_BEGINS_ANEW)

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
            whole = whole and not (STOPS.fullmatch(node.op) and (len(inputs) == 1 or len(counted) > 1))
            waiting.extend((input_, whole) for input_ in inputs)
        return list(found)

    def python(self, name: str, kinds: Sequence[str] = ("function", "generator")) -> Iterator[PythonState]:
        """State, reads and random draws of the Python functions of one node, limited to these kinds."""
        node = self.nodes.get(name)
        for token in self.library.python_tokens(called(node)) if node is not None else ():
            found = lookup(token)
            if found is not None and found.kind == "generator" and "generator" in kinds:
                yield self._of_generator(found.generator_state._generator)
            elif found is not None and found.kind != "generator" and "function" in kinds:
                yield self.state_of(found.called)

    def _of_generator(self, generator: Callable[..., Any]) -> PythonState:
        """Also what the loop of a library's generator, such as Keras's of a ``PyDataset``, calls of the user's."""
        found = self.state_of(generator)
        with suppress(CannotOpenError):
            if found.reads is None:
                cut = compiled(generator)
                found = replace(found, reads=cut.reads, reads_within_epoch=cut.reads_within_epoch)
        return found

    def state(self, name: str, kinds: Sequence[str] = ("function",)) -> Iterator[str]:
        """The state that the functions of a node keep, in words."""
        yield from (one.state for one in self.python(name, kinds) if one.state is not None)
        node = self.nodes.get(name)
        ops = {one.op for one in self.library.reach(called(node))} if node is not None else set[str]()
        for op in sorted(ops):
            if _STATE.fullmatch(op):
                yield f"{name} runs {op}, which changes what other calls see"

    def reads(self, name: str) -> Iterator[str]:
        """State outside of a node's Python functions that they read and other code changes, one sentence each."""
        yield from (one.reads for one in self.python(name) if one.reads is not None)

    def random(self, name: str) -> Iterator[str]:
        """Sources of randomness in a node, one sentence each."""
        op = self.ops.get(name)
        for one in every_op((op,)) if op is not None else ():
            if one.random and not any(inner.random for inner in one.inner):
                yield f"{one.name} {'shuffles' if 'Shuffle' in one.op else 'draws random numbers'}"
        yield from (one.random for one in self.python(name) if one.random is not None)

    def changed_meanwhile(self) -> Iterator[str]:
        """State that functions read and a step may change, so that running ahead of it alters the data."""
        for op in self.ops.values():
            if "variable" in op.captures:
                yield f"running ahead of the step changes what {op.name} reads of a variable; {_HANDED}"
        for name in self.nodes:
            for one in self.python(name):
                told = one.reads_within_epoch if self.ends_with_epoch else one.reads
                if told is not None:
                    yield f"running ahead of the step changes what is found there: {told}; {_HANDED}"

    def shared_state(self, names: Iterable[str], kinds: Sequence[str] = ("function",)) -> Iterator[str]:
        """The state that calls of the named nodes would share if several ran at once, in words."""
        for name in names:
            yield from (
                f"calls that run at once would share state: {told}; {STATELESS}" for told in self.state(name, kinds)
            )

    def named(self, pattern: re.Pattern[str]) -> list[str]:
        """Nodes of the outer pipeline whose op is of that name."""
        return [name for name, node in self.nodes.items() if pattern.fullmatch(node.op)]

    def maps_before_batches(self) -> list[str]:
        """The maps right above what puts elements together, one or several in a row."""
        found = []
        for name in self.named(_BATCHES):
            inputs = dataset_inputs(self.nodes[name], self.nodes)
            while len(inputs) == 1 and MAPS.fullmatch(self.nodes[inputs[0]].op):
                found.append(inputs[0])
                inputs = dataset_inputs(self.nodes[inputs[0]], self.nodes)
        return found


def hazards(
    dataset: Any,
    graph: Any,
    fixes: FixSet,
    *,
    assumed: Collection[str] = (),
    state_of: Callable[..., PythonState] = python_state,
) -> tuple[str, ...]:
    """Why fixes may change what a dataset yields and what would settle it, a sentence each; empty for no reason.

    Args:
        dataset: the original, before any fix.
        graph: its graph.
        fixes: that are put on it together.
        assumed: functions (``module.function``) that the user says are pure.
        state_of: what a Python function does; exchanged in tests.

    Raises:
        InvalidInputError: there is no fix of one of the names.
    """
    reader = Reader(dataset, graph, partial(state_of, assumed=assumed) if assumed else state_of)
    found: list[str] = []
    for fix in fixes:
        spec = spec_of(fix)
        reasons = [*(resolve_name(spec.hazards)(reader, fix, fixes) if spec.hazards else ())]
        reasons += reader.changed_meanwhile() if spec.runs_ahead else ()
        found += reasons
    return tuple(dict.fromkeys(found))


def not_there(dataset: Any, graph: Any, assumed: Collection[str]) -> tuple[str, ...]:
    """A sentence on each name that is assumed to be pure, and that no Python function of a pipeline has."""
    known: dict[str, str] = {}

    def noted(function: Any) -> PythonState:
        known.update(names_of(function))
        return PythonState()

    reader = Reader(dataset, graph, noted)
    for name in reader.nodes:
        list(reader.python(name))
    there = ", ".join(sorted(set(known.values()))[:_MOST_NAMES]) or "no Python function"
    said = "--assume-pure {}: nothing of that name is called in the pipeline, which has {}"
    return tuple(said.format(one, there) for one in assumed if one not in known)


def random_ops(dataset: Any, graph: Any, *, state_of: Callable[[Any], PythonState] = python_state) -> tuple[str, ...]:
    """Ops and Python functions of a pipeline that shuffle or draw random numbers, one sentence each."""
    reader = Reader(dataset, graph, state_of)
    return tuple(dict.fromkeys(told for name in reader.nodes for told in reader.random(name)))


def _is_endless_range(node: Any, by_name: Mapping[str, Any]) -> bool:
    """Whether a node counts without end, as ``enumerate`` does."""
    stop = constant_input(node, "stop", by_name) if node.op == "RangeDataset" else None
    return stop is not None and stop >= _ENDLESS
