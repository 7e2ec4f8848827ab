"""Python's own hook at its start: a script that is watched is run by ``python script`` itself, to the last frame.

``xttsbench watch`` puts this folder first on ``PYTHONPATH``. Here the process is watched from, before it has become the
script's; then all that the script could see of it is taken away again. A failure of ours costs the watching alone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib.machinery import PathFinder
from typing import Any


def _customised() -> Exception | None:
    """Import the environment's own module of this name, where it has one; returns what that raised."""
    ours = sys.modules.pop(__name__)
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    try:
        __import__(__name__)
    except ImportError as error:
        sys.modules[__name__] = ours
        return None if error.name == __name__ else error
    except Exception as error:
        sys.modules[__name__] = ours
        return error
    return None


def _watched(given: dict[str, Any]) -> None:
    known = {*sys.modules}
    root = [given["root"]] if given["root"] else []
    sys.path[:0] = root
    try:
        from xttsbench.worker.script.to_the_end import watch
    finally:
        del sys.path[: len(root)]
    watch(given["connection"], given["rows"])
    _forget_those_beside_the_script(known)


def _forget_those_beside_the_script(known: set[str]) -> None:
    """Let the script find its own modules in place of those of the same name that only we have imported."""
    folder = os.path.dirname(os.path.realpath(sys.argv[0]))
    for name in {name.partition(".")[0] for name in sys.modules.keys() - known} - known - {"xttsbench"}:
        found = PathFinder.find_spec(name, [folder])
        if found is not None and found.has_location:
            for part in [one for one in sys.modules if one == name or one.startswith(name + ".")]:
                del sys.modules[part]


def _let_in(numbers: list[int]) -> None:
    """Take the signals that were held back; one that came before there was a script ends the process as it is."""
    if signal.SIGINT in signal.sigpending() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


if "XTTSBENCH_WATCHED" in os.environ:
    _given = json.loads(os.environ.pop("XTTSBENCH_WATCHED"))
    del os.environ["PYTHONPATH"]
    os.environ.update(_given["environment"])
    _raised = _customised()
    try:
        _watched(_given)
    except Exception as _error:
        print(f"xttsbench: the script runs unwatched: {type(_error).__name__}: {_error}", file=sys.stderr, flush=True)
    _let_in(_given["signals"])
    if _raised is not None:
        raise _raised
