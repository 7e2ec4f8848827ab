"""Kinds of fixes as data and words, and candidates: edits of the pipeline's record, for the model.

Pure. What is edited is the description, not the dataset. The rewrite of the graph needs TensorFlow, and is only named
here (``module:function``), so that the parent knows every fix without loading it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from xttsbench.records.fix import Fix
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction
from xttsbench.throughput.threads import inputs_of

WORTH: Final = 1.05
"""The smallest speed-up that is worth a change: expected, a fix is verified from it on; measured in several processes,
the low end of its interval has to be above it; two fixes that differ by less are alike, and the simpler one wins."""
WORTH_UNSURE: Final = 1.10
"""The same where one process alone measured it, or a model alone says it."""

Edit = Callable[[Pipeline], Pipeline]
Form = Literal["name", "name[:n]", "name:n", "name@op"]


@dataclass(frozen=True)
class Candidate:
    """A fix that would change a given pipeline, and what it does to the record."""

    name: str  # as it is written
    edit: Edit | None  # of the record; `None` where the model cannot judge it
    why_not: str | None = None  # why it may not be relied on, or needs asking for, or cannot be judged
    proof: str | None = None
    """Condition for the fix to leave the data alone, which running it beside the original shows."""
    ops: tuple[str, ...] = ()  # names of the ops that it changes
    alone: bool = True  # whether it can give anything without another fix
    held_bytes: float = 0.0  # memory that it takes, as far as it is known
    refused: str | None = None  # why it cannot be made, which was found out already
    hazard: str | None = None  # why it may change the data, which no trial has to show

    @property
    def kind(self) -> str:
        """The fix without its number or place."""
        return Fix.parse(self.name).kind


@dataclass(frozen=True)
class Setting:
    """Context in which candidates are found."""

    pipeline: Pipeline  # with costs
    cpus: int  # processors of the process
    environment: Mapping[str, Any] = field(default_factory=dict)  # with the memory
    goal_s: float | None = None  # seconds of a step, with which the input has to keep up; `None` where there is no step
    workers: int | None = None  # of the tf.data service, where they were asked for
    buffer: int | None = None
    """Batches that are worth keeping ready, where the input comes in bursts that hold the step up."""


@dataclass(frozen=True)
class Spec:
    """A kind of fix."""

    name: str  # as it is written, without what follows it
    words: str  # what it does, in a few words of a sentence: `maps in parallel`
    does: str  # the same in a sentence or two, for the documentation; Markdown
    form: Form = "name"  # what may, or has to, follow the name: a positive whole number, or the name of a node
    unit: str = ""  # of the number, in words
    mends: tuple[str, ...] = ()  # rules whose findings it mends
    candidates: Callable[[Setting], Iterator[Candidate]] | None = None
    """Finds it in a pipeline; ``None`` for one of the step, which :mod:`xttsbench.fixes.proposals` finds."""
    rank: int | None = None
    """Place among the kinds that are tried where nothing is predicted, the one that helps most often first; ``None``
    for one that is not tried then."""
    tried_unpriced: bool = False  # tried also where its candidate says that what it gives was not measured
    rewrite: str | None = None  # `module:function` of the graph's edit: `(graph, **number or op) -> graph`
    on_dataset: str | None = None
    """``module:function`` for what needs no graph, or is no edit of one alone: ``(dataset, **number)``."""
    argument: str = ""  # name of the number in those functions
    needs_graph: bool = True  # whether the dataset's graph has to be readable
    hazards: str | None = None
    """``module:function`` that says why it may change the data whatever a run shows: ``(reader, fix, all) ->
    sentences``, see :mod:`xttsbench.fixes.graph.hazards`."""
    runs_ahead: bool = False  # whether it runs functions earlier than the step asks for their results
    keeps_conditions: bool = False
    """Whether the edit stays right when settings are changed at whose values the pipeline's functions were read."""
    patch: str | None = None
    """``module:function`` of its edit of the user's source: from the pipeline's calls
    (:class:`xttsbench.targets.source.calls.Calls`), the number (``None`` is AUTOTUNE, or that there is none) and the op
    (empty where there is none) to what was found, at least one entry."""
    by_hand: str | None = None  # what to write where there is no such edit

    @property
    def usage(self) -> str:
        """Syntax of the fix on the command line: ``parallel-map[:<n>]``."""
        return self.name + {"name": "", "name[:n]": "[:<n>]", "name:n": ":<n>", "name@op": "@<op>"}[self.form]

    def said(self, fix: Fix) -> str:
        """Phrase for the effect of one fix of the kind: ``maps in parallel (32 calls)``."""
        if fix.op:
            return f"{self.words} after {fix.op}"
        return self.words if fix.number is None else f"{self.words} ({f'{fix.number} {self.unit}'.rstrip()})"


def each(
    pipeline: Pipeline,
    of_op: Callable[[PipelineOp], Mapping[str, Any]] = lambda _: {},
    of_function: Callable[[PythonFunction], Mapping[str, Any]] = lambda _: {},
) -> Pipeline:
    """The pipeline with every op and every Python function updated by what is said of it."""
    ops = tuple(op.model_copy(update=dict(of_op(op))) for op in pipeline.ops)
    functions = tuple(one.model_copy(update=dict(of_function(one))) for one in pipeline.python_functions)
    return pipeline.model_copy(update={"ops": ops, "python_functions": functions})


def changed(name: str, ops: Iterable[PipelineOp], changes: Mapping[str, Any], **more: Any) -> Candidate:
    """The candidate of a fix that gives some ops other fields; ``more`` are further attributes of it."""
    names = tuple(op.name for op in ops)

    def edit(given: Pipeline) -> Pipeline:
        return each(given, lambda op: changes if op.name in names else {})

    return Candidate(name, edit, ops=names, **more)


def linked(pipeline: Pipeline) -> Pipeline:
    """The pipeline in which every op says what it reads."""
    return each(pipeline, lambda op: {"inputs": inputs_of(op, pipeline)})


def with_upstream(op: PipelineOp, pipeline: Pipeline) -> frozenset[str]:
    """Names of an op and of all before it."""
    by_name = {one.name: one for one in pipeline.ops}
    found: set[str] = set()
    waiting = [op.name]
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in found:
            found.add(name)
            waiting.extend(inputs_of(by_name[name], pipeline))
    return frozenset(found)


def above(ops: Iterable[PipelineOp], pipeline: Pipeline) -> frozenset[str]:
    """Names of all ops before some of them."""
    return frozenset(name for op in ops for name in with_upstream(op, pipeline) - {op.name})
