"""A Python function that computes with arrays as ops of TensorFlow: its own source, run once on traced arrays.

Its source, and that of the user's functions that it calls, is compiled anew with every call and subscript handed to
:class:`xttsbench.fixes.native.calls.Calls`; all else is Python as it stands, on objects that stand for arrays. Loops
and branches over what is known run while it is traced. What depends on the values of arrays, on the outside, or on
what an earlier call left is refused, with the line.
"""

from __future__ import annotations

import ast
import functools
import linecache
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from xttsbench.fixes.graph.functions import state
from xttsbench.fixes.native.array import Array, CannotTraceError, lifted
from xttsbench.fixes.native.calls import Calls
from xttsbench.fixes.native.origins import SYMBOLS, Origins
from xttsbench.pipeline.graph.functions import is_random
from xttsbench.pipeline.graph.library import FunctionLibrary
from xttsbench.pipeline.graph.source import locate
from xttsbench.pipeline.purity.source import definition, is_users, place
from xttsbench.pipeline.purity.state import called

_CALL, _ITEM, _NUMPY = "__xttsbench_call__", "__xttsbench_item__", "__xttsbench_numpy__"
_NAME, _OPERATOR = "__xttsbench_name__", "__xttsbench_operator__"
_MOST_OPS: Final = 5_000
"""Ops of a traced function; more are a loop written out."""


class RefusedError(Exception):
    """A function that cannot be traced: why, as a sentence with file and line."""

    def __init__(self, reason: str, file: str | None, line: int | None) -> None:
        """Take a phrase and its place, as far as it is known."""
        super().__init__(reason if file is None else f"{reason} ({file}:{line})")
        self.reason, self.file, self.line = reason, file, line


@dataclass(frozen=True)
class Traced:
    """A function as ops.

    Attributes:
        function: a ``ConcreteFunction``.
        called: the user's names of tensors, by the tensors' names in its graph.
        origins: what gives the arrays that it has not been given.
    """

    function: Any
    called: dict[str, str]
    origins: Origins

    def __call__(self, *tensors: Any) -> Any:
        """What it gives, a tensor for each result."""
        return self.function(*tensors)


