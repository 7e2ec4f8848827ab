"""A training step that is written out in its loop, put into a function of its own, which can be compiled.

The statements from the first gradient tape of the loop to the last update of variables become the body of a
``tf.function`` above the outermost loop. What they read of the loop is handed in, what others read of them is
returned. Where Python in between would run once only, while it is traced, there is no edit.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Collection, Sequence
from typing import Final

import libcst as cst
from libcst.helpers import get_full_name_for_node

from xttsbench.targets.source.edits import Change, NoEditError, Replacement
from xttsbench.targets.source.flow import Flow
from xttsbench.targets.source.link_edits import spelled
from xttsbench.targets.source.module import Module

_UPDATES: Final = frozenset(
    {"apply_gradients", "apply", "minimize", "assign", "assign_add", "assign_sub", "update_state"}
)
"""Methods that make a statement part of the step: they change variables."""
_ONCE: Final = ("print", "float", "int", "bool", "open", "next", "input")
_ONCE_METHODS: Final = frozenset({"numpy", "append", "extend", "item", "write", "save", "set_description"})
_ONCE_MODULES: Final = ("time.", "datetime.", "random.", "numpy.random.")
"""Modules of Python, not of graphs: while a function is traced their calls run once, or cannot run."""
_LEAVES: Final = (
    cst.Return,
    cst.Break,
    cst.Continue,
    cst.Raise,
    cst.Yield,
    cst.Await,
    cst.Global,
    cst.Nonlocal,
    cst.Del,
)
_NAMES: Final = ("train_step", "compiled_step", "training_step")
_UNIT: Final = "    "
_TAPES: Final = ("tensorflow.GradientTape", "tf.GradientTape")


def extracted(module: Module, *, xla: bool) -> Change:
    """The step of the one loop of a file that takes gradients itself, as a compiled function.

    Raises:
        NoEditError: there is no such loop or several, or a function would not do what the statements do.
    """
    loop, block = _step_of(module)
    outer = outermost(module, loop)
    flow = Flow(module, function_of(module, loop) or module.tree)
    for node in block:
        _check(module, flow, block, node)
    given, returned = _given(module, flow, block, outer), _returned(module, flow, block)
    text = _dedented(module, block)
    name = next((one for one in _NAMES if one not in module.text), None)
    if name is None:
        raise NoEditError(f"the names {', '.join(_NAMES)} are all in use in {module.file}")
    at = above(module, outer)
    indent, end = module.indent(module.start(outer)), module.line_end
    lines = [f"@{spelled(module, loop, 'function')}{'(jit_compile=True)' if xla else ''}"]
    lines += [f"def {name}({', '.join(given)}):"]
    lines += [f"{_UNIT}{line}" if line.strip() else "" for line in text]
    lines += [f"{_UNIT}return {', '.join(returned)}"] if returned else []
    function = end.join(f"{indent}{line}" if line else "" for line in lines)
    before = module.text[:at]
    blank = (len(before) - len(before.rstrip("\r\n"))) // len(end) - 1
    call = f"{', '.join(returned)} = " if returned else ""
    start, stop = module.start(block[0]), module.line_stop(module.end(block[-1]))
    return Change(
        module,
        module.line(block[0]),
        (start, stop),
        (
            Replacement(at, at, f"{'' if indent else end * (2 - blank)}{function}{end}{end}{'' if indent else end}"),
            Replacement(start, stop, f"{call}{name}({', '.join(given)})"),
        ),
    )


def function_with_tape(module: Module) -> cst.FunctionDef | None:
    """The one function of a file that takes gradients, where no loop does so itself."""
    around = [function_of(module, node) for node in _tapes(module) if loop_of(module, node) is None]
    found = {one for one in around if one is not None}
    return next(iter(found)) if len(found) == 1 and len(around) == len(_tapes(module)) else None


def _tapes(module: Module) -> list[cst.With]:
    calls = {node: [one.item for one in node.items if isinstance(one.item, cst.Call)] for node in module.of(cst.With)}
    return [node for node, made in calls.items() if any(module.dotted(one.func) in _TAPES for one in made)]


def _step_of(module: Module) -> tuple[cst.For | cst.While, Sequence[cst.CSTNode]]:
    """The loop, and its statements from the first tape to the last update."""
    loops: dict[cst.For | cst.While, list[cst.With]] = {}
    for node in _tapes(module):
        if (around := loop_of(module, node)) is not None:
            loops.setdefault(around, []).append(node)
    if len(loops) != 1:
        raise NoEditError(f"{module.file} has {len(loops) or 'no'} loops that take gradients where they are written")
    ((loop, tapes),) = loops.items()
    body = list(loop.body.body)
    first = next((number for number, one in enumerate(body) if one is tapes[0]), None)
    if first is None:
        raise NoEditError(f"the gradient tape at {module.file}:{module.line(tapes[0])} is not in each step of its loop")
    last = max(number for number, one in enumerate(body) if one in tapes or (number > first and _updates(module, one)))
    return loop, body[first : last + 1]


def loop_of(module: Module, node: cst.CSTNode) -> cst.For | cst.While | None:
    """The innermost loop around a statement, within the same function."""
    kinds = (cst.For, cst.While, cst.FunctionDef, cst.Lambda, cst.ClassDef)
    found = next((one for one in module.ancestors(node) if isinstance(one, kinds)), None)
    return found if isinstance(found, cst.For | cst.While) else None


def outermost(module: Module, loop: cst.CSTNode) -> cst.CSTNode:
    """The outermost loop around one, within the same function."""
    found = loop
    while (around := loop_of(module, found)) is not None:
        found = around
    return found


def function_of(module: Module, node: cst.CSTNode) -> cst.FunctionDef | None:
    """The innermost function around a node."""
    return next((one for one in module.ancestors(node) if isinstance(one, cst.FunctionDef)), None)


def _updates(module: Module, node: cst.CSTNode) -> bool:
    """Whether a statement changes variables; one under a condition belongs to the loop."""
    calls = [] if isinstance(node, cst.If | cst.Try | cst.While) else module.inside(node, cst.Call)
    return any(isinstance(call.func, cst.Attribute) and call.func.attr.value in _UPDATES for call in calls)


def _check(module: Module, flow: Flow, block: Sequence[cst.CSTNode], node: cst.CSTNode) -> None:
    """Refuse what a graph would do once, or not at all."""
    for kind in _LEAVES:
        if found := module.inside(node, kind):
            raise _refused(module, found[0])
    for call in module.inside(node, cst.Call):
        method, made = None, frozenset[cst.CSTNode]()
        if isinstance(call.func, cst.Attribute):
            method, made = call.func.attr.value, flow.reaching.get(call.func.value, made)
        of_this_step = made and all(_within(module, block, one) for one in made)
        own = method in ("append", "extend") and of_this_step  # of a list
        once = method in _ONCE_METHODS or module.is_builtin(call.func, *_ONCE)
        if (once and not own) or module.dotted(call.func).startswith(_ONCE_MODULES):
            raise _refused(module, call)
    for one in (*module.inside(node, cst.Attribute), *module.inside(node, cst.Subscript)):
        if module.is_set(one):
            raise _refused(module, one)
    for text in module.inside(node, cst.SimpleString):
        if "\n" in module.code(text):
            raise _refused(module, text)


def _refused(module: Module, node: cst.CSTNode) -> NoEditError:
    place = f"{module.file}:{module.line(node)}"
    return NoEditError(f"a graph would run {module.shown(node)[:60]!r} at {place} once, while the step is traced")


def _given(module: Module, flow: Flow, block: Sequence[cst.CSTNode], outer: cst.CSTNode) -> list[str]:
    """Names that the block reads and the loops around it set, in the order in which they are read."""
    found: dict[str, None] = {}
    for use in (name for node in block for name in module.inside(node, cst.Name)):
        targets = flow.reaching.get(use, frozenset())
        before = [one for one in targets if not _within(module, block, one)]
        own = len(before) < len(targets)
        if before and own:
            raise NoEditError(
                f"the value of {use.value} is carried from step to step in Python at {module.file}:{module.line(use)}"
            )
        if any(_within(module, [outer], one) for one in before):
            found[use.value] = None
    for held in (one for node in block for one in module.inside(node, cst.Attribute)):
        if any(_within(module, [outer], one) for one in flow.reaching.get(held, ())):
            name = get_full_name_for_node(held)
            raise NoEditError(f"the value of {name} changes in the loop at {module.file}:{module.line(held)}")
    return list(found)


def _returned(module: Module, flow: Flow, block: Sequence[cst.CSTNode]) -> list[str]:
    """Names that the block sets and something behind it, or a later step, reads."""
    found: dict[str, None] = {}
    for target in (name for node in block for name in module.inside(node, cst.Name) if module.is_set(name)):
        if any(not _within(module, block, use) for use in flow.readers.get(target, ())):
            if isinstance(module.parent(target), cst.AsName):
                raise NoEditError(
                    f"{target.value} at {module.file}:{module.line(target)} is used behind the last update"
                )
            found[target.value] = None
    return list(found)


def _within(module: Module, nodes: Collection[cst.CSTNode], one: cst.CSTNode) -> bool:
    start, end = module.span(one)
    return any(module.start(node) <= start and end <= module.end(node) for node in nodes)


def _dedented(module: Module, block: Sequence[cst.CSTNode]) -> list[str]:
    start, stop = module.line_start(module.start(block[0])), module.line_stop(module.end(block[-1]))
    return textwrap.dedent(module.text[start:stop]).splitlines()


def above(module: Module, node: cst.CSTNode) -> int:
    """Position where the line of a statement begins, or the comment above it."""
    start = module.line_start(module.start(node))
    lines = module.text[:start].splitlines(keepends=True)
    comments = itertools.takewhile(lambda line: line.lstrip().startswith("#"), reversed(lines))
    return start - sum(len(line) for line in comments)
