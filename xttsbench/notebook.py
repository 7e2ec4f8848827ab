"""Cell magic of notebooks: ``%load_ext xttsbench``, then ``%%xttsbench`` above a cell with a loop or ``fit``.

The cell runs once and whole, in the kernel as it is, watched as ``xttsbench watch`` watches a script; the page of that
run is shown below it.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from xttsbench.errors import XttsbenchError
from xttsbench.records.watch import WatchSummary
from xttsbench.workflows.runs import rebuild
from xttsbench.workflows.watch import begin

_UNSEEN: Final = (
    "No training step was seen in this cell: {reason}. A step is a batch that a loop of the cell takes from a "
    "tf.data.Dataset, or one of Keras's fit; put other data in xttsbench.watched(...)."
)


def load_ipython_extension(shell: Any) -> None:
    """Add ``%%xttsbench`` to a shell; called by ``%load_ext xttsbench``."""
    shell.register_magic_function(partial(watch_cell, shell), "cell", "xttsbench")


def watch_cell(shell: Any, line: str, cell: str) -> None:
    """Run a cell and show the page of its steps; ``line`` may name the run's directory.

    Raises:
        BaseException: the cell's own error, as it would without the magic.
    """
    __tracebackhide__ = True
    from IPython.core.error import UsageError

    try:
        session = begin("cell", Path(line.strip()) if line.strip() else None)
    except XttsbenchError as refused:
        raise UsageError(str(refused)) from refused
    error = None
    try:
        with _quiet_errors(shell):
            result = shell.run_cell(cell)
        error = result.error_before_exec or result.error_in_exec
    finally:
        summary = session.finish(show=False, error=error)
        session.close()
    if summary.stretches or error is None:
        _show(summary, session.run.directory)
    if error is not None:
        raise error


@contextmanager
def _quiet_errors(shell: Any) -> Iterator[None]:
    """Within, the shell prints no error: the cell's is raised again, and printed once, where the magic ends."""
    names = ("showtraceback", "showsyntaxerror", "showindentationerror")
    for name in names:
        setattr(shell, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name in names:
            delattr(shell, name)


def _show(summary: WatchSummary, directory: Path) -> None:
    from IPython.display import display

    from xttsbench.api import summary_text

    if not summary.stretches:
        reason = summary.unmeasured.get("steps", "no batch was taken in a way that can be seen")
        print(_UNSEEN.format(reason=reason.rstrip(".")))
        return
    shown = {"text/plain": summary_text(summary, width=100, color=False)}
    try:
        rebuild(directory)
        page = html.escape((directory / "report.html").read_text(encoding="utf-8"))
        shown["text/html"] = f'<iframe srcdoc="{page}" width="100%" height="640" frameborder="0"></iframe>'
    except (XttsbenchError, OSError) as error:
        print(f"The page could not be made: {error}")
    display(shown, raw=True)
