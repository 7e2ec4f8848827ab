"""A target's name turned into a dataset and a step, inside the child: imports, calls and classifies what it returns."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.owners import is_keras
from xttsbench.targets.spec import TargetSpec, Workload

Kind = Literal["dataset", "dataset+step", "dataset+model", "workload", "script"]

_RETURNS = (
    "a tf.data.Dataset, (dataset, step) with a callable step, (dataset, model) with a compiled keras.Model, "
    "or an xttsbench.Workload"
)


@dataclass(frozen=True)
class Loaded:
    """A target, ready to run: ``step`` takes the batch as the dataset yields it; ``None`` judges the input alone."""

    kind: Kind
    dataset: tf.data.Dataset
    step: Callable[[Any], Any] | None
    model: Any = None
    workload: Workload | None = None


def load_target(spec: TargetSpec, kwargs: Mapping[str, Any]) -> Loaded:
    """Import the target, call it with ``kwargs`` and classify the result.

    Raises:
        TargetError: it cannot be imported, is not callable, raised, called ``sys.exit``, or returned something else.
    """
    if spec.folder not in sys.path[:1]:
        sys.path.insert(0, spec.folder)
    target = _attribute(_import(spec), spec)
    if not callable(target):
        raise TargetError(
            f"Target {spec.text!r}: {spec.attribute!r} is {_described(target)}, not a callable. "
            f"Name a function that returns {_RETURNS}."
        )
    try:
        inspect.signature(target).bind(**kwargs)
    except TypeError as error:
        given = ", ".join(f"{key}={value!r}" for key, value in kwargs.items()) or "no arguments"
        raise TargetError(
            f"Target {spec.text!r} cannot be called with {given}: {error}. Give its arguments with --set KEY=VALUE."
        ) from error
    except ValueError:
        pass  # a builtin without a signature: the call itself will tell
    try:
        result = target(**kwargs)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise TargetError(f"Target {spec.text!r} raised while it was called: {_sentence(error)}") from error
    return classify(result, spec.text)


def classify(result: object, name: str) -> Loaded:
    """Turn what a target returned into a :class:`Loaded`, or say what it should have been.

    Raises:
        TargetError: the result is none of the kinds, or the model is not compiled.
    """
    if isinstance(result, Workload):
        consumer = result.step if result.model is None else result.model
        inner = classify(result.dataset if consumer is None else (result.dataset, consumer), name)
        return Loaded("workload", inner.dataset, inner.step, inner.model, result)
    if isinstance(result, tf.data.Dataset):
        return Loaded("dataset", result, None)
    if isinstance(result, tuple | list) and len(result) == 2:
        dataset, consumer = result
        if not isinstance(dataset, tf.data.Dataset):
            raise TargetError(
                f"Target {name!r} returned a pair whose first part is {_described(dataset)}, not a tf.data.Dataset. "
                f"Return {_RETURNS}."
            )
        if is_keras(type(consumer), "Model"):
            if not getattr(consumer, "compiled", getattr(consumer, "_is_compiled", False)):  # Keras 3, 2
                raise TargetError(f"Target {name!r} returned a model that is not compiled; call model.compile() first.")
            return Loaded("dataset+model", dataset, None, consumer)
        if callable(consumer):
            return Loaded("dataset+step", dataset, _one_argument(consumer))
        raise TargetError(
            f"Target {name!r} returned a pair whose second part is {_described(consumer)}, neither a callable step "
            f"nor a keras.Model. Return {_RETURNS}."
        )
    raise TargetError(f"Target {name!r} returned {_described(result)}. Return {_RETURNS}.")


def _one_argument(step: Callable[..., Any]) -> Callable[[Any], Any]:
    """The step as ``step(batch)``; a step of several required arguments gets the parts of a tuple batch."""
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return step
    required = [
        p
        for p in parameters
        if p.default is inspect.Parameter.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) <= 1:
        return step

    def of_parts(batch: Any) -> Any:
        return step(*batch)

    of_parts.__wrapped__ = step  # type: ignore[attr-defined]  # so that its place is the user's
    return of_parts


def _import(spec: TargetSpec) -> ModuleType:
    try:
        if spec.kind == "module":
            return importlib.import_module(spec.place)
        name = os.path.splitext(os.path.basename(spec.place))[0]
        if name in sys.modules:  # keep what is loaded: the file's name must not hide a module in use
            name = f"xttsbench_target_{name}"
        module_spec = importlib.util.spec_from_file_location(name, spec.place)
        if module_spec is None or module_spec.loader is None:
            raise TargetError(f"Target {spec.text!r}: {spec.place!r} cannot be loaded as Python source.")
        module = importlib.util.module_from_spec(module_spec)
        sys.modules[name] = module
        module_spec.loader.exec_module(module)
        return module
    except (KeyboardInterrupt, TargetError):
        raise
    except BaseException as error:
        raise TargetError(
            f"Target {spec.text!r} cannot be imported: {_sentence(error)}. Import it in a plain Python to see more."
        ) from error


def _attribute(module: ModuleType, spec: TargetSpec) -> object:
    found: object = module
    for part in spec.attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            import difflib

            near = difflib.get_close_matches(part, [n for n in dir(found) if not n.startswith("_")], n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise TargetError(f"Target {spec.text!r}: {spec.place!r} has no {part!r}.{hint}") from None
    return found


def _described(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text}" if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"


def _sentence(error: BaseException) -> str:
    """The error in one line, with the innermost frame, which is the user's own where the user's code raised it."""
    text = str(error).strip()
    text = text.splitlines()[0] if text else ""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"
