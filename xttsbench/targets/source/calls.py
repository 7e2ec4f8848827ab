"""Calls in the source that made the ops of a graph, and edits of them that move ops behind others.

An op has the calls that were running when it was made, each by where it ends. A call that made several ops (in a loop,
in a function called twice) is edited only where all of them are meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import libcst as cst
from libcst.metadata import ClassScope

from xttsbench.records.base import Location
from xttsbench.records.code import OwnBatches
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import Pipeline, PipelineOp, Setting, kind_of_op
from xttsbench.records.trial import Trace
from xttsbench.targets.source.edits import Change, Found, NoCallError, NoEditError, NothingToDoError
from xttsbench.targets.source.link_edits import reordered
from xttsbench.targets.source.module import Module, read_module
from xttsbench.targets.source.sinking import LISTS_FILES, Sinking
from xttsbench.targets.source.tree import Link

_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BY_ANOTHER_NAME: Final = {
    "group_by_window": ("group_by_window", "bucket_by_sequence_length"),
    "dense_to_ragged_batch": ("ragged_batch",),
    "tensor_slice": ("from_tensor_slices", "list_files"),
    "tensor": ("from_tensors",),
    "shuffle": ("shuffle", "list_files"),
    "flat_map": ("flat_map", "from_generator", "TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset"),
    "tfrecord": ("TFRecordDataset",),
    "text_line": ("TextLineDataset",),
    "fixed_length_record": ("FixedLengthRecordDataset",),
}
_WITH_FUNCTIONS: Final = frozenset(
    {"map", "interleave", "flat_map", "filter", "scan", "group_by_window", "bucket_by_sequence_length", "reduce"}
    | {"take_while", "apply", "parallel_interleave"}
)
"""Methods whose functions are traced: a dataset made in one is part of no outer pipeline."""

Call = tuple[Module, Link]


@dataclass
class Calls:
    """The calls of the user's files that made a pipeline's ops, and what else a fix's edit may ask for."""

    pipeline: Pipeline  # of the target as it stands, with the line that made each op
    read: Callable[[str], str]  # a file's text by its name; may raise ``OSError``
    own: Callable[[str], bool]  # whether a file may be edited: it is the user's, neither generated nor a library's
    together: FixSet = field(default_factory=FixSet)  # all fixes of the patch
    step_place: Location | None = None
    """Place of the step's function; without a line the file of the loop that contains the step; ``None`` for Keras."""
    step_traces: Sequence[Trace] = ()  # of tf.functions, as the target ran
    own_batches: OwnBatches | None = None  # of a script's training loop that takes no dataset
    _modules: dict[str, Module | str] = field(default_factory=dict)

    def module(self, file: str | None) -> Module:
        """A file taken apart.

        Raises:
            NoEditError: it is not known, not the user's own, or not readable as Python.
        """
        if file is None:
            raise NoEditError("the line of the call was not noted")
        if file not in self._modules:
            self._modules[file] = self._load(file)
        found = self._modules[file]
        if isinstance(found, str):
            raise NoEditError(found)
        return found

    def _load(self, file: str) -> Module | str:
        if not self.own(file):
            return f"{file.rpartition('-packages/')[2]} is generated, or belongs to a library"
        try:
            return read_module(file, self.read(file))
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            return f"{file} could not be read as Python ({type(error).__name__})"

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Settings at whose values the pipeline's Python functions were read."""
        return tuple(dict.fromkeys(one for function in self.pipeline.python_functions for one in function.settings))

    def modules(self) -> Iterator[Module]:
        """The files of the step and of the pipeline's calls that can be read, each once."""
        step = self.step_place.file if self.step_place is not None else None
        around = [call.file for op in self.pipeline.ops for call in op.calls]
        for file in dict.fromkeys([step, *(op.location.file for op in self.pipeline.ops), *around]):
            try:
                yield self.module(file)
            except NoEditError:
                continue

    def others(self, changed: Module, offset: int) -> Iterator[str]:
        """Sentences on other callers of the functions around a place of the source, in the pipeline's files.

        Calls are told by the function's name; those that this pipeline was made by are left out.
        """
        ran = {call for op in self.pipeline.ops for call in op.calls}
        for function in changed.of(cst.FunctionDef):
            name, (start, end) = function.name.value, changed.span(function)
            inside = start <= offset <= end
            method = isinstance(changed.scope(function), ClassScope)
            if not inside or name in _WITH_FUNCTIONS or (name.startswith("__") and method):
                continue
            for module in self.modules():
                made = {module.ending(one.end_line, one.end_column) for one in ran if one.file == module.file}
                for link in module.links:
                    fits = link.name == name and (isinstance(link.node.func, cst.Attribute) or not method)
                    itself = module is changed and start <= link.start <= end
                    if fits and made - {None} and link not in made and not itself:
                        yield f"{module.file}:{link.line} calls {name}(...) as well, and what it makes changes with it"

    def of_kind(self, *kinds: str) -> list[PipelineOp]:
        """The pipeline's ops that such methods make, parallel ones too."""
        return [op for op in self.pipeline.ops if kind(op) in kinds]

    def call(self, op: PipelineOp, meant: Collection[str] = (), *names: str) -> Call:
        """The call of a method (of ``names``, or any that makes such ops) that made an op of the outer pipeline.

        The edit may change the ops called ``meant``, and this one always.

        Raises:
            NoEditError: there is none, it is not clear which, or it made other ops as well.
        """
        names, meant = names or methods(op), {*meant, op.name}
        module, link = self._made_by(op)
        if link is None or link.name not in names:
            raise NoCallError(f"{names[0]} at {place(op)} does not come from a call of .{names[0]}(...) there")
        inside = [one for one in _inner(self.pipeline.ops) if _same_place(one, op) and set(methods(one)) & set(names)]
        here = [one for one in module.links if one.line == link.line and one.name in names]
        if inside and not any(_traced(module, one) for one in here):
            raise NoEditError(f"the call at {place(op)} makes a dataset inside another one's function as well")
        siblings = [one.name for one in self._of_call(op) if kind(one) == kind(op)]
        if not meant.issuperset(siblings):
            raise NoEditError(f"the call at {place(op)} runs {len(siblings)} times, and not all of them are meant")
        return module, link

    def maker(self, op: PipelineOp) -> Call:
        """The call behind which a link can be put so that it comes behind the op: its own, or that of a helper.

        Raises:
            NoEditError: as for :meth:`call`.
        """
        try:
            return self.call(op)
        except NoEditError:
            module, link = self._made_by(op)
            if link is None or link.name in methods(op):
                raise
            if not _outermost(module, link) or self._of_call(op)[-1].name != op.name:
                raise
            return module, link

    def in_one_function(self, ops: Sequence[PipelineOp]) -> tuple[Module, list[Link]]:
        """For each of several ops the call of one run of one function that made it, or in which it was made.

        Raises:
            NoEditError: as for :meth:`call`, or such a call makes other ops as well.
        """
        ways, every = [op.calls[::-1] for op in ops], {op.name for op in ops}
        if not all(ways):
            raise NoEditError("the line of a call was not noted")
        depth = 0
        while all(len(way) > depth + 1 and way[depth] == ways[0][depth] for way in ways):
            depth += 1
        found = [
            self.call(op, every) if len(way) == depth + 1 else self._around(op, depth, every)
            for op, way in zip(ops, ways, strict=True)
        ]
        if len({module.file for module, _ in found}) > 1:
            raise NoEditError("the calls are in several files")
        return found[0][0], [link for _, link in found]

    def _around(self, op: PipelineOp, depth: int, meant: Collection[str]) -> Call:
        """The call, so many calls below the outermost, in which an op was made, and none that is not meant."""
        way = op.calls[::-1][: depth + 1]
        site = way[-1]
        module = self.module(site.file)
        link = module.ending(site.end_line, site.end_column)
        if link is None:
            raise NoEditError(f"no call was found at {site.file}:{site.line}")
        under = [one for one in self.pipeline.ops if one.calls[::-1][: depth + 1] == way]
        more = next((one for one in under if one.name not in meant), None)
        if more is not None:
            what = f"{link.name}(...) at {site.file}:{site.line}"
            raise NoEditError(f"{what} makes the {kind(more)} of {place(more)} as well")
        return module, link

    def _made_by(self, op: PipelineOp) -> tuple[Module, Link | None]:
        """The call that ran when an op was made, and its file.

        Raises:
            NoEditError: as for :meth:`module`.
        """
        module = self.module(op.location.file)
        site = op.calls[0] if op.calls and op.calls[0].file == module.file else None
        return module, None if site is None else module.ending(site.end_line, site.end_column)

    def _of_call(self, op: PipelineOp) -> list[PipelineOp]:
        """The ops that were made by the call of one, in the order of the pipeline."""
        return [one for one in self.pipeline.ops if one.calls[:1] == op.calls[:1]]

    def links(self, ops: Sequence[PipelineOp], meant: Collection[str] = ()) -> tuple[Module, list[Link]]:
        """The calls that made several ops, all in one file.

        Raises:
            NoEditError: as for :meth:`call`, or they are in several files.
        """
        calls = [self.call(op, meant) for op in ops]
        if len({module.file for module, _ in calls}) > 1:
            raise NoEditError("the calls are in several files")
        return calls[0][0], [link for _, link in calls]

    def each(self, ops: Sequence[PipelineOp], edit: Callable[[Module, Link], Change], by_hand: str) -> Iterator[Found]:
        """One edit of the call of each op; a call that made several of them is edited once.

        ``by_hand`` is what to write where it cannot be edited; the place is put behind it.
        """
        done: set[Link] = set()
        for op in ops:
            where = place(op)
            try:
                module, link = self.call(op, {one.name for one in ops}, kind(op))
                where = f"{module.file}:{link.line}"
                if link not in done:
                    done.add(link)
                    yield Found((edit(module, link),))
            except NothingToDoError as error:
                yield Found(why_not=str(error))
            except NoCallError as error:
                yield Found(why_not=f"{error}; apply the saved plan")
            except NoEditError as error:
                yield Found(why_not=f"{error}; {by_hand} at {where}")


