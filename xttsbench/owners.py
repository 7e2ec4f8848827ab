"""Owners of code, by a file's path or a module's name; nothing is imported for it: a script may do without Keras."""

from __future__ import annotations

import importlib.util
import os
import sys
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
LEGACY_KERAS: Final = "tf_keras"
"""The package of Keras 2, which ``TF_USE_LEGACY_KERAS=1`` makes ``tf.keras``."""
KERAS: Final = ("keras", LEGACY_KERAS)
_FRAMEWORKS: Final = ("tensorflow", *KERAS)
_PACKAGES: Final = ("site-packages", "dist-packages")
"""Folders of packages: a ``.pth`` file, ``PYTHONPATH`` or the user's own site brings those of other environments."""


def of_keras(module: str | None) -> bool:
    """Whether a module is one of Keras's, of either package."""
    return (module or "").partition(".")[0] in KERAS


def is_keras(kind: type, *names: str) -> bool:
    """Whether a class is, or inherits from, one of Keras's that has one of these names."""
    return any(one.__name__ in names and of_keras(one.__module__) for one in kind.__mro__)


def of_framework(module: str | None) -> bool:
    """Whether a module is one of TensorFlow's or Keras's."""
    return (module or "").partition(".")[0] in _FRAMEWORKS


def _folders(*names: str) -> tuple[str, ...]:
    """Folders of the named packages, wherever they are installed; missing ones are left out."""
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
    """Owner of a file, by the path in its code object."""
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


def loaded_files() -> list[str]:
    """The user's own Python files among the modules of this process."""
    found = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return sorted({os.path.abspath(file) for file in found if isinstance(file, str) and owner(file) == "user"})
