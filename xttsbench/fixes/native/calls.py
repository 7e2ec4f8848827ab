"""Calls with what comes from a function's arguments, as they are written for tensors."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xttsbench.fixes.native.expressions import OF_ARRAYS, cast_text, check_kinds
from xttsbench.fixes.native.flow import bound
from xttsbench.fixes.native.names import (
    CONTAINERS,
    LEFT,
    METHODS,
    MODES,
    PAIRS,
    PROMOTING,
    SAME,
    UFUNCS,
    WRITTEN,
    Written,
)
from xttsbench.fixes.native.observe import Fact, is_nested, name_of, users_function
from xttsbench.owners import of_keras
from xttsbench.pipeline.source import is_tensorflow

if TYPE_CHECKING:
    from xttsbench.fixes.native.rebind import Rebound


def called(given: Rebound, node: ast.Call) -> str | None:
    """New text of a call; ``None`` where only what is inside it may change.

    Raises:
        RefusedError: it has no equal among TensorFlow's ops.
    """
    arguments = [*node.args, *(one.value for one in node.keywords)]
    method = isinstance(node.func, ast.Attribute) and given.flow.given(node.func.value)
    if not (any(map(given.flow.given, arguments)) or method):
        return None
    fact = given.watched.fact(node.func)
    if fact is None:
        raise given.watched.refused("has a line that no recorded call comes to", node)
    function = fact.value
    if fact.kind != "callable":
        raise given.watched.refused(f"calls several functions by `{ast.unparse(node.func)}`", node)
    if isinstance(node.func, ast.Attribute):
        owner = given.watched.fact(node.func.value)
        if owner is not None and owner.kind in OF_ARRAYS:
            return _of_array(given, node, node.func)
        if owner is not None and owner.kind == "tensor" and node.func.attr == "numpy":
            return given.render(node.func.value)
        if owner is not None and owner.kind in ("list", "dict") and node.func.attr in CONTAINERS:
            return None
        if owner is not None and owner.kind == "bytes" and node.func.attr == "decode":
            return given.render(node.func.value)
    if is_nested(function):
        return None
    if given.flow.given(node.func):
        raise given.watched.refused(f"calls `{ast.unparse(node.func)}`, which arguments decide", node)
    if users_function(function) is not None:
        return _of_users(given, node, function)
    if is_tensorflow(function) or of_keras(getattr(function, "__module__", None)):
        return None
    return _known(given, node, function, list(node.args))


def _of_users(given: Rebound, node: ast.Call, function: Any) -> str | None:
    plain = users_function(function)
    plain = getattr(plain, "__func__", plain)
    name = next((name for one, name in given.names.items() if one.function.__code__ is plain.__code__), None)
    if name is None:
        raise given.watched.refused(f"calls {name_of(function)}, which was not followed", node)
    if not name:
        return None
    func: Any = node.func
    owner = given.render(func.value if isinstance(func, ast.Attribute) else func)
    return f"{name}({', '.join([owner] * bound(function) + _rendered(given, node, node.args))})"


def _rendered(given: Rebound, node: ast.Call, arguments: Sequence[Any]) -> list[str]:
    return [*map(given.render, arguments), *map(given.around, node.keywords)]


def _of_array(given: Rebound, node: ast.Call, func: ast.Attribute) -> str | None:
    """A call of a method of arrays."""
    fact = given.fact(func.value)
    if func.attr == "astype" and node.args:
        return _converted(given, node, func.value, given.constant(node.args[0]))
    if func.attr == "item" and not node.args:
        kinds = {"f": "float64", "i": "int64", "u": "int64", "b": "bool"}
        return f"tf.cast({given.render(func.value)}, tf.{kinds[fact.dtype.kind]})"
    function = METHODS.get(func.attr)
    if function is None:
        raise given.watched.refused(
            f"calls .{func.attr}() of an array, which has no equal among TensorFlow's ops", node
        )
    if func.attr in ("reshape", "transpose") and len(node.args) > 1:
        packed = f"({', '.join(map(given.render, node.args))})"
        return f"tnp.{func.attr}({given.render(func.value)}, {packed})"
    return _known(given, node, function, [func.value, *node.args])


def _converted(given: Rebound, node: ast.Call, value: Any, dtype: Any) -> str:
    """An array as another dtype."""
    fact = given.fact(value)
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        wanted = np.dtype(object)
    known = fact.dtype is not None and fact.dtype.kind in "iufb" and wanted.kind in "iufbc"
    others = {one.arg for one in node.keywords} - {"copy"}
    if not known or others or (wanted == np.uint64 and fact.dtype.kind == "f"):
        raise given.watched.refused(f"converts by `{ast.unparse(node)}`", node)
    return cast_text(given.render(value), fact.dtype, wanted)


def _known(given: Rebound, node: ast.Call, function: Any, arguments: list[Any]) -> str | None:
    """A call of a function of NumPy's or Python's."""
    if any(isinstance(one, ast.Starred) for one in arguments) or any(one.arg is None for one in node.keywords):
        raise given.watched.refused(f"calls {name_of(function)} with arguments from a list", node)
    if isinstance(function, type) and issubclass(function, np.generic) and len(arguments) == 1:
        return _converted(given, node, arguments[0], function)
    if isinstance(function, np.ufunc):
        return _ufunc(given, node, function, arguments)
    if _in(function, LEFT):
        return None
    if _in(function, PAIRS):
        return _extreme(given, node, function, arguments)
    if _in(function, WRITTEN):
        return _written(given, node, function, arguments)
    if _in(function, SAME):
        return _same(given, node, function, arguments)
    raise given.watched.refused(f"calls {name_of(function)}, which has no equal among TensorFlow's ops", node)


def _in(function: Any, table: Any) -> bool:
    try:
        return function in table
    except TypeError:  # an object that has no hash
        return False


def _ufunc(given: Rebound, node: ast.Call, function: Any, arguments: Sequence[Any]) -> str:
    if function not in UFUNCS or node.keywords or len(arguments) != function.nin:
        raise given.watched.refused(f"calls {name_of(function)} in a way that has no equal", node)
    loop = given.loop(function, node, *map(given.fact, arguments))
    check_kinds(given, node, function, loop[0], arguments[-1])
    logical = function.__name__.startswith("logical")
    texts = [given.cast(one, np.dtype(bool) if logical else dtype) for one, dtype in zip(arguments, loop, strict=False)]
    return f"{UFUNCS[function]}({', '.join(texts)})"


def _extreme(given: Rebound, node: ast.Call, function: Any, arguments: Sequence[Any]) -> str:
    """The largest or smallest of several numbers of Python's, those that are tensors first."""
    facts = [given.fact(one) for one in arguments]
    alike = len({one.kind for one in facts}) == 1 and facts[0].kind in ("int", "float")
    if len(facts) < 2 or not alike or node.keywords:
        raise given.watched.refused(f"takes the {function.__name__} of what is not numbers of one type", node)
    texts = map(given.render, sorted(arguments, key=lambda one: not given.flow.given(one)))
    return functools.reduce(lambda one, other: f"{PAIRS[function]}({one}, {other})", texts)


