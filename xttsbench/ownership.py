"""Whose code a file is, told from its path. Nothing is imported for it: a script may do without Keras."""

from __future__ import annotations

import importlib.util
import os
import sysconfig
from contextlib import suppress
from functools import lru_cache
from typing import Final, Literal

Owner = Literal["user", "typed", "autograph", "workload", "library", "python", "framework", "ours"]
"""``typed`` is what has no file of its own (a notebook's cell, ``python -c``), ``autograph`` what AutoGraph wrote of a
function, ``workload`` the bundled model and trainer, which are measured like a user's; ``python`` is the standard
library and the interpreter, ``library`` any other package."""

_OURS: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
_WORKLOADS: Final = tuple(_OURS + name for name in ("xtts" + os.sep, "training" + os.sep, "targets/bundled.py"))
_FRAMEWORKS: Final = ("tensorflow", "keras", "tf_keras")
_PACKAGES: Final = ("site-packages", "dist-packages")
"""Where packages lie: a ``.pth`` file, ``PYTHONPATH`` or the user's own site brings those of other environments."""


def _folders(*names: str) -> tuple[str, ...]:
    """Where packages lie that may have been put anywhere, of those that there are."""
    found = []
    for name in names:
        with suppress(ImportError, ValueError):  # an importer that refuses it; a module that was made by hand
            one = importlib.util.find_spec(name)
            found += [os.path.dirname(one.origin) + os.sep] if one is not None and one.origin else []
    return tuple(found)


def _paths(*kinds: str) -> tuple[str, ...]:
    given = {sysconfig.get_paths()[kind] for kind in kinds}
    return tuple(path + os.sep for path in given | {os.path.realpath(path) for path in given})


_FRAMEWORK: Final = _folders(*_FRAMEWORKS)
_LIBRARY: Final = (*_paths("purelib", "platlib"), *_folders("numpy"))
_PYTHON: Final = _paths("stdlib", "platstdlib")


@lru_cache(maxsize=8192)
def owner(file: str) -> Owner:
    """Whose code a file is, by the path that its code object has."""
    if file.startswith("<"):
        return "typed" if file.startswith(("<ipython", "<stdin", "<string")) else "python"
    if "__autograph_generated" in file:
        return "autograph"
    if file.startswith(_OURS):
        return "workload" if file.startswith(_WORKLOADS) else "ours"
    parts = file.split(os.sep)
    at = max((parts.index(name) for name in _PACKAGES if name in parts), default=None)
    if file.startswith(_FRAMEWORK) or (at is not None and parts[at + 1 : at + 2] in [[one] for one in _FRAMEWORKS]):
        return "framework"
    if at is not None or file.startswith(_LIBRARY):
        return "library"
    return "python" if file.startswith(_PYTHON) else "user"
