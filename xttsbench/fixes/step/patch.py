"""The training step compiled, by a decorator, a function, or arguments of ``model.compile``; and traced once.

A tf.function that is traced again and again is traced once where its Python numbers come as tensors. What else is
computed from such a number inside the function decides its type: beside floats, and in divisions, a tensor of whole
numbers would not do what the Python number does. Whether the losses stay is for the trials to say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal

import libcst as cst

from xttsbench.fixes.step import Retraced, retraced
from xttsbench.fixes.step.written_out import extracted, function_with_tape
from xttsbench.targets.source.calls import Calls, attempt
from xttsbench.targets.source.edits import Change, Found, NoEditError, NothingToDoError, Replacement
from xttsbench.targets.source.link_edits import argument, change, spelled, with_argument, without_argument
from xttsbench.targets.source.module import Module
from xttsbench.targets.source.tree import Link

_KERAS = ("optimizer", "loss", "metrics", "run_eagerly", "jit_compile")
"""Arguments by which ``model.compile`` is told from other calls of that name."""


def graph_step(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """The step as a ``tf.function``; of a Keras model, no ``run_eagerly``."""
    return [_compiled(calls, xla=False)]


def xla_step(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """The step compiled by XLA."""
    return [_compiled(calls, xla=True)]


def no_xla_step(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """XLA turned off: of a Keras model, or of all tf.functions in the files of the step and the pipeline."""
    if calls.step_place is None:
        return [_given_to_keras(calls, "jit_compile", "False")]
    by_hand = "take jit_compile=True out of the tf.functions that the step calls"
    return [attempt(lambda: _functions_without_xla(calls), by_hand)]


def several_steps(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """So many steps of a Keras model in one call."""
    if calls.step_place is not None:
        return [Found(why_not=f"the step is no Keras model's; take {number} batches in a loop inside the tf.function")]
    return [_given_to_keras(calls, "steps_per_execution", str(number))]


def _functions_without_xla(calls: Calls) -> list[Change]:
    made = [
        change(module, link, step)
        for module in calls.modules()
        for link in module.links
        if _is_function(module, link.node.func) and argument(link, "jit_compile", None) is not None
        if (step := with_argument(module, link, "jit_compile", None, "False")) is not None
    ]
    if not made:
        raise NoEditError("no tf.function in the files of the step and the pipeline is given jit_compile")
    return made


def _compiled(calls: Calls, *, xla: bool) -> Found:
    place, decorator = calls.step_place, f"@tf.function{'(jit_compile=True)' if xla else ''}"
    of_keras = f"give model.compile(...) {'jit_compile=True' if xla else 'run_eagerly=False'}"
    if place is None:
        return attempt(lambda: [_keras(calls, xla=xla)], of_keras)
    file, line = place.file, place.line
    if line is None:
        by_hand = "put the step into a function that takes the batch and write @tf.function above it"
        return attempt(lambda: [_of_script(calls.module(file), xla=xla)], by_hand)
    by_hand = f"write {decorator} above the step's function at {file}:{line}"
    by_hand = by_hand if file and calls.own(file) else f"have that library compile its step (with Keras, {of_keras})"
    return attempt(lambda: [_function(calls.module(file), line, xla=xla)], by_hand)


def _of_script(module: Module, *, xla: bool) -> Change:
    """Edit for a step that was not seen to take a batch: of the function with the tape, or of the loop's body."""
    function = function_with_tape(module)
    return extracted(module, xla=xla) if function is None else _decorated(module, function, xla=xla)


def _function(module: Module, line: int, *, xla: bool) -> Change:
    node = _step_at(module, line)
    if node is not None:
        return _decorated(module, node, xla=xla)
    lambdas = [node for node in module.of(cst.Lambda) if module.line(node) == line]
    if len(lambdas) != 1:
        raise NoEditError(f"there is no function at {module.file}:{line}")
    start, end = module.span(lambdas[0])
    before = Replacement(start, start, f"{spelled(module, lambdas[0], 'function')}(")
    return Change(module, line, (start, end), (before, Replacement(end, end, ", jit_compile=True)" if xla else ")")))


def _decorated(module: Module, node: cst.FunctionDef, *, xla: bool) -> Change:
    wrapping, bare = _compiled_by(module, node)
    if (bare is not None or wrapping) and not xla:
        raise NothingToDoError("the step is a tf.function already")
    if bare is not None:
        return _called(module, node, bare, "jit_compile=True")
    if len(wrapping) > 1:
        raise NoEditError("the step is made a tf.function in several places")
    if wrapping:
        return _given(module, wrapping[0], "jit_compile", "the step is compiled by XLA already")
    if module.inside(node.body, cst.Yield):
        raise NoEditError("the step is a generator")
    start = module.start(node)
    if not module.begins_line(start):
        raise NoEditError("the step's function does not begin its line")
    name = spelled(module, node, "function")
    text = f"@{name}{'(jit_compile=True)' if xla else ''}{module.line_end}{module.indent(start)}"
    return Change(module, module.line(node), (start, module.line_stop(start)), (Replacement(start, start, text),))


def _called(module: Module, node: cst.FunctionDef, bare: cst.BaseExpression, argument: str) -> Change:
    start, end = module.span(bare)
    return Change(module, module.line(node), (start, end), (Replacement(end, end, f"({argument})"),))


def _given(module: Module, link: Link, name: str, already: str, value: str = "True") -> Change:
    step = with_argument(module, link, name, None, value)
    if step is None:
        raise NothingToDoError(already)
    return change(module, link, step)


