"""Types of a function's expressions, by running the user's own source on recorded arguments.

Every expression of the source, and of the user's functions that it calls, is handed to a recorder, which notes what it
was: an array or a number, of which dtype, or a function. A branch that no recorded call took is taken once by force, up
to where it fails. What looks outside (files, clocks, random numbers) is refused before it is called.
"""

from __future__ import annotations

import ast
import functools
import linecache
import textwrap
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.fixes.native.hooks import CALLED, IN_PLACE, SAW, TEST, compiled, numbers, parsed
from xttsbench.fixes.native.names import COMPUTING, OUTSIDE, OUTSIDE_NAMES
from xttsbench.pipeline.definitions import definition, place
from xttsbench.pipeline.source import call_of, is_users

_PLAIN: Final = (int, float, str, bool, type(None))
_MOST_FORCED: Final = 32
_MOST_TIMES: Final = 10_000
"""Times that a call may come to one expression: a loop of more turns takes ops longer than Python, some 20 microseconds
a turn, and written out it takes minutes to trace."""


class RefusedError(Exception):
    """A function that cannot become ops: why, as a phrase with file and line."""

    def __init__(self, reason: str, file: str | None = None, line: int | None = None) -> None:
        """Take a phrase and its place, as far as it is known."""
        super().__init__(reason if file is None else f"{reason} ({file}:{line})")
        self.reason, self.file, self.line = reason, file, line


@dataclass(frozen=True, slots=True)
class Fact:
    """An expression's value in all recorded calls.

    Attributes:
        kind: ``array``, ``scalar`` (of NumPy's), ``int``, ``float``, ``bool``, ``tensor``, ``callable``, ``several``
            where calls differ, else the name of its type.
        dtype: of an array, a scalar or a number; ``None`` for others.
        ndim: ``None`` where calls differ.
        value: of a function, or of what was the same plain value in all calls.
    """

    kind: str
    dtype: Any = None
    ndim: int | None = None
    value: Any = None


def fact_of(value: Any) -> Fact:
    """The fact of one value."""
    if isinstance(value, np.ndarray):
        return Fact("array", value.dtype, value.ndim)
    if isinstance(value, np.generic):
        return Fact("scalar", value.dtype, 0)
    if type(value) in (bool, int, float):
        return Fact(type(value).__name__, np.dtype(type(value)), 0, value)
    if isinstance(value, tf.Tensor | tf.Variable):
        return Fact("tensor", value.dtype.as_numpy_dtype)
    parts = value if isinstance(value, tuple) else (value,)
    plain = all(type(one) in _PLAIN for one in parts) or callable(value) or isinstance(value, np.dtype)
    kept = value if plain else None
    return Fact("callable" if callable(value) else type(value).__name__, value=kept)


def _together(one: Fact | None, other: Fact) -> Fact:
    if one is None or one == other:
        return other
    if one.kind == "callable" == other.kind and _code(one.value) is _code(other.value):
        return other
    if (one.kind, one.dtype) != (other.kind, other.dtype) or one.kind == "callable":
        return Fact("several")
    return Fact(one.kind, one.dtype, one.ndim if one.ndim == other.ndim else None)


def _code(function: Any) -> Any:
    return getattr(function, "__code__", function)


