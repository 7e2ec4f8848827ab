"""Where the user's code is: the file and line of a Python callable, and the user's function behind a dataset op.

A function in the graph carries the name of the traced function; the Python object of the dataset keeps that traced
function beside the user's own, so the two are joined by name and nothing is guessed. The line that made an op is
noted as it is made (see :mod:`xttsbench.pipeline.graph.places`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.impl import api as autograph_api
from tensorflow.python.data.ops import structured_function

from xttsbench.pipeline.graph.registry import cells, is_tensorflow, unwrap
from xttsbench.records.base import Location


def locate(function: Any, op: str | None = None) -> Location:
    """File and line of a callable: function, method, partial, wrapped function, callable object or class.

    Built-in and compiled functions have none; both fields are then ``None``.
    """
    function = unwrap(function)
    code = _code(function)
    if code is not None:
        file, line = before_autograph(code.co_filename, code.co_firstlineno)
        return Location(file=file, line=line, op=op)
    if inspect.isclass(function):
        try:
            return Location(file=inspect.getsourcefile(function), line=inspect.getsourcelines(function)[1], op=op)
        except (OSError, TypeError):  # built-in, or its source is not on disk
            return Location(op=op)
    return Location(op=op)


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
    seen: set[int] = set()
    found: list[Any] = []
    waiting = [dataset]
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        found.append(current)
        hidden = [value for value in vars(current).values() if isinstance(value, tf.data.Dataset)]
        waiting.extend([*current._inputs(), *hidden, *captured_datasets(current)])
    return reversed(found)


def captured_datasets(dataset: Any) -> list[Any]:
    """The datasets that a dataset's functions capture, in the order of capture, where a variable leads to them."""
    found: list[Any] = []
    for value in vars(dataset).values():
        if not isinstance(value, structured_function.StructuredFunctionWrapper):
            continue
        captured = [tensor for tensor in value.function.captured_inputs if tensor.dtype == tf.variant]
        if captured:
            named = [one for one in _variables(unwrap(value._func)) if isinstance(one, tf.data.Dataset)]
            pairs = [next((one for one in named if one._variant_tensor is tensor), None) for tensor in captured]
            found.extend(one for one in pairs if one is not None)
    return found


def _variables(function: Any) -> list[Any]:
    """What a function's closure and the global names in its code stand for."""
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    everything = getattr(function, "__globals__", {})
    owner = getattr(function, "__self__", None)  # ``dataset.skip`` given as the function
    return [owner, *cells(function).values(), *(everything[name] for name in names if name in everything)]


def traced_functions(dataset: Any) -> dict[str, Any]:
    """Name of each traced function of the Python-side datasets -> the user's function (TensorFlow's own left out)."""
    found: dict[str, Any] = {}
    for current in walk(dataset):
        for value in vars(current).values():
            if isinstance(value, structured_function.StructuredFunctionWrapper):
                user = user_function(value._func)
                if user is not None:
                    found[value.function.name.decode()] = user
    return found


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


def before_autograph(file: str, line: int) -> tuple[str | None, int | None]:
    """The user's file and line for code that AutoGraph generated; other places as they are.

    A function defined inside a map function is compiled from AutoGraph's temporary file. Its transpiler keeps the
    map from generated to original lines; where that is gone, the place is unknown rather than the temporary file.
    """
    if "__autograph_generated_file" not in file:
        return file, line
    for factories in list(autograph_api._TRANSPILER._cache._cache.values()):
        for factory in list(factories.values()):
            lines = {
                place.lineno: origin.loc
                for place, origin in (factory.source_map or {}).items()
                if place.filename == file
            }
            # AutoGraph puts a decorator on the line before the function, and code begins at its decorator.
            for number in (line, line + 1):
                if number in lines:
                    return lines[number].filename, lines[number].lineno
    return None, None
