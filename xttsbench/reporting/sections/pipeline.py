"""The pipeline as a tree: its end at the top, what feeds it below, the datasets that a function makes below their op.

A chain stays flush; only where several datasets meet (``zip``, ``concatenate``) does each get a branch. The costs are
per batch of the whole pipeline and summed over parallel calls, so they may add up to more than a step takes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.reporting import units
from xttsbench.reporting.absent import NOT_MEASURED
from xttsbench.reporting.pipeline_words import call, name, notes, place, split
from xttsbench.reporting.text import plain

HEADER: Final = ("op", "time per batch", "share", "computes or waits", "where", "notes")
_BAR_CELLS: Final = 8
_WIDE: Final = 100
"""From this width on there is room for bars beside the percentages."""
_FULL, _EMPTY = "█", "·"
_INNER: Final = "in it: "
_NARROWEST: Final = 40
_PART_OF_ABOVE: Final = "in the above"


@dataclass(frozen=True, slots=True)
class Row:
    """One op as it stands in the tree."""

    lead: str
    """What is drawn before the op."""
    below: str
    """What continues below it, for the lines of its notes."""
    depth: int
    op: PipelineOp
    inner: bool
    """Whether the op belongs to a dataset that a function makes."""


def tree(pipeline: Pipeline, width: int) -> tuple[str, ...]:
    """The ops with their costs, one line each and their notes below, then what holds for the whole pipeline.

    No line is longer than ``width`` columns (40 at least).
    """
    width = max(width, _NARROWEST)
    functions = {function.token: function for function in pipeline.python_functions}
    whole = _whole_s(pipeline)
    found = tuple(_rows(pipeline.ops))
    first = min(max((len(row.lead + call(row.op)) for row in found), default=0), max(12, width // 2 - 4))
    lines: list[str] = []
    for row in found:
        head = _cut(row.lead + call(row.op), first).ljust(first)
        cells = [
            head,
            _cost(row).rjust(len(_PART_OF_ABOVE)),
            _bar(row.op, whole, _BAR_CELLS if width >= _WIDE else 0),
            place(row.op),
            split(row.op),
        ]
        lines.extend(_fitted([cell for cell in cells if cell], width, row.below))
        rest = "; ".join(notes(row.op, functions))
        indent = row.below + "    "
        lines.extend(
            textwrap.wrap(rest, width, initial_indent=indent, subsequent_indent=indent)
            if len(indent) < width // 2
            else ()
        )
    lines.extend(one for text in _general(pipeline) for one in textwrap.wrap(text, width))
    return tuple(line.rstrip() for line in lines)


def rows(pipeline: Pipeline) -> tuple[tuple[str, ...], ...]:
    """The tree as rows under :data:`HEADER`, for a table; how deep an op lies is shown by marks before it."""
    functions = {function.token: function for function in pipeline.python_functions}
    whole = _whole_s(pipeline)
    return tuple(
        (
            "› " * row.depth + call(row.op),
            _cost(row),
            units.percent(share) if (share := _share(row.op, whole)) is not None else "",
            split(row.op),
            place(row.op),
            "; ".join(notes(row.op, functions)),
        )
        for row in _rows(pipeline.ops)
    )


def summary(pipeline: Pipeline) -> str:
    """One line: how many ops, what a batch costs, and where most of it goes."""
    count, python = len(pipeline.ops), len(pipeline.python_functions)
    text = f"{count} op{'s' * (count != 1)}, {python} Python function{'s' * (python != 1)}"
    whole = _whole_s(pipeline)
    if whole is None:
        return f"{text}; time per batch {NOT_MEASURED}"
    heaviest = max(pipeline.ops, key=lambda op: op.cost_s or 0.0)
    share = units.percent((heaviest.cost_s or 0.0) / whole)
    return f"{text}; {units.duration(whole)} a batch, {share} of it in {name(heaviest)} ({place(heaviest)})"


def _rows(ops: Sequence[PipelineOp]) -> Iterator[Row]:
    """The ops from the end on; one that feeds several others is told where it comes first."""
    by_name = {op.name: op for op in ops}
    read = {source for op in ops for source in op.inputs}
    seen: set[str] = set()
    for end in [op for op in reversed(ops) if op.name not in read]:
        yield from _under(end, by_name, seen, Row("", "", 0, end, False))


def _under(op: PipelineOp, by_name: Mapping[str, PipelineOp], seen: set[str], at: Row) -> Iterator[Row]:
    """An op, the datasets that its function makes, and all that feeds it."""
    current: PipelineOp | None = op
    while current is not None and current.name not in seen:
        seen.add(current.name)
        sources = [by_name[source] for source in current.inputs if source in by_name]
        further = bool(sources)
        yield replace(at, op=current, below=at.below)
        for row in _rows(current.inner):
            lead = _INNER if row.lead == "" and row.op is _first(current.inner) else " " * len(_INNER)
            mark = "│ " if further and len(sources) > 1 else "  "
            yield Row(
                at.below + mark + lead + row.lead,
                at.below + mark + " " * len(_INNER) + row.below,
                at.depth + 1 + row.depth,
                row.op,
                True,
            )
        if len(sources) > 1:
            for number, source in enumerate(sources):
                last = number == len(sources) - 1
                branch = Row(
                    at.below + ("└─ " if last else "├─ "),
                    at.below + ("   " if last else "│  "),
                    at.depth + 1,
                    source,
                    at.inner,
                )
                yield from _under(source, by_name, seen, branch)
            return
        at = replace(at, lead=at.below)
        current = sources[0] if sources else None


def _first(ops: Sequence[PipelineOp]) -> PipelineOp | None:
    return next((row.op for row in _rows(ops)), None)


def _whole_s(pipeline: Pipeline) -> float | None:
    costs = [op.cost_s for op in pipeline.ops if op.cost_s is not None]
    return sum(costs) or None


def _share(op: PipelineOp, whole_s: float | None) -> float | None:
    return None if op.cost_s is None or whole_s is None else op.cost_s / whole_s


def _cost(row: Row) -> str:
    if row.op.cost_s is None:
        return _PART_OF_ABOVE if row.inner else NOT_MEASURED
    return units.duration(row.op.cost_s)


def _bar(op: PipelineOp, whole_s: float | None, width: int) -> str:
    """A small bar with its percentage; as many blanks where the op has no share, so that the columns stay."""
    share = _share(op, whole_s)
    if whole_s is None:
        return ""
    if share is None:
        return " " * (width + 8)
    cells = round(min(1.0, share) * width)
    return _FULL * cells + _EMPTY * (width - cells) + units.percent(share).rjust(8)


def _fitted(cells: Sequence[str], width: int, below: str) -> list[str]:
    """The cells on one line, or those that do not fit on lines of their own below."""
    lines: list[str] = []
    current = ""
    for cell in cells:
        longer = f"{current}  {cell}" if current else cell
        if current and len(longer) > width:
            if not cell.strip():
                continue
            lines.append(current)
            longer = f"{below}    {cell.strip()}"
        current = _cut(longer, width)
    return [*lines, current]


def _general(pipeline: Pipeline) -> Iterator[str]:
    if pipeline.unserialisable:
        yield f"Seen from its Python objects only: {plain(pipeline.unserialisable)}"
    if not pipeline.ops:
        yield "No op is known."
    elif pipeline.injects_prefetch and not pipeline.ops[-1].op.startswith("Prefetch"):
        yield "TensorFlow adds a prefetch at the end by itself."
    if pipeline.options:
        yield "Options: " + ", ".join(f"{plain(key)} = {plain(value)}" for key, value in pipeline.options.items())
    if pipeline.costs_from:
        yield f"Times: {plain(pipeline.costs_from)}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
