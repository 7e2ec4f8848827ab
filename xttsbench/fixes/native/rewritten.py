"""The user's functions compiled anew, with every call, subscript and operator handed to what makes ops of them."""

from __future__ import annotations

import ast
import functools
import linecache
import types
from collections.abc import Sequence
from typing import Any

from xttsbench.fixes.native.arrays import CannotTraceError
from xttsbench.fixes.native.calls import Calls, is_known
from xttsbench.fixes.native.control import CALL, FOR, IF, WHILE, as_items, handed_over
from xttsbench.fixes.native.control.branches import both, branch, either, negated
from xttsbench.fixes.native.control.loops import looped, repeated
from xttsbench.fixes.native.control.rows import listed
from xttsbench.fixes.native.text import written_out
from xttsbench.fixes.native.written.origins import SYMBOLS, Origins
from xttsbench.pipeline.python.names import copied
from xttsbench.pipeline.python.state import called
from xttsbench.pipeline.source import definition, is_made, is_users, place

_ITEM, _NUMPY = "__xttsbench_item__", "__xttsbench_numpy__"
_NAME, _OPERATOR, _INCREASED = "__xttsbench_name__", "__xttsbench_operator__", "__xttsbench_increased__"
_TEXT, _LISTED, _IN, _NOT_IN = "__xttsbench_text__", "__xttsbench_listed__", "__xttsbench_in__", "__xttsbench_not_in__"
_STORED = "__xttsbench_stored__"
_AND, _OR, _NOT = "__xttsbench_and__", "__xttsbench_or__", "__xttsbench_not__"


class Rewritten:
    """The user's functions with calls and subscripts handed over, each made once."""

    def __init__(self, whole: Any, *, branches: bool) -> None:
        self._branches = branches
        calls = self.calls = Calls(self.function, Origins(called(whole)))
        self._helpers = {CALL: calls.call, _ITEM: calls.item, _NUMPY: calls.as_array}
        self._helpers |= {_NAME: calls.named, _OPERATOR: calls.operated, _INCREASED: calls.increased}
        self._helpers |= {_TEXT: written_out, _LISTED: listed, _IN: calls.is_in, _NOT_IN: calls.is_not_in}
        self._helpers[_STORED] = calls.stored
        self._helpers |= {_AND: both, _OR: either, _NOT: negated, IF: branch, FOR: looped, WHILE: repeated}

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
        found, trail = [], error.__traceback__
        while trail is not None:
            if CALL in trail.tb_frame.f_globals:
                found.append((trail.tb_frame.f_code.co_filename, trail.tb_lineno))
            trail = trail.tb_next
        return found


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

    def __init__(self) -> None:
        self._functions: list[ast.FunctionDef] = []

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id in ("super", IF, FOR, WHILE):
            return self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "numpy" and not node.args and not node.keywords:
            return self._helper(_NUMPY, node, [self.visit(node.func.value)])
        if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp) and _goes_through(node.func):
            given = node.args[0]
            node.args = [ast.copy_location(ast.ListComp(given.elt, given.generators), given)]
        self.generic_visit(node)
        return self._helper(CALL, node, [node.func, *node.args], node.keywords)

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

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        if isinstance(node.target, ast.Subscript) and isinstance(node.target.value, ast.Name):
            return self._stored(node.target, node.value, node, ast.Constant(SYMBOLS[type(node.op)]))
        if not isinstance(node.target, ast.Name):
            return node
        symbol, now = ast.Constant(SYMBOLS[type(node.op)]), ast.Name(node.target.id, ast.Load())
        value = self._helper(_INCREASED, node.value, [symbol, now, node.value])
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
        return self._helper(_TEXT, node, [ast.copy_location(one, node) for one in parts])

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) > 1 or not isinstance(node.ops[0], ast.In | ast.NotIn):
            return node
        name = _IN if isinstance(node.ops[0], ast.In) else _NOT_IN
        return self._helper(name, node, [node.left, *node.comparators])

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        self.generic_visit(node)
        if _own_names(node):
            return node
        name = _AND if isinstance(node.op, ast.And) else _OR
        return self._helper(name, node, [_function([], one) for one in node.values])

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        if _own_names(node):
            return node
        return self._helper(IF, node, [node.test, _function([], node.body), _function([], node.orelse)])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return self._helper(_NOT, node, [node.operand]) if isinstance(node.op, ast.Not) else node

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        self.generic_visit(node)
        one = node.generators[0]
        if len(node.generators) > 1 or one.is_async or not isinstance(one.target, ast.Name) or _own_names(node):
            return node
        return self._helper(_LISTED, node, _of_items(one.target, one.iter, node.elt, one.ifs))

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
        key = target.slice
        if isinstance(key, ast.Tuple):
            key = ast.copy_location(ast.Tuple([self._slice(one) for one in key.elts], ast.Load()), key)
        arguments = [ast.Name(name, ast.Load()), self._slice(key), value, *symbol]
        return ast.copy_location(
            ast.Assign([ast.Name(name, ast.Store())], self._helper(_STORED, value, arguments)), node
        )

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            return self._stored(target, node.value, node)
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
        self._functions.append(node)
        found = self.generic_visit(node)
        self._functions.pop()
        return found

    @staticmethod
    def _slice(key: ast.expr) -> ast.expr:
        if not isinstance(key, ast.Slice):
            return key
        parts = [one or ast.Constant(None) for one in (key.lower, key.upper, key.step)]
        return ast.copy_location(ast.Call(ast.Name("slice", ast.Load()), parts, []), key)

    @staticmethod
    def _helper(name: str, node: ast.expr, arguments: list[ast.expr], keywords: Sequence[ast.keyword] = ()) -> ast.expr:
        return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), arguments, list(keywords)), node)


def _goes_through(function: ast.expr) -> bool:
    """Whether a function by that name goes through all that it is given, so that a list serves as a generator does."""
    if isinstance(function, ast.Attribute):
        return function.attr in ("join", "extend")
    return isinstance(function, ast.Name) and function.id in ("list", "tuple", "sum", "max", "min", "sorted")


def _own_names(node: ast.AST) -> bool:
    """Whether what is inside has to stay in the function that it stands in."""
    return any(isinstance(one, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await) for one in ast.walk(node))


def _of_items(target: ast.Name, items: ast.expr, element: ast.expr, tests: list[ast.expr]) -> list[ast.expr]:
    """What is gone through, and functions of an item: the element, and the test where there is one."""
    if not tests:
        return [items, _function([target.id], element)]
    given = [_function([], one) for one in tests]
    whole = (
        tests[0] if len(tests) == 1 else ast.copy_location(ast.Call(ast.Name(_AND, ast.Load()), given, []), tests[0])
    )
    return [items, _function([target.id], element), _function([target.id], whole)]


def _function(names: Sequence[str], body: ast.expr) -> ast.expr:
    arguments = [ast.arg(name) for name in names]
    given = ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(given, body), body)


def is_traceable(function: Any) -> bool:
    """Whether a function's source is the user's own, so that it can be read, or it is known by itself."""
    inner = called(function)
    return is_known(function) or (inner is not None and is_users(getattr(inner, "__func__", inner)))
