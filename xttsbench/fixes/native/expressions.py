"""Expressions that come from a function's arguments, as they are written for tensors."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from xttsbench.fixes.native.names import ATTRIBUTES, KINDS, OPERATORS
from xttsbench.fixes.native.observe import Fact

if TYPE_CHECKING:
    from xttsbench.fixes.native.rebind import Rebound

OF_ARRAYS: Final = ("array", "scalar")
"""Kinds of what NumPy computes with."""


def _bin_op(given: Rebound, node: ast.BinOp) -> str | None:
    if not given.flow.given(node):
        return None
    left, right = given.fact(node.left), given.fact(node.right)
    if "tensor" in (left.kind, right.kind):
        return None
    if left.kind in ("list", "tuple") and right.kind in ("list", "tuple", "int"):
        return None
    return _operated(given, node, node.op, node.left, node.right)


def _operated(given: Rebound, node: Any, operator: ast.AST, left: Any, right: Any) -> str:
    """Two operands with an operator between them, in the dtypes that NumPy computes in."""
    function = OPERATORS.get(type(operator))
    if function is None:
        raise given.watched.refused(f"has an operator without an equal in `{ast.unparse(node)}`", node)
    loop = given.loop(function, node, given.fact(left), given.fact(right))
    check_kinds(given, node, function, loop[0], right)
    one, two = given.cast(left, loop[0]), given.cast(right, loop[1])
    if function is np.matmul and 1 in (given.fact(left).ndim, given.fact(right).ndim):
        return f"tnp.matmul({one}, {two})"
    return given.around(node, (left, one), (right, two))


def check_kinds(given: Rebound, node: Any, function: Any, dtype: Any, right: Any) -> None:
    """Refuse a ufunc of a dtype for which TensorFlow has other values, or none."""
    kinds = KINDS.get(function, "iufbc")
    bad_power = function is np.power and dtype.kind in "iu" and not _whole(given.constant(right))
    if dtype.kind not in kinds or bad_power:
        raise given.watched.refused(f"has {dtype.name} in `{ast.unparse(node)}`, where TensorFlow differs", node)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _compare(given: Rebound, node: ast.Compare) -> str | None:
    if not given.flow.given(node):
        return None
    if len(node.ops) > 1 or isinstance(node.ops[0], ast.In | ast.NotIn):
        raise given.watched.refused(f"compares `{ast.unparse(node)}`", node)
    left, right = given.fact(node.left), given.fact(node.comparators[0])
    if "tensor" in (left.kind, right.kind):
        return None
    return _operated(given, node, node.ops[0], node.left, node.comparators[0])


def _aug_assign(given: Rebound, node: ast.AugAssign) -> str | None:
    if not given.flow.given(node):
        return None
    target, value = given.watched.fact(node.target), given.fact(node.value)
    if target is None:
        raise given.watched.refused("has a line that no recorded call comes to", node)
    if "tensor" in (target.kind, value.kind) or target.kind == "list":
        return None
    function = OPERATORS.get(type(node.op))
    loop = given.loop(function, node, target, value)
    check_kinds(given, node, function, loop[0], node.value)
    if target.dtype != loop[-1] or target.kind == "several":
        raise given.watched.refused(f"changes a dtype by `{ast.unparse(node)}`", node)
    return given.around(node, (node.value, given.cast(node.value, loop[1])))


def _bool_op(given: Rebound, node: ast.BoolOp) -> str | None:
    for one in node.values if given.flow.given(node) else ():
        if given.flow.given(one) and given.fact(one).dtype != np.dtype(bool):
            raise given.watched.refused(f"takes `{ast.unparse(one)}` for true or false", node)
    return None


def _unary(given: Rebound, node: ast.UnaryOp) -> str | None:
    if not given.flow.given(node):
        return None
    fact = given.fact(node.operand)
    if isinstance(node.op, ast.Not):
        return f"not ({tested(given, node.operand)})"
    if fact.kind != "tensor" and (fact.dtype is None or fact.dtype.kind not in ("if" if _minus(node) else "iub")):
        raise given.watched.refused(f"has `{ast.unparse(node)}` of a {fact.kind}", node)
    return None


def _minus(node: ast.UnaryOp) -> bool:
    return isinstance(node.op, ast.USub | ast.UAdd)


def tested(given: Rebound, test: Any) -> str:
    """A condition as a truth value."""
    fact, text = given.fact(test), given.render(test)
    if not given.flow.given(test) or fact.kind == "tensor" or fact.dtype == np.dtype(bool):
        return text
    if fact.dtype is None or fact.ndim != 0:
        raise given.watched.refused(f"takes `{ast.unparse(test)}` for true or false", test)
    return f"({text}) != 0"


def _test(given: Rebound, node: Any) -> str | None:
    if not given.flow.given(node.test):
        return None
    if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise) and not node.orelse:
        return _asserted(f"not ({tested(given, node.test)})", getattr(node.body[0].exc, "args", []))
    return given.around(node, (node.test, tested(given, node.test)))


def _attribute(given: Rebound, node: ast.Attribute) -> str | None:
    if not given.flow.given(node.value):
        return None
    fact = given.fact(node.value)
    if fact.kind not in OF_ARRAYS:
        return None
    if node.attr not in ATTRIBUTES:
        raise given.watched.refused(f"uses .{node.attr} of an array", node)
    text = given.render(node.value)
    plain = isinstance(node.value, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return ATTRIBUTES[node.attr].format(x=text if plain or node.attr not in ("ndim", "dtype") else f"({text})")


def _subscript(given: Rebound, node: ast.Subscript) -> str | None:
    if not given.flow.given(node):
        return None
    value, key = node.value, node.slice
    fact = given.fact(value)
    if isinstance(value, ast.Attribute) and value.attr == "shape" and given.fact(value.value).kind in OF_ARRAYS:
        known = given.watched.fact(key) if not isinstance(key, ast.Slice) else None
        if given.flow.given(value) and known is not None and known.kind == "int":
            return f"tf.shape({given.render(value.value)}, tf.int64)[{given.render(key)}]"
    if fact.kind in ("tensor", "list", "tuple", "dict"):
        if given.flow.given(key):
            raise given.watched.refused(f"looks up `{ast.unparse(key)}` in a {fact.kind}", node)
        return None
    if fact.kind not in OF_ARRAYS:
        raise given.watched.refused(f"takes a part of a {fact.kind}", node)
    text = given.render(value)
    if not given.flow.given(value):
        text = f"tf.constant({text})"
    keys = key.elts if isinstance(key, ast.Tuple) else [key]
    facts = [None if isinstance(one, ast.Slice) else given.fact(one) for one in keys]
    arrays = [one for one in facts if one is not None and one.kind in ("array", "list")]
    if not arrays:
        _check_basic(given, node, facts)
        return None if text == given.render(value) else given.around(node, (value, text))
    return _gathered(given, node, text, keys, facts)


def _check_basic(given: Rebound, node: ast.Subscript, facts: Sequence[Fact | None]) -> None:
    for one in facts:
        whole = one is not None and one.dtype is not None and one.dtype.kind in "iu"
        if one is not None and not whole and one.kind not in ("NoneType", "ellipsis"):
            raise given.watched.refused(f"takes the part `{ast.unparse(node)}`", node)


def _gathered(given: Rebound, node: Any, text: str, keys: Sequence[Any], facts: Sequence[Fact | None]) -> str:
    """A subscript with an array of indices, or of truth values."""
    at = next(number for number, one in enumerate(facts) if one is not None and one.kind in ("array", "list"))
    others = [key for number, key in enumerate(keys) if number != at]
    fact, key = facts[at], given.render(keys[at])
    whole = all(isinstance(one, ast.Slice) and not (one.lower or one.upper or one.step) for one in others)
    kind = "i" if fact is None or fact.dtype is None else fact.dtype.kind
    if not whole or kind not in "iub" or (kind == "b" and at):
        raise given.watched.refused(f"takes the part `{ast.unparse(node)}`", node)
    if kind == "b":
        return f"tf.boolean_mask({text}, {key})"
    return f"tf.gather({text}, {key}, axis={at})" if at else f"tf.gather({text}, {key})"


def _assign(given: Rebound, node: ast.Assign) -> str | None:
    """Numbers of Python's in variables that arguments decide are tensors from the beginning."""
    names = {one.id for one in node.targets if isinstance(one, ast.Name)}
    if given.flow.given(node.value) or not names & given.flow.decided:
        return None
    fact = given.watched.fact(node.value)
    if fact is None or fact.kind not in ("int", "float", "bool"):
        return None
    return given.around(node, (node.value, f"tf.constant({given.render(node.value)}, tf.{np.dtype(fact.dtype).name})"))


