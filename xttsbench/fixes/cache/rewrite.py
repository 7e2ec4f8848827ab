"""A cache after one op of a pipeline: what ran before it runs once, and every later epoch reads what was kept.

In memory, the node brings its own store: ``DummyMemoryCache`` names none, so the op makes one that lives as long as
the dataset and that no other dataset shares. On disk, each pipeline has a folder of its own under the directory that
the user gave; what a killed process left there half written is neither read nor in the way.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.cache import BEHIND, useless
from xttsbench.fixes.graph.edit import (
    does_not_apply,
    ending_at,
    flat_spec,
    is_endless,
    readers,
    redirect,
    set_spec,
)
from xttsbench.fixes.graph.hazards import Reader
from xttsbench.pipeline.identity import digest, identity
from xttsbench.pipeline.nodes import (
    add_constant,
    copied,
    data_inputs,
    dataset_inputs,
    dataset_nodes,
    free_name,
    node_inputs,
    set_inputs,
    text_inputs,
)
from xttsbench.records.fix import Fix, FixSet
from xttsbench.throughput.threads import chain_of

_FILE: Final = "elements"
_OWNER: Final = "owner"
_MOST_FOLDERS: Final = 1000


def cached(graph: Any, op: str, *, directory: str | None) -> Any:
    """The graph with a cache right after the op of that node name.

    Shuffles and repeats before a map come after the cache, which would freeze the one and never be full with the
    other. Caches in memory before it, which would serve nothing once the new one is full, are taken out, as far as each
    of their elements passes the new cache once; what is cached on disk stays. Types and shapes of the elements, and the
    names of all nodes, stay.

    Args:
        graph: the ``GraphDef`` of a dataset.
        op: name of a dataset node of the outer pipeline.
        directory: where the elements are kept; ``None`` keeps them in memory. A folder is made in it. A full cache
            there is read again by a later run of a pipeline with the same graph and the same Python code; changed
            files are not noticed, as with ``Dataset.cache(filename)``.

    Raises:
        InvalidInputError: no such op; it is cached already; its elements never end; or the directory cannot be used.
    """
    fix = f"{'cache' if directory is None else 'cache-file'}@{op}"
    by_name = {node.name: node for node in graph.node}
    names = [node.name for node in dataset_nodes(graph)]
    if op not in names:
        raise does_not_apply(fix, f"no op is named so (there are {', '.join(names)})")
    reading = readers(graph, op)
    if by_name[op].op.startswith("CacheDataset") or any(node.op.startswith("CacheDataset") for node in reading):
        raise does_not_apply(fix, "its elements are cached already")
    if directory is not None and len(reading) > 1:
        raise does_not_apply(fix, f"{len(reading)} ops read {op}, and a file of elements can have one writer only")
    spec = flat_spec(by_name[op], fix)
    edited = copied(graph)
    orderings = _orderings_taken_out(edited, op)
    if is_endless(edited, op):
        raise does_not_apply(fix, f"{op} never ends, so that the cache would never be full")
    cached_already = [node for node in edited.node if node.op.startswith("CacheDataset")]
    in_memory = [node.name for node in cached_already if text_inputs(node, "filename", by_name) == ("",)]
    for name in useless(op, *_shape(edited), in_memory):
        redirect(edited, name, node_inputs(by_name[name])[0])
    filename = "" if directory is None else _file(Path(directory), ending_at(edited, op), fix)
    node = edited.node.add(name=free_name(edited, f"{op}/cache"), op="CacheDatasetV2")
    redirect(edited, op, orderings[-1].name if orderings else node.name)
    for before, ordering in zip((node, *orderings), orderings, strict=False):
        set_inputs(ordering, [before.name, *data_inputs(ordering)[1:]])
        set_spec(ordering, spec)
    text = add_constant(edited, f"{node.name}/filename", filename)
    store = edited.node.add(name=free_name(edited, f"{node.name}/store"), op="DummyMemoryCache")
    node.input.extend([op, text, store.name])
    set_spec(node, spec)
    return edited


def in_memory(graph: Any, op: str, *, directory: str | None) -> Any:
    """As :func:`cached`, in memory, whatever directory there is."""
    del directory
    return cached(graph, op, directory=None)


def on_disk(graph: Any, op: str, *, directory: str | None) -> Any:
    """As :func:`cached`, in a directory.

    Raises:
        InvalidInputError: as there, or none is given.
    """
    if directory is None:
        raise InvalidInputError(f"The fix 'cache-file@{op}' needs a directory for the file; received none. Name one.")
    return cached(graph, op, directory=directory)


def hazards(reader: Reader, fix: Fix, every: FixSet) -> Iterator[str]:
    """Differences between passes before the cache, and effects that it would leave out, one sentence each."""
    op = fix.op or ""
    # A filter that is moved before the map stands between it and what orders its elements.
    moved = () if "filter-first" in every else chain_of(op, *_shape(reader.graph)).orderings
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
        redirect(graph, node.name, node_inputs(node)[0])
    return taken


def _file(directory: Path, graph: Any, fix: str) -> str:
    try:
        return str(_folder(directory, key_of(graph)) / _FILE)
    except OSError as error:
        raise InvalidInputError(f"The fix {fix!r} cannot keep elements in {str(directory)!r}: {error}.") from error


def _folder(directory: Path, key: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(_MOST_FOLDERS):
        folder = directory / f"{key}-{number}"
        if (folder / f"{_FILE}.index").exists():
            return folder
        if folder.exists() and _is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir()
        except FileExistsError:  # another process, or another dataset of this one, is filling it
            continue
        (folder / _OWNER).write_text(str(os.getpid()))
        return folder
    raise OSError(f"{_MOST_FOLDERS} caches of the same elements are being filled there")


def _is_abandoned(folder: Path) -> bool:
    """Whether the process that made the folder is gone; one that has not written its number yet is taken as alive."""
    try:
        os.kill(int((folder / _OWNER).read_text()), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError):
        return False
    return False


def key_of(graph: Any) -> str:
    """Key of a graph's cached elements: a digest of the graph and its data that is the same in every process."""
    found = identity(None, graph)
    return digest(found.graph, found.data)[:20]