def attempt(edit: Callable[[], Sequence[Change]], by_hand: str) -> Found:
    """One edit, or why there is none, with what to write by hand."""
    try:
        return Found(tuple(edit()))
    except NothingToDoError as error:
        return Found(why_not=str(error))
    except NoEditError as error:
        return Found(why_not=f"{error}; {by_hand}")


def methods(op: PipelineOp) -> tuple[str, ...]:
    """Names of the methods that make such ops."""
    words = _WORDS.sub("_", kind_of_op(op.op)).lower()
    return _BY_ANOTHER_NAME.get(words, (words,))


def kind(op: PipelineOp) -> str:
    """The method's name, whatever version of the op it makes: ``map`` for ``ParallelMapDatasetV2``."""
    return methods(op)[0]


def place(op: PipelineOp) -> str:
    """Phrase for the place where an op was made."""
    return f"{op.location.file}:{op.location.line}" if op.location.file else "an unknown place"


def _traced(module: Module, link: Link) -> bool:
    """Whether a link runs inside a function that is written as the argument of a dataset's method."""
    around = [link.node, *module.ancestors(link.node)]
    return any(
        isinstance(function, cst.Lambda)
        and isinstance(given, cst.Arg)
        and isinstance(call, cst.Call)
        and isinstance(call.func, cst.Attribute)
        and call.func.attr.value in _WITH_FUNCTIONS
        for function, given, call in zip(around, around[1:], around[2:], strict=False)
    )