def _compiled_by(module: Module, node: cst.FunctionDef) -> tuple[list[Link], cst.BaseExpression | None]:
    """The calls of ``tf.function`` on a function, its decorator among them, and a decorator without a call."""
    wrapping = [link for link in module.links if _wraps(module, link, node)]
    for decorator in (one.decorator for one in node.decorators):
        called = module.link(decorator) if isinstance(decorator, cst.Call) else None
        if called is not None and _is_function(module, called.node.func):
            wrapping.append(called)
        elif _is_function(module, decorator):
            return wrapping, decorator
    return wrapping, None


def _step_at(module: Module, line: int) -> cst.FunctionDef | None:
    """The function that is defined at a line, or whose decorator stands there."""
    found = module.of(cst.FunctionDef)
    return next((one for one in found if line in map(module.line, (one, *one.decorators))), None)


def _wraps(module: Module, link: Link, step: cst.FunctionDef) -> bool:
    given = link.node.args[0].value if link.node.args else None
    if not isinstance(given, cst.Name) or not _is_function(module, link.node.func):
        return False
    return any(one.node is step for one in module.assignments(given.value, given))


def _is_function(module: Module, node: cst.CSTNode) -> bool:
    return module.dotted(node) in ("tensorflow.function", "tf.function")


def _compiles(calls: Calls) -> list[tuple[Module, Link]]:
    """The calls of ``model.compile`` in the pipeline's files."""
    return [
        (module, link)
        for module in calls.modules()
        for link in module.links
        if link.name == "compile" and isinstance(link.node.func, cst.Attribute)
        if any(one.keyword is not None and one.keyword.value in _KERAS for one in link.node.args)
        or _is_fitted(module, link.node.func.value)
    ]


def _only(candidates: Sequence[tuple[Module, Link]]) -> tuple[Module, Link]:
    if len(candidates) != 1:
        raise NoEditError(f"the pipeline's files have {len(candidates) or 'no'} model.compile(...) that it could be")
    return candidates[0]


def _given_to_keras(calls: Calls, name: str, value: str) -> Found:
    """An argument of the one ``model.compile``, or of the one that gives it already."""

    def edit() -> list[Change]:
        found = _compiles(calls)
        module, link = _only([one for one in found if argument(one[1], name, None) is not None] or found)
        return [_given(module, link, name, f"model.compile(...) has {name}={value} already", value)]

    return attempt(edit, f"give model.compile(...) {name}={value}")


def _keras(calls: Calls, *, xla: bool) -> Change:
    found = _compiles(calls)
    eager = [(module, link) for module, link in found if argument(link, "run_eagerly", None) is not None]
    module, link = _only(eager or (found if xla else []))
    steps = _arguments(module, link, xla=xla)
    if not steps:
        raise NothingToDoError("model.compile(...) asks for that already")
    return change(module, link, *steps)


def _is_fitted(module: Module, model: cst.BaseExpression) -> bool:
    fits = [one.node.func for one in module.links if one.name == "fit"]
    return any(isinstance(one, cst.Attribute) and module.code(one.value) == module.code(model) for one in fits)


def _arguments(module: Module, link: Link, *, xla: bool) -> Sequence[Replacement]:
    """``run_eagerly`` taken out, and ``jit_compile=True`` given."""
    given = argument(link, "run_eagerly", None)
    if given is not None and xla and argument(link, "jit_compile", None) is None:
        return [Replacement(*module.span(given), "jit_compile=True")]  # in its place
    steps = [without_argument(module, link, given)] if given is not None else []
    step = with_argument(module, link, "jit_compile", None, "True") if xla else None
    return [*steps, *([step] if step is not None else [])]


_WHOLE: Final = (cst.Add, cst.Subtract, cst.Multiply, cst.FloorDivide, cst.Modulo)
"""Operators that leave whole numbers whole."""
_PASSES: Final = 3  # over a function's assignments, each of which may be of a name that the one before gave a value
_TypeOf = Literal["number", "whole", "other"]


def traced_once(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """Python numbers handed over as tensors, and shapes left open."""
    place = calls.step_place
    if place is None or place.file is None or place.line is None:
        return [Found(why_not="it is not known which function is traced again")]
    file, line = place.file, place.line
    by_hand = f"pass Python numbers to the step at {file}:{line} as tensors, tf.constant(number)"
    return [attempt(lambda: _traced_once(calls, calls.module(file), line), by_hand)]


def _traced_once(calls: Calls, module: Module, line: int) -> list[Change]:
    node = _step_at(module, line)
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
    wrapping, bare = _compiled_by(module, node)
    if bare is not None and not wrapping:
        return _called(module, node, bare, "reduce_retracing=True")
    if len(wrapping) != 1 or bare is not None:
        raise NoEditError(f"the step is made a tf.function in {len(wrapping) or 'no'} places that are seen")
    return _given(module, wrapping[0], "reduce_retracing", "its shapes are left open already")


def _as_tensors(calls: Calls, module: Module, node: cst.FunctionDef, why: Retraced) -> list[Change]:
    wrapping, _ = _compiled_by(module, node)
    assigned = [one for link in wrapping if isinstance(one := module.parent(link.node), cst.Assign)]
    targets = [one.target for around in assigned for one in around.targets]
    names = {node.name.value, *(one.value for one in targets if isinstance(one, cst.Name))}
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
