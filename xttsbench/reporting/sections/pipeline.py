"""The pipeline as a tree: its end at the top, what feeds it below, the datasets that a function makes below their op.

A chain stays flush; only where several datasets meet (``zip``, ``concatenate``) does each get a branch. An op is in the
words of who wrote it: the call, its settings, its place, and what its function does. The costs are per batch of the
whole pipeline and summed over parallel calls, so they may add up to more than a step takes.

The page draws it as a graph: a row for each op, the source first, the step last, in lanes where it forks. A row has a
bar as wide as the op's share of the pipeline's time. Lanes are assigned as a version history does it: a source takes
the first free one, an op goes on in the lane of its first input, and the lanes of the others become free.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from xttsbench.records.pipeline import AUTOTUNE, Pipeline, PipelineOp, PythonFunction, kind_of_op
from xttsbench.records.report import Report
from xttsbench.reporting import units
from xttsbench.reporting.document import NOT_MEASURED, Block, Cleaned, Lines, Node, Tree
from xttsbench.reporting.sections import pipeline_of
from xttsbench.throughput.threads import effective_parallelism, parallelised

TITLE: Final = "Pipeline, its end first, time per batch"
HEADER: Final = ("op", "time per batch", "share of all ops", "computes or waits", "where", "notes")
_SUMMED: Final = (
    "Each time is that of all calls for one batch, added up: of calls at once, or beside a step, less is waited for."
)
_CALLED: Final = (
    "A call of a Python function is timed in a run of its own, of the pipeline as it is, beside those at once with it: "
    "its calls may add up to another time."
)
_INNER: Final = "in it: "
_Cells = tuple[str, str, str, str, str, str]
_PART_OF_ABOVE: Final = "in the above"
NO_LINE: Final = "line not known"
_CALLS: Final[Mapping[str, str]] = {
    "TensorSlice": "from_tensor_slices",
    "Tensor": "from_tensors",
    "Generator": "from_generator",
    "TFRecord": "TFRecordDataset",
    "TextLine": "TextLineDataset",
    "FixedLengthRecord": "FixedLengthRecordDataset",
    "CSV": "CsvDataset",
    "DirectedInterleave": "choose_from_datasets",
    "MapAndBatch": "map and batch",
    "ShuffleAndRepeat": "shuffle and repeat",
    "DataService": "distribute",
    "DenseToRaggedBatch": "ragged_batch",
    "DenseToSparseBatch": "sparse_batch",
}
"""Stem of an op's type -> the call that makes it, where that is not the stem in lower case."""
_CLASSES: Final[Mapping[str, str]] = {
    "holds": "holds the GIL",
    "blocks": "waits",
    "releases": "releases the GIL",
    "unknown": "not classified",
}


@dataclass(frozen=True, slots=True)
class _Row:
    lead: str  # What is drawn before the op
    below: str  # What continues below it, for the lines of its notes
    depth: int
    op: PipelineOp
    inner: bool  # Whether the op belongs to a dataset that a function makes


def blocks(report: Report) -> tuple[Block, ...]:
    """The ops with their costs; nothing where no pipeline was read, or another version wrote it."""
    pipeline = pipeline_of(report)
    return () if pipeline is None else (tree(pipeline), Lines(tuple(remarks(pipeline)), "soft"))


def tree(pipeline: Pipeline) -> Tree:
    """The ops, one node each."""
    nodes = []
    for row in _rows(pipeline.ops):
        cells, share = described(row.op, pipeline, _PART_OF_ABOVE if row.inner else NOT_MEASURED)
        nodes.append(Node(row.lead, row.below, row.depth, cells, share))
    return Tree(HEADER, tuple(nodes))


def described(op: PipelineOp, pipeline: Pipeline, unknown: str) -> tuple[_Cells, float | None]:
    """The cells of :data:`HEADER` for an op, and its share of the pipeline's time.

    A time that is not known is ``unknown``, in words.
    """
    functions = {function.token: function for function in pipeline.python_functions}
    costs = {one.name: one.cost_s for one in pipeline.ops if one.cost_s is not None}
    shares = {name: cost / (sum(costs.values()) or 1.0) for name, cost in costs.items()}
    share = shares.get(op.name) if op.cost_s is not None else None
    cost = unknown if op.cost_s is None else units.duration(op.cost_s)
    percents = dict(zip(shares, units.percents(list(shares.values())), strict=True))
    percent = "" if share is None else percents[op.name]
    said = [
        *notes(op, functions),
        *(["run in parallel by TensorFlow"] if op in pipeline.ops and parallelised(op, pipeline) else []),
    ]
    return (call(op), cost, percent, split(op), place(op), "; ".join(said)), share


