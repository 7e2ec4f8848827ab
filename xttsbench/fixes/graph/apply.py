"""Fixes by name: what a name means, and a dataset with one fix or several.

A fix is an edit of the dataset's graph (:mod:`xttsbench.fixes`); several are made on one reading of it.
Reading a graph, and making a dataset of it, copies the data embedded in it (see :mod:`xttsbench.pipeline.graph`), so
fixes that only append to the pipeline do without. Options come along; an in-memory cache and the seeds of ``shuffle``
are shared with the original dataset, so the two are run in processes of their own; variables and
``tf.random.Generator`` objects are copied with the value that they have, tables with their contents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.data.ops import options as options_lib

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.any_order.rewrite import any_order
from xttsbench.fixes.graph.edit import does_not_apply
from xttsbench.fixes.parallel_batch.rewrite import parallel_batch
from xttsbench.fixes.parallel_interleave.rewrite import parallel_interleave
from xttsbench.fixes.parallel_map.rewrite import parallel_calls, parallel_map
from xttsbench.fixes.prefetch.buffers import last_buffer
from xttsbench.fixes.prefetch.rewrite import append_prefetch, drop_inner_prefetch, ends_in_prefetch, without_nodes
from xttsbench.fixes.thread_pool.rewrite import thread_pool
from xttsbench.pipeline.graph.nodes import graph_options
from xttsbench.pipeline.graph.places import SOURCE
from xttsbench.pipeline.graph.read import read_graph

__all__ = ["FIXES", "Fix", "apply", "drop_inner_prefetch", "from_graph", "parallel_map", "without_nodes"]

_MOST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Fix:
    """What is behind the name of a fix."""

    form: Literal["name", "name[:n]", "name:n", "name@op"]
    """What may, or has to, follow the name: a positive whole number, or the name of a node."""
    edit: Callable[[Any, Any, str | None], Any] | None = None
    """Graph, number (or node's name) and directory for caches -> edited graph."""
    on_dataset: Callable[[Any, Any], Any] | None = None
    """Dataset and number -> dataset, for what needs no graph, or is no edit of one alone."""


def from_graph(graph: Any, element_spec: Any, *, source: Any = None) -> Any:
    """A dataset from a graph; ``element_spec`` is that of the original.

    ``source`` is the original dataset. It is kept alive by the new one, and with it the Python functions, tables and
    caches that the graph only refers to; the options in the graph are set again, for Python code that reads
    ``options()``.
    """
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    dataset = dataset_ops._VariantDataset(variant, element_spec)
    if source is not None:
        setattr(dataset, SOURCE, source)
        options = options_lib.Options()
        options._from_proto(graph_options(graph))
        dataset = dataset.with_options(options)
        setattr(dataset, SOURCE, source)
    return dataset


def apply(dataset: Any, name: str, *, cache_dir: str | None = None) -> Any:
    """The dataset with one fix, a name of :data:`FIXES` with what follows it, or with several joined by `` + ``.

    They are made from left to right, each on the graph that the ones before left, in which nodes keep their names;
    only ``processes``, which replaces the functions, comes last wherever it stands.

    Args:
        dataset: the original; it stays as it is, and is kept alive by the new one.
        name: e.g. ``parallel-map:4 + prefetch``.
        cache_dir: an existing directory for ``cache-file``.

    Raises:
        InvalidInputError: there is no such fix; what follows its name is missing or wrong; it would change nothing in
            this dataset; the graph cannot be read; or TensorFlow refuses the edited one.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise InvalidInputError(
            f"The fix {name!r} needs a tf.data.Dataset; received {type(dataset).__name__}. Return one from the target."
        )
    steps = [_parsed(part.strip()) for part in name.split(" + ")]
    steps.sort(key=lambda step: step[0].edit is None)
    on_graph = any(fix.on_dataset is None for fix, _ in steps)
    edits = [(fix.edit, value) for fix, value in steps if fix.edit is not None and on_graph]
    others = [
        (fix.on_dataset, value) for fix, value in steps if fix.on_dataset is not None and not (fix.edit and on_graph)
    ]
    try:
        if edits:
            graph = _graph(dataset, name)
            for edit, value in edits:
                graph = edit(graph, value, cache_dir)
            dataset = from_graph(graph, dataset.element_spec, source=dataset)
        for change, value in others:
            dataset = change(dataset, value)
        return dataset
    except tf.errors.OpError as error:
        raise InvalidInputError(
            f"TensorFlow refuses what the fix {name!r} makes of the dataset: {_first_line(error)} Leave the fix out."
        ) from error


def _parsed(name: str) -> tuple[Fix, Any]:
    """The fix of one name, and what follows it."""
    stem, at, op = name.partition("@")
    if not at:
        stem, colon, number = name.partition(":")
    fix = FIXES.get(stem)
    if stem == "step":
        raise InvalidInputError(f"The fix {name!r} is one of the training step, not of the dataset. Leave it out here.")
    if fix is None:
        forms = ", ".join(_usage(known) for known in FIXES)
        raise InvalidInputError(f"There is no fix named {name!r}. Use one of {forms}.")
    if at or fix.form == "name@op":
        if fix.form != "name@op" or not op:
            raise InvalidInputError(f"A fix is written {_usage(stem)}; received {name!r}.")
        return fix, op
    if not colon and fix.form in ("name", "name[:n]"):
        return fix, None
    if fix.form == "name":
        raise InvalidInputError(f"The fix {stem!r} takes no number; received {name!r}. Write {stem}.")
    if not (number.isascii() and number.isdecimal() and 1 <= int(number) <= _MOST):
        raise InvalidInputError(f"{stem}:<n> needs a positive whole number up to {_MOST}; received {number!r}.")
    return fix, int(number)


def _usage(stem: str) -> str:
    tail = {"name": "", "name[:n]": "[:<n>]", "name:n": ":<n>", "name@op": "@<op>"}
    return stem + tail[FIXES[stem].form]


def _graph(dataset: Any, fix: str) -> Any:
    try:
        return read_graph(dataset)
    except tf.errors.OpError as error:
        raise InvalidInputError(
            f"The fix {fix!r} does not apply: the dataset's graph cannot be read ({_first_line(error)})"
        ) from error


def _first_line(error: Any) -> str:
    """TensorFlow's first line without the place in its own graph, as a sentence."""
    text = error.message.strip().partition("\n")[0].rpartition("}} ")[2]
    return text if text.endswith(".") else f"{text}."


def _prefetched(dataset: Any, elements: int | None) -> Any:
    """A prefetch at the end, which needs no graph, so that it also works where that cannot be read."""
    try:
        there = ends_in_prefetch(read_graph(dataset))
    except tf.errors.OpError:
        there = False
    if there:
        raise does_not_apply("prefetch", "the dataset ends in a prefetch already")
    return dataset.prefetch(_auto(elements))


def _with_pool(dataset: Any, threads: int) -> Any:
    if dataset.options().threading.private_threadpool_size == threads:
        raise does_not_apply(f"thread-pool:{threads}", f"the dataset has a private pool of {threads} threads already")
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    return dataset.with_options(options)


def _in_processes(dataset: Any, count: int) -> Any:
    from xttsbench.fixes.processes.rewrite import in_processes  # starts nothing, but few need it

    return in_processes(dataset, count)


def _cached(graph: Any, op: str, directory: str | None) -> Any:
    from xttsbench.fixes.cache.rewrite import cached

    return cached(graph, op, directory=directory)


def _cached_on_disk(graph: Any, op: str, directory: str | None) -> Any:
    if directory is None:
        raise InvalidInputError(f"The fix 'cache-file@{op}' needs a directory for the file; received none. Name one.")
    return _cached(graph, op, directory)


def _filter_first(graph: Any, _value: None, _directory: str | None) -> Any:
    from xttsbench.fixes.filter_first.rewrite import filter_first

    return filter_first(graph)


def _batch_first(graph: Any, _value: None, _directory: str | None) -> Any:
    from xttsbench.fixes.batch_first.rewrite import batch_first

    return batch_first(graph)


def _rebatch(graph: Any, _value: None, _directory: str | None) -> Any:
    from xttsbench.fixes.batch_first.rebatch import rebatch

    return rebatch(graph)


def _auto(number: int | None) -> int:
    return int(tf.data.AUTOTUNE) if number is None else number


FIXES: Final[Mapping[str, Fix]] = {
    "parallel-map": Fix("name[:n]", lambda graph, n, _: parallel_map(graph, calls=_auto(n))),
    "calls": Fix("name:n", lambda graph, n, _: parallel_calls(graph, calls=n)),
    "parallel-interleave": Fix("name[:n]", lambda graph, n, _: parallel_interleave(graph, calls=_auto(n))),
    "parallel-batch": Fix("name[:n]", lambda graph, n, _: parallel_batch(graph, calls=_auto(n))),
    "prefetch": Fix("name[:n]", lambda graph, n, _: append_prefetch(graph, elements=_auto(n)), _prefetched),
    "buffer": Fix("name:n", lambda graph, n, _: last_buffer(graph, elements=n)),
    "drop-prefetch": Fix("name", lambda graph, _n, _: drop_inner_prefetch(graph)),
    "thread-pool": Fix("name:n", lambda graph, n, _: thread_pool(graph, threads=n), _with_pool),
    "cache": Fix("name@op", lambda graph, op, _: _cached(graph, op, None)),
    "cache-file": Fix("name@op", _cached_on_disk),
    "filter-first": Fix("name", _filter_first),
    "batch-first": Fix("name", _batch_first),
    "rebatch": Fix("name", _rebatch),
    "processes": Fix("name:n", on_dataset=_in_processes),
    "any-order": Fix("name", lambda graph, _n, _: any_order(graph)),
}
"""Fixes by the first part of their names. What a name may be followed by is the fix's ``form``."""
