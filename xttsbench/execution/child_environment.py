"""The environment variables of a process that imports TensorFlow on our behalf."""

from __future__ import annotations

import os
import site
from collections.abc import Mapping


def child_environment(more: Mapping[str, str] | None = None, *, has_gpu: bool, quiet: bool = True) -> dict[str, str]:
    """This process's variables for a child: quiet, and able to find this package.

    Args:
        more: variables on top of all others.
        has_gpu: whether the machine has an NVIDIA driver.
        quiet: without TensorFlow's notices, unless the user asks for them.
    """
    environ = dict(os.environ)
    if quiet:
        # TensorFlow's notices would bury the report; whoever wants them sets the variable. Without an NVIDIA driver
        # its complaint about that is logged as an error, in every trial, and says nothing that the report does not.
        environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if has_gpu else "3")
    if (root := _checkout()) is not None:
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, (environ.get("PYTHONPATH"), root)))
    return environ | dict(more or {})


def _checkout() -> str | None:
    """The folder that holds this package, where Python would not find it by itself: a checkout run by ``cli.py``."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return None if root in site.getsitepackages() else root
