"""What a process of the pool makes again rather than gets a copy of: mapped files, caches, AutoGraph's module.

The parent's pickle names these functions, so they import nothing that a plain NumPy function does not need.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal

import numpy as np


def mapped_array(
    file: str, dtype: Any, mode: Literal["r", "c"], offset_bytes: int, shape: tuple[int, ...], order: Literal["C", "F"]
) -> Any:
    """An array mapped from a file, as the parent has it mapped: the pages are shared, not copied."""
    return np.memmap(file, dtype, mode, offset_bytes, shape, order)


def cached_function(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    """``functools.lru_cache`` around a function, empty."""
    return functools.lru_cache(**parameters)(function)


def cached_property(function: Callable[..., Any], name: str) -> Any:
    """``functools.cached_property`` with a lock of this process."""
    made: Any = functools.cached_property(function)
    made.__set_name__(None, name)
    return made


def autograph_module() -> Any:
    """The module ``ag__`` that the code which AutoGraph generates refers to; it can be imported under no name."""
    from tensorflow.python.autograph.impl import api

    return api.PyToTF().get_extra_locals()["ag__"]


class FilesByName:
    """Finds the parent's modules that were loaded from a file's path, which no entry of ``sys.path`` leads to."""

    def __init__(self, files: Mapping[str, str]) -> None:
        """Take module names and the files that they were loaded from."""
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The specification of a module by its name, as ``sys.meta_path`` asks for it."""
        file = self._files.get(name)
        return None if file is None else importlib.util.spec_from_file_location(name, file)

    def install(self) -> None:
        """Come before the usual search: another file of the same name may lie on the path."""
        sys.meta_path.insert(0, self)
