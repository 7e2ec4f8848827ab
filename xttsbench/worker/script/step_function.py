"""The function of a script that takes a whole batch, found by the identity of its arguments when it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def takes_batch(batch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[int, int]] | None:
    """Where the tensors of the batch are among the arguments.

    Returns:
        Pairs (position among the flat arguments, position in the flat batch); ``None`` unless every tensor of the batch
        is handed on as it is.
    """
    wanted = {id(leaf): index for index, leaf in enumerate(tf.nest.flatten(batch))}
    if not wanted:
        return None
    found = [(at, wanted[id(leaf)]) for at, leaf in enumerate(tf.nest.flatten((args, kwargs))) if id(leaf) in wanted]
    return found if {index for _, index in found} == set(wanted.values()) else None


def as_step(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], places: list[tuple[int, int]]
) -> Callable[[Any], Any]:
    """``step(batch)``: the function with its last arguments, the batch's tensors replaced by those of another batch."""
    kept = tf.nest.flatten((args, kwargs))
    for at, _ in places:
        kept[at] = None  # the old batch is not kept alive
    structure = tf.nest.map_structure(lambda _: None, (args, kwargs))

    def step(batch: Any) -> Any:
        leaves, flat = tf.nest.flatten(batch), list(kept)
        for at, index in places:
            flat[at] = leaves[index]
        own_args, own_kwargs = tf.nest.pack_sequence_as(structure, flat)
        return function(*own_args, **own_kwargs)

    return step


def place_of(function: Any) -> str:
    """``name (file:line)`` of a tf.function or a Python function."""
    plain = inspect.unwrap(getattr(function, "python_function", function))
    plain = getattr(plain, "__func__", plain)
    code = getattr(plain, "__code__", None)
    name = getattr(plain, "__name__", type(plain).__name__)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name
