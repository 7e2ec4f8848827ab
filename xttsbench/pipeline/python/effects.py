"""Effects of the statements of a generator's loop on later items or on other code.

Read by :mod:`xttsbench.pipeline.python.reading`, with the objects that the generator's globals, closure and arguments
are now. What a local variable holds is known from how it is made: a random generator, an open file, an iterator and an
object of an unknown class may keep something from call to call, a list or an array keeps nothing that reading it would
change.
"""

from __future__ import annotations

import ast
import io
import itertools
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from xttsbench.pipeline.python.libraries import called_name, draws, may_write
from xttsbench.pipeline.python.reading import Kind, Reader
from xttsbench.pipeline.python.split import Felt
from xttsbench.pipeline.python.state import changed_elsewhere
from xttsbench.pipeline.python.values import LOCAL, UNKNOWN, Scope, Value, is_one_of, special_methods
from xttsbench.pipeline.source import is_users, place

_IN_ORDER: Final = ("draws ", "takes ", "calls read", "returns what a clock", "calls grab", "calls get_next", "keeps ")
"""Beginnings of effects that the head may have, in order: random draws, and reads of a stream."""
_KEEPERS: Final = np.random.Generator | np.random.RandomState | random.Random | io.IOBase
_COPIES: Final = frozenset(
    {list, tuple, sorted, dict, set, frozenset, range, len, int, float, str, bytes, bool, sum, min, max, abs}
)
_ITERATES: Final = (iter, zip, map, filter, enumerate, reversed, itertools.cycle, itertools.chain, itertools.islice)


class _Opaque:
    """In place of an object of which nothing is known: calling its methods may change it."""