def _rows(ops: Sequence[PipelineOp]) -> Iterator[_Row]:
    by_name = {op.name: op for op in ops}
    read = {source for op in ops for source in op.inputs}
    seen: set[str] = set()
    for end in [op for op in reversed(ops) if op.name not in read]:
        yield from _under(end, by_name, seen, _Row("", "", 0, end, False))


def _under(op: PipelineOp, by_name: Mapping[str, PipelineOp], seen: set[str], at: _Row) -> Iterator[_Row]:
    current: PipelineOp | None = op
    while current is not None and current.name not in seen:
        seen.add(current.name)
        sources = [by_name[source] for source in current.inputs if source in by_name]
        yield replace(at, op=current)
        mark, blank = at.below + ("│ " if len(sources) > 1 else "  "), " " * len(_INNER)
        for place, row in enumerate(_rows(current.inner)):
            lead = mark + (blank if place else _INNER) + row.lead
            yield _Row(lead, mark + blank + row.below, at.depth + 1 + row.depth, row.op, True)
        if len(sources) > 1:
            for source in sources:
                lead, below = ("└─ ", "   ") if source is sources[-1] else ("├─ ", "│  ")
                branch = _Row(at.below + lead, at.below + below, at.depth + 1, source, at.inner)
                yield from _under(source, by_name, seen, branch)
            return
        at = replace(at, lead=at.below)
        current = sources[0] if sources else None


def remarks(pipeline: Pipeline) -> Iterator[str]:
    """Remarks on the pipeline as a whole."""
    if pipeline.unserialisable:
        yield f"Seen from its Python objects only: {pipeline.unserialisable}"
    if not pipeline.ops:
        yield "No op is known."
    elif pipeline.injects_prefetch and not pipeline.ops[-1].op.startswith("Prefetch"):
        yield "TensorFlow adds a prefetch at the end by itself."
    if pipeline.options:
        yield "Options: " + ", ".join(f"{key} = {value}" for key, value in pipeline.options.items())
    if any(op.cost_s for op in pipeline.ops):
        yield _SUMMED
        if any(one.call_time_s for one in pipeline.python_functions):
            yield _CALLED
    if pipeline.costs_from:
        yield f"Times: {pipeline.costs_from}"


def call(op: PipelineOp) -> str:
    """The call with its settings: ``batch(16)``, ``prefetch(AUTOTUNE (chose 3))``, ``interleave(cycle 4, calls 2)``."""
    settings = [
        "" if op.batch_size is None else str(op.batch_size),
        chosen(op.buffer_size, op.chosen_buffer_size),
        op.filename if kind_of_op(op.op) in ("Cache", "Snapshot") and op.filename else "",
        "" if op.cycle_length is None else f"cycle {chosen(op.cycle_length, None)}",
        "" if op.parallelism is None else f"calls {chosen(op.parallelism, op.chosen_parallelism)}",
    ]
    given = ", ".join(one for one in settings if one)
    return f"{name(op)}({given})" if given else name(op)


def name(op: PipelineOp) -> str:
    """The call alone. A ``flat_map`` over a generator is what ``from_generator`` makes."""
    stem = kind_of_op(op.op)
    if stem == "FlatMap" and any(kind_of_op(one.op) == "Generator" for one in op.inner):
        return "from_generator"
    return _CALLS.get(stem) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem).lower()


def chosen(written: int | None, used: int | None) -> str:
    """A setting as written, with what AUTOTUNE made of it; empty where the op has no such setting."""
    if written is None:
        return ""
    text = "AUTOTUNE" if written == AUTOTUNE else f"{written:,}"
    return text if used is None or used == written else f"{text} (chose {used:,})"


def place(op: PipelineOp) -> str:
    """``file.py:12``; without the file, that the line is not known."""
    return NO_LINE if op.location.file is None else f"{op.location.file}:{op.location.line or '?'}"


