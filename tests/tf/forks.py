"""Scripts in forks of one process that has imported TensorFlow and run nothing of it: no new interpreter for each.

``python -P forks.py FD`` is that process. Importing TensorFlow and Keras takes some four seconds of a processor, a fork
a tenth of one.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xttsbench.processes import die_with_parent, kill_group
from xttsbench.worker.channel import leave
from xttsbench.worker.script.process import exit_code_of


class Forked:
    """A script under way in a process group of its own: ``subprocess.Popen``, as far as tests need it."""

    def __init__(self, status: socket.socket, output: int) -> None:
        self._status = status.makefile()
        self.stdout = os.fdopen(output)
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        self.stdout.close()
        self._status.close()

    def kill(self) -> None:
        """End it and what it started."""
        kill_group(self.pid)

    def wait(self) -> int:
        """Its exit code, negative where a signal ended it."""
        if self.returncode is None:
            self.returncode = int(self._status.readline())
        return self.returncode

    def finish(self, within_s: float = 240.0) -> str:
        """What it printed until its end; it is killed where that takes longer."""
        limit = threading.Timer(within_s, self.kill)
        limit.start()
        try:
            said = self.stdout.read()
            self.wait()
        finally:
            limit.cancel()
        return said

    def succeed(self) -> str:
        """What it printed until its end, whose exit code is 0."""
        said = self.finish()
        assert self.returncode == 0, said[-4000:]
        return said


class Forks:
    """The process that has imported TensorFlow; a context manager."""

    def __enter__(self) -> Forks:
        self._control, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        quiet = ("-W", "ignore:This process:DeprecationWarning")  # of forking with threads: those of an import are idle
        with theirs:
            command = [sys.executable, "-P", *quiet, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        self._control.close()
        self._process.wait()

    def start(
        self,
        script: Path,
        *arguments: str,
        environment: Mapping[str, str] = os.environ,
        errors: int | None = None,
        descriptors: Sequence[int] = (),
    ) -> Forked:
        """Run a script with arguments, behind which come the numbers that the descriptors have there.

        What it writes to standard error goes to the descriptor ``errors``, else to where it prints.
        """
        status, theirs = socket.socketpair()
        reads, writes = os.pipe()
        asked = {"script": str(script), "arguments": arguments, "environment": dict(environment)}
        with status, theirs:
            given = [theirs.fileno(), writes, writes if errors is None else errors, *descriptors]
            socket.send_fds(self._control, [json.dumps(asked).encode()], given)
            os.close(writes)
            theirs.close()
            return Forked(status, reads)


def _serve(control: socket.socket) -> None:
    die_with_parent()
    for name in ("tensorflow", "keras", "xttsbench.worker.script.afterwards"):
        importlib.import_module(name)
    while True:
        asked, descriptors, _, _ = socket.recv_fds(control, 1 << 17, 8)
        if not asked:
            break
        if not os.fork():
            _guard(json.loads(asked), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
    while True:  # what they used counts as this process's
        try:
            os.wait()
        except ChildProcessError:
            break


def _guard(asked: Mapping[str, Any], status: int, *descriptors: int) -> None:
    """Fork the script, and tell its process id and how it ended. Does not return."""
    die_with_parent()
    pid = os.fork()
    if not pid:
        os.close(status)
        _run(asked, *descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    os.write(status, f"{pid}\n".encode())
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(status, f"{ended}\n".encode())
    os._exit(0)


def _run(asked: Mapping[str, Any], output: int, errors: int, *descriptors: int) -> None:
    """Be the script. Does not return."""
    os.setsid()
    die_with_parent()
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = [asked["script"], *asked["arguments"], *map(str, descriptors)]
    code = 0
    try:
        runpy.run_path(asked["script"], run_name="__main__")
    except SystemExit as left:
        code = exit_code_of(left)
    except BaseException:
        traceback.print_exc()
        code = 1
    leave(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
