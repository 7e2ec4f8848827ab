"""Fixes of the training step: one graph, XLA on or off, several steps a call, one trace.

What makes a tf.function be traced again and again is read from its traces, as far as a rewrite of the source can end
it. A Python number among its arguments is traced for each of its values; given as a tensor it is traced once. A shape
that TensorFlow has not seen is traced too, unless the function is told that shapes vary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from xttsbench.fixes.spec import Spec
from xttsbench.records.trial import Trace

_FEWEST: Final = 3  # values of an argument from which it varies; two are an epoch's first and the others, or on and off
_ARGUMENT: Final = re.compile(r"(\w+): Literal\[([^\]]*)\]")
_SHAPE: Final = re.compile(r"shape=(\([^)]*\)|<unknown>|None)")
_WHOLE: Final = re.compile(r"-?\d+")
_NUMBER: Final = re.compile(r"-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?")


@dataclass(frozen=True)
class Retraced:
    """Why one function is traced again."""

    numbers: Mapping[str, bool] = field(default_factory=dict)
    """The arguments that are given a Python number which varies: name -> whether it is always a whole one."""
    shapes: bool = False  # whether the shapes of its tensors vary
    why_not: str | None = None  # what else varies, which nothing here ends; `None` where there is nothing


def retraced(traces: Iterable[Trace], name: str) -> Retraced | None:
    """Arguments and shapes that vary among a function's traces; ``None`` where neither caused a new trace."""
    own = [trace.signature for trace in traces if trace.function == name]
    values: dict[str, set[str]] = {}
    for signature in own:
        for argument, value in _ARGUMENT.findall(signature):
            values.setdefault(argument, set()).add(value)
    varied = {argument: seen for argument, seen in values.items() if len(seen) >= _FEWEST}
    shapes = len({tuple(_SHAPE.findall(signature)) for signature in own}) >= _FEWEST
    if not varied and not shapes:
        return None
    text = [argument for argument, seen in varied.items() if not all(_NUMBER.fullmatch(value) for value in seen)]
    return Retraced(
        {argument: all(_WHOLE.fullmatch(one) for one in seen) for argument, seen in varied.items()},
        shapes,
        f"{', '.join(text)} is another Python value each time, and no number" if text else None,
    )


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
    mends=("xla-untried", "eager-step"),
    rewrite=_FIXED,
    patch="xttsbench.fixes.step.patch:xla_step",
)
STEP_NO_XLA: Final = Spec(
    name="step:no-xla",
    words="the step without XLA",
    does="the training step without XLA: `jit_compile=False`, in `model.compile` or the step's tf.functions",
    mends=("xla-recompilation", "xla-slower"),
    rewrite=_FIXED,
    patch="xttsbench.fixes.step.patch:no_xla_step",
)
STEP_SEVERAL: Final = Spec(
    name="step:several",
    form="name:n",
    words="several steps in one call",
    does="`model.compile(steps_per_execution=n)`: `fit` makes one call for n steps, and callbacks of batches come "
    "once a call, so that a callback of your own for batches is a reason against it",
    unit="steps",
    mends=("launch-bound",),
    patch="xttsbench.fixes.step.patch:several_steps",
)
STEP_TRACED_ONCE: Final = Spec(
    name="step:traced-once",
    words="the step traced once",
    does="Python numbers that a script gives its step become tensors, and shapes that vary are left open "
    "(`reduce_retracing`), so that the step is not traced for each",
    mends=("retracing",),
    patch="xttsbench.fixes.step.patch:traced_once",
)
