"""Settings of tf.data that TensorFlow does not take as meant: unknown options, options in vain, sums with ``AUTOTUNE``.

Which options there are is asked of TensorFlow's own classes where it is loaded; without it no name is judged.
``AUTOTUNE`` is the number -1: ``min`` with it is always it, ``max`` never.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import libcst as cst
from libcst.metadata import ClassScope, GlobalScope

from xttsbench.records.code import SourceFact
from xttsbench.targets.source.module import Module

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
_NO_BOUND: Final = {
    "autotune.cpu_budget": "options.autotune.cpu_budget does not bound how many calls run at once: AUTOTUNE begins "
    "with one for each thread of the pool, 16 at most, and takes none back; num_parallel_calls=n or "
    "options.threading.private_threadpool_size = n does",
}
"""Measured with TensorFlow 2.21: with a budget of 1, eight calls ran at once in a pool of eight threads, to the end."""
_CHANGES: Final = frozenset(
    {"apply", "batch", "bucket_by_sequence_length", "cache", "concatenate", "enumerate", "filter", "flat_map"}
    | {"group_by_window", "interleave", "map", "padded_batch", "prefetch", "ragged_batch", "rebatch", "repeat"}
    | {"shard", "shuffle", "skip", "take", "unbatch", "with_options"}
)
_OF_DATASETS_ONLY: Final = frozenset({"with_options", "padded_batch", "ragged_batch", "bucket_by_sequence_length"})
_DEPTH: Final = 5


def known_options(options: Any, depth: int = _DEPTH) -> dict[str, Any]:
    """Names of an options object's settings, from the properties of its class; nested options as a mapping."""
    found: dict[str, Any] = {}
    for name in dir(type(options)):
        if not name.startswith("_") and isinstance(getattr(type(options), name, None), property):
            value = getattr(options, name, None) if name not in _RENAMED else None
            nested = depth > 0 and type(value).__name__.endswith("Options")
            found[name] = known_options(value, depth - 1) if nested else None
    return found


def dead_options(module: Module, known: Known) -> Iterator[SourceFact]:
    """Options that are set, and that this TensorFlow does not have or knows by another name."""
    settings: list[tuple[cst.BaseExpression, tuple[str, ...] | None]] = [
        (node, _path(module, node)) for node in module.of(cst.Attribute) if module.is_set(node)
    ]
    for call in module.of(cst.Call):
        if module.is_builtin(call.func, "setattr") and len(call.args) == 3:
            base, name = _path(module, call.args[0].value), module.string(call.args[1].value)
            settings.append((call, (*base, name) if base is not None and name is not None else None))
    for node, path in settings:
        if path and (why := _dead(path, known)):
            yield module.fact("dead-option", node, why)


def pool_sizes(module: Module) -> Iterator[SourceFact]:
    """Statements that set the threads of a pipeline's private pool."""
    for node in module.of(cst.Attribute):
        name = node.attr.value
        if name == "private_threadpool_size" and module.is_set(node) and _path(module, node) == ("threading", name):
            yield module.fact("pool-size", node, "")


def unapplied_options(module: Module, *, is_main: bool) -> Iterator[SourceFact]:
    """Options that are set up and handed to nothing; at a module's top only where no other module can use them."""
    for node in module.of(cst.Assign):
        target, scope = node.targets[0].target, module.scope(node)
        is_new = isinstance(node.value, cst.Call) and module.dotted(node.value.func) == "tensorflow.data.Options"
        if not is_new or len(node.targets) != 1 or not isinstance(target, cst.Name):
            continue
        same = module.assignments(target.value, target)
        elsewhere = isinstance(scope, GlobalScope) and not is_main
        if isinstance(scope, ClassScope) or elsewhere or any(one.scope is not scope for one in same):
            continue  # other code may hand it to a dataset
        uses = module.uses(same)
        if uses and all(_only_sets(module, use) for use in uses):
            detail = f"{target.value} is set up and never handed to with_options, so nothing of it is in effect"
            yield module.fact("option-never-applied", node, detail)


