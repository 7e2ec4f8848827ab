"""A Python function that computes with arrays as ops of TensorFlow: its own source, run once on traced arrays.

Its source, and that of the user's functions that it calls, is compiled anew with every call, subscript and operator
handed to :class:`xttsbench.fixes.native.calls.Calls`; all else is Python as it stands, on objects that stand for
arrays. Loops and branches over what is known run while it is traced. What depends on the values of arrays, on the
outside, or on what an earlier call left is refused, with the line.
"""

from __future__ import annotations

import ast
import functools
import linecache
import traceback
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.data.util import nest

from xttsbench.fixes.graph.functions import state
from xttsbench.fixes.native.arrays import Array, CannotTraceError, lifted, only
from xttsbench.fixes.native.calls import Calls, is_known
from xttsbench.fixes.native.control import CALL, FOR, IF, WHILE, as_items, handed_over, later, own_scope, parameters
from xttsbench.fixes.native.control.branches import both, branch, either, negated
from xttsbench.fixes.native.control.loops import looped, repeated
from xttsbench.fixes.native.control.rows import listed
from xttsbench.fixes.native.text import Text, Texts, text, written_out
from xttsbench.fixes.native.written.origins import SYMBOLS, Origins
from xttsbench.pipeline.functions import is_random
from xttsbench.pipeline.nodes import FunctionLibrary
from xttsbench.pipeline.python.names import copied
from xttsbench.pipeline.python.state import called
from xttsbench.pipeline.source import definition, is_made, is_users, locate, place

_HELPER: Final = "__xttsbench_{}__"  # in a function compiled anew, by what it is handed
_MOST_OPS: Final = 5_000  # of a traced function; more are a loop written out


class Rewritten:
    """The user's functions with calls and subscripts handed over, each made once."""

    def __init__(self, whole: Any, *, branches: bool) -> None:
        self._branches = branches
        calls = self.calls = Calls(self.function, Origins(called(whole)))
        helpers = {
            **{"item": calls.item, "numpy": calls.as_array, "name": calls.named, "operator": calls.operated},
            **{"increased": calls.increased, "text": written_out, "listed": listed, "in": calls.is_in},
            **{"not_in": calls.is_not_in, "stored": calls.stored, "and": both, "or": either, "not": negated},
        }
        self._helpers: dict[str, Any] = {CALL: calls.call, IF: branch, FOR: looped, WHILE: repeated}
        self._helpers |= {_HELPER.format(name): function for name, function in helpers.items()}

    def function(self, function: types.FunctionType) -> Any:
        """A user's function, compiled anew; itself where it was made by one that is."""
        if function.__globals__.get(CALL) is not None:
            return function
        code = _compiled(function.__code__, self._branches)
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
        trail = traceback.walk_tb(error.__traceback__)
        return [(frame.f_code.co_filename, line) for frame, line in trail if CALL in frame.f_globals]


@functools.lru_cache(maxsize=256)
def _compiled(code: types.CodeType, branches: bool) -> types.CodeType:
    """The code of a function with its calls and subscripts handed over, and its branches where they are asked for.

    Raises:
        CannotTraceError: its source is not found.
    """
    file, _ = place(code)
    node = definition(code)
    if is_made(code):
        found: list[Any] = [copied(node)]
    else:
        found = [
            one
            for one in ast.walk(ast.parse("".join(linecache.getlines(file))))
            if node is not None
            and type(one) is type(node)
            and (one.lineno, one.col_offset) == (node.lineno, node.col_offset)
        ]
    if len(found) != 1 or isinstance(found[0], ast.AsyncFunctionDef):
        raise CannotTraceError(f"its source ({code.co_name}) cannot be read")
    target: Any = _Handed().visit(handed_over(found[0]) if branches else found[0])
    if not isinstance(target, ast.Lambda):
        target.decorator_list = []
    body = [ast.Return(target)] if isinstance(target, ast.Lambda) else [target]
    factory = ast.FunctionDef("factory", parameters(code.co_freevars), body, [])
    module = ast.fix_missing_locations(ast.Module([factory], []))
    outer = next(one for one in compile(module, file, "exec").co_consts if isinstance(one, types.CodeType))
    wanted = getattr(target, "name", "<lambda>")
    return next(one for one in outer.co_consts if isinstance(one, types.CodeType) and one.co_name == wanted)


