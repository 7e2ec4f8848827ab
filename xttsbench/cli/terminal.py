"""A terminal as a whole screen that is drawn again and again, with its keys; as it was before when it is left."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from xttsbench.probes.live.pace import Pace

if TYPE_CHECKING:
    from xttsbench.analysis.stream import Stream

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_DRAWING: Final = (0.0009, 0.25)
"""Share of a processor for drawing, and seconds from one picture to the next at least."""


class Screen:
    """Draws what a monitor reads over the whole terminal; made by :func:`full_screen`."""

    def __init__(self, *, keys: bool) -> None:
        from rich.console import Console

        self._color = None if os.environ.get("NO_COLOR") else Console()._color_system
        self._keys = keys
        self._pace = Pace(*_DRAWING)
        self._shown: list[str] = []
        self._size = os.terminal_size((0, 0))
        self._host = os.uname().nodename

    def show(self, stream: Stream, own_cpu_share: float) -> None:
        """Draw the newest readings, if it is time to: the lines that changed."""
        from xttsbench.reporting.screen import screen, written

        if not self._pace.due():
            return
        with self._pace:
            try:
                size = os.get_terminal_size(sys.stdout.fileno())
            except OSError:
                return
            if size != self._size:
                self._shown, self._size = [], size
                sys.stdout.write("\x1b[2J")
            width, height = max(size.columns, 20), max(size.lines, 3)
            lines = screen(stream, width=width, height=height, host=self._host, own_cpu_share=own_cpu_share)
            texts = [written(line, width, self._color) for line in lines]
            before = self._shown or [""] * len(texts)
            changed = (
                f"\x1b[{row};1H{text}\x1b[K"
                for row, (text, old) in enumerate(zip(texts, before, strict=True), start=1)
                if text != old
            )
            self._shown = texts
            sys.stdout.write("".join(changed))
            sys.stdout.flush()

    def wait(self, seconds: float) -> bool:
        """Wait that long; True where q was typed."""
        if not self._keys:
            time.sleep(max(seconds, 0.0))
            return False
        ready, _, _ = select.select([sys.stdin], [], [], max(seconds, 0.0))
        if not ready:
            return False
        typed = os.read(sys.stdin.fileno(), 64)
        if not typed:  # its other end is gone
            self._keys = False
        return b"q" in typed.lower()


@contextmanager
def full_screen() -> Iterator[Screen]:
    """The terminal of standard output as a screen; it is restored however the block ends."""
    keys = sys.stdin.isatty()
    before = termios.tcgetattr(sys.stdin) if keys else None
    try:
        if keys:
            tty.setcbreak(sys.stdin)
            mode = termios.tcgetattr(sys.stdin)
            mode[6][termios.VSUSP] = b"\0"  # a stopped monitor would leave its screen over the shell's
            termios.tcsetattr(sys.stdin, termios.TCSANOW, mode)
        sys.stdout.write(_ENTER)
        yield Screen(keys=keys)
    finally:
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that what it has open is closed."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
