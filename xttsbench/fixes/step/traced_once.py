"""A tf.function that is traced again and again, traced once: Python numbers become tensors where it is called.

What else is computed from such a number inside the function decides its type: beside floats, and in divisions, a tensor
of whole numbers would not do what the Python number does. Whether the losses stay is for the trials to say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal

import libcst as cst

from xttsbench.fixes.step.patch import compiled_by, step_at
from xttsbench.fixes.step.retraced import Retraced, retraced
from xttsbench.targets.source.calls import Calls, attempt
from xttsbench.targets.source.edits import (
    Change,
    Found,
    NoEditError,
    NothingToDoError,
    Replacement,
    argument,
    change,
    spelled,
    with_argument,
)
from xttsbench.targets.source.module import Link, Module

_WHOLE: Final = (cst.Add, cst.Subtract, cst.Multiply, cst.FloorDivide, cst.Modulo)
"""Operators that leave whole numbers whole."""
_PASSES: Final = 3
"""Over a function's assignments, each of which may be of a name that the one before gave a value."""
_TypeOf = Literal["number", "whole", "other"]


def traced_once(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """Python numbers handed over as tensors, and shapes left open."""
    place = calls.step_place
    if place is None or place.file is None or place.line is None:
        return [Found(why_not="it is not known which function is traced again")]
    file, line = place.file, place.line
    by_hand = f"pass Python numbers to the step at {file}:{line} as tensors, tf.constant(number)"
    return [attempt(lambda: _changes(calls, calls.module(file), line), by_hand)]


def _changes(calls: Calls, module: Module, line: int) -> list[Change]:
    node = step_at(module, line)
    if node is None:
        raise NoEditError(f"there is no function at {module.file}:{line}")
    why = retraced(calls.step_traces, node.name.value)
    if why is None:
        raise NothingToDoError("nothing that the step is given makes it be traced again")
    if why.why_not is not None:
        raise NoEditError(why.why_not)
    found = [_open_shapes(module, node)] if why.shapes else []
    return [*found, *_as_tensors(calls, module, node, why)] if why.numbers else found


def _open_shapes(module: Module, node: cst.FunctionDef) -> Change:
    wrapping, bare = compiled_by(module, node)
    if bare is not None and not wrapping:
        start, end = module.span(bare)
        return Change(module, module.line(node), (start, end), (Replacement(end, end, "(reduce_retracing=True)"),))
    if len(wrapping) != 1 or bare is not None:
        raise NoEditError(f"the step is made a tf.function in {len(wrapping) or 'no'} places that are seen")
    step = with_argument(module, wrapping[0], "reduce_retracing", None, "True")
    if step is None:
        raise NothingToDoError("its shapes are left open already")
    return change(module, wrapping[0], step)


def _as_tensors(calls: Calls, module: Module, node: cst.FunctionDef, why: Retraced) -> list[Change]:
    wrapping, _ = compiled_by(module, node)
    names = {node.name.value, *(name for link in wrapping for name in _given_to(module, link))}
    names_of = [one.name.value for one in (*node.params.posonly_params, *node.params.params)]
    stays_whole = {name: whole and not _meets_floats(module, node, name) for name, whole in why.numbers.items()}
    found = []
    for each in calls.modules():
        for link in (one for one in each.links if one.name in names and one not in wrapping):
            own = names_of[1:] if isinstance(link.node.func, cst.Attribute) and names_of[:1] == ["self"] else names_of
            steps = [
                step
                for name, whole in stays_whole.items()
                if (given := argument(link, name, own.index(name) if name in own else None)) is not None
                for step in _tensor(each, given, whole=whole)
            ]
            if steps:
                found.append(change(each, link, *steps))
    if not found:
        raise NoEditError(f"no call of {node.name.value}(...) gives {', '.join(why.numbers)} where it can be edited")
    return found


def _given_to(module: Module, link: Link) -> Collection[str]:
    """Names that what ``tf.function(step)`` makes is given."""
    around = module.parent(link.node)
    targets = around.targets if isinstance(around, cst.Assign) else ()
    return [one.target.value for one in targets if isinstance(one.target, cst.Name)]


def _tensor(module: Module, given: cst.Arg, *, whole: bool) -> list[Replacement]:
    start, end = module.start(given.value), module.end(given.value)
    constant = spelled(module, given, "constant")
    dtype = "" if whole else f", {spelled(module, given, 'float32')}"
    return [Replacement(start, start, f"{constant}("), Replacement(end, end, f"{dtype})")]


def _meets_floats(module: Module, node: cst.FunctionDef, name: str) -> bool:
    """Whether a function computes with an argument what a tensor of whole numbers cannot be used for."""
    numbers = {name}
    for _ in range(_PASSES):
        for one in module.inside(node.body, cst.Assign):
            if _type_of(module, one.value, numbers) == "whole":
                numbers |= {target.target.value for target in one.targets if isinstance(target.target, cst.Name)}
    for binary in module.inside(node.body, cst.BinaryOperation):
        parts = [_type_of(module, side, numbers) for side in (binary.left, binary.right)]
        if "whole" in parts and _type_of(module, binary, numbers) == "other":
            return True
    for test in module.inside(node.body, cst.Comparison):
        sides = [_type_of(module, side, numbers) for side in (test.left, *(one.comparator for one in test.comparisons))]
        if "whole" in sides and "other" in sides:
            return True
    return False


def _type_of(module: Module, node: cst.BaseExpression, numbers: Collection[str]) -> _TypeOf:
    """``whole`` of what is computed from such an argument and stays whole, ``number`` of a whole number itself."""
    if isinstance(node, cst.Name) and node.value in numbers:
        return "whole"
    if isinstance(node, cst.UnaryOperation):
        return _type_of(module, node.expression, numbers)
    if isinstance(node, cst.BinaryOperation):
        parts = {_type_of(module, side, numbers) for side in (node.left, node.right)}
        if "other" in parts or not isinstance(node.operator, _WHOLE):
            return "other"
        return "whole" if "whole" in parts else "number"
    return "number" if module.integer(node) is not None else "other"