class _Handed(ast.NodeTransformer):
    """Turns calls and subscripts into calls of helpers; lines stay."""

    def __init__(self) -> None:
        self._functions: list[ast.FunctionDef] = []

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id in ("super", IF, FOR, WHILE):
            return self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "numpy" and not node.args and not node.keywords:
            return _helper("numpy", node, [self.visit(node.func.value)])
        if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp) and _goes_through(node.func):
            given = node.args[0]
            node.args = [ast.copy_location(ast.ListComp(given.elt, given.generators), given)]
        self.generic_visit(node)
        return _helper("call", node, [node.func, *node.args], node.keywords)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        return _helper("item", node, [node.value, _key(node.slice)])

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        symbol = ast.copy_location(ast.Constant(SYMBOLS[type(node.op)]), node)
        return _helper("operator", node, [symbol, node.left, node.right])

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        if isinstance(node.target, ast.Subscript) and isinstance(node.target.value, ast.Name):
            return self._stored(node.target, node.value, node, ast.Constant(SYMBOLS[type(node.op)]))
        if not isinstance(node.target, ast.Name):
            return node
        symbol, now = ast.Constant(SYMBOLS[type(node.op)]), ast.Name(node.target.id, ast.Load())
        value = _helper("increased", node.value, [symbol, now, node.value])
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        self.generic_visit(node)
        parts: list[ast.expr] = []
        for one in node.values:
            if isinstance(one, ast.FormattedValue):
                spec = one.format_spec or ast.Constant("")
                parts.append(ast.Tuple([one.value, ast.Constant(one.conversion), spec], ast.Load()))
            else:
                parts.append(one)
        return _helper("text", node, [ast.copy_location(one, node) for one in parts])

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) > 1 or not isinstance(node.ops[0], ast.In | ast.NotIn):
            return node
        name = "in" if isinstance(node.ops[0], ast.In) else "not_in"
        return _helper(name, node, [node.left, *node.comparators])

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        self.generic_visit(node)
        if own_scope(node):
            return node
        name = "and" if isinstance(node.op, ast.And) else "or"
        return _helper(name, node, [later(one) for one in node.values])

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        if own_scope(node):
            return node
        return _helper("if", node, [node.test, later(node.body), later(node.orelse)])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return _helper("not", node, [node.operand]) if isinstance(node.op, ast.Not) else node

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        self.generic_visit(node)
        one = node.generators[0]
        if len(node.generators) > 1 or one.is_async or not isinstance(one.target, ast.Name) or own_scope(node):
            return node
        return _helper("listed", node, _of_items(one.target, one.iter, node.elt, one.ifs))

    def visit_For(self, node: ast.For) -> Any:
        """A loop that only appends to a list is a list that is appended."""
        made = as_items(node, self._functions[-1]) if self._functions else None
        if made is None:
            return self.generic_visit(node)
        found = [self.visit(one) for one in made]
        return [ast.copy_location(one, node) for one in found]

    def _stored(self, target: ast.Subscript, value: ast.expr, node: ast.stmt, *symbol: ast.expr) -> ast.stmt:
        """An assignment to a part of a variable, as one to the variable."""
        name = target.value.id  # type: ignore[attr-defined]  # the caller looks
        arguments = [ast.Name(name, ast.Load()), _key(target.slice), value, *symbol]
        made = ast.Assign([ast.Name(name, ast.Store())], _helper("stored", value, arguments))
        return ast.copy_location(made, node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            return self._stored(target, node.value, node)
        if len(node.targets) == 1 and isinstance(target, ast.Name):
            name = ast.copy_location(ast.Constant(target.id), node.value)
            node.value = _helper("name", node.value, [name, node.value])
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
        self._functions.append(node)
        found = self.generic_visit(node)
        self._functions.pop()
        return found


def _helper(name: str, node: ast.expr, arguments: list[ast.expr], keywords: Sequence[ast.keyword] = ()) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(_HELPER.format(name), ast.Load()), arguments, list(keywords)), node)


