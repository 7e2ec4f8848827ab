"""A process that takes its code from the tree of another revision, in place of the user's work tree."""

from __future__ import annotations

import os
import sys

import xttsbench
from xttsbench.records.code import Checkout

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(xttsbench.__file__)))


def enter(checkout: Checkout) -> None:
    """Change to the tree's working directory, and have imports from the work tree go to the same place in the tree.

    What git does not track is linked there, and keeps its own path: a virtual environment in the work tree is the same
    one. This package itself is not proved by itself.
    """
    os.chdir(checkout.folder)
    sys.path[:] = [_moved(one, checkout) for one in sys.path]


def _moved(folder: str, checkout: Checkout) -> str:
    real = os.path.realpath(folder)
    within = os.path.relpath(real, checkout.top)
    there = os.path.realpath(os.path.join(checkout.tree, within))
    moves = folder and real != _OURS and not within.startswith("..") and os.path.isdir(there)
    return there if moves and f"{there}/".startswith(f"{checkout.tree}/") else folder
