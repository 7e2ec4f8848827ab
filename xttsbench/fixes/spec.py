"""What a fix is, in data and words, and one that might be tried: an edit of the pipeline's record, for the model.

Pure. What is edited is the description, not the dataset. The rewrite of the graph needs TensorFlow, and is only named
here (``module:function``), so that the parent knows every fix without loading it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, Literal

from xttsbench.records.fix import Fix
from xttsbench.records.pipeline import Pipeline, PipelineOp
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
    """A fix that would change a given pipeline, and what it does to the record.

    Attributes:
        name: as it is written.
        edit: of the record; ``None`` where the model cannot judge it.
        why_not: why it may not be relied on, or needs asking for, or cannot be judged.
        proof: what must hold for it to leave the data alone, which running it beside the original shows.
        ops: names of the ops that it changes.
        alone: whether it can give anything without another fix.
        held_bytes: memory that it takes, as far as it is known.
        refused: why it cannot be made, which was found out already.
    """

    name: str
    edit: Edit | None
    why_not: str | None = None
    proof: str | None = None
    ops: tuple[str, ...] = ()
    alone: bool = True
    held_bytes: float = 0.0
    refused: str | None = None

    @property
    def kind(self) -> str:
        """The fix without its number or place; a cache on disk is a cache."""
        fix = Fix.parse(self.name)
        return "cache" if fix.is_cache else fix.kind


@dataclass(frozen=True)
class Setting:
    """What candidates are found in.

    Attributes:
        pipeline: with costs.
        cpus: processors of the process.
        environment: with the memory, and the disk's room where a cache on it is considered.
        goal_s: seconds of a step, with which the input has to keep up; ``None`` where there is no step.
        buffer: batches that are worth keeping ready, where the input comes in bursts that hold the step up.
        padding_share: share of padding in the batches that were seen; ``None`` where nothing is padded.
    """

    pipeline: Pipeline
    cpus: int
    environment: Mapping[str, Any] = field(default_factory=dict)
    goal_s: float | None = None
    buffer: int | None = None
    padding_share: float | None = None


@dataclass(frozen=True)
class Spec:
    """A kind of fix.

    Attributes:
        name: as it is written, without what follows it.
        words: what it does, in a few words of a sentence: ``maps in parallel``.
        does: the same in a sentence or two, for the documentation; Markdown.
        form: what may, or has to, follow the name: a positive whole number, or the name of a node.
        unit: of the number, in words.
        mends: rules whose findings it mends.
        candidates: finds it in a pipeline; ``None`` for one of the step, which :mod:`xttsbench.fixes.proposals` finds.
        rank: place among the kinds that are tried where nothing is predicted, the one that helps most often first;
            ``None`` for one that is not tried then.
        tried_unpriced: tried also where its candidate says that what it gives was not measured.
        rewrite: ``module:function`` of the graph's edit: ``(graph, **number or op) -> graph``.
        on_dataset: ``module:function`` for what needs no graph, or is no edit of one alone: ``(dataset, **number)``.
        argument: name of the number in those functions.
        prepares: kind of the fix that it comes before, and hands tensors to (``traceable=True``), where both are there.
        needs_graph: whether the dataset's graph has to be readable.
        hazards: ``module:function`` that says why it may change the data whatever a run shows:
            ``(reader, fix, all) -> sentences``, see :mod:`xttsbench.fixes.graph.hazards`.
        runs_ahead: whether it runs functions earlier than the step asks for their results.
        helps_step: whether it may make the step itself faster, so that it is of use where nobody waits for data.
        asked_for: what has to be asked for, in a sentence; ``None`` where nothing has.
        patch: ``module:function`` of its edit of the user's source: from the pipeline's calls
            (:class:`xttsbench.targets.source.calls.Calls`), the number (``None`` is AUTOTUNE, or that there is none)
            and the op (empty where there is none) to what was found, at least one entry.
        by_hand: what to write where there is no such edit.
    """

    name: str
    words: str
    does: str
    form: Form = "name"
    unit: str = ""
    mends: tuple[str, ...] = ()
    candidates: Callable[[Setting], Iterator[Candidate]] | None = None
    rank: int | None = None
    tried_unpriced: bool = False
    rewrite: str | None = None
    on_dataset: str | None = None
    argument: str = ""
    prepares: str | None = None
    needs_graph: bool = True
    hazards: str | None = None
    runs_ahead: bool = False
    helps_step: bool = False
    asked_for: str | None = None
    patch: str | None = None
    by_hand: str | None = None

    @property
    def usage(self) -> str:
        """How it is written: ``parallel-map[:<n>]``."""
        return self.name + {"name": "", "name[:n]": "[:<n>]", "name:n": ":<n>", "name@op": "@<op>"}[self.form]

    def said(self, fix: Fix) -> str:
        """What one fix of the kind does: ``maps in parallel (32 calls)``."""
        if fix.op:
            return f"{self.words} after {fix.op}"
        return self.words if fix.number is None else f"{self.words} ({f'{fix.number} {self.unit}'.rstrip()})"


def each(pipeline: Pipeline, changes: Callable[[PipelineOp], Mapping[str, Any]]) -> Pipeline:
    """The pipeline with every op updated by what ``changes`` says of it."""
    return pipeline.model_copy(update={"ops": tuple(op.model_copy(update=dict(changes(op))) for op in pipeline.ops)})


def only(names: frozenset[str], changes: Mapping[str, Any]) -> Edit:
    """An edit that updates the named ops alone."""
    return lambda given: each(given, lambda op: changes if op.name in names else {})


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


def loaded(place: str) -> Any:
    """What a spec names as ``module:object``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
