"""A generator's two parts, and what is known of the statements that they are cut from: data, and why there are none."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

EMIT: Final = "_xttsbench_emit"
"""What a body calls with each element."""
SHARE: Final = "_xttsbench_share"
"""What the head calls with what all items of one run of the loop have in common."""


class CannotSplitError(Exception):
    """Why a generator is not cut in two, as a phrase, and the line that speaks against it."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why)
        self.line = line

    def told(self, file: str | None) -> str:
        """The phrase, with the file and line where it names none."""
        where = f"{os.path.basename(file or '')}:{self.line}"
        named = self.line is None or where in str(self) or str(self).startswith("line ")
        return str(self) if named else f"{self} ({where})"


@dataclass(frozen=True)
class Felt:
    """Something that a statement does and that is felt outside of its own item.

    Attributes:
        node: the call, or the statement, that does it.
        text: what, in words, with its place.
        allowed: whether it may be done in the head, in order, earlier than before.
    """

    node: Any
    text: str
    allowed: bool


class Effects(Protocol):
    """What statements do, as far as trees alone do not show it."""

    def __call__(self, statements: Sequence[ast.stmt], items: frozenset[str], shared: frozenset[str]) -> Sequence[Felt]:
        """What is felt outside of their own item; the names are of items, and of what they have in common."""

    def works(self, statement: ast.stmt) -> bool:
        """Whether it runs code of the user's without calling it by name."""


@dataclass(frozen=True)
class Split:
    """A generator in two.

    Attributes:
        head: a generator function with the parameters that there were, which refers to :data:`SHARE` and yields
            ``(shared, items)``.
        body: a function of :data:`EMIT`, the shared values and the items.
        shared: names of values that were made before the loop.
        items: names of values that each item has of its own.
        once: whether the body gives one element for each item.
        line: of the loop.
        kept: lines of the loop's own statements that stay in the head.
        drawn: calls inside other statements that the head makes: line and column of their beginning and end.
    """

    head: Any
    body: Any
    shared: tuple[str, ...]
    items: tuple[str, ...]
    once: bool
    line: int
    kept: tuple[int, ...]
    drawn: tuple[tuple[int, int, int, int], ...]
