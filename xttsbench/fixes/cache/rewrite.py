"""A cache after one op of a pipeline: what ran before it runs once, and every later epoch reads what was kept.

The node brings its own store: ``DummyMemoryCache`` names none, so the op makes one that lives as long as the dataset
and that no other dataset shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xttsbench.fixes.cache import BEHIND, useless
from xttsbench.fixes.graph.edit import (
    does_not_apply,
    flat_spec,
    is_endless,
    readers,
    set_spec,
)
from xttsbench.fixes.graph.hazards import Reader
from xttsbench.pipeline.nodes import (
    add_constant,
    copied,
    data_inputs,
    dataset_inputs,
    dataset_nodes,
    free_name,
    node_inputs,
    redirect,
    set_inputs,
    text_inputs,
)
from xttsbench.records.fix import Fix, FixSet
from xttsbench.throughput.threads import chain_of


def cached(graph: Any, op: str) -> Any:
    """The graph with a cache right after the op of that node name.

    Shuffles and repeats before a map come after the cache, which would freeze the one and never be full with the
    other. Caches in memory before it, which would serve nothing once the new one is full, are taken out, as far as each
    of their elements passes the new cache once; what is cached on disk stays. Types and shapes of the elements, and the
    names of all nodes, stay.

    Args:
        graph: the ``GraphDef`` of a dataset.
        op: name of a dataset node of the outer pipeline.

    Raises:
        InvalidInputError: no such op; it is cached already; or its elements never end.
    """
    fix = f"cache@{op}"
    by_name = {node.name: node for node in graph.node}
    names = [node.name for node in dataset_nodes(graph)]
    if op not in names:
        raise does_not_apply(fix, f"no op is named so (there are {', '.join(names)})")
    if any(node.op.startswith("CacheDataset") for node in (by_name[op], *readers(graph, op))):
        raise does_not_apply(fix, "its elements are cached already")
    spec = flat_spec(by_name[op], fix)
    edited = copied(graph)
    orderings = _orderings_taken_out(edited, op)
    if is_endless(edited, op):
        raise does_not_apply(fix, f"{op} never ends, so that the cache would never be full")
    cached_already = [node for node in edited.node if node.op.startswith("CacheDataset")]
    in_memory = [node.name for node in cached_already if text_inputs(node, "filename", by_name) == ("",)]
    for name in useless(op, *_shape(edited), in_memory):
        redirect(edited.node, {name: node_inputs(by_name[name])[0]})
    node = edited.node.add(name=free_name(edited, f"{op}/cache"), op="CacheDatasetV2")
    redirect(edited.node, {op: orderings[-1].name if orderings else node.name})
    for before, ordering in zip((node, *orderings), orderings, strict=False):
        set_inputs(ordering, [before.name, *data_inputs(ordering)[1:]])
        set_spec(ordering, spec)
    text = add_constant(edited, f"{node.name}/filename", "")
    store = edited.node.add(name=free_name(edited, f"{node.name}/store"), op="DummyMemoryCache")
    node.input.extend([op, text, store.name])
    set_spec(node, spec)
    return edited


def hazards(reader: Reader, fix: Fix, _every: FixSet) -> Iterator[str]:
    """Differences between passes before the cache, and effects that it would leave out, one sentence each."""
    op = fix.op or ""
    moved = chain_of(op, *_shape(reader.graph)).orderings
    for name in reader.above(op) if op in reader.nodes else list(reader.nodes):
        if name in moved:
            continue
        yield from (f"a cache would repeat the first pass: {told}; {BEHIND}" for told in reader.random(name))
        for told in reader.state(name, ("function", "generator")):
            yield f"a cache would leave out calls that change state: {told}; {BEHIND}"
        yield from (
            f"a cache would keep what was read in the first pass: {told}; {BEHIND}" for told in reader.reads(name)
        )
        described = reader.ops.get(name)
        if described is not None and "variable" in described.captures:
            yield f"a cache would keep what {name} read of a variable in the first pass; {BEHIND}"


def _shape(graph: Any) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Type of each dataset's op, and what it reads, by its name."""
    by_name = {node.name: node for node in graph.node}
    nodes = dataset_nodes(graph)
    return {node.name: node.op for node in nodes}, {node.name: dataset_inputs(node, by_name) for node in nodes}


def _orderings_taken_out(graph: Any, op: str) -> list[Any]:
    """Take the shuffles and repeats before a map out of a graph, in place; they are read by nobody then."""
    by_name = {node.name: node for node in graph.node}
    taken = [by_name[name] for name in chain_of(op, *_shape(graph)).orderings]
    for node in taken:
        redirect(graph.node, {node.name: node_inputs(node)[0]})
    return taken
