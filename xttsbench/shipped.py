"""Scenarios and training recipes of the project: inside an installed package, or beside it in a checkout."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Final, Literal

from xttsbench.errors import InvalidInputError

Kind = Literal["scenarios", "training"]

_PACKAGE: Final = Path(__file__).resolve().parent
_NOUN: Final[dict[Kind, str]] = {"scenarios": "scenario", "training": "training recipe"}


def available(kind: Kind) -> list[str]:
    """Return the names of the shipped files of a kind, sorted, without the ending ``.yaml``."""
    return sorted(path.stem for path in _directory(kind).glob("*.yaml"))


def shipped(kind: Kind, name: str) -> Path:
    """Return the path of a shipped scenario or training recipe.

    Args:
        kind: ``scenarios`` or ``training``.
        name: its file name without the ending, as :func:`available` lists it; a name, never a path.

    Raises:
        InvalidInputError: there is no such file; the message names the nearest ones.
    """
    names = available(kind)
    # Only a listed name is ever joined to the directory, so that separators and ".." cannot lead out of it.
    if name not in names:
        nearest = difflib.get_close_matches(name, names, n=3) or names
        listed = ", ".join(nearest) or "none is shipped"
        raise InvalidInputError(f"no {_NOUN[kind]} is called {name!r}; the nearest names: {listed}")
    return _directory(kind) / f"{name}.yaml"


def locate(kind: Kind, text: str) -> Path:
    """The file of a scenario or recipe: a shipped one by its name, else a path.

    Raises:
        InvalidInputError: it is neither; the message names the nearest of those shipped.
    """
    if text in available(kind):
        return shipped(kind, text)
    path = Path(text)
    # A name that is none of ours and no file is a misspelt name, unless it is written as a path.
    try:
        if "/" in text or path.suffix in (".yaml", ".yml") or path.exists():
            return path
    except (OSError, ValueError):
        pass  # too long for a path, or with a character that none may have
    return shipped(kind, text)


def _directory(kind: Kind) -> Path:
    """Return the directory of a kind: package data first, else the checkout beside the package."""
    packaged = _PACKAGE / "_shipped" / kind
    return packaged if packaged.is_dir() else _PACKAGE.parent / kind
