"""What a process of the pool makes again rather than gets a copy of: mapped files, caches, random generators.

The parent's pickle names these functions, so they import nothing that a plain NumPy function does not need. Copies of
one random generator in several processes would draw the same numbers, an augmentation applied twice instead of two: a
generator goes as a digest of its state, from which each process makes a stream of its own.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import importlib.util
import pickle
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final, Literal

import numpy as np

_WORDS: Final = 8

_worker: list[int] = []
"""What this process adds to every seed; empty outside a pool."""


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


def digest(*states: Any) -> tuple[int, ...]:
    """Eight 32-bit words that stand for states of random generators; the states themselves stay as they are."""
    digested = hashlib.sha256(pickle.dumps(states, protocol=4)).digest()
    return tuple(int.from_bytes(digested[4 * word : 4 * word + 4], "little") for word in range(_WORDS))


def global_digest() -> tuple[int, ...]:
    """The words for NumPy's and Python's global generators of this process."""
    return digest(np.random.get_state(), random.getstate())


def seed_worker(number: int, words: Sequence[int]) -> None:
    """Make this process number ``number`` of a pool, and seed its global generators from the parent's words."""
    _worker[:] = [number]
    np.random.seed(_mixed(words))
    random.seed(digest(_mixed(words))[0])


def restored_generator(kind: str, words: Sequence[int]) -> Any:
    """A random generator in place of one that the parent's function holds, with a stream of this process's own.

    Args:
        kind: ``"Random"``, ``"RandomState"`` or the name of a NumPy bit generator (``"PCG64"``).
        words: the digest of the state that the parent's generator had.
    """
    mixed = _mixed(words)
    if kind == "Random":
        return random.Random(digest(mixed)[0])
    if kind == "RandomState":
        return np.random.RandomState(mixed)
    return np.random.Generator(getattr(np.random, kind)(np.random.SeedSequence(mixed)))


def _mixed(words: Sequence[int]) -> list[int]:
    return [*words, *_worker]