@dataclass(eq=False)
class Watched:
    """A user's function: its source, and what its expressions were.

    Attributes:
        function: the user's; of a method the function in its class.
        node: of its definition in ``text``, which is all of it that is parsed.
        file: of the definition.
        before: lines of the file before ``text``.
        nodes: all of it; an expression's number is its place in them.
        facts: by the number of the expression.
        taken: outcomes of a test, by its number.
    """

    function: Any
    node: Any
    text: str
    file: str
    before: int
    nodes: list[ast.AST] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    facts: dict[int, Fact] = field(default_factory=dict)
    taken: dict[int, set[bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = list(ast.walk(self.node))
        self.numbers = numbers(self.node)

    def fact(self, node: ast.AST) -> Fact | None:
        """The fact of an expression; ``None`` where no call came to it."""
        return fact_of(node.value) if isinstance(node, ast.Constant) else self.facts.get(self.numbers[id(node)])

    def line(self, node: Any) -> int:
        """The user's line of a node."""
        return int(node.lineno) + self.before

    def refused(self, why: str, node: Any) -> RefusedError:
        """A refusal at a node."""
        return RefusedError(why, self.file, self.line(node))


def read(function: Any) -> Watched:
    """The source of a user's function.

    Raises:
        RefusedError: it is not found, or no plain function.
    """
    node, (file, _) = definition(function.__code__), place(function.__code__)
    if node is None or isinstance(node, ast.AsyncFunctionDef):
        raise RefusedError(f"calls {function.__qualname__}, the source of which cannot be read")
    written = linecache.getlines(file)[node.lineno - 1 : node.end_lineno]
    if isinstance(node, ast.Lambda):
        end = None if node.end_lineno != node.lineno else node.end_col_offset
        written[0] = written[0].encode()[node.col_offset : end].decode()
        if end is None and node.end_lineno is not None:
            written[-1] = written[-1].encode()[: node.end_col_offset].decode()
        text = f"({''.join(written)}\n)"
    else:
        text = textwrap.dedent("".join(written))
    return Watched(function, parsed(text, of_lambda=isinstance(node, ast.Lambda)), text, file, node.lineno - 1)


class Observer:
    """Runs a function and the user's functions that it calls, and keeps what their expressions were."""

    def __init__(self, function: Any) -> None:
        """Take a function, a bound method or a partial of one."""
        self.function = function
        self.seen: dict[types.CodeType, Watched] = {}
        self._made: dict[types.CodeType, types.CodeType] = {}
        self._times: Counter[tuple[Watched, int]] = Counter()  # that this call came to an expression
        self._forced: list[tuple[Watched, int]] = []  # the test that gives the other answer the next time

    def run(self, calls: Sequence[Sequence[Any]]) -> None:
        """Run the function on arguments that were recorded.

        Raises:
            RefusedError: it does what cannot be in a function of ops.
        """
        for arguments in calls:
            self._run(arguments)

    def force(self, calls: Sequence[Sequence[Any]], decides: Callable[[Watched, Any], bool]) -> None:
        """Take the branches that no call took, where ``decides`` says that arguments decide them."""
        tried: set[tuple[Watched, int]] = set()
        for _ in range(_MOST_FORCED):
            self._forced = [
                (one, number)
                for one in self.seen.values()
                for number, taken in one.taken.items()
                if len(taken) == 1 and (one, number) not in tried and decides(one, one.nodes[number])
            ][:1]
            tried.update(self._forced)
            for arguments in calls if self._forced else ():
                try:
                    self._run(arguments)
                except RefusedError:
                    raise
                except Exception:  # what it makes of values that would not come there
                    continue
        self._forced = []

    def _run(self, arguments: Sequence[Any]) -> Any:
        with np.errstate(all="ignore"):
            given = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
            self._times.clear()
            return self.substitute(self.function)(*given)

    def substitute(self, function: Any) -> Any:
        """A user's function that tells what its expressions are; others as they are."""
        if isinstance(function, functools.partial):
            return functools.partial(self.substitute(function.func), *function.args, **function.keywords)
        if isinstance(function, types.MethodType):
            return types.MethodType(self.substitute(function.__func__), function.__self__)
        plain = users_function(function)
        if isinstance(plain, types.MethodType):
            return self.substitute(plain)
        if plain is None or is_nested(plain):
            return function
        watched = self.watched(plain)
        if plain.__code__ not in self._made:
            self._made[plain.__code__] = compiled(watched.text, watched.file, watched.before, plain.__code__)
        code = self._made[plain.__code__]
        held = dict(zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True))
        hooks = {
            SAW: functools.partial(self._saw, watched),
            CALLED: functools.partial(self._called, watched),
            TEST: functools.partial(self._test, watched),
            IN_PLACE: functools.partial(self._in_place, watched),
        }
        closure = tuple(held[name] for name in code.co_freevars)
        made = types.FunctionType(code, {**plain.__globals__, **hooks}, plain.__name__, plain.__defaults__, closure)
        made.__kwdefaults__ = plain.__kwdefaults__
        return made

    def watched(self, function: Any) -> Watched:
        """The record of a user's function, read where it is new."""
        if function.__code__ not in self.seen:
            self.seen[function.__code__] = read(function)
        return self.seen[function.__code__]

    def _saw(self, watched: Watched, number: int, value: Any) -> Any:
        self._times[watched, number] += 1
        if self._times[watched, number] > _MOST_TIMES:
            raise watched.refused(f"loops more than {_MOST_TIMES:,} times in one call", watched.nodes[number])
        watched.facts[number] = _together(watched.facts.get(number), fact_of(value))
        return value

    def _called(self, watched: Watched, number: int, function: Any) -> Any:
        owner = getattr(function, "__self__", None)
        method = isinstance(owner, tf.Tensor) or (
            isinstance(function, types.BuiltinMethodType) and not isinstance(owner, types.ModuleType | type | None)
        )
        self._saw(watched, number, getattr(type(owner), function.__name__, None) if method else function)
        if is_outside(function):
            raise watched.refused(f"calls {name_of(function)}, which may do more than compute", watched.nodes[number])
        return self.substitute(function)

    def _test(self, watched: Watched, number: int, value: Any) -> Any:
        self._saw(watched, number, value)
        taken = bool(value)
        if (watched, number) in self._forced:
            self._forced, taken = [], not taken
            watched.taken.setdefault(number, set()).add(taken)
            return taken
        watched.taken.setdefault(number, set()).add(taken)
        return value

    def _in_place(self, watched: Watched, number: int, name: str, scope: Mapping[str, Any]) -> None:
        """Note a variable that ``+=`` and the like change; refuse it where another one sees the change."""
        value = scope[name]
        self._saw(watched, number, value)
        if not isinstance(value, np.ndarray):
            return
        others = [other for key, one in scope.items() if key != name for other in _arrays(one)]
        if any(np.may_share_memory(value, one) for one in others):
            raise watched.refused(f"changes {name} in place, which has another name", watched.nodes[number])


def users_function(function: Any) -> Any:
    """The user's function or method that a call runs; ``None`` where it is none of the user's."""
    if isinstance(function, functools._lru_cache_wrapper):
        function = function.__wrapped__
    if isinstance(function, types.FunctionType | types.MethodType):
        plain = getattr(function, "__func__", function)
        return function if isinstance(plain, types.FunctionType) and is_users(plain) else None
    if isinstance(function, type | types.BuiltinFunctionType | np.ufunc):
        return None
    call = call_of(function)
    return types.MethodType(call, function) if isinstance(call, types.FunctionType) and is_users(call) else None


def is_nested(function: Any) -> bool:
    """Whether a function was made by one that is observed."""
    return SAW in getattr(function, "__globals__", ())


def name_of(function: Any) -> str:
    """A function's name with its module."""
    name = str(
        getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or type(function).__name__
    )
    module = _module(function)
    return name if module in ("builtins", "None") else f"{module}.{name}"


def is_outside(function: Any) -> bool:
    """Whether a call may give something else the next time, or do more than give a value."""
    if users_function(function) is not None or (
        isinstance(function, type) and is_users(vars(function).get("__init__"))
    ):
        return False
    module, name = _module(function), getattr(function, "__name__", "")
    return module.split(".")[0] not in COMPUTING or module.startswith(OUTSIDE) or name in OUTSIDE_NAMES


def _module(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        return str(type(owner).__module__)
    return str(getattr(function, "__module__", None) or type(function).__module__)


def _arrays(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _arrays(one)
