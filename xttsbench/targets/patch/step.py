"""The training step compiled: a decorator above its function, or the arguments of ``model.compile``."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from xttsbench.records.base import Location
from xttsbench.targets.patch.arguments import arguments, with_argument, without_argument
from xttsbench.targets.patch.calls import Sources
from xttsbench.targets.patch.draft import Change, Replacement
from xttsbench.targets.patch.found import Found
from xttsbench.targets.patch.module import Link, Module
from xttsbench.targets.patch.no_edit import NoEditError, NothingToDoError
from xttsbench.targets.patch.spelling import spelled, visible

_KERAS = ("optimizer", "loss", "metrics", "run_eagerly", "jit_compile")
"""Arguments by which ``model.compile`` is told from other calls of that name."""


def compiled_step(sources: Sources, place: Location | None, *, xla: bool) -> Found:
    """The step as a ``tf.function``, with XLA where asked for; without a place, a Keras model's ``compile``.

    Args:
        sources: of the pipeline.
        place: where the step's function is defined; ``None`` where a Keras model is trained.
        xla: whether XLA compiles it.
    """
    by_hand = f"write @tf.function{'(jit_compile=True)' if xla else ''} above the step's function"
    try:
        if place is None or place.line is None:
            by_hand = f"give model.compile(...) {'jit_compile=True' if xla else 'run_eagerly=False'}"
            return Found((_keras(sources, _files(sources, place), xla=xla),))
        module = sources.module(place.file)
        return Found(((module, _function(module, place.line, xla=xla)),))
    except NothingToDoError as error:
        return Found(why_not=str(error))
    except NoEditError as error:
        where = f" at {place.file}:{place.line}" if place is not None and place.line is not None else ""
        return Found(why_not=f"{error}; {by_hand}{where}")


def _files(sources: Sources, place: Location | None) -> list[str]:
    found = [place.file if place is not None else None, *(op.location.file for op in sources.pipeline.ops)]
    return [file for file in dict.fromkeys(found) if file is not None]


def _function(module: Module, line: int, *, xla: bool) -> Change:
    nodes = module.source.nodes
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and line in (node.lineno, *(one.lineno for one in node.decorator_list)):
            return _decorated(module, node, xla=xla)
    lambdas = [node for node in nodes if isinstance(node, ast.Lambda) and node.lineno == line]
    if len(lambdas) != 1:
        raise NoEditError(f"there is no function at {module.file}:{line}")
    start, end = module.span(lambdas[0])
    name = spelled(module, lambdas[0], "function")
    closing = ", jit_compile=True)" if xla else ")"
    return Change(start, end, line, (Replacement(start, start, f"{name}("), Replacement(end, end, closing)))


def _decorated(module: Module, node: ast.FunctionDef, *, xla: bool) -> Change:
    wrapping = [link for link in module.links if _wraps(module, link, node)]
    for decorator in node.decorator_list:
        link = module.link(decorator)
        if link is not None and _is_function(module, decorator.func if isinstance(decorator, ast.Call) else decorator):
            wrapping.append(link)
        elif _is_function(module, decorator):
            if not xla:
                raise NothingToDoError("the step is a tf.function already")
            start, end = module.span(decorator)
            return Change(start, end, node.lineno, (Replacement(end, end, "(jit_compile=True)"),))
    if wrapping:
        if not xla:
            raise NothingToDoError("the step is made a tf.function already")
        return _jit(module, wrapping)
    if any(isinstance(found, ast.Yield | ast.YieldFrom) for found in ast.walk(node)):
        raise NoEditError("the step is a generator")
    start = module.span(node)[0]
    if not module.begins_line(start):
        raise NoEditError("the step's function does not begin its line")
    name = spelled(module, node, "function")
    text = f"@{name}{'(jit_compile=True)' if xla else ''}{module.line_end}{module.indent(start)}"
    return Change(start, module.line_stop(start), node.lineno, (Replacement(start, start, text),))


def _jit(module: Module, links: list[Link]) -> Change:
    if len(links) > 1:
        raise NoEditError("the step is made a tf.function in several places")
    step = with_argument(module, links[0], "jit_compile", None, "True")
    if step is None:
        raise NothingToDoError("the step is compiled by XLA already")
    return Change(links[0].start, max(links[0].end, step.end), links[0].line, (step,))


def _wraps(module: Module, link: Link, step: ast.FunctionDef) -> bool:
    """Whether it is ``tf.function(step)`` of this very function."""
    given = link.node.args[0] if link.node.args else None
    if not isinstance(given, ast.Name) or given.id != step.name or not _is_function(module, link.node.func):
        return False
    return visible(module, given, given.id) is module.source.scope(step)


def _is_function(module: Module, node: ast.expr) -> bool:
    return (module.source.dotted(node) or "").replace(".compat.v1", "") in ("tensorflow.function", "tf.function")


def _keras(sources: Sources, files: Iterable[str], *, xla: bool) -> tuple[Module, Change]:
    found: list[tuple[Module, Link]] = []
    for file in files:
        try:
            module = sources.module(file)
        except NoEditError:
            continue
        compiles = [
            link for link in module.links if link.name == "compile" and isinstance(link.node.func, ast.Attribute)
        ]
        found += [(module, link) for link in compiles if any(one.arg in _KERAS for one in link.node.keywords)]
    eager = [(module, link) for module, link in found if any(one.arg == "run_eagerly" for one in link.node.keywords)]
    candidates = eager or (found if xla else [])
    if len(candidates) != 1:
        count = len(candidates) or "no"
        raise NoEditError(f"the pipeline's files have {count} model.compile(...) that it could be")
    module, link = candidates[0]
    steps = [without_argument(module, link, "run_eagerly")] if eager else []
    if xla and eager and not any(one.name == "jit_compile" for one in arguments(module, link)):
        steps = [_in_its_place(module, link)]
    elif xla:
        step = with_argument(module, link, "jit_compile", None, "True")
        steps += [step] if step is not None else []
    if not steps:
        raise NothingToDoError("model.compile(...) asks for that already")
    return module, Change(link.start, max(link.end, *(step.end for step in steps)), link.line, tuple(steps))


def _in_its_place(module: Module, link: Link) -> Replacement:
    """``jit_compile=True`` where ``run_eagerly`` was."""
    given = next(one for one in arguments(module, link) if one.name == "run_eagerly")
    return Replacement(given.start, given.end, "jit_compile=True")
