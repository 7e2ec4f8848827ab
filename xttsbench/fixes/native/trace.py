"""A Python function that computes with NumPy as ops: its source with other names, traced by AutoGraph.

Each expression's tensor has to have the dtype and the rank that NumPy's value had in the recorded calls, so that a
number that is rounded elsewhere, or wraps elsewhere, is refused at its line.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import linecache
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.fixes.graph.functions import state
from xttsbench.fixes.native.flow import flows
from xttsbench.fixes.native.observe import Observer, RefusedError, Watched, users_function
from xttsbench.fixes.native.rebind import CHECKED, Rebound, loaded
from xttsbench.pipeline.functions import is_random
from xttsbench.pipeline.nodes import FunctionLibrary
from xttsbench.pipeline.python.state import called
from xttsbench.pipeline.source import cells, locate

_MOST_OPS: Final = 5_000  # of a traced function; more are a loop written out
_unchecked: Final = tf.autograph.experimental.do_not_convert
_numbers = itertools.count()


@dataclass(frozen=True)
class Traced:
    """A function as ops.

    Attributes:
        function: a ``ConcreteFunction``.
        text: the user's functions with other names; empty where nothing in them had to change.
        name: of the first of them in that.
        names: what the text takes from the scope of the user's function.
        why_no_text: why it is not proposed as a patch; ``None`` where it is.
    """

    function: Any
    text: str
    name: str
    names: tuple[str, ...]
    why_no_text: str | None = None

    def __call__(self, *tensors: Any) -> Any:
        """Runs the function; a tensor for each result."""
        return self.function(*tensors)


def trace(
    function: Any,
    specs: Sequence[tf.TensorSpec],
    results: Sequence[tf.DType],
    *,
    seen: Sequence[Sequence[Any]],
    tensors: bool = False,
    unsure: Sequence[int] = (),
) -> Traced:
    """Traces a Python function as ops.

    Args:
        function: as it is given to ``numpy_function`` or ``py_function``.
        specs: dtypes and shapes of its arguments; the ranks are known.
        results: dtypes that the graph expects of it.
        seen: the arguments of the recorded calls.
        tensors: whether it is given tensors (``py_function``).
        unsure: numbers of the arguments of which the rank was only seen, which is checked whenever the function runs.

    Raises:
        RefusedError: it cannot be traced, or returns something else than is expected.
    """
    made = _Made(function, seen)

    def whole(*given: Any) -> Any:
        arguments = [tf.ensure_shape(one, one.shape) if number in unsure else one for number, one in enumerate(given)]
        return made.results(made.called(*arguments), results, tensors)

    try:
        with tf.device(None):
            traced = tf.function(whole).get_concrete_function(*specs)
    except (Exception, SystemExit) as error:  # a user's function raises what it likes
        raise made.refusal(error) from error
    if (why := _objection(traced)) is not None:
        raise made.refused(why)
    return made.traced(traced)


class _Made:
    """The user's functions with other names, compiled."""

    def __init__(self, function: Any, seen: Sequence[Sequence[Any]]) -> None:
        self._function = function
        self._here: tuple[Watched, int] | None = None
        self._refused: RefusedError | None = None  # AutoGraph makes another error of it
        target = called(function)
        plain = getattr(target, "__func__", target)
        if plain is None or users_function(plain) is None:
            raise self.refused("has no source of the user's")
        observer = Observer(function)
        try:
            observer.run(seen)
        except RefusedError:
            raise
        except Exception as error:
            raise self.refused(f"fails when it runs again ({type(error).__name__}: {error})") from error
        self._root = observer.watched(plain)
        self._closed = [target.__self__] if isinstance(target, types.MethodType) else []
        partials = list(_partials(function))
        self._closed += [one for partial in reversed(partials) for one in partial.args]
        known = {name for partial in partials for name in partial.keywords}
        code = plain.__code__
        all_of_them = code.co_argcount + code.co_kwonlyargcount
        rest = code.co_varnames[all_of_them : all_of_them + bool(code.co_flags & inspect.CO_VARARGS)]
        given = code.co_varnames[len(self._closed) : code.co_argcount] + rest
        self._named = {name: one for partial in reversed(partials) for name, one in partial.keywords.items()}
        self._flows = flows(observer, self._root, set(given) - known)
        observer.force(seen, lambda one, node: one in self._flows and self._flows[one].given(node))
        self._flows = flows(observer, self._root, set(given) - known)
        self._names = self._named_anew()
        self._compiled = {one: self._compile(one) for one in self._flows}
        for one in self._compiled.values():
            one.__globals__.update({self._names[other]: function for other, function in self._compiled.items()})

    def _named_anew(self) -> dict[Watched, str]:
        found: dict[Watched, str] = {}
        for one in self._flows:
            base = re.sub(r"\W+|lambda", "_", one.function.__name__).strip("_") or "mapped"
            name = f"{base}_native"
            while name in found.values():
                name += "_"
            found[one] = name
        return found

    def _compile(self, one: Watched) -> Any:
        """A function that AutoGraph can read, in the scope of the user's."""
        text = Rebound(one, self._flows[one], self._names, checking=True).text()
        file = f"<native {next(_numbers)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        scope: dict[str, Any] = {**one.function.__globals__, **cells(one.function), "tf": tf}
        scope |= {"tnp": tf.experimental.numpy, CHECKED: _unchecked(functools.partial(self._checked, one))}
        exec(compile(text, file, "exec"), scope)
        made = scope[self._names[one]]
        made.__defaults__, made.__kwdefaults__ = one.function.__defaults__, one.function.__kwdefaults__
        return made

    def _checked(self, one: Watched, number: int, value: Any) -> Any:
        """A tensor that has the dtype and the rank that NumPy's value had."""
        self._here = one, number
        fact = one.facts[number]
        if isinstance(value, tf.Tensor):
            dtype, rank = value.dtype.as_numpy_dtype, value.shape.rank
            if dtype != fact.dtype or (None not in (rank, fact.ndim) and rank != fact.ndim):
                says = (
                    f"{np.dtype(dtype).name} of rank {rank}, and NumPy's value is {fact.dtype.name} of rank {fact.ndim}"
                )
                self._refused = one.refused(f"has a tensor that is {says}", one.nodes[number])
                raise self._refused
        return value

    def called(self, *tensors: Any) -> Any:
        """The result of the function for tensors."""
        return self._compiled[self._root](*self._closed, *tensors, **self._named)

    @_unchecked
    def results(self, result: Any, expected: Sequence[tf.DType], tensors: bool) -> list[Any]:
        """Results of the function as tensors, one for each that is expected."""
        given = list(result) if isinstance(result, list | tuple) else [result]
        if len(given) != len(expected):
            raise self.refused(f"returns {len(given)} results, and the graph expects {len(expected)}")
        found = []
        for one, dtype in zip(given, expected, strict=True):
            tensor = one if isinstance(one, tf.Tensor) else tf.convert_to_tensor(np.asarray(one))
            if tensor.dtype != dtype:
                if not tensors:
                    raise self.refused(f"returns {tensor.dtype.name}, and the graph expects {dtype.name}")
                tensor = tf.cast(tensor, dtype)
            found.append(tf.identity(tensor))
        return found

    def refused(self, why: str) -> RefusedError:
        """A refusal at the function."""
        place = locate(self._function)
        self._refused = RefusedError(why, place.file, place.line)
        return self._refused

    def refusal(self, error: BaseException) -> RefusedError:
        """Why it cannot be traced, with the line of the last expression that could."""
        if self._refused is not None:
            return self._refused
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = lines[-1].removeprefix(f"{type(error).__name__}: ") if lines else "without a message"
        why = f"raises {type(error).__name__} while it is traced: {said}"
        if self._here is None:
            return self.refused(why)
        one, number = self._here
        return RefusedError(why, one.file, one.line(one.nodes[number]))

    def traced(self, function: Any) -> Traced:
        """The traced function with its text."""
        changed = list[Watched]()
        before = -1
        while before != len(changed):
            before, names = len(changed), {one: self._names[one] if one in changed else "" for one in self._flows}
            changed += [
                one for one, flow in self._flows.items() if one not in changed and Rebound(one, flow, names).changed
            ]
        name = self._names[self._root]
        if not changed:
            return Traced(function, "", name, ())
        bound = 1 if isinstance(called(self._function), types.MethodType) else 0
        rebound = {one: Rebound(one, flow, names) for one, flow in self._flows.items() if one in changed}
        text = "\n\n".join(one.text(bound if of is self._root else 0) for of, one in reversed(rebound.items()))
        if re.search(r"\btnp\.", text):
            text = f"tnp = tf.experimental.numpy\n\n\n{text}"
        used = loaded(text)
        why = self._elsewhere(rebound, used)
        if why is None and len(self._closed) + len(self._named) > bound:
            why = "some of its arguments are given by functools.partial"
        return Traced(function, text, name, used, why)

    def _elsewhere(self, written: Iterable[Watched], names: Sequence[str]) -> str | None:
        """Why its text does not fit into one place: the functions that it calls know something else by a name."""
        own = self._scope(self._root)
        for one in written:
            held = self._scope(one)
            for name in names:
                if name in held and (name not in own or held[name] is not own[name]):
                    return f"{one.function.__name__}() has a {name} of its own"
        return None

    def _scope(self, one: Watched) -> Mapping[str, Any]:
        return {**one.function.__globals__, **cells(one.function)}


def _partials(function: Any) -> Any:
    while isinstance(function, functools.partial):
        yield function
        function = function.func


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