def split(op: PipelineOp) -> str:
    """Split of an op's time into computing and waiting, as a phrase; empty where it was not measured."""
    if not op.cost_s or op.cpu_s is None:
        return ""
    share = min(1.0, op.cpu_s / op.cost_s)
    if share >= 0.9:
        return "computes"
    return "waits" if share <= 0.1 else f"{units.percent(share)} processor, rest waits"


def manner(op: PipelineOp, pipeline: Pipeline) -> str:
    """Phrase for how an op works: whether it computes or waits, and how many of its calls run at once."""
    cpus, work = pipeline.cpus or 1, split(op)
    mixed = work[:1].isdigit()  # a share that is the processor's, and the rest
    work = (
        f"{work.partition(' processor')[0]} of it computes, the rest waits" if mixed else f"it {work}" if work else ""
    )
    at_once = effective_parallelism(op, pipeline, cpus)
    tuned = op.parallelism == AUTOTUNE and op.chosen_parallelism is None
    most = f"up to {at_once} calls at once, as AUTOTUNE chooses," if tuned else f"{at_once} calls at once"
    calls = "one element after another" if at_once == 1 else f"{most} on {cpus} processors"
    calls += " (TensorFlow runs it in parallel by itself)" if parallelised(op, pipeline) else ""
    return ", ".join(filter(None, (work, calls if pipeline.cpus and kind_of_op(op.op) in _CALLING else "")))


def notes(op: PipelineOp, functions: Mapping[str, PythonFunction]) -> Iterator[str]:
    """Notes on an op: its Python, its state, its elements."""
    for token in op.python_functions:
        function = functions.get(token)
        yield f"Python {function.name}() {_CLASSES[function.gil]}" if function else f"Python {token}"
    if op.cached:
        yield "done once, then cached"
    if op.captures:
        yield "captures " + ", ".join(op.captures)
    if op.random:
        yield "random"
    if op.side_effects and not op.python_functions:
        yield "side effects"
    elif op.stateful and not (op.captures or op.random or op.python_functions):
        yield "stateful"
    if op.deterministic == "false":
        yield "any order"
    if op.elements_per_batch is not None:
        size = "" if op.element_bytes is None else f" of {units.size(op.element_bytes)}"
        many = op.elements_per_batch
        yield f"{units.number(int(many) if float(many).is_integer() else many)} per batch{size}"


_CALLING: Final = ("Map", "FlatMap", "Interleave", "Filter", "MapAndBatch")
"""Kinds of ops that call a function for each element."""
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
        """Number of lanes."""
        return 1 + max((node.lane for node in self.nodes), default=0)


def as_graph(report: Report) -> tuple[Block, ...]:
    """The graph and what holds for the pipeline as a whole; nothing where no op is known."""
    pipeline = pipeline_of(report)
    if pipeline is None or not pipeline.ops:
        return ()
    return graph(pipeline, report), Lines(tuple(remarks(pipeline)), "soft")


def graph(pipeline: Pipeline, report: Report) -> Graph:
    """The ops from the sources on, and the step that reads the last of them."""
    placed = list(_placed(pipeline.ops))
    lanes, edges = _lanes(placed)
    limiting = _limiting(report)
    nodes = []
    for (op, _, inner), lane in zip(placed, lanes, strict=True):
        # names of inner ops are unique only among themselves
        found = [] if inner else [one for one in enumerate(report.findings, 1) if one[1].location.op == op.name]
        marks, limits = tuple(Mark(number, one.title) for number, one in found), not inner and op.name in limiting
        cells, share = described(op, pipeline, _PART_OF_BELOW if inner else NOT_MEASURED)
        nodes.append(GraphNode(lane, *cells[:3], share, *cells[3:], limits, inner, marks, _source(op, report)))
    return Graph((*nodes, _step(report)), tuple(edges))


def _step(report: Report) -> GraphNode:
    time, parts = report.verdict.step_time_s, report.verdict.attribution_s
    said = "" if time is None else f"one every {units.duration(time.estimate)}"
    waits = (
        ""
        if time is None or parts is None or not time.estimate
        else f"input {units.percent(parts.input / time.estimate)} of it"
    )
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
        read = {one for _, its_rows, _ in within for one in its_rows}
        ends = tuple(one for one in range(row, row + len(within)) if one not in read)
        row += len(within)
        rows[op.name] = row
        yield op, tuple(rows[name] for name in op.inputs if name in rows) + ends, inner
        row += 1


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
