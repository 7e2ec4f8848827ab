"""What was handed to a door, by a name: one that a fresh process finds it by, or one for people."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from xttsbench.errors import TargetError


def described(target: object) -> str:
    """What was given, for a report; never its values."""
    if isinstance(target, tuple | list):
        return f"({', '.join(type(part).__name__ for part in target)})"
    return f"a live {type(target).__name__}"


def importable_name(target: Callable[..., Any]) -> str:
    """``file.py:callable`` of a function that a fresh process can find again.

    It has to be what its module holds under that name, so that a decorated function is looked for where it was
    defined and not where its decorator was.

    Raises:
        TargetError: it is local to another function, a lambda, or has no source file.
    """
    name = getattr(target, "__qualname__", "")
    module = sys.modules.get(getattr(target, "__module__", None) or "")
    path = getattr(module, "__file__", None) or ""
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not target or not path.endswith(".py"):
        raise TargetError(
            f"{target!r} cannot be imported by a fresh process; pass a function of a module, or its 'module:name'."
        )
    return f"{path}:{name}"
