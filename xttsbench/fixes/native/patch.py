"""A function of TensorFlow's ops written beside the user's, and called in place of ``numpy_function(...)``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import libcst as cst
from libcst.metadata import ClassScope

from xttsbench.records.pipeline import NativeFunction, PythonFunction
from xttsbench.targets.source.calls import Calls
from xttsbench.targets.source.edits import Change, Found, NoEditError, Replacement
from xttsbench.targets.source.link_edits import spelled
from xttsbench.targets.source.module import Module, argument_of

_CALLS: Final = re.compile(r"^tensorflow\.(numpy_function|py_function|py_func)$")
_BY_HAND: Final = "apply the saved plan, which makes the ops each time"


def native(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """Each traced function as text, and its calls; one entry for each that has been traced."""
    traced = [(one, one.native) for one in calls.pipeline.python_functions if one.native and one.native.call_time_s]
    if not traced:
        yield Found(why_not=f"no text of the functions was made; {_BY_HAND}")
    for function, found in traced:
        if found.text is None:
            yield Found(why_not=f"{function.name}() has no text that can be read: {found.why_no_text}; {_BY_HAND}")
            continue
        try:
            yield Found(tuple(_changes(calls, function, found)))
        except NoEditError as error:
            yield Found(why_not=f"{error}; {_BY_HAND}")


def _changes(calls: Calls, function: PythonFunction, found: NativeFunction) -> Iterator[Change]:
    places = [(module, call) for module in _modules(calls, function) for call in _calls_of(module, function)]
    if not places:
        where = f"{function.location.file}:{function.location.line}"
        raise NoEditError(f"no call of numpy_function or py_function names {function.name} ({where}) as its function")
    for module, call in places:
        yield _change(module, call, function, found)


def _modules(calls: Calls, function: PythonFunction) -> list[Module]:
    """The files in which the function may be called: those of the pipeline's ops, and its own."""
    found = list(calls.modules())
    try:
        own = calls.module(function.location.file)
    except NoEditError:
        return found
    return found if own in found else [*found, own]


def _calls_of(module: Module, function: PythonFunction) -> list[cst.Call]:
    """The calls that hand the function to TensorFlow."""
    found = []
    for call, name in module.calls:
        given = argument_of(call, 0, "func") if _CALLS.match(name) else None
        if given is not None and _is(module, given, function):
            found.append(call)
    return found


def _is(module: Module, given: cst.BaseExpression, function: PythonFunction) -> bool:
    """Whether an expression is the function: the lambda, or a name that was given to nothing else."""
    line, own = function.location.line, module.file == function.location.file
    if isinstance(given, cst.Lambda):
        return own and module.line(given) == line
    if isinstance(given, cst.Attribute):
        return given.attr.value == function.name.rsplit(".", 1)[-1]
    if not isinstance(given, cst.Name) or module.parameter(given) is not None:
        return False
    values = module.assignments(given.value, given)
    if len(values) != 1:
        return False
    node = values[0].node
    if isinstance(node, cst.FunctionDef):
        first = min([module.line(node.name), *(module.line(one) for one in node.decorators)])
        return own and line is not None and first <= line <= module.line(node.name)
    kept = module.values(given)
    if kept:
        return len(kept) == 1 and isinstance(kept[0], cst.Lambda) and own and module.line(kept[0]) == line
    return not own and given.value == function.name  # imported


def _change(module: Module, call: cst.Call, function: PythonFunction, found: NativeFunction) -> Change:
    given, results = argument_of(call, 1, "inp"), argument_of(call, 2, "Tout")
    if given is None or results is None or any(one.star for one in call.args):
        raise NoEditError(f"{module.file}:{module.line(call)} takes some of its arguments from a list")
    if found.text:
        written, name = _defined(module, call, found)
        steps = [written]
    else:  # it needs no other names
        own = argument_of(call, 0, "func")
        steps, name = [], f"({module.code(own)})" if isinstance(own, cst.Lambda) else module.code(own or call.func)
    new = f"{name}({_arguments(module, given)})"
    if isinstance(results, cst.List | cst.Tuple) and len(results.elements) == 1:
        new = f"[{new}]"
    span = module.span(call)
    return Change(module, module.line(call), span, (*steps, Replacement(*span, new)))


def _arguments(module: Module, given: cst.BaseExpression) -> str:
    """The arguments as the function is given them."""
    if not isinstance(given, cst.List | cst.Tuple):
        return f"*{module.code(given)}"
    parts: Sequence[cst.BaseElement] = given.elements
    return ", ".join(f"{'*' if isinstance(one, cst.StarredElement) else ''}{module.code(one.value)}" for one in parts)


def _defined(module: Module, call: cst.Call, found: NativeFunction) -> tuple[Replacement, str]:
    """The step that writes a traced function in front of what calls it, and its name there.

    Raises:
        NoEditError: something that it uses is not known there.
    """
    name, tf = found.name or "", spelled(module, call, "cast").removesuffix(".cast")
    for before in _places(module, call):
        scope = before if isinstance(before, cst.FunctionDef) else call
        missing = [one for one in found.names if not module.assignments(one, scope)]
        if not missing:
            break
    else:
        raise NoEditError(f"{', '.join(missing)}, which the ops use, is not known at {module.file}:{module.line(call)}")
    while module.assignments(name, scope):
        name += "_"
    text = re.sub(r"\btf\.", f"{tf}.", (found.text or "").replace(f"def {found.name}(", f"def {name}(", 1))
    indent, start = module.indent(module.start(before)), module.line_start(module.start(before))
    gap = module.line_end * (1 if indent else 2)
    lines = [f"{indent}{line}" if line else "" for line in text.rstrip("\n").split("\n")]
    return Replacement(start, start, module.line_end.join(lines) + module.line_end + gap), name


def _places(module: Module, call: cst.Call) -> Iterator[cst.CSTNode]:
    """Statements before which it may go: functions that hold the call, the outermost first, and the call's own."""
    around = [one for one in module.ancestors(call) if isinstance(one, cst.FunctionDef)]
    yield from (one for one in reversed(around) if not isinstance(module.scope(one), ClassScope))
    statement: cst.CSTNode = module.statement(call)
    line = module.parent(statement)
    yield line if isinstance(line, cst.SimpleStatementLine) else statement
