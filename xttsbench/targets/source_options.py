"""Options of tf.data that this TensorFlow does not have, or that are set up and never reach a dataset.

Which options there are is asked of TensorFlow's own classes where it is loaded; without it no name is judged.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any, Final

from xttsbench.records.source_fact import SourceFact
from xttsbench.targets.source_names import Source

Known = Mapping[str, Any]
"""Option -> its own options, or ``None`` for a plain value."""

_CLASSES: Final = {
    "tensorflow.data.Options": (),
    "tensorflow.data.ThreadingOptions": ("threading",),
    "tensorflow.data.experimental.ThreadingOptions": ("threading",),
    "tensorflow.data.experimental.AutotuneOptions": ("autotune",),
    "tensorflow.data.experimental.OptimizationOptions": ("experimental_optimization",),
    "tensorflow.data.experimental.DistributeOptions": ("experimental_distribute",),
}
_RENAMED: Final = {
    "experimental_deterministic": "deterministic",
    "experimental_threading": "threading",
    "experimental_optimization.autotune": "autotune.enabled",
    "experimental_optimization.autotune_buffers": "autotune.enabled",
    "experimental_optimization.autotune_cpu_budget": "autotune.cpu_budget",
    "experimental_optimization.autotune_ram_budget": "autotune.ram_budget",
    "experimental_distribute.auto_shard": "experimental_distribute.auto_shard_policy",
}
_METHODS: Final = frozenset({"merge"})
_CHANGES: Final = frozenset(
    {"apply", "batch", "bucket_by_sequence_length", "cache", "concatenate", "enumerate", "filter", "flat_map"}
    | {"group_by_window", "interleave", "map", "padded_batch", "prefetch", "ragged_batch", "rebatch", "repeat"}
    | {"shard", "shuffle", "skip", "take", "unbatch", "with_options"}
)
_OF_DATASETS_ONLY: Final = frozenset({"with_options", "padded_batch", "ragged_batch", "bucket_by_sequence_length"})
_DEPTH: Final = 5


def known_options(options: Any, depth: int = _DEPTH) -> dict[str, Any]:
    """What an options object has, from the properties of its class; nested where a value has properties of its own."""
    found: dict[str, Any] = {}
    for name in dir(type(options)):
        if not name.startswith("_") and isinstance(getattr(type(options), name, None), property):
            value = getattr(options, name, None) if name not in _RENAMED else None
            nested = depth > 0 and type(value).__name__.endswith("Options")
            found[name] = known_options(value, depth - 1) if nested else None
    return found


def dead_options(source: Source, known: Known) -> Iterator[SourceFact]:
    """Options that are set, and that this TensorFlow does not have or knows by another name."""
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            path = _path(source, node)
        elif isinstance(node, ast.Call) and source.is_builtin(node.func, "setattr") and len(node.args) == 3:
            name = node.args[1]
            base = _path(source, node.args[0])
            if base is None or not isinstance(name, ast.Constant) or not isinstance(name.value, str):
                continue
            path = (*base, name.value)
        else:
            continue
        if path and (why := _dead(path, known)):
            yield source.fact("dead-option", node, f"{why}{_hidden(source, node)}")


def unapplied_options(source: Source, *, is_main: bool) -> Iterator[SourceFact]:
    """Options that are set up and handed to nothing; at a module's top only where no other module can use them."""
    for node in source.nodes:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            continue
        name, scope = node.targets[0].id, source.scope(node)
        if not _is_new(source, node.value) or (isinstance(scope, ast.Module) and not is_main):
            continue
        if isinstance(scope, ast.ClassDef):
            continue
        uses = [
            found
            for found in ast.walk(scope)
            if isinstance(found, ast.Name) and found.id == name and isinstance(found.ctx, ast.Load)
        ]
        setting = [use for use in uses if _only_sets(source, use)]
        declared = any(isinstance(n, ast.Global | ast.Nonlocal) and name in n.names for n in ast.walk(scope))
        if setting and len(setting) == len(uses) and not declared:
            detail = f"{name} is set up and never handed to with_options, so nothing of it is in effect"
            yield source.fact("option-never-applied", node, detail)


def unused_datasets(source: Source) -> Iterator[SourceFact]:
    """Transformations whose result is thrown away: a dataset is never changed in place."""
    for node in source.nodes:
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            continue
        call = node.value
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _CHANGES:
            continue
        method = call.func.attr
        if method in _OF_DATASETS_ONLY or _is_dataset(source, call.func.value):
            detail = f".{method}() returns another dataset and leaves this one as it is; its result is thrown away"
            yield source.fact("option-never-applied", node, detail)