def _key(key: ast.expr) -> ast.expr:
    """Key of a subscript as a value: slices as calls of ``slice``."""
    if isinstance(key, ast.Tuple):
        return ast.copy_location(ast.Tuple([_key(one) for one in key.elts], ast.Load()), key)
    if not isinstance(key, ast.Slice):
        return key
    parts = [one or ast.Constant(None) for one in (key.lower, key.upper, key.step)]
    return ast.copy_location(ast.Call(ast.Name("slice", ast.Load()), parts, []), key)


def _goes_through(function: ast.expr) -> bool:
    """Whether a function by that name goes through all that it is given, so that a list serves as a generator does."""
    if isinstance(function, ast.Attribute):
        return function.attr in ("join", "extend")
    return isinstance(function, ast.Name) and function.id in ("list", "tuple", "sum", "max", "min", "sorted")


def _of_items(target: ast.Name, items: ast.expr, element: ast.expr, tests: list[ast.expr]) -> list[ast.expr]:
    """Items of a loop, and functions of an item: the element, and the test where there is one."""
    found = [items, later(element, target.id)]
    if tests:
        whole = tests[0] if len(tests) == 1 else _helper("and", tests[0], [later(one) for one in tests])
        found.append(later(whole, target.id))
    return found


def is_traceable(function: Any) -> bool:
    """Whether a function's source is the user's own, so that it can be read, or it is known by itself."""
    inner = called(function)
    return is_known(function) or (inner is not None and is_users(getattr(inner, "__func__", inner)))


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
        """Runs the function; a tensor for each result."""
        return self.function(*tensors)


def trace(function: Any, *arguments: Any, **named: Any) -> Traced:
    """Traces a Python function as ops: as it is written, else with branches and loops that values decide.

    Takes what :func:`_trace` does.

    Raises:
        RefusedError: it cannot be traced, or returns something else than is expected.
    """
    try:
        return _trace(function, *arguments, branches=False, **named)
    except RefusedError as error:
        if not error.reason.startswith(("decides by", "goes through")):
            raise
    return _trace(function, *arguments, branches=True, **named)


def _trace(
    function: Any,
    specs: Sequence[tf.TensorSpec],
    results: Sequence[tf.DType],
    *,
    scalars: Sequence[bool] = (),
    tensors: bool = False,
    unsure: Sequence[int] = (),
    seen: Sequence[Sequence[Any]] = (),
    structure: Any = None,
    branches: bool,
) -> Traced:
    """Traces a Python function as ops.

    Args:
        function: as it is given to ``numpy_function`` or ``py_function``.
        specs: dtypes and shapes of its arguments; the ranks are known.
        results: dtypes that the graph expects of it.
        scalars: of each argument, whether it comes as a number of NumPy's in place of an array.
        tensors: whether it is given tensors (``py_function``).
        unsure: numbers of the arguments of which the rank was only seen, which is checked whenever the function runs.
        seen: the arguments of the recorded calls: what is read from a file is what those name.
        structure: of an element, where it is the body of a generator: its dtypes, to which the parts are converted.
        branches: whether its branches are handed over.

    Raises:
        RefusedError: it cannot be traced, or returns something else than is expected.
    """
    places: list[tuple[str, int]] = []
    rewriter = Rewritten(function, branches=branches)

    def whole(*tensors_given: Any) -> list[Any]:
        given = list(tensors_given)
        for number in unsure:
            given[number] = tf.ensure_shape(given[number], given[number].shape)
        rewriter.calls.graph = tf.compat.v1.get_default_graph()
        values: list[Any] = list(zip(*seen, strict=True)) or [None] * len(given)
        arguments = given if tensors else [_argument(*one) for one in zip(given, scalars, values, strict=True)]
        rewriter.calls.seen = {
            one.name: tuple(map(_plain, known)) for one, known in zip(given, values, strict=True) if known
        }
        try:
            result = rewriter.calls.call(function, *arguments)
            return _results(result, results, tensors) if structure is None else _parts(result, structure)
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
    if (why := _objection(traced)) is not None:
        raise RefusedError(why, locate(function).file, locate(function).line)
    return Traced(traced, rewriter.calls.names, rewriter.calls.origins)


