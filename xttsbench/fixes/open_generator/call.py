"""The call of ``from_generator`` in the user's file, which becomes one of a function that is written beside it."""

from __future__ import annotations

from typing import Any

from xttsbench.records.pipeline import PipelineOp
from xttsbench.targets.source.calls import Call, Calls
from xttsbench.targets.source.edits import NoEditError, Replacement, argument, autotune_or, spelled, with_argument
from xttsbench.targets.source.module import Link, Module


def call_of(calls: Calls, op: PipelineOp) -> Call:
    """The call that made a generator's data set.

    Raises:
        NoEditError: it is not found, or its arguments are not those of the function that takes its place.
    """
    module, link = calls.call(op, (), "from_generator")
    if argument(link, "output_signature", None) is None or len([a for a in link.node.args if a.keyword is None]) > 1:
        raise NoEditError("from_generator(...) is not given output_signature by its name")
    return module, link


def of_helper(
    call: Call, name: str, text: str, number: int | None, helped: set[tuple[str, str]], *more: str
) -> tuple[Replacement, ...]:
    """The steps that call another function, which is written in front where the file does not have it yet.

    Args:
        call: of ``from_generator``.
        name: of the function.
        text: of the function, with ``{name}``, ``{tf}`` and ``{autotune}`` in it.
        number: of calls at a time; ``None`` is AUTOTUNE.
        helped: files and functions that are written already; the file's is put in.
        more: arguments that it is given beside the number.
    """
    module, link = call
    tf, autotune = spelled(module, link.node, "data").removesuffix("data"), autotune_or(module, link.node, None)
    given = ", ".join([autotune_or(module, link.node, number), *more])
    steps = [Replacement(*module.span(link.node.func), name), with_argument(module, link, "calls", None, given)]
    if (module.file, name) not in helped:
        written = text.format(name=name, tf=tf, autotune=autotune).replace("\n", module.line_end)
        steps.append(Replacement(_top(module, link), _top(module, link), written))
    helped.add((module.file, name))
    return tuple(one for one in steps if one is not None)


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
