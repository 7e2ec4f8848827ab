"""The user's code behind a graph: the Python function of a token, file and line of a callable, its syntax tree.

``numpy_function`` and ``py_function`` leave only a token (``pyfunc_7``) in the graph; the function itself waits in
TensorFlow's script-op registry, a process-wide ``WeakValueDictionary``. ``from_generator`` registers three functions
for one generator; only the one that produces elements counts, the other two are helpers. A function of the graph
carries the name of the traced function; the Python object of the dataset keeps that beside the user's own, so the two
are joined by name and nothing is guessed. The line that made an op is noted as it is made
(:mod:`xttsbench.pipeline.places`).
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, Literal

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops, structured_function
from tensorflow.python.ops import script_ops

from xttsbench.owners import of_framework, owner
from xttsbench.pipeline.definitions import before_autograph, place
from xttsbench.records.base import Location
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
    """Registry entry of a token, with the user's function."""

    entry: Any  # the object in the registry; TensorFlow holds it weakly, so keep this while the entry is swapped
    kind: PythonKind
    user: Callable[..., Any]  # the user's function, or the callable given to ``from_generator``
    helper: bool = False  # bookkeeping of ``from_generator``: it assigns an iterator's number or forgets the iterator
    generator_state: Any = None
    """TensorFlow's table of live iterators; the same object for the three functions of one generator."""

    @property
    def called(self) -> Callable[..., Any]:
        """User's function with the wrappers around it, as TensorFlow calls it."""
        return _called(self.entry)


def lookup(token: str) -> Registered | None:
    """Registry entry of a token; ``None`` where the function is gone."""
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
    for _ in range(50):  # a wrapper that names itself must not hang the report
        partial = function.func if isinstance(function, functools.partial) else None
        inner: Any = partial or getattr(function, "__wrapped__", None) or _wrapped_by_tensorflow(function)
        if inner is None:
            break
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
    for token in list(script_ops._py_funcs._funcs) if registered.generator_state is not None else ():
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
    held: list[Any] = []
    table = script_ops._py_funcs._funcs
    with _lock, ExitStack() as undo:  # two recorders at once would restore one another's replacement
        for token, wrap in tokens.items():
            entry = script_ops._py_funcs.get(token)
            if isinstance(entry, script_ops.EagerFunc):
                undo.callback(setattr, entry, "_func", entry._func)
                entry._func = wrap(entry._func)
            elif entry is not None:
                undo.callback(table.__setitem__, token, entry)
                held.append(wrap(entry))
                table[token] = held[-1]
        yield


def _called(entry: Any) -> Any:
    return entry._func if isinstance(entry, script_ops.EagerFunc) else entry


def _generator_state(function: Any) -> Any:
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
    ours = path.endswith(("tensorflow/python/autograph/impl/api.py", "tensorflow/python/ops/script_ops.py"))
    return cells(function).get("func") if ours else None


_USERS: Final = ("user", "typed", "autograph", "workload")


def whose(file: str) -> Literal["user", "library", "internal"]:
    """Owner of a file: the user, an installed library, or ``internal`` (Python, TensorFlow, Keras, this package)."""
    found = owner(file)
    return "user" if found in _USERS else "library" if found == "library" else "internal"


def locate(function: Any, op: str | None = None) -> Location:
    """File and line of a callable: function, method, partial, wrapped function, callable object or class.

    Built-in and compiled functions have none; both fields are then ``None``.
    """
    function = unwrap(function)
    code, file, line = _code(function), None, None
    if code is not None:
        file, line = before_autograph(code.co_filename, code.co_firstlineno)
    elif inspect.isclass(function):
        with suppress(OSError, TypeError):  # built-in, or its source is not on disk
            file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    return Location(file=file, line=line, op=op)


def display_name(function: Any) -> str:
    """A callable's name as the user wrote it, without the prefixes of AutoGraph's generated code."""
    function = unwrap(function)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    if name is None:
        return type(function).__qualname__
    return str(name).removeprefix("outer_factory.<locals>.inner_factory.<locals>.").replace("tf__", "")


