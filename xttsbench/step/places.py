"""Whose code a file is: the user's, a framework's, another library's, or ours.

The bundled workload counts as a user's: it is measured like one.
"""

from __future__ import annotations

import os
import sysconfig
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import keras
import tensorflow as tf

Owner = Literal["user", "framework", "library", "ours"]

FRAMEWORK: Final = (os.path.dirname(tf.__file__), os.path.dirname(keras.__file__))
OURS: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKLOADS: Final = tuple(os.path.join(OURS, *parts) for parts in (("xtts",), ("training",), ("targets", "bundled.py")))
LIBRARIES: Final = tuple(
    {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {"<frozen"}
)


class Frame(NamedTuple):
    """A frame of a stack, live or kept by an op of a graph."""

    file: str
    line: int
    function: str


@lru_cache(maxsize=4096)
def owner(path: str) -> Owner:
    """Whose code the file is."""
    if path.startswith(FRAMEWORK):
        return "framework"
    if path.startswith(OURS) and not path.startswith(WORKLOADS):
        return "ours"
    if path.startswith(LIBRARIES) or "__autograph_generated" in path or path.startswith("<"):
        return "library"
    return "user"
