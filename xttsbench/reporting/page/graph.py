"""The pipeline as a graph to be drawn: a row for each op, the source first, the step last, in lanes where it forks.

A row has a bar as wide as the op's share of the pipeline's time. Lanes are assigned as a version history does it: a
source takes the first free one, an op goes on in the lane of its first input, and the lanes of the others become free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.records.report import Report
from xttsbench.reporting import units
from xttsbench.reporting.document import NOT_MEASURED, Block, Cleaned, Lines
from xttsbench.reporting.sections import pipeline as words
from xttsbench.reporting.sections import pipeline_of

STEP: Final = "the step that reads it"
_PART_OF_BELOW: Final = "in the op below"
_AS_IT_IS: Final = "as it is"
_Placed = tuple[PipelineOp, tuple[int, ...], bool]
"""An op, the rows of what it reads, and whether a function makes its dataset."""


@dataclass(frozen=True, slots=True)
class Mark(Cleaned):
    """A finding about an op: its number in the report, and its title."""

    number: int
    title: str


@dataclass(frozen=True, slots=True)
class GraphNode(Cleaned):
    """An op in its row and lane.

    Attributes:
        share: of the pipeline's time, 0..1; ``None`` where the op's time was not measured.
        limiting: whether a finding says that this op is what limits the step.
        inner: whether it belongs to a dataset that a function makes.
        source: its line in the user's source, where a patch changes that.
    """

    lane: int
    call: str
    cost: str
    percent: str
    share: float | None
    kind: str
    where: str
    notes: str
    limiting: bool = False
    inner: bool = False
    marks: tuple[Mark, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """From the row and lane of an op to those of the op that reads it; ``inner`` where a function makes its dataset."""

    row: int
    lane: int
    to_row: int
    to_lane: int
    inner: bool


@dataclass(frozen=True, slots=True)
class Graph(Block):
    """Nodes in the order of their rows, and the edges between them."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[Edge, ...]

    @property
    def lanes(self) -> int:
        """How many lanes there are."""
        return 1 + max((node.lane for node in self.nodes), default=0)


def blocks(report: Report) -> tuple[Block, ...]:
    """The graph and what holds for the pipeline as a whole; nothing where no op is known."""
    pipeline = pipeline_of(report)
    if pipeline is None or not pipeline.ops:
        return ()
    return graph(pipeline, report), Lines(tuple(words.remarks(pipeline)), "soft")


def graph(pipeline: Pipeline, report: Report) -> Graph:
    """The ops from the sources on, and the step that reads the last of them."""
    placed = list(_placed(pipeline.ops))
    lanes, edges = _lanes(placed)
    limiting = _limiting(report)
    nodes = []
    for (op, _, inner), lane in zip(placed, lanes, strict=True):
        (call, cost, percent, kind, where, notes), share = words.described(
            op, pipeline, _PART_OF_BELOW if inner else NOT_MEASURED
        )
        # names of inner ops are unique only among themselves
        about = [] if inner else [(n, f) for n, f in enumerate(report.findings, 1) if f.location.op == op.name]
        nodes.append(
            GraphNode(
                lane=lane,
                call=call,
                cost=cost,
                percent=percent,
                share=share,
                kind=kind,
                where=where,
                notes=notes,
                limiting=not inner and op.name in limiting,
                inner=inner,
                source=_source(op, report),
                marks=tuple(Mark(number, found.title) for number, found in about),
            )
        )
    return Graph((*nodes, _step(report)), tuple(edges))


def _step(report: Report) -> GraphNode:
    time = report.verdict.step_time_s
    wait = report.verdict.input_wait_fraction
    said = "" if time is None else f"one every {units.duration(time.estimate)}"
    waits = "" if wait is None else f"waits {units.percent(wait.estimate)} of its time"
    return GraphNode(0, STEP, said, "", None, waits, "", "")


def _source(op: PipelineOp, report: Report) -> str:
    """The line of an op as a patch found it; records keep no other source."""
    file, line = op.location.file, op.location.line
    edits = (edit for found in report.fixes if found.patch for edit in found.patch.edits)
    for edit in edits:
        if file and edit.line == line and (file == edit.file or file.endswith(f"/{edit.file}")):
            return edit.before
    return ""


def _limiting(report: Report) -> set[str]:
    """The ops that limit the step: the one that the model names where a finding agrees, else all that findings name."""
    found = {finding.location.op for finding in report.findings if finding.limiting and finding.location.op}
    named = {one.limited_by for one in report.predictions if one.name == _AS_IT_IS}
    return found & named or found


def _placed(ops: Sequence[PipelineOp], start: int = 0, inner: bool = False) -> Iterator[_Placed]:
    """The ops in an order in which none stands above what it reads; those that a function makes above their op."""
    rows: dict[str, int] = {}
    row = start
    for op in ops:
        within = list(_placed(op.inner, row, True))
        yield from within
        row += len(within)
        ends = _ends(within, row - len(within))
        rows[op.name] = row
        yield op, tuple(rows[name] for name in op.inputs if name in rows) + ends, inner
        row += 1


def _ends(placed: Sequence[_Placed], start: int) -> tuple[int, ...]:
    """Rows of the ops that no other of them reads."""
    read = {row for _, rows, _ in placed for row in rows}
    return tuple(row for row in range(start, start + len(placed)) if row not in read)


def _lanes(placed: Sequence[_Placed]) -> tuple[list[int], list[Edge]]:
    """The lane of each row, and all edges; what no op reads is read by the step, in the row below the last."""
    last_reader = {row: number for number, (_, rows, _) in enumerate(placed) for row in rows}
    lanes: list[int] = []
    edges: list[Edge] = []
    for number, (_, rows, _) in enumerate(placed):
        held = {lanes[row] for row in range(number) if last_reader.get(row, len(placed)) >= number}
        ending = [lanes[row] for row in rows if last_reader[row] == number]
        free = next(lane for lane in range(len(placed) + 1) if lane not in held)
        lanes.append(ending[0] if ending else free)
        edges += [Edge(row, lanes[row], number, lanes[number], placed[row][2] > placed[number][2]) for row in rows]
    ends = [row for row in range(len(placed)) if row not in last_reader]
    edges += [Edge(row, lanes[row], len(placed), 0, False) for row in ends]
    return lanes, edges
