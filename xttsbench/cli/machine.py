"""``xttsbench doctor`` and ``xttsbench monitor``: what is wrong with this machine, and what it does, live.

The screen of a monitor is the whole terminal, drawn again and again, with its keys; when left, it is as it was before.
"""

from __future__ import annotations

import gc
import os
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from xttsbench.cli.options import detail, shared, typed
from xttsbench.cli.output import put, rendered
from xttsbench.errors import UsageError
from xttsbench.processes import readable

if TYPE_CHECKING:
    from xttsbench.analysis.stream import Stream


@shared("verbose", "quiet", "as_json", "debug")
def doctor(
    context: typer.Context,
    patience: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long TensorFlow may take to start and compute.")
    ] = 180.0,
) -> None:
    """Say what is wrong with this machine for TensorFlow, and what to do: GPU, XLA, threads, memory, disks.

    Exit code 0: nothing is broken; 1: something is.

    Example:  xttsbench doctor -v
    """
    from xttsbench.reporting.sections.brief import doctor_document
    from xttsbench.workflows.doctor import doctor as examine

    found = examine(patience, typed())
    put(found, doctor_document(found), as_json=context.params["as_json"], detail=detail(context))
    raise typer.Exit(1 if found.of("broken") else 0)


_BETWEEN_LINES_S: Final = 1.0
_STDOUT: Final = "-"


class Lines:
    """Readings as plain lines, one a second at most, and what happened as a line of its own."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._printed_s = -_BETWEEN_LINES_S
        self._events = 0.0, ""

    def show(self, stream: Stream, own_cpu_share: float) -> None:
        """Print what is new."""
        from xttsbench.reporting.screen import line

        for event in stream.events:
            if (found := (event.t_s, event.text)) > self._events:
                self._events = found
                print(f"[{event.t_s:.1f} s] {event.text}", file=self._file, flush=True)
        # A hair less than a second, so that readings of a tenth are printed at each tenth one.
        if stream.t_s - self._printed_s > 0.95 * _BETWEEN_LINES_S:
            self._printed_s = stream.t_s
            print(line(stream), file=self._file, flush=True)

    def wait(self, seconds: float) -> bool:
        """Wait that long."""
        time.sleep(max(seconds, 0.0))
        return False


@shared("as_json", "debug")
def monitor(
    context: typer.Context,
    log: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the readings to a new CSV; - is standard output.")
    ] = None,
    duration: Annotated[float | None, typer.Option(metavar="S", min=0.1, help="End after so many seconds.")] = None,
    interval: Annotated[float, typer.Option(metavar="S", min=0.05, max=3600, help="Seconds between readings.")] = 0.5,
    pid: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Show this process too, with its steps if it is watched, and end with it."
        ),
    ] = None,
) -> None:
    """Show processors, memory, storage and GPUs live: use, stolen time, neighbours, clocks, and what oscillates.

    On a terminal it fills the screen until q is typed; elsewhere it prints readings as lines, one a second at most. At
    the end it sums them up. `xttsbench report FILE.csv` makes a page of a log. Ctrl-C ends it with exit code 130.

    Example:  xttsbench monitor --log gpu.csv --duration 600 --interval 0.1
    """
    # For NumPy, which is loaded below: its threads would spin after each product, on the processors that are watched.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from xttsbench.workflows.monitor import Request
    from xttsbench.workflows.monitor import monitor as run

    as_json = context.params["as_json"]
    if as_json and log == _STDOUT:
        raise UsageError("--json and --log - both write to standard output; give --log a file.")
    request = Request(interval_s=interval, duration_s=duration, pid=pid, log=log, command=typed())
    quiet = as_json or log == _STDOUT
    drawn = not quiet and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    plain = nullcontext(Lines(sys.stderr if quiet else sys.stdout))
    gc.freeze()  # what is there by now stays, and need not be looked through again and again
    with full_screen() if drawn else plain as view:
        found, interrupted = run(request, view)
    if as_json:
        sys.stdout.write(found.model_dump_json(indent=2) + "\n")
    else:
        from xttsbench.reporting.sections.brief import monitored_document

        (sys.stderr if quiet else sys.stdout).write(rendered(monitored_document(found), 0))
    if interrupted:
        raise typer.Exit(130)


_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_DRAWING: Final = (0.0009, 0.25)  # share of a processor for drawing, and seconds from one picture to the next at least


class Screen:
    """Draws what a monitor reads over the whole terminal; made by :func:`full_screen`."""

    def __init__(self, *, keys: bool) -> None:
        from rich.console import Console

        from xttsbench.probes.live import Pace

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
        if not readable([sys.stdin], seconds):
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
