"""Progress of long work on data: a bar on a terminal, a plain line now and then elsewhere; on standard error."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_BETWEEN_LINES_S: Final = 10.0


class Watched:
    """Draws what :class:`xttsbench.xtts.data.progress.Progress` says, within a ``with`` block."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._bar: RichProgress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._what = ""
        self._printed_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, what: str, done: int, total: int) -> None:
        """Draw it: on a terminal always, elsewhere the first, the last, and one each ten seconds."""
        if self._terminal:
            self._draw(what, done, total)
            return
        now = time.monotonic()
        if what != self._what or done == total or now - self._printed_s > _BETWEEN_LINES_S:
            self._what, self._printed_s = what, now
            print(f"{what}: {done}" + (f" of {total}" if total else ""), file=sys.stderr, flush=True)

    def _draw(self, what: str, done: int, total: int) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            # Rich itself leaves out colours where NO_COLOR is set.
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total or None)
        self._bar.update(self._tasks[what], completed=done, total=total or None)
