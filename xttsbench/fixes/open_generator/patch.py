"""A generator that yields calls or items, and a data set that makes the elements in parallel, in the user's source.

The statements of the loop's body move, as they are written, into a function in front of the loop; the loop yields that
function with its arguments. Where the body was traced (the fix ``native``), the loop keeps what picks the items and
yields these; the traced function is written in front of the call. The call of ``from_generator`` becomes one of a small
function that is written beside it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import libcst as cst

from xttsbench.fixes.native.written import defined
from xttsbench.fixes.open_generator import OPEN_GENERATOR, openable
from xttsbench.pipeline.python.names import exposed, jumps, stored, yields
from xttsbench.records.pipeline import GeneratorParts, PipelineOp, PythonFunction
from xttsbench.targets.source.calls import Call, Calls, attempt
from xttsbench.targets.source.edits import (
    Change,
    Found,
    NoEditError,
    Replacement,
    argument,
    autotune_or,
    change,
    spelled,
    with_argument,
)
from xttsbench.targets.source.module import Link, Module


@dataclass
class Loop:
    """The loop of a generator in the user's file."""

    module: Module
    parts: GeneratorParts

    def __post_init__(self) -> None:
        self.text = self.module.text
        tree = ast.parse(self.text.removeprefix("\ufeff"))
        functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
        loops = [(function, node) for function in functions for node in _loops(function)]
        loops = [(function, node) for function, node in loops if node.lineno == self.parts.line]
        if not loops:
            raise NoEditError("its elements do not come from a loop that is written as one")
        self.function, self.node = loops[-1]
        kinds = [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
        self.kind = next((one.name for one in kinds if self.function in one.body), "")
        self.tree = tree
        self.head = [one for one in self.node.body if one.lineno in self.parts.kept]
        self.body = [one for one in self.node.body if one not in self.head]
        if not self.body:
            raise NoEditError("nothing of its loop can be moved")

    def check_uses(self, other: Module) -> None:
        """Refuse where something else may use the generator, which yields calls from now on.

        Raises:
            NoEditError: its name is used at several places.
        """
        name = self.function.name if not self.function.name.startswith("__") else self.kind
        modules = {self.module.file: self.module, other.file: other}.values()
        uses = [
            one
            for module in modules
            for one in (*module.of(cst.Name), *module.of(cst.ImportAlias))
            if isinstance(one, cst.Name) and one.value == name
        ]
        imported = len(modules) - 1
        if not name or self.function.name == "__iter__" or len(uses) != 2 + imported:
            raise NoEditError(f"{name or self.function.name} may be used elsewhere, too")

    def change(self) -> Change:
        """The loop with its body as a function in front of it."""
        body = self.body
        inner: ast.stmt = body[-1]
        while isinstance(inner, ast.With):
            inner = inner.body[-1]
        plain = isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Yield)
        if not plain or sum(len(yields(one)) for one in body) != 1 or any(jumps(one) for one in body):
            raise NoEditError("an item does not give exactly one element, at the end of the loop")
        element = self._free("element")
        given = self._given()
        edge = self.module.line_end
        moved = [self._moved(one, inner, self._deeper) for one in body]
        function = [f"{' ' * self.node.col_offset}def {element}({', '.join(given)}):{edge}", *moved, edge]
        return self._yielding(", ".join((element, *given)) if given else f"{element},", function)

    def of_items(self, values: Sequence[str]) -> Change:
        """The loop without its body, so that it yields items.

        Args:
            values: the parts of an item as they are written in the loop; calls of the body that the loop makes itself
                are ``_xttsbench_drawn_0`` and so on.
        """
        self._given()  # for what it refuses
        drawn = [name for statement in self.body for name, _, _ in self._drawn(statement)]
        names = {f"_xttsbench_drawn_{number}": name for number, name in enumerate(drawn)}
        return self._yielding(re.sub(r"_xttsbench_drawn_\d+", lambda found: names[found[0]], ", ".join(values)))

    @property
    def _deeper(self) -> str:
        first = self.node.body[0]
        return " " * (first.col_offset if self._own_line(first) else self.node.col_offset + 4)

    def _yielding(self, yielded: str, before: Sequence[str] = ()) -> Change:
        """The loop with its head alone, which yields something in place of its element, behind what comes before it."""
        start, end = self._line_start(self.node.lineno), self._after(self.node)
        edge, pieces = self.module.line_end, [*before, self._header(), self.module.line_end]
        for one in self.node.body:
            if one in self.head:
                pieces.append(self._chunk(one, self._deeper))
                continue
            pieces += [f"{self._deeper}{name} = {self.text[a:b]}{edge}" for name, a, b in self._drawn(one)]
            pieces += [f"{self._deeper}yield {yielded}{edge}"] if one is self.body[-1] else []
        pieces.append(self.text[self._after(self.node.body[-1]) : end])
        return Change(self.module, self.node.lineno, (start, end), (Replacement(start, end, "".join(pieces)),))

    def _given(self) -> list[str]:
        """Arguments of the function: what changes from item to item, or may change while calls are waiting."""
        body, function = self.body, self.function
        arguments = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
        each = stored(self.head) | (stored(self.node.target) if isinstance(self.node, ast.For) else set())
        wanted = exposed(body) & (arguments | stored(function.body))
        for one in self.head:
            first = next(other for other in self.node.body if other in body and exposed([other]) & wanted)
            if first.lineno < one.lineno < body[-1].lineno and stored(one) & exposed([first]):
                raise NoEditError(f"{min(stored(one))!r} is bound anew between its uses")
        around = [one for one in _loops(function) if one is not self.node]
        again = any(one.lineno < self.node.lineno <= (one.end_lineno or 0) for one in around)
        names = [one for one in ast.walk(function) if isinstance(one, ast.Name)]
        bound = [one.id for one in names if not isinstance(one.ctx, ast.Load)]
        fixed = {name for name in wanted - each if bound.count(name) + (name in arguments) <= 1 and not again}
        drawn = [name for one in body for name, _, _ in self._drawn(one)]
        order = {one.id: number for number, one in reversed(list(enumerate(names)))}
        return [*sorted(wanted - fixed, key=lambda name: order.get(name, -1)), *drawn]

    def _drawn(self, statement: ast.stmt) -> list[tuple[str, int, int]]:
        """Calls of a statement that the loop makes itself: name of the value, and the span of the call."""
        found = []
        for number, (line, column, end_line, end_column) in enumerate(self.parts.drawn):
            if statement.lineno <= line <= (statement.end_lineno or 0):
                name = self._free("drawn" if number == 0 else f"drawn_{number + 1}")
                found.append((name, self._offset(line, column), self._offset(end_line, end_column)))
        return found

    def _moved(self, statement: ast.stmt, inner: Any, indent: str) -> str:
        """A statement as it is written, with names for what was drawn before, and ``return`` for ``yield``."""
        text, base = self._chunk(statement, indent), self._chunk_start(statement)
        shift = (
            len(text) - (self._after(statement) - base)
            if self._own_line(statement)
            else len(indent) - (self._offset(statement.lineno, statement.col_offset) - base)
        )
        changes = [(a, b, name) for name, a, b in self._drawn(statement)]
        if statement.lineno <= inner.lineno <= (statement.end_lineno or 0) and isinstance(inner.value, ast.Yield):
            at = self._offset(inner.lineno, inner.col_offset)
            if self.text[at : at + 5] == "yield":
                changes.append((at, at + 5, "return"))
        for a, b, new in sorted(changes, reverse=True):
            text = text[: a - base + shift] + new + text[b - base + shift :]
        return text

    def _chunk(self, statement: ast.stmt, indent: str) -> str:
        before = "" if self._own_line(statement) else indent
        return before + self.text[self._chunk_start(statement) : self._after(statement)]

    def _chunk_start(self, statement: ast.stmt) -> int:
        """Offset of a statement, of its line where it stands on lines of its own, or of the comments above that."""
        if not self._own_line(statement):
            return self._offset(statement.lineno, statement.col_offset)
        number = self.node.body.index(statement)
        return self._after(self.node.body[number - 1]) if number else self._line_start(statement.lineno)

    def _header(self) -> str:
        return self.text[self._line_start(self.node.lineno) : self._chunk_start(self.node.body[0])].rstrip()

    def _own_line(self, statement: ast.stmt) -> bool:
        start = self._offset(statement.lineno, statement.col_offset)
        return not self.text[self.module.line_start(start) : start].strip()

    def _after(self, node: Any) -> int:
        stop = self.module.line_stop(self._offset(node.end_lineno, node.end_col_offset))
        return stop + len(self.module.line_end) if stop < len(self.text) else stop

    def _line_start(self, line: int) -> int:
        return self._offset(line, 0)

    def _offset(self, line: int, column: int) -> int:
        start = self.module._starts[line - 1]
        stop = self.module.line_stop(start)
        return start + len(self.text[start:stop].encode()[:column].decode())

    def _free(self, name: str) -> str:
        taken = {one.id for one in ast.walk(self.tree) if isinstance(one, ast.Name)}
        taken |= {one.name for one in ast.walk(self.tree) if isinstance(one, ast.FunctionDef | ast.ClassDef)}
        return name if name not in taken else f"{self.function.name}_{name}"


