"""Whether a dataset of the calling process changes from pass to pass by itself, so that a third pass tells nothing."""

from __future__ import annotations

from typing import Final

from xttsbench.records.elements import Elements

_SAID: Final = (
    "it changes between two passes of its own although nothing in its graph is random, so it keeps something from pass "
    "to pass, and what a fix changes cannot be told from that"
)


def changes_by_itself(first: Elements, second: Elements) -> str | None:
    """How two runs of the original differ that should not; ``None`` where they do not, or may.

    They may where the graph shuffles, draws random numbers, or promises no order: what that does to the elements is
    known, and the comparison considers it. Two passes are compared as far as both were seen.
    """
    if first.random_ops or not first.ordered:
        return None
    if first.spec != second.spec:
        return _SAID
    for before, after in zip(first.epochs, second.epochs, strict=False):
        if any(one != other for one, other in zip(before.elements, after.elements, strict=False)):
            return _SAID
        longer = len(after.elements) - len(before.elements)
        # A pass that ended must not go on in the other run; one that was cut off may have gone on.
        if (before.ended and longer > 0) or (after.ended and longer < 0) or (before.ended and after.ended and longer):
            return _SAID
    return None
