"""Conditions of the step besides its modes, by the names that segments, notes and arms carry."""

from __future__ import annotations

from typing import Final

from xttsbench.records.trial import TrialKind

PRECISIONS: Final = ("mixed_bfloat16", "mixed_float16", "tf32", "no-tf32")
"""``tf32`` is TensorFloat-32 switched on where it was off, ``no-tf32`` off where it was on, as it is by default."""
HALF_BATCH: Final = "half-batch"
NOT_APPLICABLE: Final = "not applicable"

KIND_OF: Final[dict[str, TrialKind]] = {
    "eager": "eager",
    "graph": "graph",
    "xla": "xla",
    **dict.fromkeys(PRECISIONS, "precision"),
    HALF_BATCH: "batch",
}
"""Name of a condition -> the rung that measures it."""


def not_applicable(name: str, reason: str) -> str:
    """The note of a trial that a condition cannot be measured on this step."""
    return f"{name}: {NOT_APPLICABLE}: {reason}"


def reason_of(name: str, notes: tuple[str, ...]) -> str | None:
    """Why the condition could not be measured, from a trial's notes; ``None`` where none says so."""
    begins = not_applicable(name, "")
    return next((note.removeprefix(begins) for note in notes if note.startswith(begins)), None)