def walk(dataset: Any) -> Iterator[Any]:
    """Every Python dataset object under ``dataset``, itself last, each once.

    ``_inputs()`` leaves out what some classes keep to themselves (``TextLineDataset`` reads through a hidden
    ``flat_map``), so datasets held as attributes are followed too.
    """
    found: dict[int, Any] = {}
    waiting = [dataset]
    while waiting:
        current = waiting.pop()
        if id(current) not in found:
            found[id(current)] = current
            hidden = [value for value in vars(current).values() if isinstance(value, tf.data.Dataset)]
            waiting.extend([*current._inputs(), *hidden, *captured_datasets(current)])
    return reversed(found.values())


def wrapped_functions(dataset: Any) -> list[Any]:
    """The functions of one Python dataset, as TensorFlow wraps them: the user's beside the traced one."""
    return [one for one in vars(dataset).values() if isinstance(one, structured_function.StructuredFunctionWrapper)]


def captured_datasets(dataset: Any) -> list[Any]:
    """The datasets that a dataset's functions capture, in the order of capture, where a variable leads to them."""
    found: list[Any] = []
    for wrapped in wrapped_functions(dataset):
        captured = [tensor for tensor in wrapped.function.captured_inputs if tensor.dtype == tf.variant]
        if captured:
            named = [one for one in _variables(unwrap(wrapped._func)) if isinstance(one, tf.data.Dataset)]
            pairs = [next((one for one in named if one._variant_tensor is tensor), None) for tensor in captured]
            found.extend(one for one in pairs if one is not None)
    return found


def _variables(function: Any) -> list[Any]:
    """Values of a function's closure, of the globals that it names, and of its bound object."""
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    everything = getattr(function, "__globals__", {})
    owner = getattr(function, "__self__", None)  # ``dataset.skip`` given as the function
    return [owner, *cells(function).values(), *(everything[name] for name in names if name in everything)]


def user_function(function: Any, depth: int = 0) -> Any:
    """The user's function itself, or the only one that TensorFlow's own closures lead to (key functions, generators).

    Where a closure holds more than one, none is named: which of them the op spends its time in is not known.
    """
    function = unwrap(function)
    if not is_tensorflow(function):
        return function if callable(function) else None
    if depth == 4:  # TensorFlow nests its wrappers no deeper
        return None
    candidates: list[Any] = []
    for value in cells(function).values():
        generator = getattr(value, "_generator", None)
        candidate = unwrap(generator) if generator is not None else value
        found = user_function(candidate, depth + 1) if callable(candidate) else None
        if found is not None and all(found is not other for other in candidates):
            candidates.append(found)
    return candidates[0] if len(candidates) == 1 else None


def _code(function: Any) -> CodeType | None:
    if not inspect.isclass(function) and not hasattr(function, "__code__"):
        function = unwrap(type(function).__call__)  # a callable object; a built-in's leads to no code
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def is_users(function: Any) -> bool:
    """Whether a Python function is of the user's own code: no installed library, not TensorFlow, not this package."""
    code = getattr(function, "__code__", None)
    return isinstance(code, CodeType) and not is_tensorflow(function) and whose(place(code)[0]) == "user"


_YIELDING: Final = ("__getitem__", "__next__", "__iter__", "__call__")
_MOST_LOOKED_AT: Final = 60  # objects


def users_behind(function: Any) -> Any:
    """The user's code that a library's function calls, else the function itself: what a reader knows, and can edit.

    It is looked for in what the function is bound to and has captured: Keras makes a generator of its own around a
    ``PyDataset``, whose ``__getitem__`` this is.
    """
    waiting = [] if whose(locate(function).file or "") == "user" else [function]
    for one in waiting:  # which grows
        plain = unwrap(one)
        plain = getattr(plain, "__func__", plain)
        if is_users(plain):
            return plain
        for name in () if isinstance(one, type) else _YIELDING:
            if is_users(getattr(type(one), name, None)):
                return getattr(one, name)
        if len(waiting) < _MOST_LOOKED_AT:
            kept = vars(one) if of_framework(type(one).__module__) and hasattr(one, "__dict__") else {}
            waiting += [getattr(one, "__self__", None), *cells(plain).values(), *kept.values()]
    return function


def parameters_of(function: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name; none where it does not tell."""
    try:
        return dict(inspect.signature(function, follow_wrapped=False).parameters)
    except (TypeError, ValueError):
        return {}


def call_of(obj: Any) -> Any:
    """``__call__`` as an object's type defines it; ``None`` where calling it is not Python's."""
    return next((vars(kind)["__call__"] for kind in type(obj).__mro__ if "__call__" in vars(kind)), None)
