"""The rung ``batch``: the step on half of each cached batch beside the whole, to see whether its time follows the size.

A step that takes as long for half the work launches kernels, or ops, that are too small to fill the device.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.records.conditions import HALF_BATCH, not_applicable
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench, Step, StepRaisedError
from xttsbench.worker.beside import run_beside
from xttsbench.worker.ladder import first_batches
from xttsbench.worker.mode import of_one_shape

_WHERE: Final = ("Graph execution error", "Detected at", "<stack", "File ", "{{", "[[")


def run_half_batch(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Measure ``step_only`` on whole batches and ``half-batch`` on halves of the same; a refusal is noted."""
    if step is None:
        raise TargetError(f"Target {spec.target!r} has no step, so its time cannot be compared by batch size.")
    batches = of_one_shape(first_batches(loaded))
    halves = [halved(batch) for batch in batches]
    if any(half is None for half in halves):
        bench.channel.note(not_applicable(HALF_BATCH, "the batches have no first dimension of two or more"))
        return
    try:
        step(halves[0])
    except Exception as error:  # whatever the user's step raises, it says that it wants whole batches
        bench.channel.note(not_applicable(HALF_BATCH, f"the step refuses half a batch: {_said(error)}"))
        return
    try:
        run_beside(spec, bench, (step, batches), (step, halves), HALF_BATCH)
    except StepRaisedError as error:
        bench.channel.note(not_applicable(HALF_BATCH, f"the target raised in {error}"))


def halved(batch: Any) -> Any:
    """The first half of a batch: every tensor that has the first dimension of most, cut to half of it.

    Scalars, and tensors of another first dimension, stay as they are. ``None`` where there is nothing to cut.
    """
    sizes = Counter(size for leaf in tf.nest.flatten(batch) if (size := _rows(leaf)) is not None)
    if not sizes:
        return None
    size = sizes.most_common(1)[0][0]
    if size < 2:
        return None
    return tf.nest.map_structure(lambda leaf: leaf[: size // 2] if _rows(leaf) == size else leaf, batch)


def _said(error: Exception) -> str:
    """The line of an error that says what happened; TensorFlow puts where it happened before it."""
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(_WHERE)]
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__


def _rows(leaf: Any) -> int | None:
    if isinstance(leaf, tf.RaggedTensor):
        return int(leaf.nrows())
    shape = getattr(leaf, "shape", None)
    if isinstance(leaf, tf.sparse.SparseTensor) or shape is None or not len(shape):
        return None
    return int(shape[0])
