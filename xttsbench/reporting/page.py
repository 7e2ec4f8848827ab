"""The files of a run's directory that people read, and the page among them, ``report.html``, which fetches nothing.

The page is of the same sections as the other outputs, in an order of its own: what is wrong, what is to be gained,
where the time goes, what to do; what it rests on. A plot is an element of the page: the SVG of its file without what
only a file needs, in the colours of the page's theme, so that the dark theme needs no second picture. Its text is drawn
as paths, so nothing in it comes from outside as markup. Each file is written whole or not at all, ``report.json``
first; a plot or a page that cannot be made costs a warning, never the record.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from xttsbench.files import atomic_write
from xttsbench.records.report import Report
from xttsbench.records.trial import TrialRecord
from xttsbench.reporting import document as doc
from xttsbench.reporting import markdown, sections, units
from xttsbench.reporting.document import NOT_MEASURED, Block, Document, Section, View
from xttsbench.reporting.plot_tables import table_of
from xttsbench.reporting.scene import Scene, stage
from xttsbench.reporting.sections import advice, compare, fixes, pipeline, step, summary
from xttsbench.reporting.sections import report as full
from xttsbench.reporting.sections.answer import after, gain, next_command, unit
from xttsbench.reporting.sections.findings import findings, passed
from xttsbench.reporting.sections.naming import spoken, with_calls, with_level
from xttsbench.reporting.sections.report import report_document
from xttsbench.reporting.time_line import PARTS, TimeLine, time_line
from xttsbench.reporting.words import GRID, INK, PART_COLORS, SEVERITY_COLORS, SOFT, part

_OF_A_PERIOD: Final = ("autocorrelation", "periodogram")  # Plots that say something where there is a period
_DRAWN: Final = ("timeline", sections.TRAINING)
"""Plots of which the page has a drawing of its own, or which stand further above."""


@dataclass(frozen=True, slots=True)
class Tiles(doc.Block):
    """Facts side by side: large figures, or a ``strip`` of small ones."""

    facts: tuple[doc.Fact, ...]
    kind: Literal["figures", "strip"]


def page_document(report: Report, scene: Scene | None = None) -> doc.Document:
    """The report in the order of the page; without a scene the steps are not drawn over time."""
    comparing = sections.compares(report)
    tables = partial(table_of, scene=scene)
    compared = (*compare.comparisons(report, tables, folded=not comparing), *compare.ungrouped(report))
    head = (_headline(report), *_answer(report, comparing=comparing), Tiles(tuple(_machine(report)), "strip"))
    warnings = (doc.Callout(warning) for warning in report.warnings)
    time_goes = f"Where a {unit(report)}'s time goes"
    found, informational = _findings(report, comparing=comparing)
    blocks: tuple[doc.Block, ...] = (
        *head,
        *warnings,
        *(compared if comparing else ()),
        *(full.numbers(report, comparing=True) if comparing else ()),
        *(replace(part, title=time_goes) for part in full.where_time_goes(report, comparing=comparing)),
        *_losses(report),
        doc.Section("The input pipeline", () if comparing else pipeline.as_graph(report)),
        *fixes.as_cards(report),
        *found,
        *(_in_time(report, scene, comparing=comparing) if report.scale is None else ()),
        *step.profiled(report),
        *(() if comparing else compared),
        *informational,
        *_folded("Notes", full.notes(report)),
        *passed(report),
        doc.Section("Methods, distributions and raw data", tuple(_rest(report, scene, comparing=comparing))),
    )
    return spoken(doc.Document(with_level(blocks)), report)


def _headline(report: Report) -> doc.Headline:
    """The verdict in the calls of the user's source, and what is likely all the same where there is none."""
    said = summary.headline(report)
    likely = [doc.Paragraph(text, "strong")] if (text := summary.likely_sentence(report)) else []
    below = [one for one in said.below if not one.text.startswith("Machine: ")]  # that stands in the strip
    sentence = with_calls(summary.without_op(said.sentence, report), report)
    return replace(said, sentence=sentence, below=(*likely, *below))


def _answer(report: Report, *, comparing: bool) -> Iterator[doc.Block]:
    """Blocks for the gain, the cause, the remedy and the next command; a comparison has them in its tables."""
    if not comparing:
        yield from _figures(report)
        if facts := (*advice.advice(report), *summary.training_facts(report)):
            yield doc.Facts(facts, ("what", "which"))
    if command := next_command(report, ""):
        yield doc.Code((command,), "shell", "Next:")


