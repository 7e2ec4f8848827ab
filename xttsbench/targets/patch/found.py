"""What looking for one edit of a fix came to."""

from __future__ import annotations

from dataclasses import dataclass

from xttsbench.targets.patch.draft import Change
from xttsbench.targets.patch.module import Module


@dataclass(frozen=True)
class Found:
    """Edits that only make sense together, with the files that they are in; or why there are none."""

    changes: tuple[tuple[Module, Change], ...] = ()
    why_not: str | None = None
    """A sentence that says what to write by hand, and where."""
