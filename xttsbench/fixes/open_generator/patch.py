"""A generator that yields calls or items, and a data set that makes the elements in parallel, in the user's source.

The statements of the loop move, as they are written, into a function in front of it; the loop yields that function with
its arguments. Where the body was traced (the fix ``native``), the loop yields the items alone, and the traced function
is written in front of the call. The call of ``from_generator`` becomes one of a small function that is written beside
it.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

import libcst as cst

from xttsbench.fixes.native.written import defined
from xttsbench.fixes.open_generator import OPEN_GENERATOR, openable
from xttsbench.records.pipeline import GeneratorParts, PipelineOp, PythonFunction
from xttsbench.targets.source.calls import Call, Calls, attempt
from xttsbench.targets.source.edits import Change, Found, NoEditError, Replacement
from xttsbench.targets.source.link_edits import argument, autotune_or, change, spelled, with_argument
from xttsbench.targets.source.module import Module
from xttsbench.targets.source.tree import Link


class Loop:
    """The loop of a generator in the user's file: its header and its body as texts."""

    def __init__(self, module: Module, parts: GeneratorParts) -> None:
        """Find the loop by its line.

        Raises:
            NoEditError: the file has none there.
        """
        self._module, self._given, edge = module, ", ".join(parts.given), module.line_end
        self._tree = ast.parse(module.text.removeprefix("\ufeff"))
        found = [one for one in ast.walk(self._tree) if isinstance(one, ast.For) and one.lineno == parts.line]
        if len(found) != 1 or not isinstance(found[0].body[-1], ast.Expr):
            raise NoEditError("its elements do not come from a loop that is written as one")
        self._node = found[0]
        first, last = self._node.body[0], self._node.body[-1]
        below = first.lineno > self._node.lineno
        self._begin, begins = (
            self._offset(self._node.lineno, 0),
            self._offset(first.lineno, 0 if below else first.col_offset),
        )
        returned = self._offset(last.lineno, last.col_offset)
        self._end = module.line_stop(self._offset(last.end_lineno or 0, last.end_col_offset or 0))
        self._deeper = " " * (first.col_offset if below else self._node.col_offset + 4)
        self._header = module.text[self._begin : begins].rstrip()
        body = module.text[begins:returned] + "return" + module.text[returned + len("yield") : self._end]
        self._body = f"{'' if below else self._deeper}{body}{edge}"

    def check_uses(self, other: Module) -> None:
        """Refuse where something else may use the generator, which yields calls from now on.

        Raises:
            NoEditError: its name is used at several places.
        """
        kinds = [one for one in ast.walk(self._tree) if isinstance(one, ast.FunctionDef | ast.ClassDef)]
        around = [one for one in kinds if self._node in ast.walk(one)]
        function = next(one for one in reversed(around) if isinstance(one, ast.FunctionDef))
        kind = next((one.name for one in around if isinstance(one, ast.ClassDef) and function in one.body), "")
        name = kind if function.name.startswith("__") else function.name
        modules = {self._module.file: self._module, other.file: other}.values()
        uses = [
            one
            for module in modules
            for one in (*module.of(cst.Name), *module.of(cst.ImportAlias))
            if isinstance(one, cst.Name) and one.value == name
        ]
        if not name or function.name == "__iter__" or len(uses) != 1 + len(modules):
            raise NoEditError(f"{name or function.name} may be used elsewhere, too")

    def of_calls(self) -> Change:
        """The loop with its body as a function in front of it."""
        taken = {one.id for one in ast.walk(self._tree) if isinstance(one, ast.Name)}
        taken |= {one.name for one in ast.walk(self._tree) if isinstance(one, ast.FunctionDef | ast.ClassDef)}
        element, edge = "element" if "element" not in taken else "element_of_item", self._module.line_end
        function = f"{' ' * self._node.col_offset}def {element}({self._given}):{edge}{self._body}{edge}"
        return self._yielding(f"{element}, {self._given}".removesuffix(" "), function)

    def of_items(self, values: Sequence[str]) -> Change:
        """The loop without its body, so that it yields items; ``values`` are the parts of one as the loop has them."""
        return self._yielding(", ".join(values))

    def _yielding(self, yielded: str, before: str = "") -> Change:
        """The loop that yields something in place of its element, behind what comes before it."""
        new = f"{before}{self._header}{self._module.line_end}{self._deeper}yield {yielded}"
        span = (self._begin, self._end)
        return Change(self._module, self._node.lineno, span, (Replacement(*span, new),))

    def _offset(self, line: int, column: int) -> int:
        start = self._module._starts[line - 1]
        return start + len(self._module.text[start : self._module.line_stop(start)].encode()[:column].decode())


_CALLS_HELPER: Final = "parallel_generator"
_ITEMS_HELPER: Final = "parallel_elements"
_WORKERS: Final = {
    "py_dataset_adapter.py": "give the PyDataset workers={}, by super().__init__(...), so that Keras makes its batches "
    "in threads",
    "data_adapter.py": "give fit workers={}, so that Keras makes the batches of the Sequence in threads",
}
"""File in which Keras 3, or 2, iterates over what it is given -> what can be done by hand."""
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
            by_hand = _by_hand(function.parts, number or 8)
            found.append(attempt(partial(_yielding_calls, calls, one, function.parts, number, helped), by_hand))
    return found or [Found(why_not="the pipeline has no generator that can be opened")]


def _by_hand(parts: GeneratorParts, workers: int) -> str:
    adapter = os.path.basename(parts.file or "")
    if adapter in _WORKERS and parts.reads is not None:
        early = "Keras starts them before on_epoch_begin()"
        return f"{_BY_HAND}; workers={workers} would not do, since {early}, and {parts.reads}"
    return _WORKERS.get(adapter, OPEN_GENERATOR.by_hand or "").format(workers)


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
    return [loop.of_calls(), _helped(call, _CALLS_HELPER, _OF_CALLS, number, helped)]


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