def _written(given: Rebound, node: ast.Call, function: Any, arguments: list[Any]) -> str | None:
    """A call that is written otherwise."""
    row: Written = WRITTEN[function]
    names = row.parameters.split()
    if function is np.arange and len(arguments) > 1:
        names = ["start", "stop", "step", "dtype"]
    by_name = {**dict(zip(names, arguments, strict=False)), **{str(one.arg): one.value for one in node.keywords}}
    first = by_name.get(names[0])
    if first is None or len(arguments) > len(names):
        raise given.watched.refused(f"calls {name_of(function)} in a way that has no equal", node)
    fact, result = given.fact(first), given.watched.fact(node)
    if function is len and fact.kind in ("list", "tuple", "dict", "str"):
        return None
    if fact.kind == "tensor":
        raise given.watched.refused(f"hands a tensor to {name_of(function)}", node)
    for name, allowed in row.only.items():
        if name in by_name:
            value = given.constant(by_name[name])
            last = name == "axis" and fact.ndim is not None and value == fact.ndim - 1
            if value not in allowed and not last:
                raise given.watched.refused(f"calls {name_of(function)} with another {name}", node)
            del by_name[name]
    template = row.templates.get(" ".join(name for name in row.parameters.split() if name in by_name))
    bad = fact.dtype is None or fact.dtype.kind not in row.kinds
    bad = bad or (result is not None and result.dtype is not None and result.dtype.kind not in row.results)
    if template is None or bad:
        raise given.watched.refused(f"calls {name_of(function)} in a way that has no equal", node)
    texts = {name: given.render(one) for name, one in by_name.items()}
    if row.floats and fact.dtype.kind != "f":
        texts[names[0]] = cast(given, first, np.dtype(np.float64))
    if function is np.pad:
        texts |= _padding(given, node, by_name, fact)
    text = template.format(**texts)
    other = row.converts and result is not None and result.dtype not in (None, np.int64)
    return cast_text(text, np.int64, result.dtype) if other and result is not None else text


