"""What an evaluation finds, as numbers; ``None`` where something cannot be measured, with the reason beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from xttsbench.records.base import SCHEMA_VERSION, Record

RECOGNISED: Final = (
    "phone_error_rate",
    "phone_error_rate_sound",
    "phone_error_rate_truth",
    "speaker_kept",
    "speaker_swapped",
)
"""Fields of :class:`Heard` that take a recogniser."""


class Heard(Record):
    """What was heard of some clips whose texts the model spoke by itself."""

    clips: int
    phone_error_rate: float | None = None
    """Of the speech itself: 0 is every letter in its place."""
    phone_error_rate_sound: float | None = None
    """The same after Griffin-Lim made sound of it and the features were computed from that."""
    phone_error_rate_truth: float | None = None
    """Of the recorded clips: what the recogniser itself gets wrong."""
    length_ratio: float
    """Frames spoken over the recorded clip's, mean."""
    never_stopped: float
    """Share that was cut off for want of an end."""
    wrong_over_right: float | None = None
    """Mel loss with another clip's text over that with its own: 1 is a model that does not read."""
    speaker_kept: float | None = None
    """Share that is recognised as the speaker of its reference."""
    speaker_swapped: float | None = None
    """The same where the reference is of another speaker than the recorded clip's."""
    diagonality: float | None = None
    """Share of a guided head's attention that is near the diagonal."""


class Evaluation(Record):
    """``evaluation.json``."""

    schema_version: int = SCHEMA_VERSION
    step: int
    held_out: Heard | None
    """``None`` where the data set holds no clip out."""
    training: Heard
    not_measured: Mapping[str, str] = {}
    """Why a field of the others is ``None``."""

    def metrics(self) -> dict[str, float | None]:
        """Return all numbers by name, ``held_out/...`` and ``training/...``."""
        groups = {"held_out": self.held_out, "training": self.training}
        return {
            f"{group}/{name}": value
            for group, heard in groups.items()
            if heard is not None
            for name, value in heard.model_dump().items()
            if name != "clips"
        }
