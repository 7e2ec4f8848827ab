"""Which call of the source made an op of the graph.

An op has the line at which its call ran. The call on that line whose method makes such ops is taken; where a line has
several, the order of the chain is that of the graph. A call that made several ops (in a loop, in a function called
twice) is edited only where all of them are meant.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.targets.patch.module import Link, Module
from xttsbench.targets.patch.no_edit import NoCallError, NoEditError

_KIND: Final = re.compile(r"^_*(?:Experimental|Legacy|Parallel)*(\w+?)(?:Dataset)?(?:V\d+)?$")
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BY_ANOTHER_NAME: Final = {
    "group_by_window": ("group_by_window", "bucket_by_sequence_length"),
    "dense_to_ragged_batch": ("ragged_batch",),
    "tensor_slice": ("from_tensor_slices", "list_files"),
    "tensor": ("from_tensors",),
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


class Sources:
    """The user's files that a pipeline's calls are in, each read once."""

    def __init__(self, pipeline: Pipeline, read: Callable[[str], str], own: Callable[[str], bool]) -> None:
        self.pipeline = pipeline
        self._read, self._own = read, own
        self._modules: dict[str, Module | str] = {}

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
        if not self._own(file):
            return f"{file} is generated, or belongs to a library"
        try:
            return Module(file, self._read(file))
        except (OSError, UnicodeError, SyntaxError, ValueError, RecursionError) as error:
            return f"{file} could not be read as Python ({type(error).__name__})"

    def call(self, op: PipelineOp, meant: Collection[str], *names: str) -> tuple[Module, Link]:
        """The call of a method that made an op.

        Args:
            op: of the outer pipeline.
            meant: names of all ops that the edit may change, this one included.
            names: of the methods; those that make such ops by default.

        Raises:
            NoEditError: there is none, it is not clear which, or it made other ops as well.
        """
        names = names or methods(op)
        module = self.module(op.location.file)
        found = [link for link in _at(module, op.location.line) if link.name in names]
        outer = [link for link in found if not _traced(module, link)]
        found = outer or found
        if not found:
            raise NoCallError(f"{op.op} at {place(op)} does not come from a call of .{names[0]}(...) there")
        siblings = [one for one in self.pipeline.ops if _same_place(one, op) and set(methods(one)) & set(names)]
        inside = [one for one in _inner(self.pipeline.ops) if _same_place(one, op) and set(methods(one)) & set(names)]
        if inside and not (outer and len(outer) == len(siblings)):
            raise NoEditError(f"the call at {place(op)} makes a dataset inside another one's function as well")
        if len(found) == len(siblings) and (len(found) == 1 or _one_chain(module, found)):
            return module, found[[one.name for one in siblings].index(op.name)]
        others = [one.name for one in siblings if one.name not in meant]
        if others and len(found) == 1:
            raise NoEditError(f"the call at {place(op)} runs {len(siblings)} times, and not all of them are meant")
        if others or len(found) > len(siblings):
            raise NoEditError(f"there are {len(found)} such calls at {place(op)}, and it is not clear which is meant")
        return module, found[min([one.name for one in siblings].index(op.name), len(found) - 1)]

    def maker(self, op: PipelineOp) -> tuple[Module, Link]:
        """The call behind which a link can be put so that it comes behind the op: its own, or that of a helper.

        Raises:
            NoEditError: as for :meth:`call`.
        """
        try:
            return self.call(op, (op.name,))
        except NoEditError:
            module = self.module(op.location.file)
            here = [one for one in self.pipeline.ops if _same_place(one, op)]
            whole = [link for link in _at(module, op.location.line) if _outermost(module, link)]
            if len(whole) != 1 or not here or here[-1].name != op.name or whole[0].name in methods(op):
                raise
            return module, whole[0]


def one_module(links: Sequence[tuple[Module, Link]]) -> Module:
    """The file that all the calls are in.

    Raises:
        NoEditError: they are in several.
    """
    if len({module.file for module, _ in links}) > 1:
        raise NoEditError("the calls are in several files")
    return links[0][0]


def methods(op: PipelineOp) -> tuple[str, ...]:
    """Names of the methods that make such ops."""
    found = _KIND.match(op.op)
    words = _WORDS.sub("_", found.group(1) if found else op.op).lower()
    return _BY_ANOTHER_NAME.get(words, (words,))


def kind(op: PipelineOp) -> str:
    """The method's name, whatever version of the op it makes: ``map`` for ``ParallelMapDatasetV2``."""
    return methods(op)[0]


def place(op: PipelineOp) -> str:
    """Where an op was made, for a sentence."""
    return f"{op.location.file}:{op.location.line}" if op.location.file else "an unknown place"


def _at(module: Module, line: int | None) -> list[Link]:
    """The calls that run at a line; a call with ``*`` runs at the line where its whole expression begins."""
    if line is None:
        return []
    exact = [link for link in module.links if link.line == line]
    spread = [link for link in module.links if link.line != line == link.node.lineno and _spread(link.node)]
    return sorted([*exact, *spread], key=lambda link: link.end)


def _spread(node: ast.Call) -> bool:
    return any(isinstance(one, ast.Starred) for one in node.args) or any(one.arg is None for one in node.keywords)


def _traced(module: Module, link: Link) -> bool:
    """Whether it runs inside a function that is written as the argument of a dataset's method."""
    node: ast.AST = link.node
    for parent in module.source.ancestors(node):
        if isinstance(parent, ast.Call) and isinstance(node, ast.Lambda | ast.keyword) and node is not parent.func:
            called = getattr(parent.func, "attr", "")
            function = node.value if isinstance(node, ast.keyword) else node
            if called in _WITH_FUNCTIONS and isinstance(function, ast.Lambda):
                return True
        node = parent
    return False


def _one_chain(module: Module, links: list[Link]) -> bool:
    """Whether each is called on what the one before returned, possibly with other links between."""
    for before, after in itertools.pairwise(links):
        current: Link | None = before
        while current is not None and current is not after:
            current = module.next_link(current)
        if current is None:
            return False
    return True


def _outermost(module: Module, link: Link) -> bool:
    """Whether nothing is called on it, and it is no argument of another call."""
    for parent in module.source.ancestors(link.node):
        if isinstance(parent, ast.Call):
            return False
        if isinstance(parent, ast.stmt | ast.Lambda):
            return True
    return True


def _same_place(one: PipelineOp, other: PipelineOp) -> bool:
    return (one.location.file, one.location.line) == (other.location.file, other.location.line)


def _inner(ops: Iterable[PipelineOp]) -> Iterator[PipelineOp]:
    for op in ops:
        yield from op.inner
        yield from _inner(op.inner)
