"""A saved plan applied to a dataset of the calling process: refused where the pipeline is not the one it was found for.

A fix that was verified is verified of one graph. Of another one nobody has seen that the data stay the same, so a plan
is no configuration that is tried anyway: the reader is told what differs, and the dataset stays as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Final

import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph import apply
from xttsbench.fixes.graph.hazards import hazards
from xttsbench.pipeline.identity import identity
from xttsbench.pipeline.read import inspect, read_graph
from xttsbench.probes.environment import environment
from xttsbench.records.fix import FixSet, Optimized
from xttsbench.records.pipeline import Pipeline, PipelineOp


class PlanError(InvalidInputError):
    """A saved plan is of another pipeline."""


class PlanWarning(UserWarning):
    """A plan is applied where something is other than it was when its fixes were verified."""


def apply_plan(dataset: Any, plan: Optimized, *, before: Pipeline | None = None) -> Any:
    """The dataset with the plan's fixes; the same object where the plan has none for it.

    What does not forbid it, but may cost the gain, is told as :class:`PlanWarning`: other data, another machine or
    version, fixes that were not proven, and those of the step, which are left out.

    Args:
        dataset: as the target makes it, without the fixes.
        plan: as it was read.
        before: the pipeline as it was when the plan was made, so that what differs can be named.

    Raises:
        PlanError: the pipeline is not the plan's, or a fix would change its data as it is now.
        InvalidInputError: a fix does not apply.
    """
    given = FixSet.of(plan.fixes)
    fixes = given.of_dataset
    if given.of_step:
        _warn(f"not applied, since it is of the training step and not of the dataset: {', '.join(given.of_step.names)}")
    if not fixes:
        return dataset
    graph = _graph(dataset)
    _check_identity(dataset, graph, plan, before)
    if graph is not None:
        _check_code(dataset, graph, plan, fixes)
    for text in _doubts(plan):
        _warn(text)
    return apply(dataset, fixes)


def _graph(dataset: Any) -> Any:
    """The graph; ``None`` where it cannot be read."""
    try:
        return read_graph(dataset)
    except tf.errors.OpError:
        return None


def _check_identity(dataset: Any, graph: Any, plan: Optimized, before: Pipeline | None) -> None:
    here = None if graph is None else identity(dataset, graph)
    if plan.identity is None:
        if here is not None:
            raise PlanError(
                f"The plan of {plan.target} does not say which pipeline it was found for, so nobody knows whether it "
                "fits this one. Optimize again."
            )
        _warn("the graph of this dataset cannot be read, so it was not compared with the one that the plan is of")
        return
    if here is None:
        raise PlanError(
            f"The graph of this dataset cannot be read, so it cannot be the pipeline that the plan of {plan.target} "
            "was found for. Give the dataset as the target makes it, or optimize again."
        )
    if here.graph != plan.identity.graph:
        found = changed_ops(before, inspect(dataset))
        raise PlanError(
            f"This pipeline is not the one that the plan of {plan.target} was found for "
            f"(graph {here.graph}, the plan's is {plan.identity.graph}): {found}. "
            "Give the dataset as the target makes it, without the plan's fixes, or optimize again."
        )
    if here.data != plan.identity.data:
        _warn("the pipeline is the plan's, its data are others: what the fixes gain here was not measured")


def _check_code(dataset: Any, graph: Any, plan: Optimized, fixes: FixSet) -> None:
    """Read the code of the Python functions again, as their settings are now: a switch is no part of the graph."""
    if found := hazards(dataset, graph, fixes, assumed=plan.assume_pure):
        raise PlanError(
            f"The plan of {plan.target} would change the data of this pipeline as it is now: {found[0]}. "
            "Optimize again."
        )


def _doubts(plan: Optimized) -> Iterator[str]:
    """Other differences from the state in which the fixes were verified, a sentence each."""
    if not plan.proven:
        yield f"the fixes are not proven: {plan.data.rstrip('. ') or 'the plan does not say why'}"
    here = str(environment()["fingerprint"]) if plan.fingerprint else ""
    if here != plan.fingerprint:
        yield (
            f"the machine or the versions are others (fingerprint {here}, the plan's is {plan.fingerprint}): "
            "the data stay the same, what the fixes gain may differ"
        )


def _warn(text: str) -> None:
    warnings.warn(f"xttsbench: {text}.", PlanWarning, stacklevel=3)


_FIELDS: Final = {
    "batch_size": "batch size",
    "parallelism": "parallel calls",
    "buffer_size": "buffer size",
    "cycle_length": "cycle length",
    "deterministic": "deterministic",
    "filename": "file",
    "captures": "captured state",
}
"""Fields that are written in an op, and not chosen or measured while it ran, with their words."""


def changed_ops(before: Pipeline | None, here: Pipeline) -> str:
    """Phrase for the first difference from the ops of the plan's run, which may not be known (``None``)."""
    if before is None or not before.ops:
        kinds = ", ".join(_kind(op) for op in here.ops) or "none that could be read"
        return f"the plan's run is not at hand to say where they differ, and the ops here are {kinds}"
    there_ops, here_ops = [_kind(op) for op in before.ops], [_kind(op) for op in here.ops]
    if there_ops != here_ops:
        return f"its ops were {', '.join(there_ops)}, and are {', '.join(here_ops)}"
    for there, now in zip(before.ops, here.ops, strict=True):
        for name, word in _FIELDS.items():
            was, is_now = getattr(there, name), getattr(now, name)
            if was != is_now:
                return f"{word} of {_place(now)} was {_said(was)} and is {_said(is_now)}"
    return "the ops are the same, so a function, a constant or an option is another"


def _said(value: Any) -> str:
    if value is None or value == ():
        return "none"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _kind(op: PipelineOp) -> str:
    """``Map`` of ``MapDataset`` and of ``MapDatasetV2``: the versions of an op say nothing to a reader."""
    return op.op.partition("Dataset")[0] or op.op


def _place(op: PipelineOp) -> str:
    where = f" ({op.location.file}:{op.location.line})" if op.location.file and op.location.line else ""
    return f"{_kind(op)}{where}"
