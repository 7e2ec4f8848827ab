"""The planted pairs: an old version, a new one, and what ``xttsbench prove`` has to say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sources import SCRIPTS


@dataclass(frozen=True)
class Pair:
    """One pair.

    Attributes:
        name: of the pair, ``EDIT of KIND``.
        kind: of the pipeline.
        old, new: constants of either version.
        outcome: that is right.
        place: batch and row of the first difference, counted from 1, where it has to be shown.
        new_kind: where the new version is of another kind.
    """

    name: str
    kind: str
    old: Mapping[str, Any]
    new: Mapping[str, Any]
    outcome: str
    place: tuple[int, int] | None = None
    revision: bool = False
    options: tuple[str, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        """Exit code that is right."""
        return 0 if self.outcome == "same" else 1


_SHUFFLED: Final = {"SHUFFLED": True}
_PLACE: Final = (1507 // 32 + 1, 1507 % 32 + 1)
_NOISE: Final = {"NOISE": 0.1}


def _pairs() -> list[Pair]:
    found = []
    for kind in ("arrays", "map", "numpy_function", "generator", "script", "sequence"):
        found += [
            Pair(f"same of {kind}", kind, {}, {"FAST": True}, "same", revision=kind == "map"),
            Pair(f"order of {kind}", kind, {}, {"REVERSED": True}, "reordered"),
            Pair(f"batch of {kind}", kind, {}, {"BATCH": 24 if kind == "map" else 64}, "differs"),
            Pair(
                f"value of {kind}",
                kind,
                {},
                {"CHANGED": True},
                "differs",
                _PLACE,
                revision=kind in ("arrays", "script"),
            ),
            Pair(f"remainder of {kind}", kind, {}, {"DROP": True}, "differs"),
        ]
        other = {"NOISE": 0.2} if kind in SCRIPTS or kind == "arrays" else _NOISE | {"FROZEN": True}
        found.append(Pair(f"augmentation of {kind}", kind, _NOISE, other, "differs"))
    return [
        *found,
        Pair("same of shuffled arrays", "arrays", _SHUFFLED, _SHUFFLED, "same"),
        Pair("same of shuffled batches at once", "batches at once", _SHUFFLED, _SHUFFLED | {"FAST": True}, "same"),
        Pair("same of augmented map", "map", _NOISE, _NOISE | {"FAST": True}, "same"),
        Pair("value of shuffled map", "map", _SHUFFLED, _SHUFFLED | {"CHANGED": True}, "differs"),
        Pair("remainder of shuffled arrays", "arrays", _SHUFFLED, _SHUFFLED | {"DROP": True}, "differs"),
        Pair("batch of shuffled numpy_function", "numpy_function", _SHUFFLED, _SHUFFLED | {"BATCH": 64}, "differs"),
        Pair("other batches of batches at once", "batches at once", {}, {"PAIRED": True}, "reordered"),
        Pair("order allowed of generator", "generator", {}, {"REVERSED": True}, "same", options=("--any-order",)),
    ]


PAIRS: Final = tuple(_pairs())
