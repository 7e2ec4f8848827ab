"""How a pipeline differs from the one that a plan was made for, in words. Pure: records in, a sentence out.

Two hashes say that pipelines differ, and not where. The ops of the run's report say that, as far as they were kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from xttsbench.records.pipeline import Pipeline, PipelineOp

_SAID: Final = 3
"""Differences that are named."""
_FIELDS: Final = {
    "batch_size": "batch size",
    "parallelism": "parallel calls",
    "buffer_size": "buffer size",
    "cycle_length": "cycle length",
    "deterministic": "deterministic",
    "filename": "file",
    "captures": "captured state",
}
"""What is written in an op, and not chosen or measured while it ran."""


def changed_ops(before: Pipeline | None, here: Pipeline) -> str:
    """What differs between the ops of two pipelines.

    Args:
        before: that of the plan's run; ``None`` where it is not known.
        here: that of the dataset at hand.
    """
    if before is None or not before.ops:
        kinds = ", ".join(_kind(op) for op in here.ops) or "none that could be read"
        return f"the plan's run is not at hand to say where they differ, and the ops here are {kinds}"
    there_ops, here_ops = [_kind(op) for op in before.ops], [_kind(op) for op in here.ops]
    if there_ops != here_ops:
        return f"its ops were {', '.join(there_ops)}, and are {', '.join(here_ops)}"
    found = [text for there, now in zip(before.ops, here.ops, strict=True) for text in _fields(there, now)]
    if found:
        rest = f", and {len(found) - _SAID} more" if len(found) > _SAID else ""
        return "; ".join(found[:_SAID]) + rest
    suspects = [_place(op) for op in here.ops if op.function is not None or op.python_functions]
    if suspects:
        return f"the ops are the same, so a function or a constant is another: of {' or '.join(suspects[:_SAID])}"
    return "the ops are the same, so a constant or an option is another"


def _fields(there: PipelineOp, now: PipelineOp) -> Sequence[str]:
    return [
        f"{word} of {_place(now)} was {_said(getattr(there, name))} and is {_said(getattr(now, name))}"
        for name, word in _FIELDS.items()
        if getattr(there, name) != getattr(now, name)
    ]


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
