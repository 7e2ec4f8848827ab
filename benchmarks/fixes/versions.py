"""The target of all arms: a case's function as it is, or as AUTOTUNE with default options would run it.

*AUTOTUNE* is what a reader of the tf.data guide would write without measuring anything: no option set, and every map
and interleave parallel and a prefetch at the end, each with ``tf.data.AUTOTUNE``; what does not apply is left out.
"""

from __future__ import annotations

from typing import Any

ORIGINAL, AUTOTUNE = "original", "autotune"
AUTOTUNE_FIXES = ("parallel-map", "parallel-interleave", "prefetch")


def make(target: str, version: str = ORIGINAL, **settings: Any) -> Any:
    """The dataset of another target, with its step or model where it has one.

    Args:
        target: as on the command line.
        version: ``original`` or ``autotune``.
        settings: keyword arguments of the target.
    """
    from xttsbench.targets.load import load_target
    from xttsbench.targets.spec import parse_target

    loaded = load_target(parse_target(target), settings)
    dataset = autotuned(loaded.dataset) if version == AUTOTUNE else loaded.dataset
    consumer = loaded.step if loaded.model is None else loaded.model
    return dataset if consumer is None else (dataset, consumer)


def autotuned(dataset: Any) -> Any:
    """A dataset without the options that were set, and with all of :data:`AUTOTUNE_FIXES` that apply to it."""
    from xttsbench.errors import InvalidInputError
    from xttsbench.fixes.graph import apply
    from xttsbench.fixes.graph.edit import from_graph
    from xttsbench.pipeline.read import read_graph

    found = from_graph(without_options(read_graph(dataset)), dataset.element_spec, source=dataset)
    for fix in AUTOTUNE_FIXES:
        try:
            found = apply(found, fix)
        except InvalidInputError:
            continue  # there is nothing of this kind in it, or it is so already
    return found


def without_options(graph: Any) -> Any:
    """A dataset's graph in which no option is set."""
    edited = type(graph).FromString(graph.SerializeToString())
    for node in edited.node:
        if node.op == "OptionsDataset":
            node.attr["serialized_options"].s = b""
    return edited
