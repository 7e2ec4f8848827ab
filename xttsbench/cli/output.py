"""Output of the command line: results on standard output, everything else on standard error.

Progress is a line that is rewritten on a terminal, and elsewhere a plain line now and then.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Self, TextIO

import typer

from xttsbench.cli.options import detail

if TYPE_CHECKING:
    from pydantic import BaseModel

    from xttsbench.reporting.document import Document
    from xttsbench.workflows.runs import Outcome

_BETWEEN_LINES_S: Final = 10.0
_LAST_LINES: Final = 25
_PHASES: Final = {
    "as_is": "as it is",
    "input_only": "input alone",
    "step_only": "step alone",
    "warm_up": "warming up",
    "fork": "starting",
}
"""Words for the phases of a trial."""


def printable(text: str) -> str:
    """``text`` on one line, with the control characters of whatever is quoted in it made visible."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def say(text: str) -> None:
    """One printable line on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def page(stream: TextIO | None = None) -> tuple[int, bool]:
    """Columns of what is printed for people, and whether it may be coloured, on that stream (standard output)."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    return width, (stream or sys.stdout).isatty() and not os.environ.get("NO_COLOR")


def rendered(document: Document, detail: int, stream: TextIO | None = None) -> str:
    """Text of a document for people on a stream, see :func:`xttsbench.cli.options.detail`."""
    from xttsbench.reporting.console import render
    from xttsbench.reporting.document import View

    if detail < 0:
        return f"{document.line}\n"
    width, color = page(stream)
    views = (View.SUMMARY, View.DETAILED, View.FULL)
    return render(document, width=width, color=color, view=views[detail])


def put(record: BaseModel, document: Document, *, as_json: bool, detail: int) -> None:
    """Print a record on standard output: as JSON, or what its document says to people."""
    sys.stdout.write(record.model_dump_json(indent=2) + "\n" if as_json else rendered(document, detail))
    sys.stdout.flush()


def show(outcome: Outcome, *, as_json: bool, detail: int = 0) -> bool:
    """Print the report: the record under ``--json``, else the answer, and as much of the rest as is asked for.

    Returns:
        Whether people see it: where nothing was measured, one sentence says it all.
    """
    report, seen = outcome.report, False
    if as_json:
        sys.stdout.write(report.model_dump_json(indent=2) + "\n")
    elif report.verdict.step_time_s is not None or report.arms or report.parity or report.proof or report.scale:
        from xttsbench.reporting.sections.report import report_document

        place, here = outcome.directory, Path.cwd()  # the shorter way there, so that commands fit on a line
        place = place.relative_to(here) if place.is_relative_to(here) else place
        sys.stdout.write(rendered(report_document(report, str(place)), detail))
        seen = detail >= 0
    sys.stdout.flush()
    for warning in outcome.warnings:
        say(f"Warning: {warning}")
    if not seen and detail >= 0:
        say(f"Report: {outcome.directory}/report.html (and report.json, report.md, plots/)")
    return seen


def end(outcome: Outcome, context: typer.Context) -> NoReturn:
    """Print what came of a command, its page and the target's traceback where its options ask for them, and leave.

    The exit code is 3 for what stayed undecided only where ``--strict``, ``--fail-on`` or ``--margin`` asks for it.
    """
    from xttsbench.workflows.runs import DONE, INCONCLUSIVE, INVALID, NOTHING

    asked = context.params
    strict = asked.get("strict") or any(asked.get(gate) is not None for gate in ("fail_on", "margin"))
    code = DONE if outcome.exit_code == INCONCLUSIVE and not strict else outcome.exit_code
    seen = show(outcome, as_json=asked["as_json"], detail=detail(context))
    if code in (NOTHING, INVALID) and (file := outcome.report.target.get("output")):
        _show_end(outcome.directory / file)
    # On a terminal the screen has said what was done; whoever reads standard error alone has not seen it.
    if outcome.message and not (code == DONE and seen and sys.stdout.isatty()):
        say(outcome.message)
    if asked["browse"]:
        open_page(outcome.directory / "report.html")
    if asked["debug"] and (error := outcome.report.target.get("error")):
        from xttsbench.reporting.words import plain_lines

        sys.stderr.write("\n".join((*plain_lines(error.get("traceback", "")), "")))
    raise typer.Exit(code)


