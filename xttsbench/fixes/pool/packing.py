"""Copying a user's functions into another process: their code and what they refer to, by value.

The functions of the user's own modules are copied with the global values that they have now, since ``make()`` may have
set them, and a module that was loaded from a file's path cannot be imported elsewhere. Installed packages, and modules
that a function names as such, are imported there. What is tied to this process (a lock, an open file, a variable, a
model) is refused and named, though some of it could be pickled: the copy would not be the thing.
"""

from __future__ import annotations

import functools
import importlib
import io
import mmap
import random
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]  # it brings no types
import numpy as np
import tensorflow as tf
from tensorflow.python.types import core

from xttsbench.fixes.pool import work
from xttsbench.owners import is_keras, owner
from xttsbench.pipeline.source import cells

_AUTOGRAPH: Final = "tensorflow/python/autograph/impl/api.py"
_NOTE: Final = "ag_dnc_wrapper__"

_lock = threading.Lock()


class CannotCopyError(Exception):
    """An object that another process cannot have: which one, as a phrase, and why."""


def packed(functions: Sequence[Any]) -> bytes:
    """Functions as one pickle, so that what two of them share stays shared.

    Raises:
        Exception: whatever pickling one of them raises; :func:`objection` tells which and why.
    """
    file = io.BytesIO()
    with _by_value():
        _Packer(file).dump(functions)
    return file.getvalue()


def objection(function: Any) -> str | None:
    """Why a function cannot be copied, with the variable that is at fault; ``None`` where it can."""
    error = _error(function)
    if error is None:
        return None
    for name, part in _held(function).items():
        if (reason := _error(part)) is not None:
            return f"its {name!r} is {_described(part)}, which cannot be copied ({_sentence(reason)})"
    return _sentence(error)


def _held(function: Any) -> dict[str, Any]:
    """Values that a function takes from its scope, or a method from its object, by name."""
    while isinstance(function, functools.partial | work.ElementOf):
        function = function.func if isinstance(function, functools.partial) else function.function
    plain = getattr(function, "__func__", function)
    if not isinstance(plain, types.FunctionType):
        return dict(getattr(function, "__dict__", {}))
    known = plain.__globals__
    scope = cells(plain) | {name: known[name] for name in plain.__code__.co_names if name in known}
    return scope | getattr(getattr(function, "__self__", None), "__dict__", {})


def _sentence(error: Exception) -> str:
    return str(error).strip().rstrip(".")


def user_files() -> dict[str, str]:
    """The files of the user's modules that are not part of a package, by the names under which they were loaded."""
    alone = {name: vars(module) for name, module in _user_modules() if "." not in name}
    return {
        name: file
        for name, attributes in alone.items()
        if isinstance(file := attributes.get("__file__"), str) and file.endswith(".py") and "__path__" not in attributes
    }


def without_tensorflow(function: Any) -> Any:
    """A function without what TensorFlow puts around it; the user's own decorators and partials stay."""
    while isinstance(code := getattr(function, "__code__", None), types.CodeType):
        inner = cells(function).get("func")
        if not code.co_filename.replace("\\", "/").endswith(_AUTOGRAPH) or not callable(inner):
            break
        function = inner
    return function


class _Packer(cloudpickle.Pickler):
    """cloudpickle, but for what a copy would not stand for."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.ModuleType):
            return _module(obj)
        _refuse(obj)
        if isinstance(obj, functools._lru_cache_wrapper):
            return work.cached_function, (obj.__wrapped__, obj.cache_parameters())
        if isinstance(obj, functools.cached_property):
            return work.cached_property, (obj.func, obj.attrname)
        if isinstance(obj, np.memmap) and _is_whole(obj):
            order = "C" if obj.flags.c_contiguous else "F"
            return work.mapped_array, (str(obj.filename), obj.dtype, obj.mode, obj.offset, obj.shape, order)
        if isinstance(obj, random.Random | np.random.RandomState | np.random.Generator):
            return _generator(obj)
        if obj is sys.stdout or obj is sys.stderr:
            return getattr, (sys, "stdout" if obj is sys.stdout else "stderr")
        if isinstance(obj, tf.__internal__.CompositeTensor) and not _is_eager(obj):
            return obj._type_spec.__reduce__()  # of the trace, which TensorFlow keeps for its structure alone
        reduced = super().reducer_override(obj)
        return _without_note(reduced) if isinstance(obj, types.FunctionType) else reduced


def _without_note(reduced: Any) -> Any:
    """A reduced function without TensorFlow's wrapper, which it notes on every function that it wraps."""
    if not isinstance(reduced, tuple):
        return reduced
    attributes, details = reduced[2]
    kept = {name: value for name, value in attributes.items() if name != _NOTE}
    return (*reduced[:2], (kept, details), *reduced[3:])


