"""A dataset with one fix or several, by their names; beside it, what their rewrites share of graphs and hazards.

A fix is an edit of the dataset's graph; several are made on one reading of it. Reading a graph, and making a dataset of
it, copies the data embedded in it (see :mod:`xttsbench.pipeline.read`), so fixes that only append to the pipeline
do without. Options come along; an in-memory cache and the seeds of ``shuffle`` are shared with the original dataset, so
the two are run in processes of their own; variables and ``tf.random.Generator`` objects are copied with the value that
they have, tables with their contents.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph.at_exit import end_iterators_at_exit
from xttsbench.fixes.graph.edit import first_sentence, from_graph, graph_of
from xttsbench.fixes.registry import SPECS, checked
from xttsbench.fixes.spec import Spec
from xttsbench.records.fix import Fix, FixSet


def apply(dataset: Any, fixes: FixSet | str) -> Any:
    """The dataset with some fixes.

    They are made from left to right, each on the graph that the ones before left, in which nodes keep their names;
    what is no edit of the graph alone comes behind those, wherever it stands.

    Args:
        dataset: the original; it stays as it is, and is kept alive by the new one.
        fixes: of the dataset, e.g. ``parallel-map:4 + prefetch``.

    Raises:
        InvalidInputError: there is no such fix; what follows its name is missing or wrong; it would change nothing in
            this dataset; the graph cannot be read; or TensorFlow refuses the edited one.
    """
    end_iterators_at_exit()
    name = str(fixes)
    if not isinstance(dataset, tf.data.Dataset):
        raise InvalidInputError(
            f"The fix {name!r} needs a tf.data.Dataset; received {type(dataset).__name__}. Return one from the target."
        )
    steps = [(SPECS[fix.kind], fix) for fix in checked(name)]
    edits = [(spec, fix) for spec, fix in steps if spec.rewrite is not None]
    others = [(spec, fix) for spec, fix in steps if spec.rewrite is None]
    try:
        if edits:
            graph = graph_of(dataset, name)
            for spec, fix in edits:
                graph = _edited(spec, fix, graph)
            dataset = from_graph(graph, dataset.element_spec, source=dataset)
        for spec, fix in others:
            dataset = resolve_name(spec.on_dataset or "")(dataset, **_number(spec, fix))
        return dataset
    except tf.errors.OpError as error:
        raise InvalidInputError(
            f"TensorFlow refuses what the fix {name!r} makes of the dataset: {first_sentence(error)} Leave the fix out."
        ) from error


def _edited(spec: Spec, fix: Fix, graph: Any) -> Any:
    edit = resolve_name(spec.rewrite or "")
    return edit(graph, fix.op) if fix.op else edit(graph, **_number(spec, fix))


def _number(spec: Spec, fix: Fix) -> dict[str, int]:
    """The number as an argument; without one the function takes its own, AUTOTUNE."""
    return {} if fix.number is None else {spec.argument: fix.number}
