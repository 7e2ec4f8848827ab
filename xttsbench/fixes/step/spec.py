"""Fixes of the training step: ``step:graph``, ``step:xla``, ``step:traced-once`` and ``step:buckets``."""

from __future__ import annotations

from typing import Final

from xttsbench.fixes.spec import Spec

_FIXED: Final = "xttsbench.fixes.step.rewrite:fixed_step"

STEP_GRAPH: Final = Spec(
    name="step:graph",
    words="the step as one graph",
    does="the training step as one graph (`tf.function`)",
    mends=("eager-step", "retracing", "xla-recompilation"),
    rewrite=_FIXED,
    patch="xttsbench.fixes.step.patch:graph_step",
)
STEP_XLA: Final = Spec(
    name="step:xla",
    words="the step through XLA",
    does="the training step compiled by XLA",
    mends=("eager-step", "xla-untried"),
    rewrite=_FIXED,
    patch="xttsbench.fixes.step.patch:xla_step",
)
STEP_TRACED_ONCE: Final = Spec(
    name="step:traced-once",
    words="the step traced once",
    does="Python numbers that a script gives its step become tensors, and shapes that vary are left open "
    "(`reduce_retracing`), so that the step is not traced for each",
    mends=("retracing",),
    patch="xttsbench.fixes.step.traced_once:traced_once",
)
STEP_BUCKETS: Final = Spec(
    name="step:buckets",
    words="batches padded to a few lengths",
    does="batches are padded to a few lengths, so that a step is not traced or compiled for each",
    mends=("retracing", "xla-recompilation", "dynamic-shape"),
    rewrite=_FIXED,
    by_hand="which lengths to pad to is a choice about the data: pad to a few fixed lengths before the step",
)
