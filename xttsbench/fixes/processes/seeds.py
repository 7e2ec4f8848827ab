"""Random state in a process of the pool: from the parent's, and of its own in each process.

Copies of one generator in several processes would draw the same numbers, an augmentation applied twice instead of two.
"""

from __future__ import annotations

import hashlib
import pickle
import random
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

_WORDS: Final = 8

_worker: list[int] = []
"""What this process adds to every seed; empty outside a pool."""


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