class LoopEffects:
    """Answers :data:`xttsbench.pipeline.python.split.Effects` for one generator function."""

    def __init__(self, function: Any, whole: Any, given: Mapping[str, Any]) -> None:
        """Take a generator function, its tree, and its arguments as far as they are known."""
        self._function = function
        self._values = {name: Value(True, obj, name) for name, obj in given.items()}
        self._local: list[ast.stmt] = []
        reader = _LoopReader()
        scope = self._scope({})
        for node in whole.body:
            self._remember(node, reader, scope)

    def __call__(self, statements: Sequence[ast.stmt], items: frozenset[str], shared: frozenset[str]) -> Sequence[Felt]:
        """Effects of the statements outside of their own item."""
        names = {name: Value(True, UNKNOWN, name) for name in items}
        names |= {name: self._values.get(name, Value(True, _Opaque(), name)) for name in shared}
        reader = _LoopReader()
        scope = self._scope(names)
        for node in self._local:
            if getattr(node, "name", "") in shared:
                reader.statement(node, scope)
        for node in statements:
            reader.statement(node, scope)
        return reader.felt

    def works(self, statement: ast.stmt) -> bool:
        """Whether a statement subscripts an object whose class the user wrote."""
        reader, scope = _LoopReader(), self._scope(self._values)
        taken = [one.value for one in ast.walk(statement) if isinstance(one, ast.Subscript)]
        return any(
            list(special_methods(obj, ("__getitem__",))) for one in taken for obj in reader.value(one, scope).objects
        )

    def reads(self, statements: Sequence[ast.stmt], shared: frozenset[str]) -> tuple[str | None, str | None]:
        """Phrase for state that the statements read and other code changes: at all, and while an epoch lasts."""
        reader = _LoopReader()
        scope = self._scope({name: self._values.get(name, LOCAL) for name in shared})
        for node in statements:
            reader.statement(node, scope)
        for effect in reader.effects:
            if effect.kind == "read":
                return effect.text, effect.text
        return changed_elsewhere(reader), changed_elsewhere(reader, within_epoch=True)

    def _scope(self, names: Mapping[str, Value]) -> Scope:
        name = getattr(self._function, "__name__", "generator")
        scope = Scope(self._function, f"{name}() at {os.path.basename(place(self._function.__code__)[0])}")
        scope.names.update(names)
        return scope

    def _remember(self, node: Any, reader: Reader, scope: Scope) -> None:
        """Records the values of the local variables that a statement binds."""
        match node:
            case ast.FunctionDef(name=name):
                self._local.append(node)
                self._values[name] = LOCAL
            case ast.Assign(targets=targets, value=value):
                held = self._made(value, reader, scope)
                for target in targets:
                    self._bind(target, held, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, self._made(value, reader, scope), scope)
            case ast.For(target=target):
                self._bind(target, UNKNOWN, scope)
            case ast.With(items=items):
                for item in items:
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, self._made(item.context_expr, reader, scope), scope)
            case ast.Import() | ast.ImportFrom():
                reader._statement(node, scope)
                self._values |= scope.names.maps[0]
        for name in ("body", "orelse", "finalbody"):
            for one in getattr(node, name, ()) if not isinstance(node, ast.FunctionDef | ast.ClassDef) else ():
                self._remember(one, reader, scope)

    def _bind(self, target: Any, held: Any, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            before = self._values.get(target.id)
            kept = held if before is None or not isinstance(before.obj, _KEEPERS | _Opaque) else before.obj
            value = LOCAL if kept is LOCAL else Value(True, kept, target.id)
            self._values[target.id] = scope.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self._bind(one, held if held is UNKNOWN else _Opaque(), scope)

    def _made(self, node: Any, reader: Reader, scope: Scope) -> Any:
        """An object that behaves as the value of an expression does; :data:`UNKNOWN` for plain data."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                found = self._values.get(name)
                return found.obj if found is not None else reader.value(node, scope).obj
            case ast.Attribute():
                return reader.value(node, scope).obj
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._made(one, reader, scope) for one in items]
            case ast.ListComp(elt=item):
                return [self._made(item, reader, scope)]
            case ast.Dict(values=values):
                return {number: self._made(one, reader, scope) for number, one in enumerate(values)}
            case ast.DictComp(value=item):
                return {0: self._made(item, reader, scope)}
            case ast.GeneratorExp():
                return iter(())
            case ast.Lambda():
                return LOCAL
            case ast.IfExp(body=body, orelse=orelse):
                both = [self._made(one, reader, scope) for one in (body, orelse)]
                return next((one for one in both if isinstance(one, _KEEPERS | _Opaque)), both[0])
            case ast.Call():
                return self._called(node, reader, scope)
        return UNKNOWN

    def _called(self, node: ast.Call, reader: Reader, scope: Scope) -> Any:
        owner = self._made(node.func.value, reader, scope) if isinstance(node.func, ast.Attribute) else None
        if isinstance(owner, _Opaque):
            return _Opaque()
        if isinstance(owner, np.random.Generator | np.random.RandomState | random.Random):
            return UNKNOWN
        function = reader.value(node.func, scope).obj
        if function is np.random.default_rng:
            return np.random.default_rng(0)
        if is_one_of(function, (np.random.RandomState, random.Random)):
            return function(0)
        if function is open:
            return io.BytesIO()
        if is_one_of(function, _ITERATES):
            return iter(())
        root = str(getattr(function, "__module__", None) or "").split(".")[0]
        reads = root in ("json", "glob", "posix", "soundfile", "_json", "genericpath", "posixpath")
        computes = reads or (root == "numpy" and draws(function, True) is None)
        if is_one_of(function, _COPIES) or (computes and not isinstance(function, type)):
            return UNKNOWN
        if isinstance(owner, str | bytes | list | dict | np.ndarray) or owner is UNKNOWN:
            named = getattr(node.func, "attr", "")
            quick = ("split", "strip", "copy", "tolist", "keys", "values", "items", "astype", "reshape", "lower", "get")
            return UNKNOWN if named in (*quick, "splitlines", "readlines", "read_text", "format", "join") else _Opaque()
        return UNKNOWN if isinstance(owner, io.IOBase) else _Opaque()


class _LoopReader(Reader):
    """Notes which call or statement of the loop did what; functions are read again for each call of the loop's own."""

    def __init__(self) -> None:
        super().__init__()
        self.felt: list[Felt] = []
        self._under_way: list[Any] = []
        self._before: list[Any] = []

    @property
    def own(self) -> list[Any]:
        return [*self._before, *super().own]

    def statement(self, node: ast.stmt, scope: Scope) -> None:
        """Read one statement of the loop's body."""
        self._under_way = [node]
        self._depth = 1
        self._statement(node, scope)

    def function(self, function: Any, given: dict[str, Value] | None = None) -> Value:
        if self._depth == 1:  # what was read for another call is told for this one, too
            self._before += [key[0] for key in self._known]
            self._known.clear()
        return super().function(function, given)

    def _report(self, kind: Kind, node: Any, scope: Scope, text: str) -> None:
        super()._report(kind, node, scope, text)
        if kind != "read":
            told = f"{scope.where}:{node.lineno} {text}"
            at = self._under_way[-1] if self._under_way else node
            self.felt.append(Felt(at, told, text.startswith(_IN_ORDER)))

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        if self._depth != 1 or isinstance(node, ast.FunctionDef):
            super()._statement(node, scope)
            return
        self._under_way.append(node)
        super()._statement(node, scope)
        self._under_way.pop()

    def _augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        if isinstance(node.target, ast.Name) and self._depth == 1:
            held = scope.value(node.target.id)
            if held.shared and held.obj is UNKNOWN:
                self._report("state", node, scope, f"changes {held.words} in place")
        super()._augmented(node, scope)

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        if self._depth == 1:
            self._under_way.append(node)
        try:
            found = super()._call(node, scope)
            self._kept_or_written(node, scope)
        finally:
            if self._depth == 1:
                self._under_way.pop()
        return found

    def _kept_or_written(self, node: ast.Call, scope: Scope) -> None:
        """Calls of a library with an object that keeps something, and calls that write."""
        named = called_name(node)
        base = node.func.value if isinstance(node.func, ast.Attribute) else None
        owner = scope.value(base.id) if isinstance(base, ast.Name) else LOCAL
        if isinstance(owner.obj, _Opaque):
            self._report("state", node, scope, f"calls {named}() of {owner.name!r}, which may keep something")
            return
        function = scope.value(node.func.id).obj if isinstance(node.func, ast.Name) else getattr(owner.obj, named, None)
        if is_users(getattr(function, "__func__", function)):
            return
        for one in (*node.args, *(keyword.value for keyword in node.keywords)):
            held = scope.value(one.id) if isinstance(one, ast.Name) else LOCAL
            if isinstance(held.obj, _KEEPERS) or (held.shared and hasattr(type(held.obj), "__next__")):
                self._report(
                    "state", node, scope, f"takes or draws from {held.name!r}, which goes on from call to call"
                )
        if (text := may_write(node, owner)) is not None:
            self._report("state", node, scope, text)
