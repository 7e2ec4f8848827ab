"""How a file spells a name of TensorFlow at some place: through its imports, or through a name of its own for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from xttsbench.targets.patch.module import Module
from xttsbench.targets.patch.no_edit import NoEditError

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SAME: Final = {"tensorflow.data.AUTOTUNE": ("tensorflow.data.experimental.AUTOTUNE",)}


def spelled(module: Module, at: ast.AST, name: str) -> str:
    """How ``tensorflow.<name>`` is written where ``at`` is, e.g. ``tf.data.AUTOTUNE`` for ``data.AUTOTUNE``.

    Raises:
        NoEditError: TensorFlow is not imported there under any name.
    """
    wanted = f"tensorflow.{name}"
    for found in (*_aliases(module, at, wanted), *sorted(_imported(module, at, wanted), key=len)):
        return found
    raise NoEditError(f"{module.file} does not import TensorFlow under a name that can be used there")


def autotune_or(module: Module, at: ast.AST, count: int | None) -> str:
    """A number as it is written, or ``AUTOTUNE`` as the file spells it."""
    return spelled(module, at, "data.AUTOTUNE") if count is None or count < 0 else str(count)


def visible(module: Module, at: ast.AST, name: str) -> ast.AST:
    """The scope whose ``name`` is seen at a place: the innermost function that binds it, else the module."""
    scopes = [found for found in module.source.ancestors(at) if isinstance(found, _FUNCTIONS)]
    return next((scope for scope in scopes if binds(module, scope, name)), module.source.tree)


def binds(module: Module, scope: ast.AST, name: str) -> bool:
    """Whether a function gives a name a value of its own."""
    if isinstance(scope, _FUNCTIONS) and name in {one.arg for one in parameters(scope.args)}:
        return True
    return any(module.source.scope(node) is scope for node in _stores(module, name))


def parameters(given: ast.arguments) -> list[ast.arg]:
    """All parameters, those that take many included."""
    several = [one for one in (given.vararg, given.kwarg) if one is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *several]


def _stores(module: Module, name: str) -> Iterator[ast.AST]:
    for node in module.source.nodes:
        if isinstance(node, ast.Name):
            if node.id == name and not isinstance(node.ctx, ast.Load):
                yield node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if any((one.asname or one.name.partition(".")[0]) == name for one in node.names):
                yield node
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) and node.name == name:
            yield node


def _aliases(module: Module, at: ast.AST, wanted: str) -> Iterator[str]:
    """Names of the file's own that are assigned the wanted one, once, and before it is needed."""
    meant = (wanted, *_SAME.get(wanted, ()))
    for node in module.source.nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            is_meant = isinstance(node.value, ast.Attribute | ast.Name) and _plain(module, node.value) in meant
            if is_meant and _seen(module, at, name, node) and len(list(_stores(module, name))) == 1:
                yield name


def _plain(module: Module, node: ast.expr) -> str:
    return (module.source.dotted(node) or "").replace("tensorflow.compat.v1.", "tensorflow.")


def _imported(module: Module, at: ast.AST, wanted: str) -> Iterator[str]:
    for node in module.source.nodes:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for name, dotted in _bound(node):
            full = dotted.replace("tensorflow.compat.v1", "tensorflow").replace("tensorflow.compat.v2", "tensorflow")
            if not (wanted == full or wanted.startswith(f"{full}.")):
                continue
            if _imported_only(module, name, node) and _seen(module, at, name, node):
                yield name + wanted[len(full) :]


def _bound(node: ast.Import | ast.ImportFrom) -> list[tuple[str, str]]:
    """The names that an import binds, each with what it stands for."""
    if isinstance(node, ast.ImportFrom):
        return [] if node.level else [(one.asname or one.name, f"{node.module}.{one.name}") for one in node.names]
    plain = [(one.name.partition(".")[0],) * 2 for one in node.names if not one.asname]
    return [*plain, *((one.asname, one.name) for one in node.names if one.asname)]


def _imported_only(module: Module, name: str, binding: ast.Import | ast.ImportFrom) -> bool:
    """Whether nothing but imports gives the name a value in that scope; ``None`` stands for one that failed."""
    own = module.source.scope(binding)
    for node in _stores(module, name):
        value = getattr(module.source.parent(node), "value", None) if isinstance(node, ast.Name) else None
        is_none = isinstance(value, ast.Constant) and value.value is None
        if module.source.scope(node) is own and not isinstance(node, ast.Import | ast.ImportFrom) and not is_none:
            return False
    return True


def _seen(module: Module, at: ast.AST, name: str, binding: ast.Import | ast.ImportFrom | ast.Assign) -> bool:
    """Whether ``name`` at that place is what ``binding`` made it."""
    own = module.source.scope(binding)
    if visible(module, at, name) is not own or _only_for_types(module, binding):
        return False
    runs_together = own is module.source.scope(at)
    return not runs_together or binding.lineno < getattr(at, "lineno", 0)


def _only_for_types(module: Module, node: ast.AST) -> bool:
    tests = [found.test for found in module.source.ancestors(node) if isinstance(found, ast.If)]
    return any((module.source.dotted(test) or "").rpartition(".")[2] == "TYPE_CHECKING" for test in tests)
