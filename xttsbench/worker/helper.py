"""The helper, ``python -m xttsbench.worker.helper FD``: imports what trials need once, and forks a child for each.

A fresh process for each trial is what makes trials independent; importing TensorFlow for each would cost more than
most trials measure. The helper touches no device, and has only the idle threads of what it imports, so that a fork of
it is a clean start.
Several children may live at once: those of a comparison that take turns. It is also their guard: when the parent goes
away, however it died, the helper's end of the socket closes and the process groups of all children are killed. So once
it guards, the helper must outlive its parent by that moment; the kernel ends it with its parent only while it imports
TensorFlow and cannot listen.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Final

from xttsbench.worker.channel import closed, die_with_parent, leave, quiet_unless_it_fails


def serve(control: socket.socket, *, scripts: bool, modules: Sequence[str]) -> None:
    """Answer ``fork`` requests of the parent until it closes its end.

    Args:
        control: to the parent.
        scripts: the trials are scripts, whose TensorFlow is theirs to import, after they have set what it reads then.
        modules: imported here and not in the child: what the fork shares, no trial pays for.
    """
    die_with_parent()
    if closed(control):  # it died before the kernel was asked
        return
    with quiet_unless_it_fails():
        for name in modules:
            importlib.import_module(name)

    die_with_parent(0)
    _tell(control, {"event": "ready", "pid": os.getpid()})
    children: dict[int, int] = {}  # descriptor that tells of its end -> process id
    while True:
        ready, _, _ = select.select([control.fileno(), *children], [], [])
        for watched in children.keys() & set(ready):
            pid = children.pop(watched)
            os.close(watched)
            _tell(control, {"event": "ended", "pid": pid, "status": os.waitpid(pid, 0)[1]})
        if control.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, 64, 2)
        if not message:
            break
        with socket.socket(fileno=descriptors[0]) as connection:
            pid = _fork(control, connection, descriptors[1], scripts=scripts)
        os.close(descriptors[1])
        children[os.pidfd_open(pid)] = pid
        _tell(control, {"event": "forked", "pid": pid})
    for pid in children.values():
        kill_group(pid)
    for pid in children.values():
        os.waitpid(pid, 0)


def _fork(control: socket.socket, connection: socket.socket, rows: int, *, scripts: bool) -> int:
    with warnings.catch_warnings():
        # Python warns of forking with threads; here they are idle, and the fork is the point.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        control.close()
        os.setsid()  # a process group of its own, so that whatever the target starts ends with it
        die_with_parent()
        _first_to_go()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if scripts:
            from xttsbench.worker.script.process import main
        else:
            from xttsbench.worker.trial import main

        code = main(connection, rows)
    finally:
        leave(code)


def kill_group(pid: int) -> None:
    """Kill a trial and everything that it started in its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _first_to_go() -> None:
    """When memory runs out, let the trial be killed rather than whoever keeps its results."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def _tell(control: socket.socket, message: dict[str, Any]) -> None:
    """Send what the parent waits for; where it is gone, the closed socket says so to whoever reads it next."""
    with contextlib.suppress(OSError):
        control.sendall(json.dumps(message).encode() + b"\n")


_TRIALS: Final = ("tensorflow", "xttsbench.worker.trial")
_SCRIPTS: Final = ("xttsbench.worker.script.process",)  # which leaves TensorFlow to the script
_SCRIPTS_AGAIN: Final = ("xttsbench.worker.script.trials", "xttsbench.worker.script.elements")


# FD [scripts [MODULE ...]]: the number of a socket, and what is imported for scripts
if __name__ == "__main__":
    if not sys.argv[1:2] or not sys.argv[1].isdigit() or sys.argv[2:3] not in ([], ["scripts"]):
        sys.exit("xttsbench.worker.helper is started by xttsbench itself, with the number of a socket.")
    try:
        with socket.socket(fileno=int(sys.argv[1])) as control:
            scripts, imports = bool(sys.argv[2:]), sys.argv[3:]
            again = _SCRIPTS_AGAIN if "tensorflow" in imports else ()
            serve(control, scripts=scripts, modules=(*_SCRIPTS, *imports, *again) if scripts else _TRIALS)
    except (BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        pass  # the parent is gone: so are we
    os._exit(0)  # taking TensorFlow down takes seconds, and there is nothing to take down