def _path(source: Source, node: ast.expr, depth: int = _DEPTH) -> tuple[str, ...] | None:
    """Names from an options object down to this expression; ``None`` where it is no option."""
    if isinstance(node, ast.Attribute):
        base = _path(source, node.value, depth)
        if base is not None:
            return (*base, node.attr)
    if isinstance(node, ast.Call):
        return _CLASSES.get(source.dotted(node.func) or "")
    if not isinstance(node, ast.Name | ast.Attribute) or not depth:
        return None
    values = source.values(node)
    if values:
        return _path(source, values[-1], depth - 1)
    return _annotated(source, node) if isinstance(node, ast.Name) else None


def _annotated(source: Source, node: ast.Name) -> tuple[str, ...] | None:
    for scope in source.ancestors(node):
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            for one in (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs):
                if one.arg == node.id:
                    return _CLASSES.get(source.dotted(one.annotation) or "") if one.annotation else None
    return None


def _dead(path: tuple[str, ...], known: Known) -> str | None:
    """Why nothing comes of an option; ``None`` where something does."""
    level: Any = known
    for depth, name in enumerate(path):
        dotted = ".".join(path[: depth + 1])
        if level is None or name in _METHODS:
            return None  # an attribute of a plain value is not an option
        other = _RENAMED.get(dotted)
        if name not in level:
            return f"options.{dotted} is not in this TensorFlow{f': it is options.{other} now' if other else ''}"
        if other is not None:
            return f"options.{dotted} is the old name of options.{other}"
        level = level[name]
    return None


def _hidden(source: Source, node: ast.AST) -> str:
    """How the code around it passes over the error."""
    for around in source.ancestors(node):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            break
        if isinstance(around, ast.If) and "hasattr" in ast.unparse(around.test):
            return "; hasattr passes over it"
        if isinstance(around, ast.Try) and around.handlers and any(node in set(ast.walk(one)) for one in around.body):
            caught = [ast.unparse(one.type) if one.type else "" for one in around.handlers]
            if any(not one or "AttributeError" in one or "Exception" in one for one in caught):
                return "; the except clause hides the error"
        if isinstance(around, ast.With) and "suppress" in ast.unparse(around.items[0].context_expr):
            return "; suppress hides the error"
    return ""


def _is_new(source: Source, value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and source.dotted(value.func) == "tensorflow.data.Options"


def _only_sets(source: Source, use: ast.Name) -> bool:
    """Whether the name stands there only so that an attribute of it can be set."""
    node: ast.AST = use
    while isinstance(parent := source.parent(node), ast.Attribute):
        if isinstance(parent.ctx, ast.Store):
            return True
        node = parent
    if isinstance(parent, ast.Call) and parent.args and parent.args[0] is node:
        return source.is_builtin(parent.func, "setattr", "hasattr")
    return False


def _returns_dataset(source: Source, name: str, depth: int) -> bool:
    """Whether a function of the module's own returns a dataset."""
    returned = [
        node.value
        for node in source.nodes
        if isinstance(node, ast.Return) and getattr(source.scope(node), "name", None) == name and node.value is not None
    ]
    return any(_is_dataset(source, value, depth) for value in returned)


def _is_dataset(source: Source, node: ast.expr, depth: int = _DEPTH) -> bool:
    """Whether it is a dataset by what made it, or, where that is unknown, by a name that says so."""
    dotted = source.dotted(node) or ""
    if isinstance(node, ast.Call):
        made_by = source.dotted(node.func) or ""
        if made_by.startswith("tensorflow.data."):
            return True
        if isinstance(node.func, ast.Attribute):
            return node.func.attr in _OF_DATASETS_ONLY or _is_dataset(source, node.func.value, depth)
        return depth > 0 and _returns_dataset(source, made_by, depth - 1)
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    values = source.values(node)
    if values and depth:
        if _is_dataset(source, values[-1], depth - 1):
            return True
        if isinstance(values[-1], ast.Call):
            maker = (source.dotted(values[-1].func) or "?").rpartition(".")[2]
            if not maker[:1].islower() and not maker.startswith("_"):
                return False  # an object of a class of its own, which may well change in place
    last = dotted.rpartition(".")[2].lower()
    uses_tensorflow = any(name.startswith("tensorflow") for name in source.imported())
    return uses_tensorflow and (last in ("ds", "dataset") or last.endswith(("_ds", "_dataset")))
