"""A traced function as text, and as it goes into the user's file: where, and under which name."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst
from libcst.metadata import ClassScope

from xttsbench.records.pipeline import NativeFunction
from xttsbench.targets.source.edits import NoEditError, Replacement
from xttsbench.targets.source.link_edits import spelled
from xttsbench.targets.source.module import Module


def defined(module: Module, call: cst.Call, found: NativeFunction) -> tuple[Replacement, str]:
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
