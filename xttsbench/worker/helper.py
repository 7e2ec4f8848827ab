"""The helper, ``python -m xttsbench.worker.helper FD``: imports what trials need once, and forks a child for each.

A fresh process for each trial is what makes trials independent; importing TensorFlow for each would cost more than
most trials measure. The helper touches no device, and has only the idle threads of what it imports, so that a fork of
it is a clean start.
Several children may live at once: those of a comparison that take turns. It is also their guard: when the parent goes
away, however it died, the helper's end of the socket closes and all children are killed. So once it guards, the helper
must outlive its parent by that moment; the kernel ends it with its parent only while it imports TensorFlow and cannot
listen.

What a trial started and left behind ends with it, in whatever session it is: the kernel gives orphans to the helper,
which knows whose they are by what every process inherits and hardly any changes, the order in which processes are
killed when memory runs out.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import shutil
import signal
import socket
import sys
import time
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xttsbench.processes import TRIALS, adopt_orphans, children, closed, die_with_parent, kill_group, readable
from xttsbench.worker.channel import leave, quiet_unless_it_fails, sources_apart

_LAST_TO_GO, _FIRST_TO_GO = 901, 1000
"""A trial's ``oom_score_adj`` (proc(5)): all of them before everything else, and each another for its children."""
_ROUNDS, _ROUND_S = 500, 0.002
"""Number and length, in seconds, of rounds in which processes left by a trial are killed; then they are given up."""


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
    adopt_orphans()
    with contextlib.suppress(OSError):  # the disk is full, and AutoGraph will say so
        os.mkdir(os.environ[TRIALS], 0o700)
    if "tensorflow" in modules:
        sources_apart(os.environ[TRIALS])
    _tell(control, {"event": "ready", "pid": os.getpid()})
    own, forks = children(), itertools.cycle(range(_LAST_TO_GO, _FIRST_TO_GO + 1))
    trials: dict[int, _Trial] = {}  # by the descriptor that tells of its end
    while True:
        ready = readable([control, *trials], None)
        for watched in trials.keys() & ready:
            ended = trials.pop(watched)
            os.close(watched)
            status = _end(ended, own, trials.values())
            _tell(control, {"event": "ended", "pid": ended.pid, "status": status})
        if control.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, 64, 2)
        if not message:
            break
        with socket.socket(fileno=descriptors[0]) as connection:
            trial = _fork(control, connection, descriptors[1], next(forks), scripts=scripts)
        os.close(descriptors[1])
        watched = os.pidfd_open(trial.pid)
        trials[watched] = trial
        _tell(control, {"event": "forked", "pid": trial.pid}, watched)
    for trial in trials.values():
        kill_group(trial.pid)
    while trials:
        _end(trials.popitem()[1], own, trials.values())
    shutil.rmtree(os.environ[TRIALS], ignore_errors=True)


@dataclass(frozen=True)
class _Trial:
    pid: int
    goes: int  # what its ``oom_score_adj`` is, and so that of whatever it starts; of its own among those that live


def _end(trial: _Trial, own: set[int], others: Collection[_Trial]) -> int:
    """Kill what an ended trial left behind, wait for all of it, and give the trial's wait status.

    Args:
        trial: which has ended.
        own: children of this process that belong to no trial.
        others: trials that live on; without any, no orphan is spared.
    """
    kill_group(trial.pid)
    status = os.waitpid(trial.pid, 0)[1]
    spared = own | {other.pid for other in others}
    for _ in range(_ROUNDS):  # whoever is killed leaves us its own children
        left = [pid for pid in children() - spared if not others or _goes(pid) == trial.goes]
        for pid in left:
            os.kill(pid, signal.SIGKILL)  # a child that has not been waited for
            os.waitpid(pid, os.WNOHANG)
        if not left:
            break
        time.sleep(_ROUND_S)
    return status


def _goes(pid: int) -> int | None:
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/oom_score_adj", encoding="ascii") as score:
        return int(score.read())
    return None


def _fork(control: socket.socket, connection: socket.socket, rows: int, goes: int, *, scripts: bool) -> _Trial:
    with warnings.catch_warnings():
        # Python warns of forking with threads; here they are idle, and the fork is the point.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return _Trial(pid, goes)
    code = 70
    try:
        control.close()
        os.setsid()  # a process group of its own, so that whatever the target starts ends with it
        die_with_parent()
        _first_to_go(goes)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if scripts:
            from xttsbench.worker.script.process import main
        else:
            from xttsbench.worker.trial import main

        code = main(connection, rows)
    finally:
        leave(code)


def _first_to_go(goes: int) -> None:
    """When memory runs out, let the trial be killed rather than whoever keeps its results."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write(str(goes))


def _tell(control: socket.socket, message: dict[str, Any], *descriptors: int) -> None:
    """Send what the parent waits for; where it is gone, the closed socket says so to whoever reads it next."""
    with contextlib.suppress(OSError):
        socket.send_fds(control, [json.dumps(message).encode() + b"\n"], descriptors)


_TRIALS: Final = ("tensorflow", "xttsbench.worker.trial")
_SCRIPTS: Final = ("xttsbench.worker.script.process",)  # which leaves TensorFlow to the script
_SCRIPTS_AGAIN: Final = ("xttsbench.worker.script.again.trials", "xttsbench.worker.script.again.elements")


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