def _machine(report: Report) -> Iterator[doc.Fact]:
    """Machine that was measured, and what others did to it."""
    found = report.environment
    cpu = summary.inner(found, "cpu")
    if cores := cpu.get("allowed_cpus") or found.get("cpus"):
        yield doc.Fact("processors", f"{cores:g} of {cpu['model']}" if cpu.get("model") else f"{cores:g}")
    kind, label = (str(report.accelerator.get(key, "")) for key in ("kind", "label"))
    if (said := label or kind) and (
        kind == "emulated" or not sections.on_cpu(report)
    ):  # never one to be taken for the other
        yield doc.Fact("accelerator", said.replace("emulated", "EMULATED") if kind == "emulated" else said)
    yield doc.Fact("GPU", summary.gpu_names(found) or "none")
    if total := summary.memory_bytes(found):
        yield doc.Fact("memory", units.size(total))
    packages = summary.inner(found, "packages")
    if packages.get("tensorflow"):
        yield doc.Fact("TensorFlow", str(packages["tensorflow"]))
    if python := summary.inner(found, "python").get("version"):
        yield doc.Fact("Python", str(python))
    if report.disturbance:
        yield doc.Fact("other work meanwhile", report.disturbance.sentence)


def _figures(report: Report) -> Iterator[Tiles]:
    """Step time now and after the best fix, the gain, and what it rests on."""
    now, *others = advice.times(report)
    facts, time, best = [now], report.verdict.step_time_s, gain(report)
    if best is not None and best.gain is not None:
        times = units.ratio_interval(best.gain) + (", from the second epoch on" if best.later_epochs else "")
        how = "measured" if best.taken else "estimated only" if best.words else "at best"
        if time is not None and best.measured:
            facts.append(
                doc.Fact(f"{'after the' if best.taken else 'with a'} fix, now / gain", after(time, best.gain, report))
            )
        facts.append(doc.Fact(f"gain, {how}", times))
        if best.words:
            facts.append(doc.Fact("the fix" if best.taken else "the fix to try", best.words))
    else:
        facts += others
    yield Tiles(tuple(facts), "figures")


def _losses(report: Report) -> Iterator[doc.Section]:
    if report.training is not None:
        yield doc.Section(
            "Losses",
            (doc.Figure(sections.TRAINING, sections.target_figures(report)[sections.TRAINING], view=doc.View.FULL),),
        )


def _findings(report: Report, *, comparing: bool) -> tuple[tuple[doc.Section, ...], tuple[doc.Section, ...]]:
    to_act_on: list[doc.Block] = []
    harmless: list[doc.Block] = []
    for block in (one for section in findings(report, comparing=comparing) for one in section.blocks):
        if isinstance(block, doc.Finding):
            known = not block.bottleneck and block.severity == "info"
            (harmless if known else to_act_on).append(block)
        else:
            to_act_on.append(block)
    several = f"{len(harmless)} findings" if len(harmless) > 1 else "One finding"
    return (doc.Section("Findings", tuple(to_act_on)),), (doc.Fold(f"{several} for information", tuple(harmless)),)


def _in_time(report: Report, scene: Scene | None, *, comparing: bool) -> Iterator[doc.Section]:
    first, *others = [*step.in_time(report, only_measured=comparing)] or [doc.Section("", ())]
    if (drawn := time_line(scene)) is not None:
        of = "The baseline's steps over time" if comparing else "Steps over time"
        first = doc.Section(of, (drawn, *first.blocks))
    yield from (first, *others)


def _rest(report: Report, scene: Scene | None, *, comparing: bool) -> Iterator[doc.Block]:
    if not comparing:
        yield from (_folded("Step time and utilization", full.numbers(report, comparing=False)))
    yield from _folded("Isolation experiments", full.experiments(report))
    rhythm = () if report.oscillation.period_steps is not None else _OF_A_PERIOD
    drawn = tuple(
        doc.Figure(name, caption, table=table_of(name, scene), view=doc.View.FULL)
        for name, caption in sections.target_figures(report).items()
        if name not in (*_DRAWN, *rhythm)
    )
    yield doc.Fold("Plots of the baseline" if comparing else "Plots", drawn)
    yield from _folded("Not measured", sections.unmeasured(report))
    if comparing and (ops := pipeline.as_graph(report)):
        yield doc.Fold("The input pipeline", ops)
    yield from full.details(report, comparing=False).blocks  # the pipeline stands above
    yield doc.Fold("How it was made", full.made(report))


def _folded(title: str, parts: Iterator[doc.Section] | tuple[doc.Section, ...]) -> Iterator[doc.Fold]:
    if inside := tuple(block for part in parts for block in part.blocks):
        yield doc.Fold(title, inside)


def render_page(document: Document, plots: Mapping[str, bytes]) -> str:
    """The page, ending in a newline.

    A figure without a plot is left out, and so is one that the page draws.
    """
    drawn = _holds_a_time_line(document.blocks)
    scripts = (_text("templates/page.js"), *((_uplot(), _text("templates/timeline.js")) if drawn else ()))
    return _template().render(
        headline=document.headline,
        blocks=document.shown(View.FULL, figures=plots),
        plots={name: partial(inline, name, image) for name, image in plots.items()},
        scripts=scripts,
        styles=_text("assets/uPlot.min.css") if drawn else "",
        part_names=PARTS,
        script_hashes=Markup(" ".join(f"'sha256-{_digest(script)}'" for script in scripts)),
        not_measured=NOT_MEASURED,
        part_colors=PART_COLORS,
        severity_colors=SEVERITY_COLORS,
    )