def cast(given: Rebound, node: Any, dtype: Any) -> str:
    """A number as a dtype, whatever it is."""
    return cast_text(given.render(node), given.fact(node).dtype, dtype)


def _padding(given: Rebound, node: Any, by_name: Mapping[str, Any], fact: Fact) -> dict[str, str]:
    mode = given.constant(by_name["mode"]) if "mode" in by_name else "constant"
    if mode not in MODES:
        raise given.watched.refused(f"pads by {mode!r}", node)
    width = by_name["pad_width"]
    pair = isinstance(width, ast.Tuple | ast.List) and not any(isinstance(x, ast.Tuple | ast.List) for x in width.elts)
    return {"pad_width": f"[{given.render(width)}]"} if pair and fact.ndim == 1 else {}


def _same(given: Rebound, node: ast.Call, function: Any, arguments: list[Any]) -> str:
    """A call of a function that TensorFlow has under the same name."""
    result, name = given.watched.fact(node), function.__name__
    every = dict(zip(_parameters(function), arguments, strict=False))
    every |= {str(one.arg): one.value for one in node.keywords}
    dtypes = []
    for one in _values(every.values()):
        fact = given.fact(one)
        if fact.kind == "tensor":
            raise given.watched.refused(f"hands a tensor to {name_of(function)}", node)
        if fact.kind in OF_ARRAYS:
            dtypes.append(fact.dtype)
    if any(one.kind not in SAME[function] for one in dtypes):
        raise given.watched.refused(f"calls {name_of(function)} of {dtypes[0].name}, where TensorFlow differs", node)
    to = result.dtype if result is not None else None
    if to is not None and to.kind in "iu" and any(one.kind == "f" for one in dtypes) and to.itemsize < 8:
        raise given.watched.refused(f"makes whole numbers of floats by {name_of(function)}; write .astype()", node)
    if to is None and (result is None or result.kind not in ("tuple", "list")):
        raise given.watched.refused("has a line that no recorded call comes to", node)

    def rendered(one: Any) -> str:
        fact = given.fact(one) if not isinstance(one, ast.Starred) else None
        decided = fact is not None and fact.kind in ("int", "float") and given.flow.given(one)
        if decided and function in PROMOTING:
            return cast(given, one, to)
        if decided and fact is not None and fact.kind == "float" and fact.dtype != to:
            raise given.watched.refused(f"hands a number that arguments decide to {name_of(function)}", node)
        return given.render(one)

    texts = [*map(rendered, arguments), *(f"{one.arg}={rendered(one.value)}" for one in node.keywords)]
    in_list = isinstance(arguments[0], ast.List | ast.Tuple)
    if name in ("array", "asarray") and "dtype" not in every and in_list and to is not None:
        texts.append(f"dtype=tf.{to.name}")
    return f"tnp.{name}({', '.join(texts)})"


def _values(arguments: Any) -> list[Any]:
    """Arguments, and the parts of lists that are written out."""
    found = []
    for one in arguments:
        found += _values(one.elts) if isinstance(one, ast.List | ast.Tuple) else [one]
    return [one for one in found if not isinstance(one, ast.Starred)]


def _parameters(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return [f"argument {number}" for number in range(9)]