def trace(
    function: Any,
    specs: Sequence[tf.TensorSpec],
    results: Sequence[tf.DType],
    *,
    scalars: Sequence[bool] = (),
    tensors: bool = False,
    unsure: Sequence[int] = (),
) -> Traced:
    """What a Python function computes, as ops.

    Args:
        function: as it is given to ``numpy_function`` or ``py_function``.
        specs: dtypes and shapes of its arguments; the ranks are known.
        results: dtypes that the graph expects of it.
        scalars: of each argument, whether it comes as a number of NumPy's in place of an array.
        tensors: whether it is given tensors (``py_function``).
        unsure: numbers of the arguments of which the rank was only seen, which is checked whenever the function runs.

    Raises:
        RefusedError: it cannot be traced, or returns something else than is expected.
    """
    places: list[tuple[str, int]] = []
    rewriter = _Rewritten(function)

    def whole(*tensors_given: Any) -> list[Any]:
        given = [
            tf.ensure_shape(one, one.shape) if number in unsure else one for number, one in enumerate(tensors_given)
        ]
        arguments = given if tensors else [_argument(one, *rest) for one, *rest in zip(given, scalars, strict=True)]
        try:
            result = rewriter.calls.call(function, *arguments)
            return _results(result, results, tensors)
        except BaseException as error:
            places.extend(rewriter.places(error))
            raise

    try:
        with tf.device(None):
            traced = tf.function(whole, autograph=False).get_concrete_function(*specs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's function raises what it likes
        known = locate(function)
        file, line = places[-1] if places else (known.file, known.line)
        raise RefusedError(_reason(error), file, line) from error
    where = locate(function)
    library = FunctionLibrary([traced.function_def, *traced.graph.as_graph_def().library.function])
    held = state(library, [traced.function_def.signature.name], python=False)
    if held is not None or is_random(library, [traced.function_def.signature.name]):
        raise RefusedError(f"runs {held or 'random ops'}, which holds state", where.file, where.line)
    if traced.captured_inputs:
        raise RefusedError("reads a tensor or variable from outside", where.file, where.line)
    if len(traced.function_def.node_def) > _MOST_OPS:
        raise RefusedError(f"is more than {_MOST_OPS} ops, a loop written out", where.file, where.line)
    return Traced(traced, rewriter.calls.names, rewriter.calls.origins)


def _argument(tensor: Any, scalar: bool) -> Array:
    array = Array(tensor, scalar=scalar)
    array._viewed[0] = True  # its memory is TensorFlow's
    return array


def _results(result: Any, expected: Sequence[tf.DType], tensors: bool) -> list[Any]:
    """What the function returns as tensors, one for each that is expected."""
    given = list(result) if isinstance(result, list | tuple) else [result]
    if len(given) != len(expected):
        raise CannotTraceError(f"returns {len(given)} results, and the graph expects {len(expected)}")
    found = []
    for one, dtype in zip(given, expected, strict=True):
        tensor = one if isinstance(one, tf.Tensor) else lifted(one).tensor
        if tensor.dtype != dtype:
            if not tensors or isinstance(one, tf.Tensor):
                raise CannotTraceError(f"returns {tensor.dtype.name}, and the graph expects {dtype.name}")
            tensor = tf.cast(tensor, dtype)
        found.append(tf.identity(tensor))
    return found


def _reason(error: BaseException) -> str:
    if isinstance(error, CannotTraceError):
        return str(error)
    text = str(error).strip().splitlines()
    return f"raises {type(error).__name__} while it is traced: {text[0] if text else 'without a message'}"


class _Rewritten:
    """The user's functions with calls and subscripts handed over, each made once."""

    def __init__(self, whole: Any) -> None:
        calls = self.calls = Calls(self.function, Origins(called(whole)))
        self._helpers = {_CALL: calls.call, _ITEM: calls.item, _NUMPY: calls.as_array}
        self._helpers |= {_NAME: calls.named, _OPERATOR: calls.operated}

    def function(self, function: types.FunctionType) -> Any:
        """A user's function, compiled anew; itself where it was made by one that is."""
        if function.__globals__.get(_CALL) is not None:
            return function
        code = _compiled(function.__code__)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        try:
            closure = tuple(cells[name] for name in code.co_freevars)
        except KeyError as error:
            raise CannotTraceError(f"its variable {error} is not found") from error
        namespace = {**function.__globals__, **self._helpers}
        made = types.FunctionType(code, namespace, function.__name__, function.__defaults__, closure)
        made.__kwdefaults__ = function.__kwdefaults__
        return made

    def places(self, error: BaseException) -> list[tuple[str, int]]:
        """File and line of each rewritten function that an error came through, the innermost last."""
        found, trail = [], error.__traceback__
        while trail is not None:
            if _CALL in trail.tb_frame.f_globals:
                found.append((trail.tb_frame.f_code.co_filename, trail.tb_lineno))
            trail = trail.tb_next
        return found


@functools.lru_cache(maxsize=256)
def _compiled(code: types.CodeType) -> types.CodeType:
    """The code of a function with its calls and subscripts handed over.

    Raises:
        CannotTraceError: its source is not found.
    """
    file, _ = place(code)
    node = definition(code)
    tree = ast.parse("".join(linecache.getlines(file)))
    found = [
        one
        for one in ast.walk(tree)
        if node is not None
        and type(one) is type(node)
        and (one.lineno, one.col_offset) == (node.lineno, node.col_offset)
    ]
    if len(found) != 1 or isinstance(found[0], ast.AsyncFunctionDef):
        raise CannotTraceError(f"its source ({code.co_name}) cannot be read")
    target: Any = _Handed().visit(found[0])
    names = [ast.arg(name) for name in code.co_freevars]
    arguments = ast.arguments(posonlyargs=[], args=names, kwonlyargs=[], kw_defaults=[], defaults=[])
    if isinstance(target, ast.Lambda):
        body: list[ast.stmt] = [ast.Return(target)]
    else:
        target.decorator_list = []
        body = [target]
    factory = ast.FunctionDef(name="factory", args=arguments, body=body, decorator_list=[])
    module = ast.fix_missing_locations(ast.Module([factory], []))
    outer = next(one for one in compile(module, file, "exec").co_consts if isinstance(one, types.CodeType))
    wanted = getattr(target, "name", "<lambda>")
    return next(one for one in outer.co_consts if isinstance(one, types.CodeType) and one.co_name == wanted)


class _Handed(ast.NodeTransformer):
    """Turns calls and subscripts into calls of helpers; lines stay."""

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "numpy" and not node.args and not node.keywords:
            return self._helper(_NUMPY, node, [self.visit(node.func.value)])
        self.generic_visit(node)
        return self._helper(_CALL, node, [node.func, *node.args], node.keywords)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        key = node.slice
        if isinstance(key, ast.Tuple):
            key = ast.copy_location(ast.Tuple([self._slice(one) for one in key.elts], ast.Load()), key)
        return self._helper(_ITEM, node, [node.value, self._slice(key)])

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        symbol = ast.copy_location(ast.Constant(SYMBOLS[type(node.op)]), node)
        return self._helper(_OPERATOR, node, [symbol, node.left, node.right])

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = ast.copy_location(ast.Constant(node.targets[0].id), node.value)
            node.value = self._helper(_NAME, node.value, [name, node.value])
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_arguments(self, node: ast.arguments) -> Any:
        for one in (*node.posonlyargs, *node.args, *node.kwonlyargs, node.vararg, node.kwarg):
            if one is not None:
                one.annotation = None
        node.defaults = [self.visit(one) for one in node.defaults]
        node.kw_defaults = [None if one is None else self.visit(one) for one in node.kw_defaults]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        return self.generic_visit(node)

    @staticmethod
    def _slice(key: ast.expr) -> ast.expr:
        if not isinstance(key, ast.Slice):
            return key
        parts = [one or ast.Constant(None) for one in (key.lower, key.upper, key.step)]
        return ast.copy_location(ast.Call(ast.Name("slice", ast.Load()), parts, []), key)

    @staticmethod
    def _helper(name: str, node: ast.expr, arguments: list[ast.expr], keywords: Sequence[ast.keyword] = ()) -> ast.expr:
        return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), arguments, list(keywords)), node)


def is_traceable(function: Any) -> bool:
    """Whether a function's source is the user's own, so that it can be read."""
    inner = called(function)
    return inner is not None and is_users(getattr(inner, "__func__", inner))
