"""The two shapes in which a report says things: a label with its value, and a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """A label and its value."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table; every row is as long as the header."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
