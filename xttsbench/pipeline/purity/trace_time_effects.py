"""What a training step does in Python that one graph of it would do once, while it is traced, and never again.

A log that the step appends to, a count that it keeps, a learning rate that it computes from that count: the losses of
the first steps may be the same all the same. TensorFlow's variables are no part of this, for a graph changes them too.
"""

from __future__ import annotations

from typing import Any, Final

from xttsbench.pipeline.purity.reading import Reader
from xttsbench.pipeline.purity.scope import Scope
from xttsbench.pipeline.purity.state import called, from_bytecode
from xttsbench.pipeline.purity.values import Value

_OF_TENSORFLOW: Final = ("assign", "scatter_", "batch_scatter_", "apply", "update_state", "reset_state", "write")
"""How methods begin through which a graph changes variables, optimizers, metrics and summaries as eager code does."""
_DRAWN_BY_TENSORFLOW: Final = "(tf "


class _Reader(Reader):
    def _method(self, receiver: Value, method: str, node: Any, scope: Scope) -> None:
        if not method.startswith(_OF_TENSORFLOW):
            super()._method(receiver, method, node, scope)


def why_lost_in_graph(step: Any) -> str | None:
    """What a step changes in Python's own objects, or draws from Python's generators, with file and line.

    Args:
        step: as the target returned it, neither traced nor wrapped.

    Returns:
        ``None`` where nothing was found; libraries are taken at their word.
    """
    reader = _Reader(from_bytecode)
    function = called(step)
    if function is None:
        return None
    try:
        reader.function(function)
    except Exception:  # objects of a user's may raise whatever they like when they are looked at
        return None
    found = [told.text for told in reader.told if told.kind == "state"]
    drawn = [told.text for told in reader.told if told.kind == "random" and _DRAWN_BY_TENSORFLOW not in told.text]
    return next(iter((*found, *drawn)), None)