def _assert(given: Rebound, node: ast.Assert) -> str | None:
    return _asserted(tested(given, node.test), [node.msg]) if given.flow.given(node.test) else None


def _asserted(test: str, said: Sequence[Any]) -> str:
    """An error of Python's as one of the graph: AutoGraph would raise it while it follows both branches."""
    text = [ast.unparse(one) for one in said[:1] if isinstance(one, ast.Constant)]
    return f"tf.debugging.Assert({test}, [{', '.join(text)}])"


def cast_text(text: str, given: Any, wanted: Any) -> str:
    """A tensor's text as another dtype, with NumPy's values.

    Floats become small whole numbers by way of large ones: what does not fit wraps in NumPy.
    """
    wanted = np.dtype(wanted)
    small = wanted.kind in "iu" and (wanted.itemsize < 4 or wanted.kind == "u")
    if small and np.dtype(given).kind == "f":
        text = f"tf.cast({text}, tf.int64)"
    return f"tf.cast({text}, tf.{wanted.name})"


EDITS: Final[Mapping[type[ast.AST], Callable[[Any, Any], str | None]]] = {
    ast.BinOp: _bin_op,
    ast.Compare: _compare,
    ast.AugAssign: _aug_assign,
    ast.BoolOp: _bool_op,
    ast.UnaryOp: _unary,
    ast.If: _test,
    ast.While: _test,
    ast.IfExp: _test,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Assign: _assign,
    ast.Raise: lambda given, node: given.own(node),
    ast.Assert: _assert,
}
"""Kind of a node -> a function of it that gives its new text, or ``None`` where only what is inside may change.

Each raises ``RefusedError`` where there is no equal among TensorFlow's ops."""