def unused_datasets(module: Module) -> Iterator[SourceFact]:
    """Transformations whose result is thrown away: a dataset is never changed in place."""
    for node in module.of(cst.Expr):
        func = node.value.func if isinstance(node.value, cst.Call) else None
        if not isinstance(func, cst.Attribute) or func.attr.value not in _CHANGES:
            continue
        method = func.attr.value
        if method in _OF_DATASETS_ONLY or _is_dataset(module, func.value):
            detail = f".{method}() returns another dataset and leaves this one as it is; its result is thrown away"
            yield module.fact("option-never-applied", node, detail)


def _path(module: Module, node: cst.BaseExpression, depth: int = _DEPTH) -> tuple[str, ...] | None:
    """Names from an options object down to this expression; ``None`` where it is no option."""
    if isinstance(node, cst.Attribute):
        base = _path(module, node.value, depth)
        if base is not None:
            return (*base, node.attr.value)
    if isinstance(node, cst.Call):
        return _CLASSES.get(module.dotted(node.func))
    if not isinstance(node, cst.Name | cst.Attribute) or not depth:
        return None
    if values := module.values(node):
        return _path(module, values[-1], depth - 1)
    parameter = module.parameter(node) if isinstance(node, cst.Name) else None
    annotation = parameter.annotation if parameter is not None else None
    return _CLASSES.get(module.dotted(annotation.annotation)) if annotation is not None else None


def _dead(path: tuple[str, ...], known: Known) -> str | None:
    """Why nothing comes of an option; ``None`` where something does."""
    level: Any = known
    for depth, name in enumerate(path):
        dotted = ".".join(path[: depth + 1])
        if level is None or name == "merge":
            return None  # an attribute of a plain value is not an option
        other = _RENAMED.get(dotted)
        if name not in level:
            return f"options.{dotted} is not in this TensorFlow{f': it is options.{other} now' if other else ''}"
        if other is not None:
            return f"options.{dotted} is the old name of options.{other}"
        level = level[name]
    return _NO_BOUND.get(".".join(path))


def _only_sets(module: Module, use: cst.CSTNode) -> bool:
    """Whether the name stands there only so that an attribute of it can be set."""
    node = use
    while isinstance(parent := module.parent(node), cst.Attribute):
        if module.is_set(parent):
            return True
        node = parent
    call = module.parent(parent) if isinstance(parent, cst.Arg) else None
    return isinstance(call, cst.Call) and call.args[0] is parent and module.is_builtin(call.func, "setattr", "hasattr")