def _loops(function: ast.FunctionDef) -> list[ast.For | ast.While]:
    return [one for one in ast.walk(function) if isinstance(one, ast.For | ast.While)]


_CALLS_HELPER: Final = "parallel_generator"
_ITEMS_HELPER: Final = "parallel_elements"
_WORKERS: Final = "give the PyDataset workers={}, by super().__init__(...), so that Keras makes its batches in threads"
_BY_HAND: Final = "apply the saved plan, which makes the ops each time"
_OF_CALLS: Final = '''\
def {name}(generator, output_signature, args=None, calls={autotune}):
    """Like from_generator, for a generator of calls ``(function, *arguments)``: makes several at a time, in order."""
    import itertools

    import numpy as np

    waiting, numbers, specs = {{}}, itertools.count(), {tf}nest.flatten(output_signature)

    def picked(*given):
        for call in generator(*given):
            number = next(numbers)
            waiting[number] = call
            yield number

    def flat(signature, value):
        if isinstance(signature, dict):
            return [part for key in sorted(signature) for part in flat(signature[key], value[key])]
        if isinstance(signature, tuple):
            return [part for one, inner in zip(signature, value, strict=True) for part in flat(one, inner)]
        return [np.asarray(value, signature.dtype.as_numpy_dtype)]

    def make(number):
        function, *arguments = waiting.pop(int(number))
        return flat(output_signature, function(*arguments))

    def mapped(number):
        parts = {tf}numpy_function(make, [number], [spec.dtype for spec in specs])
        parts = parts if isinstance(parts, (list, tuple)) else [parts]
        shaped = [{tf}ensure_shape(part, spec.shape) for part, spec in zip(parts, specs, strict=True)]
        return {tf}nest.pack_sequence_as(output_signature, shaped)

    items = {tf}data.Dataset.from_generator(picked, output_signature={tf}TensorSpec([], {tf}int64), args=args)
    return items.map(mapped, num_parallel_calls=calls, deterministic=True)


'''
_OF_ITEMS: Final = '''\
def {name}(generator, output_signature, items, element, args=None, calls={autotune}):
    """Like from_generator, for a generator of items: makes an element of each, several at a time, in order."""
    specs = {tf}nest.flatten(output_signature)

    def mapped(*item):
        parts = [{tf}cast(part, spec.dtype) for part, spec in zip({tf}nest.flatten(element(*item)), specs, strict=True)]
        shaped = [{tf}ensure_shape(part, spec.shape) for part, spec in zip(parts, specs, strict=True)]
        return {tf}nest.pack_sequence_as(output_signature, shaped)

    source = {tf}data.Dataset.from_generator(generator, output_signature=items, args=args)
    return source.map(mapped, num_parallel_calls=calls, deterministic=True)


'''


