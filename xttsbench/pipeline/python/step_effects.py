"""Python effects of a training step that a graph would leave out: they happen once, as it is traced."""

from __future__ import annotations

import ast
from typing import Any, Final

from xttsbench.pipeline.python.effects import Effects
from xttsbench.pipeline.python.libraries import surely_outside
from xttsbench.pipeline.python.reading import Reader
from xttsbench.pipeline.python.state import called
from xttsbench.pipeline.python.values import Scope, Value

_OF_TENSORFLOW: Final = ("assign", "scatter_", "batch_scatter_", "apply", "update_state", "reset_state", "write")
"""Beginnings of methods through which a graph changes variables, optimizers, metrics and summaries as eager code does.
"""
_DRAWN_BY_TENSORFLOW: Final = "(tf "


def trace_time_effects(step: Any) -> str | None:
    """Python effects of a step that a graph would leave out, as a phrase with file and line; ``None`` for none.

    A log that the step appends to, a count that it keeps, a learning rate that it computes from that count, a file that
    it writes, a wait: the losses of the first steps may be the same all the same, and the time that is saved is the
    wait's. TensorFlow's variables are no part of this, for a graph changes them too; neither is what it prints.
    The step is as the target returned it, neither traced nor wrapped; libraries are taken at their word.
    """
    reader = _StepReader()
    function = called(step)
    if function is None:
        return None
    try:
        reader.function(function)
    except Exception:  # objects of a user's may raise whatever they like when they are looked at
        return None
    found = [effect.text for effect in reader.effects if effect.kind == "state"]
    drawn = [
        effect.text for effect in reader.effects if effect.kind == "random" and _DRAWN_BY_TENSORFLOW not in effect.text
    ]
    return next(iter((*found, *drawn)), None)


class _StepEffects(Effects):
    def called(self, receiver: Value, method: str, node: ast.Call, scope: Scope) -> None:
        if not method.startswith(_OF_TENSORFLOW):
            super().called(receiver, method, node, scope)


class _StepReader(Reader):
    def __init__(self) -> None:
        super().__init__()
        self.effects = _StepEffects()

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        if (text := surely_outside(node, scope)) is not None:
            self.effects.report("state", node, scope, text)
        return super()._call(node, scope)