def _outermost(module: Module, link: Link) -> bool:
    """Whether a call is outermost: no method is called on it, and it is no argument of another call."""
    ends = (cst.Call, cst.Lambda, cst.BaseSmallStatement, cst.BaseCompoundStatement)
    return not isinstance(next((one for one in module.ancestors(link.node) if isinstance(one, ends)), None), cst.Call)


def _same_place(one: PipelineOp, other: PipelineOp) -> bool:
    return (one.location.file, one.location.line) == (other.location.file, other.location.line)


def _inner(ops: Iterable[PipelineOp]) -> Iterator[PipelineOp]:
    for op in ops:
        yield from op.inner
        yield from _inner(op.inner)


def rearranged(
    calls: Calls,
    ops: Sequence[PipelineOp],
    moved: Collection[str],
    text: str = "",
) -> Change:
    """Moves some ops behind the last one, with a link in between.

    Calls that follow one another in the text change places; else those that are moved are written behind the last one.

    The ops follow one another in the pipeline, sources first; ``moved`` has the names of those that are moved. ``text``
    is the new link, e.g. ``.cache()``, right behind the last one.

    Raises:
        NoEditError: it cannot be done safely.
    """
    try:
        module, links = calls.links(ops, {one.name for one in ops} if text else ())
        if len(set(links)) < len(links):
            raise NoEditError("a call makes several ops that would change places with one another")
        if any(link.name == LISTS_FILES for link in links):
            raise NoEditError("a list of files is shuffled by the call that makes it")
        return reordered(module, links, [one.name in moved for one in ops], text)
    except NoEditError:
        module, links = calls.in_one_function(ops)
    which = [link for one, link in zip(ops, links, strict=True) if one.name in moved]
    others = [link for one, link in zip(ops, links, strict=True) if one.name not in moved]
    own = {link for one, link in zip(ops, links, strict=True) if link.name in methods(one)}
    if set(which) & set(others) or len(own.intersection(which)) < sum(link in own for link in which):
        raise NoEditError("a call makes several ops that would change places with one another")
    sinking = Sinking(module, list(dict.fromkeys(links)), list(dict.fromkeys(which)), own, same_elements=bool(text))
    return sinking.change(text)