def _show_end(log: Path) -> None:
    """Show the end of what a target printed that could not be measured: its own traceback is there."""
    from xttsbench.reporting.words import plain_lines

    last = plain_lines(log.read_text(encoding="utf-8", errors="replace"))[-_LAST_LINES:]
    sys.stderr.write("\n".join(("", *last, "")))
    say(f"What the target printed: {log}")


def open_page(page: Path) -> None:
    """Open a report's page in a browser; where none can be opened, say so."""
    import webbrowser

    if not page.is_file():
        say(f"Warning: --open: {page} was not written.")
    elif not webbrowser.open(page.resolve().as_uri()):
        say(f"Warning: --open: no browser can be opened here; the page is {page} (BROWSER names a browser).")


class Lines:
    """Progress as plain lines, or as one line that is rewritten on a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._what = ""
        self._began, self._budget_s = time.monotonic(), 0.0
        self._shown = 0.0

    def trial(self, name: str, spent_s: float, budget_s: float) -> None:
        """Announce a trial: what is done, and why."""
        self._what = name
        self._began, self._budget_s = time.monotonic() - spent_s, budget_s
        self._write(name, final=not self._terminal)

    def step(self, phase: str, steps: int) -> None:
        """Show the phase and the steps, at most five times a second and on a terminal only."""
        now = time.monotonic()
        if self._terminal and now - self._shown > 0.2:
            self._shown = now
            self._write(f"{self._what}: {_PHASES.get(phase, phase.replace('_', ' '))}, step {steps}", final=False)

    def done(self, name: str, status: str, seconds: float) -> None:
        """Close the line of a trial that did not end well; the others are replaced by the next."""
        if status != "ok":
            self._write(f"{name}: ended as {status.replace('_', ' ')} after {seconds:.1f} s", final=True)
        elif self._terminal:
            self._write("", final=False)

    def status(self, sentence: str) -> None:
        """A line that stays: the verdict so far, or how a comparison stands."""
        self._write(sentence, final=True)

    def _write(self, text: str, *, final: bool) -> None:
        """With the time that it has taken and what is left at most; one line on a terminal, whatever its width."""
        if self._quiet:
            return
        spent_s = time.monotonic() - self._began
        left = f", at most {max(self._budget_s - spent_s, 0.0):.0f} s left" if self._budget_s else ""
        line = f"[{spent_s:.0f} s{left}] {printable(text)}" if text else ""
        write_line(line, terminal=self._terminal, final=final)


def write_line(line: str, *, terminal: bool, final: bool) -> None:
    """A line of progress on standard error; one that is not ``final`` is rewritten on a terminal, of any width."""
    if terminal and not final:
        line = line[: shutil.get_terminal_size((100, 24)).columns - 1]
    start = "\r\x1b[2K" if terminal else ""
    sys.stderr.write(start + line + ("\n" if final else ""))
    sys.stderr.flush()


class Watched:
    """Draws what :class:`xttsbench.xtts.data.pool.Progress` says, within a ``with`` block."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._what = ""
        self._printed_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal and self._what:
            write_line("", terminal=True, final=False)

    def update(self, what: str, done: int, total: int) -> None:
        """A line at the first, the last, and each ten seconds; on a terminal it is rewritten, five times a second."""
        now = time.monotonic()
        if what != self._what or done == total or now - self._printed_s > (0.2 if self._terminal else _BETWEEN_LINES_S):
            self._what, self._printed_s = what, now
            line = f"{what}: {done}" + (f" of {total}" if total else "")
            write_line(line, terminal=self._terminal, final=not self._terminal)