def _is_dataset(module: Module, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """Whether an expression is a dataset by the call that made it, or, where that is unknown, by its name."""
    if isinstance(node, cst.Call):
        made_by = module.dotted(node.func)
        if made_by.startswith("tensorflow.data."):
            return True
        if isinstance(node.func, cst.Attribute):
            return node.func.attr.value in _OF_DATASETS_ONLY or _is_dataset(module, node.func.value, depth)
        returns = (one for one in module.of(cst.Return) if getattr(module.scope(one), "name", None) == made_by)
        return depth > 0 and any(one.value is not None and _is_dataset(module, one.value, depth - 1) for one in returns)
    if not isinstance(node, cst.Name | cst.Attribute):
        return False
    values = module.values(node)
    if values and depth:
        if _is_dataset(module, values[-1], depth - 1):
            return True
        if isinstance(values[-1], cst.Call):
            maker = (module.dotted(values[-1].func) or "?").rpartition(".")[2]
            if not maker[:1].islower() and not maker.startswith("_"):
                return False  # an object of a class of its own, which may well change in place
    last = module.dotted(node).rpartition(".")[2].lower()
    says_so = last in ("ds", "dataset") or last.endswith(("_ds", "_dataset"))
    return says_so and any(name.startswith("tensorflow") for name in module.imported)


Sure = Literal["is", "may be"]
_SMALLEST: Final = ("numpy.minimum", "tensorflow.minimum", "tensorflow.math.minimum")
_LARGEST: Final = ("numpy.maximum", "tensorflow.maximum", "tensorflow.math.maximum")
_ARITHMETIC: Final = frozenset({"+", "-", "*", "/", "//", "%", "**"})


def autotune_arithmetic(module: Module) -> Iterator[SourceFact]:
    """Places that compute with ``AUTOTUNE`` as if it were a number of calls."""
    for call in module.of(cst.Call):
        yield from _extremum(module, call)
    for node in module.of(cst.BinaryOperation):
        yield from _operation(module, node, node.left, node.operator, node.right)
    for change in module.of(cst.AugAssign):
        if isinstance(change.target, cst.Name):
            yield from _operation(module, change, change.target, change.operator, change.value)


def _extremum(module: Module, call: cst.Call) -> Iterator[SourceFact]:
    dotted = module.dotted(call.func)
    smallest = module.is_builtin(call.func, "min") or dotted in _SMALLEST
    if not smallest and not module.is_builtin(call.func, "max") and dotted not in _LARGEST:
        return
    given = [one.value for one in call.args if one.keyword is None]
    if len(given) == 1 and isinstance(given[0], cst.List | cst.Tuple | cst.Set):
        given = [one.value for one in given[0].elements]
    sure = [_autotune(module, one) for one in given]
    if len(given) < 2 or not any(sure) or all(sure):
        return
    others = ", ".join(module.shown(one) for one, found in zip(given, sure, strict=True) if not found)[:60]
    said = f"smallest is always AUTOTUNE and {others} bounds nothing" if smallest else ""
    detail = f"AUTOTUNE is -1, so the {said or f'largest is always {others} and nothing is tuned'}"
    yield module.fact("autotune-arithmetic", call, detail if "is" in sure else f"one of them may be AUTOTUNE; {detail}")


def _operation(
    module: Module, node: cst.CSTNode, left: cst.BaseExpression, symbol: cst.CSTNode, right: cst.BaseExpression
) -> Iterator[SourceFact]:
    sign = module.code(symbol).strip().removesuffix("=")
    if sign not in _ARITHMETIC or isinstance(left, cst.BaseString):
        return
    sure = (_autotune(module, left), _autotune(module, right))
    if not any(sure):
        return
    detail = "AUTOTUNE is -1" if "is" in sure else "one side may be AUTOTUNE, which is -1"
    written = f"{module.shown(left)} {sign} {module.shown(right)}"[:60]
    yield module.fact("autotune-arithmetic", node, f"{detail}: {written} is no number of calls")


def _autotune(module: Module, node: cst.BaseExpression, depth: int = _DEPTH) -> Sure | None:
    """Whether an expression is ``AUTOTUNE``, or may be it where nothing before it asks."""
    if module.dotted(node).rpartition(".")[2] == "AUTOTUNE":
        return "is"
    if not depth:
        return None
    if isinstance(node, cst.IfExp):
        found = {_autotune(module, node.body, depth - 1), _autotune(module, node.orelse, depth - 1)}
        return None if found == {None} else "is" if found == {"is"} else "may be"
    if isinstance(node, cst.Call) and module.is_builtin(node.func, "int") and len(node.args) == 1:
        return _autotune(module, node.args[0].value, depth - 1)
    if not isinstance(node, cst.Name | cst.Attribute):
        return None
    told: list[Sure | None] = [_autotune(module, value, depth - 1) for value in module.values(node)]
    parameter = module.parameter(node) if isinstance(node, cst.Name) else None
    if not told and parameter is not None and parameter.default is not None:
        told = ["may be" if _autotune(module, parameter.default, depth - 1) else None]
    if not any(told):
        return None
    return "is" if all(one == "is" for one in told) else None if _asked(module, node) else "may be"


def _asked(module: Module, node: cst.Name | cst.Attribute) -> bool:
    """Whether the code compares that name with something: then it knows that it may be ``AUTOTUNE``."""
    name, scope = module.code(node), module.scope(node)
    return any(
        module.code(side) == name
        for found in module.of(cst.Comparison)
        if module.scope(found) is scope
        for side in (found.left, *(one.comparator for one in found.comparisons))
    )
