"""TensorFlow's script-op registry: from the token in a graph to the user's Python function, and recording its calls.

``numpy_function`` and ``py_function`` leave only a token (``pyfunc_7``) in the graph; the function itself waits in a
process-wide ``WeakValueDictionary``. ``from_generator`` registers three functions for one generator; only the one that
produces elements counts, the other two are helpers.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.ops import script_ops

from xttsbench.records.pipeline import PythonKind

PYTHON_OPS: Final[Mapping[str, PythonKind]] = {
    "PyFunc": "numpy_function",
    "PyFuncStateless": "numpy_function",
    "EagerPyFunc": "py_function",
}
"""Graph ops that call Python, and the public function that makes each."""

_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Registered:
    """What a token stands for."""

    entry: Any
    """The object in the registry; TensorFlow holds it weakly, so keep this while the entry is swapped."""
    kind: PythonKind
    user: Callable[..., Any]
    """The user's function, or the callable given to ``from_generator``."""
    helper: bool = False
    """Bookkeeping of ``from_generator``: it assigns an iterator's number or forgets the iterator."""
    generator_state: Any = None
    """TensorFlow's table of live iterators; the same object for the three functions of one generator."""

    @property
    def called(self) -> Callable[..., Any]:
        """What TensorFlow calls: the user's function with the wrappers around it."""
        return _called(self.entry)


def lookup(token: str) -> Registered | None:
    """What the registry holds for a token, or ``None`` where the function is gone."""
    entry = script_ops._py_funcs.get(token)
    if entry is None:
        return None
    kind: PythonKind = "py_function" if isinstance(entry, script_ops.EagerFunc) else "numpy_function"
    inner = unwrap(_called(entry))
    state = _generator_state(inner)
    if state is None:
        return Registered(entry, kind, inner)
    helper = getattr(inner, "__name__", "") != "generator_py_func"
    return Registered(entry, "generator", unwrap(state._generator), helper, state)


def unwrap(function: Any) -> Any:
    """Take off what TensorFlow, AutoGraph, ``functools.wraps`` and ``functools.partial`` put around a function."""
    inner: Any
    for _ in range(50):  # a wrapper that names itself must not hang the report
        if isinstance(function, functools.partial):
            inner = function.func
        else:
            inner = getattr(function, "__wrapped__", None) or _wrapped_by_tensorflow(function)
        if inner is None:
            return function
        function = inner
    return function


def cells(function: Any) -> dict[str, Any]:
    """The variables that a function closes over, by name; empty cells are left out."""
    code = getattr(function, "__code__", None)
    found: dict[str, Any] = {}
    for name, cell in zip(getattr(code, "co_freevars", ()), getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def is_tensorflow(function: Any) -> bool:
    """Whether a function's module belongs to TensorFlow."""
    return str(getattr(function, "__module__", "")).split(".")[0] == "tensorflow"


def generator_start_token(registered: Registered) -> str | None:
    """The token through which TensorFlow hands a generator its arguments, for a function of ``from_generator``."""
    if registered.generator_state is None:
        return None
    for token in list(script_ops._py_funcs._funcs):
        other = lookup(token)
        same = other is not None and other.generator_state is registered.generator_state
        if same and other is not None and getattr(unwrap(other.called), "__name__", "") == "get_next_id":
            return str(token)
    return None


@contextmanager
def recording(tokens: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]]) -> Iterator[None]:
    """Put a recorder around each token's function while the block runs; restored on every way out.

    ``tokens`` maps a token to ``wrap(original) -> replacement``. The registry holds its values weakly, so both the
    original and the replacement are held here. A ``py_function`` is an object that TensorFlow recognises by its type;
    there the function inside it is exchanged and the entry stays.
    """
    undo: list[Callable[[], None]] = []
    held: list[Any] = []
    table = script_ops._py_funcs._funcs
    with _lock:  # two recorders at once would restore one another's replacement
        try:
            for token, wrap in tokens.items():
                entry = script_ops._py_funcs.get(token)
                if entry is None:
                    continue
                if isinstance(entry, script_ops.EagerFunc):
                    undo.append(functools.partial(setattr, entry, "_func", entry._func))
                    entry._func = wrap(entry._func)
                else:
                    undo.append(functools.partial(table.__setitem__, token, entry))
                    replacement = wrap(entry)
                    held.append(replacement)
                    table[token] = replacement
            yield
        finally:
            for restore in reversed(undo):
                restore()


def _called(entry: Any) -> Any:
    return entry._func if isinstance(entry, script_ops.EagerFunc) else entry


def _generator_state(function: Any) -> Any:
    """The ``_GeneratorState`` that a function of ``from_generator`` works on, or ``None`` for any other function."""
    kind = dataset_ops.DatasetV2._GeneratorState
    owner = getattr(function, "__self__", None)
    if isinstance(owner, kind):
        return owner
    state = cells(function).get("generator_state") if is_tensorflow(function) else None
    return state if isinstance(state, kind) else None


def _wrapped_by_tensorflow(function: Any) -> Any:
    """The function in the closure of one of TensorFlow's own wrappers that set no ``__wrapped__``."""
    if not inspect.isfunction(function):
        return None
    path = function.__code__.co_filename.replace("\\", "/")
    if path.endswith(("tensorflow/python/autograph/impl/api.py", "tensorflow/python/ops/script_ops.py")):
        return cells(function).get("func")
    return None
