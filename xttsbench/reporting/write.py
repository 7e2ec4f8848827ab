"""The files of a run's directory that people read: each written whole or not at all, ``report.json`` first.

A plot or a page that cannot be made costs a warning, never the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from xttsbench.files import atomic_write
from xttsbench.records.report import Report
from xttsbench.records.trial import TrialRecord
from xttsbench.reporting import html, markdown
from xttsbench.reporting.groups import figures
from xttsbench.reporting.page import page_document
from xttsbench.reporting.scene import Scene, stage
from xttsbench.reporting.sections.report import report_document


def write_run(directory: Path, report: Report, trials: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Write ``report.json``, ``plots/*.png`` and ``*.svg``, ``report.md`` and ``report.html``.

    Returns:
        What could not be made, one sentence each; empty where everything was.

    Raises:
        OSError: the directory cannot be written; whatever stood there before is whole.
    """
    directory.mkdir(parents=True, exist_ok=True)
    atomic_write(directory / "report.json", to_json(report).encode())
    scene, warnings = _stage(report, trials)
    images = _write_plots(directory / "plots", report, scene, warnings)
    pages: dict[str, Callable[[], str]] = {
        "report.md": lambda: markdown.render(report_document(report), plots=tuple(images)),
        "report.html": lambda: html.render(page_document(report, scene), images),
    }
    for name, serialize in pages.items():
        try:
            page = serialize().encode()
        except Exception as error:  # whatever is wrong with a page, the record stands
            warnings.append(f"{name} was not written: {type(error).__name__}: {error}")
        else:
            atomic_write(directory / name, page)
    return tuple(warnings)


def to_json(report: Report) -> str:
    """``report.json``: the record in its own order, indented, with a newline at the end."""
    return report.model_dump_json(indent=2) + "\n"


def _stage(report: Report, trials: Sequence[TrialRecord]) -> tuple[Scene | None, list[str]]:
    """What is drawn from; ``None`` and the reason where the steps cannot be read."""
    try:
        return stage(report, trials), []
    except Exception as error:
        return None, [f"no plot was drawn: {type(error).__name__}: {error}"]


def _write_plots(folder: Path, report: Report, scene: Scene | None, warnings: list[str]) -> dict[str, bytes]:
    """Draw and write each plot by itself; what went wrong is added to ``warnings``.

    Returns:
        The SVGs of the plots that show something, by name.
    """
    if scene is None:
        return {}
    try:
        from xttsbench.reporting import plots  # not at the top: Matplotlib is large, and the trials are over by now
    except Exception as error:
        warnings.append(f"no plot was drawn: {type(error).__name__}: {error}")
        return {}
    folder.mkdir(exist_ok=True)
    images: dict[str, bytes] = {}
    for name in figures(report):
        try:
            plot = plots.draw_one(name, scene)
        except Exception as error:  # Matplotlib raises what it likes; one plot must not cost the others
            warnings.append(f"plots/{name} was not drawn: {type(error).__name__}: {error}")
            continue
        atomic_write(folder / f"{name}.png", plot.png)
        atomic_write(folder / f"{name}.svg", plot.svg)
        if plot.says:
            images[name] = plot.svg
    return images
