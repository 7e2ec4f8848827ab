"""Whether a changed step trains as the original does: losses of the first steps, and the variables after them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from xttsbench.records.elements import Elements
from xttsbench.records.fix import Semantics

TOLERANCE: Final = 1e-3
"""Relative difference of two losses, or of two sketches of a variable, that counts as none: the order in which a
compiler sums is its own."""
_NOISE: Final = 3.0
"""A step that differs from itself is compared at this many times that difference."""


def same_training(original: Elements, again: Elements, changed: Elements) -> Semantics:
    """Compare what three runs trained: the original, the original anew, and the changed one, on the same batches.

    Args:
        original: losses of the first steps, and a sketch of every variable after them.
        again: the same in another process; what these two differ by is nobody's change.
        changed: with the other step.

    Returns:
        ``unknown`` where there is neither a loss nor a variable, or the original differs from itself by more than
        ten times the tolerance.
    """
    steps = len(original.losses)
    if not original.losses and not original.state:
        return _said(None, "the step returns no loss and the target made no variable: nothing to compare", 0)
    if len(changed.losses) != steps or _shape(changed) != _shape(original):
        return _said(False, "the changed step returns other losses, or made other variables", steps)
    noise = _apart(original, again)
    if noise > 10 * TOLERANCE:
        return _said(None, f"the step as given differs from itself by {noise:.2g}, so nothing can be compared", steps)
    allowed = max(TOLERANCE, _NOISE * noise)
    found = _apart(original, changed)
    what = f"losses of {steps} steps and {len(original.state)} variables after them"
    if found > allowed:
        return _said(False, f"{what} are up to {found:.2g} apart relative to them, and {allowed:.2g} is allowed", steps)
    return _said(True, f"{what} are the same within {max(found, 1e-9):.1g}", steps, exact=found == 0.0)


def _said(equivalent: bool | None, sentence: str, steps: int, *, exact: bool = False) -> Semantics:
    if equivalent is None:
        return Semantics(equivalent=None, how="unknown", sentence=sentence, elements=steps)
    if not equivalent:
        return Semantics(equivalent=False, how="different", sentence=sentence, elements=steps)
    return Semantics(equivalent=True, how="identical" if exact else "rounding", sentence=sentence, elements=steps)


def _shape(elements: Elements) -> list[int]:
    return [len(sketch) for sketch in elements.state]


def _apart(ours: Elements, theirs: Elements) -> float:
    """Largest relative difference of losses and sketches; infinity where one side alone is no number or missing."""
    pairs = [(ours.losses, theirs.losses), *zip(ours.state, theirs.state, strict=False)]
    return max((_relative(a, b) for a, b in pairs), default=0.0)


def _relative(ours: Sequence[float], theirs: Sequence[float]) -> float:
    if len(ours) != len(theirs):
        return float("inf")
    first, second = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    if same.all():
        return 0.0
    if not (np.isfinite(first) & np.isfinite(second))[~same].all():
        return float("inf")
    # A variable's sketch is one vector: small parts of it are sums that cancel, so they are measured by the largest.
    scale = max(float(np.abs(first).max()), float(np.abs(second).max()))
    return float(np.abs(first - second)[~same].max()) / scale