def _is_whole(mapped: Any) -> bool:
    """Whether an array is a file's mapping itself, not a part of one, and written by nobody."""
    return isinstance(mapped.base, mmap.mmap) and mapped.mode in ("r", "c") and mapped.filename is not None


def _is_eager(composite: Any) -> bool:
    parts = tf.nest.flatten(composite, expand_composites=True)
    return all(isinstance(part, tf.__internal__.EagerTensor) for part in parts)


def _module(module: types.ModuleType) -> Any:
    name = module.__name__
    if name == "__main__":
        raise CannotCopyError("it refers to the module __main__ itself")
    if sys.modules.get(name) is not module and {"converted_call", "FunctionScope"} <= module.__dict__.keys():
        return work.autograph_module, ()
    return (importlib.import_module, (name,)) if name in sys.modules else NotImplemented


def _refuse(obj: Any) -> None:
    """Raise for what could be pickled, but whose copy would go its own way."""
    if isinstance(obj, type):
        return
    if isinstance(obj, tf.Variable | tf.data.Dataset) or (
        isinstance(obj, tf.__internal__.tracking.Trackable) and not isinstance(obj, core.PolymorphicFunction)
    ):
        raise CannotCopyError("it belongs to TensorFlow in this process, and a copy would not follow it")
    if is_keras(type(obj), "Variable", "KerasVariable", "Layer"):
        raise CannotCopyError("a copy of the variable would not follow it")
    standard = obj is sys.stdout or obj is sys.stderr
    if isinstance(obj, io.IOBase) and not isinstance(obj, io.StringIO | io.BytesIO) and not standard:
        raise CannotCopyError("a file is open at one place in one process")


def _generator(obj: Any) -> Any:
    """A random generator goes as the digest of its state, from which each process makes a stream of its own."""
    if obj is getattr(random, "_inst", None):
        return getattr, (random, "_inst")
    if obj is getattr(np.random.mtrand, "_rand", None):
        return getattr, (np.random.mtrand, "_rand")
    if type(obj) is random.Random:
        return work.restored_generator, ("Random", work.digest(obj.getstate()))
    if type(obj) is np.random.RandomState:
        return work.restored_generator, ("RandomState", work.digest(obj.get_state()))
    if type(obj) is np.random.Generator and hasattr(np.random, type(obj.bit_generator).__name__):
        return work.restored_generator, (type(obj.bit_generator).__name__, work.digest(obj.bit_generator.state))
    return NotImplemented


@contextmanager
def _by_value() -> Iterator[None]:
    """Have cloudpickle copy the functions and classes of the user's modules instead of naming them."""
    with _lock:
        before = cloudpickle.list_registry_pickle_by_value()
        ours = [module for name, module in _user_modules() if name not in before]
        for module in ours:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in ours:
                cloudpickle.unregister_pickle_by_value(module)


def _user_modules() -> list[tuple[str, types.ModuleType]]:
    """The modules that are neither built in nor installed, without ``__main__``, which is copied by value anyway."""
    loaded: dict[str, Any] = dict(sys.modules)  # some put other objects there
    return [
        (name, module)
        for name, module in loaded.items()
        if isinstance(module, types.ModuleType) and vars(module).get("__name__") == name
        if name not in ("__main__", "__mp_main__") and _is_users(vars(module))
    ]


def _is_users(attributes: Mapping[str, Any]) -> bool:
    """Whether a module with these attributes is the user's; asking a lazy module itself would load it."""
    file = attributes.get("__file__")
    if not isinstance(file, str):  # built in, a namespace, or made by hand
        return attributes.get("__spec__") is None and "__path__" not in attributes
    return owner(file) == "user"


def _error(value: Any) -> Exception | None:
    try:
        packed([value])
    except Exception as error:
        return error
    return None


def _described(value: Any) -> str:
    kind: Callable[..., Any] = type(value)
    return f"an object of type {f'{kind.__module__}.{kind.__qualname__}'.removeprefix('builtins.')}"
