"""A generator that yields calls, and a data set that makes the elements in parallel, in the user's source.

The statements of the loop move, as they are written, into a function in front of it; the loop yields that function with
its arguments. The call of ``from_generator`` becomes one of a small function that is written beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import libcst as cst

from xttsbench.fixes.open_generator import OPEN_GENERATOR, openable
from xttsbench.fixes.step.written_out import above
from xttsbench.records.pipeline import GeneratorParts, PipelineOp
from xttsbench.targets.source.calls import Calls, attempt
from xttsbench.targets.source.edits import Change, Found, NoEditError, Replacement
from xttsbench.targets.source.link_edits import argument, autotune_or, change, spelled, with_argument
from xttsbench.targets.source.module import Module

_HELPER: Final = "parallel_generator"
_WORKERS: Final = {
    "py_dataset_adapter.py": "give the PyDataset workers={}, by super().__init__(...), so that Keras makes its batches "
    "in threads",
    "data_adapter.py": "give fit workers={}, so that Keras makes the batches of the Sequence in threads",
}
"""File in which Keras 3, or 2, iterates over what it is given -> what can be done by hand."""
_BY_HAND: Final = "apply the saved plan, which makes the ops each time"
_TEXT: Final = '''\
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


def open_generator(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """Every generator that can be opened, each with the call that makes a data set of it."""
    found, helped = list[Found](), set[str]()
    for one in calls.pipeline.ops:
        function = openable(one, calls.pipeline)
        if function is not None and function.parts is not None:
            by_hand = _by_hand(function.parts, number or 8)
            found.append(attempt(partial(_opened, calls, one, function.parts, number, helped), by_hand))
    return found or [Found(why_not="the pipeline has no generator that can be opened")]


def _by_hand(parts: GeneratorParts, workers: int) -> str:
    adapter = os.path.basename(parts.file or "")
    if adapter in _WORKERS and parts.reads is not None:
        early = "Keras starts them before on_epoch_begin()"
        return f"{_BY_HAND}; workers={workers} would not do, since {early}, and {parts.reads}"
    return _WORKERS.get(adapter, OPEN_GENERATOR.by_hand or "").format(workers)


def _opened(
    calls: Calls, op: PipelineOp, parts: GeneratorParts, number: int | None, helped: set[str]
) -> Sequence[Change]:
    """The loop that yields calls, and the call of the helper; ``helped`` has the files in which that is written."""
    module, link = calls.call(op, (), "from_generator")
    if argument(link, "output_signature", None) is None or len([a for a in link.node.args if a.keyword is None]) > 1:
        raise NoEditError("from_generator(...) is not given output_signature by its name")
    loop = _yielding_calls(calls.module(parts.file), module, parts)
    given = with_argument(module, link, "calls", None, autotune_or(module, link.node, number))
    steps = [Replacement(*module.span(link.node.func), _HELPER), given]
    if module.file not in helped:
        tf, autotune = spelled(module, link.node, "data").removesuffix("data"), autotune_or(module, link.node, None)
        text = _TEXT.format(name=_HELPER, tf=tf, autotune=autotune).replace("\n", module.line_end)
        statement = next(one for one in module.ancestors(link.node) if one in module.tree.body)
        top = above(module, next(iter(getattr(statement, "decorators", ())), statement))
        steps.append(Replacement(top, top, text))
        helped.add(module.file)
    return [loop, change(module, link, *(one for one in steps if one is not None))]


def _yielding_calls(module: Module, other: Module, parts: GeneratorParts) -> Change:
    """The loop of a generator with its body as a function in front of it; ``other`` is the file that calls it."""
    loop = next((one for one in module.of(cst.For) if module.line(one) == parts.line), None)
    last = loop.body.body[-1] if loop is not None else None
    last = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last
    if loop is None or not isinstance(last, cst.Expr):
        raise NoEditError("its elements do not come from a loop that is written as one")
    _check_uses(module, other, loop)
    first, edge, returned = loop.body.body[0], module.line_end, module.start(last)
    begin, end = module.line_start(module.start(loop)), module.line_stop(module.end(last))
    indent, below = module.indent(module.start(loop)), module.line(first) > module.line(loop)
    begins = module.line_start(module.start(first)) if below else module.start(first)
    deeper = module.indent(module.start(first)) if below else f"{indent}    "
    body = f"{module.text[begins:returned]}return{module.text[returned + len('yield') : end]}"
    taken, given = {one.value for one in module.of(cst.Name)}, ", ".join(parts.given)
    element = "element" if "element" not in taken else "element_of_item"
    function = f"{indent}def {element}({given}):{edge}{'' if below else deeper}{body}{edge}{edge}"
    yielding = f"{deeper}yield {element}, {given}".rstrip()
    new = f"{function}{module.text[begin:begins].rstrip()}{edge}{yielding}"
    return Change(module, module.line(loop), (begin, end), (Replacement(begin, end, new),))


def _check_uses(module: Module, other: Module, loop: cst.For) -> None:
    """Refuse where something else may use the generator, which yields calls from now on.

    Raises:
        NoEditError: its name is used at several places.
    """
    around = [one for one in module.ancestors(loop) if isinstance(one, cst.ClassDef | cst.FunctionDef)]
    own, kind = around[0].name.value, "".join(one.name.value for one in around[1:2] if isinstance(one, cst.ClassDef))
    name = kind if own.startswith("__") else own
    modules = {module.file: module, other.file: other}.values()
    uses = [one for file in modules for one in file.of(cst.Name) if one.value == name]
    if not name or own == "__iter__" or len(uses) != 1 + len(modules):
        raise NoEditError(f"{name or own} may be used elsewhere, too")