def open_generator(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """Every generator that can be opened, each with the call that makes a data set of it."""
    found, helped = list[Found](), set[tuple[str, str]]()
    for one in calls.pipeline.ops:
        function = openable(one, calls.pipeline)
        if function is not None and function.parts is not None:
            traced = traced_loop(calls, one, function, number, helped)
            if traced is not None and traced.why_not is None:
                found.append(traced)
                continue
            of_keras = (function.parts.file or "").endswith("py_dataset_adapter.py")
            by_hand = _WORKERS.format(number or 8) if of_keras else OPEN_GENERATOR.by_hand or ""
            found.append(attempt(partial(_yielding_calls, calls, one, function.parts, number, helped), by_hand))
    return found or [Found(why_not="the pipeline has no generator that can be opened")]


def traced_loop(
    calls: Calls, op: PipelineOp, function: PythonFunction, number: int | None, helped: set[tuple[str, str]]
) -> Found | None:
    """The edit of one generator, or why there is none; ``None`` where its body is not to become ops.

    Args:
        calls: of the pipeline.
        op: that the generator feeds.
        function: the generator.
        number: of calls at a time; ``None`` is AUTOTUNE.
        helped: files and functions that are written in them already.
    """
    native, parts = function.native, function.parts
    if "native" not in calls.together or native is None or native.call_time_s is None or parts is None:
        return None

    def edit() -> Sequence[Change]:
        if native.text is None:
            raise NoEditError(f"the loop of {function.name}() has no text that can be read: {native.why_no_text}")
        loop, (module, link) = _loop_and_call(calls, op, parts)
        tf = spelled(module, link.node, "data").removesuffix("data")
        specs = [f"{tf}TensorSpec({[None] * one.rank}, {tf}{one.dtype})" for one in native.items]
        items = specs[0] if len(specs) == 1 else f"({', '.join(specs)})"
        made = loop.of_items([one.value for one in native.items])
        written, element = defined(module, link.node, native)
        more = f"items={items}", f"element={element}"
        return [made, _helped((module, link), _ITEMS_HELPER, _OF_ITEMS, number, helped, *more, step=written)]

    return attempt(edit, _BY_HAND)


def _yielding_calls(
    calls: Calls, op: PipelineOp, parts: GeneratorParts, number: int | None, helped: set[tuple[str, str]]
) -> Sequence[Change]:
    loop, call = _loop_and_call(calls, op, parts)
    return [loop.change(), _helped(call, _CALLS_HELPER, _OF_CALLS, number, helped)]


def _loop_and_call(calls: Calls, op: PipelineOp, parts: GeneratorParts) -> tuple[Loop, Call]:
    """A generator's loop, and the call that makes a data set of it, if its arguments can be given to a helper."""
    module, link = calls.call(op, (), "from_generator")
    if argument(link, "output_signature", None) is None or len([a for a in link.node.args if a.keyword is None]) > 1:
        raise NoEditError("from_generator(...) is not given output_signature by its name")
    loop = Loop(calls.module(parts.file), parts)
    loop.check_uses(module)
    return loop, (module, link)


def _helped(
    call: Call,
    name: str,
    text: str,
    number: int | None,
    helped: set[tuple[str, str]],
    *more: str,
    step: Replacement | None = None,
) -> Change:
    """The call as one of a helper, which is written in front where the file does not have it yet.

    ``more`` are arguments beside the number of calls; ``helped`` has the files and helpers that are written already.
    """
    module, link = call
    tf, autotune = spelled(module, link.node, "data").removesuffix("data"), autotune_or(module, link.node, None)
    given = ", ".join([autotune_or(module, link.node, number), *more])
    steps = [Replacement(*module.span(link.node.func), name), with_argument(module, link, "calls", None, given)]
    if (module.file, name) not in helped:
        written = text.format(name=name, tf=tf, autotune=autotune).replace("\n", module.line_end)
        steps.append(Replacement(_top(module, link), _top(module, link), written))
    helped.add((module.file, name))
    return change(module, link, *(one for one in (*steps, step) if one is not None))


def _top(module: Module, link: Link) -> int:
    """Offset in front of the outermost statement that a call is in, its decorators and comments included."""
    around = [one for one in module.ancestors(link.node) if one in module.tree.body]
    statement: Any = around[0]
    place = module.start(statement)
    for decorator in getattr(statement, "decorators", ()):
        place = min(place, module.start(decorator))
    place = module.line_start(place)
    for line in reversed(getattr(statement, "leading_lines", ())):
        if line.comment is None:
            break
        place = module.line_start(place - 1)
    return place