def _objection(traced: Any) -> str | None:
    """Objection to a traced function, as a phrase; ``None`` for none."""
    name = traced.function_def.signature.name
    library = FunctionLibrary([traced.function_def, *traced.graph.as_graph_def().library.function])
    held = state(library, [name], python=False)
    if held is not None or is_random(library, [name]):
        return f"runs {held or 'random ops'}, which holds state"
    if traced.captured_inputs:
        return "reads a tensor or variable from outside"
    if len(traced.function_def.node_def) > _MOST_OPS:
        return f"is more than {_MOST_OPS} ops, a loop written out"
    return None


def _plain(value: Any) -> Any:
    return value.numpy() if isinstance(value, tf.Tensor) else value


def _argument(tensor: Any, scalar: bool, seen: Sequence[Any] | None) -> Array | Text:
    if tensor.dtype == tf.string:
        only(not tensor.shape.rank, "is given an array of text")
        return Text(tensor, seen, bytes)
    array = Array(tensor, scalar=scalar)
    array.seen = None if seen is None or not scalar else tuple(seen)
    array._viewed[0] = True  # its memory is TensorFlow's
    return array


def _results(result: Any, expected: Sequence[tf.DType], tensors: bool) -> list[Any]:
    """Results of the function as tensors, one for each that is expected."""
    given = list(result) if isinstance(result, list | tuple) else [result]
    only(len(given) == len(expected), f"returns {len(given)} results, and the graph expects {len(expected)}")
    found = []
    for one, dtype in zip(given, expected, strict=True):
        tensor = one.tensor if isinstance(one, Text) else one if isinstance(one, tf.Tensor) else lifted(one).tensor
        if tensor.dtype != dtype:
            made = tensors and not isinstance(one, tf.Tensor)
            only(made, f"returns {tensor.dtype.name}, and the graph expects {dtype.name}")
            tensor = tf.cast(tensor, dtype)
        found.append(tf.identity(tensor))
    return found


def _parts(element: Any, structure: Any) -> list[Any]:
    """An element of a generator as flat tensors, each converted as TensorFlow converts what is yielded."""
    try:
        flat = nest.flatten_up_to(structure, element)
    except (TypeError, ValueError) as error:
        raise CannotTraceError(f"gives an element of another structure than {structure}") from error
    return [tf.identity(_as(one, dtype)) for one, dtype in zip(flat, nest.flatten(structure), strict=True)]


def _as(value: Any, dtype: tf.DType) -> Any:
    if dtype == tf.string:
        if isinstance(value, list | tuple):
            return tf.stack([_as(one, dtype) for one in value])
        return value.tensor if isinstance(value, Texts) else text(value).tensor
    given = lifted(value).tensor
    alike = np.can_cast(given.dtype.as_numpy_dtype, dtype.as_numpy_dtype, "same_kind")
    only(alike, f"gives {given.dtype.name} where {dtype.name} is expected")
    return tf.cast(given, dtype)


def _reason(error: BaseException) -> str:
    if isinstance(error, CannotTraceError):
        return str(error)
    text = str(error).strip().splitlines()
    return f"raises {type(error).__name__} while it is traced: {text[0] if text else 'without a message'}"
