"""Whether two ``element_spec`` texts describe the same elements: structure and dtypes alike, static shapes compatible.

A rewrite may make a static shape more or less specific (a batch whose size becomes known); that is no change of data.
"""

from __future__ import annotations

import re
from typing import Final

_SHAPE: Final = re.compile(
    r"shape=\((?P<plain>[^()]*)\)|TensorShape\(\[(?P<listed>[^\]]*)\]\)|(?P<unknown>shape=<unknown>|shape=None|TensorShape\(None\))"
)
_NAME: Final = re.compile(r",?\s*name=(?:None|'[^']*'|\"[^\"]*\")")
_SPACE: Final = re.compile(r"\s+")
_HOLE: Final = "<shape>"

Shape = tuple[int | None, ...] | None
"""``None`` where even the rank is unknown; a dimension that may vary is ``None``."""


def spec_difference(original: str, fixed: str) -> str | None:
    """How the elements differ by their specs, in a sentence, or ``None`` where they are compatible."""
    structure, shapes = _taken_apart(original)
    other_structure, other_shapes = _taken_apart(fixed)
    if structure != other_structure:
        return f"the elements are of another kind: {_short(original)} before, {_short(fixed)} after"
    for before, after in zip(shapes, other_shapes, strict=True):
        if not _compatible(before, after):
            return f"the elements have another shape: {before} before, {after} after"
    return None


def _taken_apart(spec: str) -> tuple[str, list[Shape]]:
    """The spec with holes where shapes were, and the shapes; names of tensors mean nothing."""
    shapes: list[Shape] = []

    def hole(found: re.Match[str]) -> str:
        shapes.append(_shape(found))
        return _HOLE

    return _SPACE.sub("", _NAME.sub("", _SHAPE.sub(hole, spec))), shapes


def _shape(found: re.Match[str]) -> Shape:
    if found["unknown"]:
        return None
    text = found["plain"] if found["plain"] is not None else found["listed"]
    words = [word.strip() for word in text.split(",") if word.strip()]
    return tuple(int(word) if word.isdigit() else None for word in words)


def _compatible(before: Shape, after: Shape) -> bool:
    if before is None or after is None:
        return True
    pairs = zip(before, after, strict=False)
    return len(before) == len(after) and all(None in pair or pair[0] == pair[1] for pair in pairs)


def _short(spec: str, most: int = 160) -> str:
    return spec if len(spec) <= most else f"{spec[: most - 3]}..."
