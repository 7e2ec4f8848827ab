"""Text for a terminal from rich's blocks. Nothing but :class:`rich.text.Text` may reach it, never markup strings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import StringIO
from typing import Final

from rich.console import Console, RenderableType

MINIMUM_WIDTH: Final = 40
"""A narrower terminal gets lines of this width, which it wraps itself."""


def rendered(blocks: Callable[[int], Iterable[RenderableType]], *, width: int, color: bool) -> str:
    """The blocks one below the other, ending in a newline; escapes only with ``color``.

    Args:
        blocks: makes them for a number of columns.
        width: columns of the terminal.
        color: whether it shows colours.
    """
    target = StringIO()
    console = Console(
        file=target,
        width=max(width, MINIMUM_WIDTH),
        force_terminal=color,
        color_system="truecolor" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for block in blocks(console.width):
        console.print(block)
    return "".join(f"{line.rstrip()}\n" for line in target.getvalue().splitlines())