@cache
def _template() -> Template:
    """The page's template, compiled once: that takes twenty times as long as filling it in."""
    environment = Environment(
        loader=PackageLoader("xttsbench.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.tests["a"] = lambda block, name: type(block).__name__ == name
    environment.filters["part"] = part
    return environment.get_template("report.html.j2")


def _holds_a_time_line(blocks: Sequence[Block]) -> bool:
    return any(
        isinstance(one, TimeLine) or (isinstance(one, Section) and _holds_a_time_line(one.blocks)) for one in blocks
    )


def _text(name: str) -> Markup:
    """A script or a style sheet of this package: not from outside, so it is not escaped."""
    return Markup(files("xttsbench.reporting").joinpath(name).read_text(encoding="utf-8"))


def _uplot() -> Markup:
    """UPlot with the notice that its licence asks for in each copy."""
    return Markup(f"/*!\n{_text('assets/uPlot-LICENSE')}*/\n{_text('assets/uPlot.iife.min.js')}")


def _digest(script: str) -> str:
    return b64encode(sha256(script.encode()).digest()).decode()


_FILE_ONLY: Final = re.compile(
    r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>|<style\b.*?</style>", re.DOTALL
)
_BETWEEN: Final = re.compile(r"> +<")
_ROOT: Final = re.compile(r"<svg\b([^>]*?)(/?)>")
_VIEW: Final = re.compile(r'viewBox="[-\d. ]+"')
_IDENTIFIER: Final = re.compile(r"""(\bid="|\bxlink:href="#|url\(#)""")
_COLOR: Final = re.compile(r"\b(fill|stroke): (#[0-9a-f]{6})\b")
_THEMED: Final = {
    INK: "var(--ink)",
    "#000000": "var(--ink)",
    SOFT: "var(--soft)",
    GRID: "var(--rule)",
    "#ffffff": "var(--page)",
    "#0072b2": "var(--better)",
    "#d0d4d9": "var(--rule)",
}
"""Colour on white to what it is in both themes; the others are seen on either ground."""


def inline(name: str, svg: bytes, caption: str) -> Markup:
    """The plot as an element of the page.

    The name has lower-case letters, digits and hyphens; the caption is what a screen reader says.
    """
    text = _BETWEEN.sub("><", " ".join(_FILE_ONLY.sub("", svg.decode()).split()))
    text = _IDENTIFIER.sub(lambda found: f"{found[1].removeprefix('xlink:')}{name}-", text)
    text = _COLOR.sub(lambda found: f"{found[1]}: {_THEMED.get(found[2], found[2])}", text)
    view = _VIEW.search(text)
    root = f'<svg class="plot" role="img" aria-label="{escape(caption)}" {view[0] if view else ""}'
    return Markup(_ROOT.sub(lambda found: f"{root}{found[2]}>", text, count=1))


def write_run(directory: Path, report: Report, trials: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Write ``report.json``, ``plots/*.png`` and ``*.svg``, ``report.md`` and ``report.html``.

    Returns:
        What could not be made, one sentence each; empty where everything was.

    Raises:
        OSError: the directory cannot be written; whatever stood there before is whole.
    """
    directory.mkdir(parents=True, exist_ok=True)
    atomic_write(directory / "report.json", to_json(report).encode())
    warnings: list[str] = []
    scene = _tried("no plot was drawn", lambda: stage(report, trials), warnings)
    images = {} if scene is None else _write_plots(directory / "plots", scene, warnings)
    pages: dict[str, Callable[[], bytes]] = {
        "report.md": lambda: markdown.render(report_document(report), plots=tuple(images)).encode(),
        "report.html": lambda: render_page(page_document(report, scene), images).encode(),
    }
    for name, serialize in pages.items():
        if (page := _tried(f"{name} was not written", serialize, warnings)) is not None:
            atomic_write(directory / name, page)
    return tuple(warnings)


def to_json(report: Report) -> str:
    """``report.json``: the record in its own order, indented, with a newline at the end."""
    return report.model_dump_json(indent=2) + "\n"


_Made = TypeVar("_Made")


def _tried(failed: str, make: Callable[[], _Made], warnings: list[str]) -> _Made | None:
    """Result of ``make``; ``None`` and a warning where it raises any exception: the record stands all the same."""
    try:
        return make()
    except Exception as error:
        warnings.append(f"{failed}: {type(error).__name__}: {error}")
        return None


def _write_plots(folder: Path, scene: Scene, warnings: list[str]) -> dict[str, bytes]:
    """Draw and write each plot; returns the SVGs of those that show something, by name."""
    # Not at the top: Matplotlib is large, and the trials are over by now.
    plots = _tried("no plot was drawn", lambda: import_module("xttsbench.reporting.plots"), warnings)
    if plots is None:
        return {}
    folder.mkdir(exist_ok=True)
    images: dict[str, bytes] = {}
    for name in sections.figures(scene.report):
        plot = _tried(f"plots/{name} was not drawn", partial(plots.draw_one, name, scene), warnings)
        if plot is not None:
            atomic_write(folder / f"{name}.png", plot.png)
            atomic_write(folder / f"{name}.svg", plot.svg)
            images |= {name: plot.svg} if plot.says else {}
    return images
