"""The process that imports TensorFlow once and forks the servers of a cluster on this machine.

It answers requests of the parent, one JSON line each, guards the quotas, and ends with the parent: the kernel kills it
with the thread that started it, and its servers with it. All of them stay in the parent's process group, so that what
stops a trial stops its cluster.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any, Final

from xttsbench.processes import closed, die_with_parent, ends_within, readable
from xttsbench.service import servers
from xttsbench.service.quota import TICK_S, Quota, sweep

_END_S: Final = 5.0


def serve(control: socket.socket, folder: str) -> None:
    """Answer requests until the parent closes its end; what each server prints goes to a file in ``folder``."""
    die_with_parent()
    if closed(control):  # it died before the kernel was asked
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a key goes to the whole group, and the parent decides what ends
    importlib.import_module("tensorflow")
    sweep()
    nursery = _Nursery(control, folder)
    control.sendall(b"{}\n")
    with control.makefile("r", encoding="utf-8") as requests:
        while True:
            if control.fileno() in nursery.wait():
                if not (line := requests.readline()):
                    break
                nursery.answer(json.loads(line))
    for pid in nursery.started:
        os.kill(pid, signal.SIGKILL)
    for pid in list(nursery.started):
        nursery.end(pid)


class _Nursery:
    """The servers that were started and have not been ended."""

    def __init__(self, control: socket.socket, folder: str) -> None:
        self._control, self._folder = control, folder
        self.started: dict[int, Quota | None] = {}
        self._starting: dict[int, int] = {}  # descriptors on which a server says its port

    def wait(self) -> set[int]:
        """Wait for the parent, while quotas are kept and servers say that they listen; descriptors with something."""
        stops = [quota for quota in self.started.values() if quota is not None and quota.kind == "stops"]
        found = readable([self._control, *self._starting], TICK_S if stops else None)
        for quota in stops:
            with contextlib.suppress(OSError):
                quota.tick()
        for ready in found & self._starting.keys():
            pid = self._starting.pop(ready)
            said = os.read(ready, 4096).decode()
            os.close(ready)
            self._say(json.loads(said) if said else {"error": "it ended"}, pid=pid)
        return found

    def answer(self, request: dict[str, Any]) -> None:
        """Do what the parent asks; the answer to ``start`` comes once the server listens."""
        match request:
            case {"start": what, "log": log, "cores": cores, **options}:
                self._start(str(what), str(log), cores, options)
            case {"end": pid, "signal": number}:
                self.end(pid, number)
                self._say({})
            case {"limit": pid, "cores": cores}:
                self._say(self._limit(pid, cores))

    def _start(self, what: str, log: str, cores: float | None, options: dict[str, Any]) -> None:
        ready, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                die_with_parent()
                output = os.open(os.path.join(self._folder, log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.dup2(output, 1)
                os.dup2(output, 2)
                for held in (self._control.fileno(), ready, *self._starting):
                    os.close(held)
                try:
                    server = getattr(servers, what)(**options)
                    said = {"port": server.bound_port()}
                except Exception as error:
                    said = {"error": f"{type(error).__name__}: {error}"[:1000]}
                os.write(theirs, json.dumps(said).encode())
                os.close(theirs)
                while "port" in said:
                    signal.pause()
            finally:
                os._exit(1)
        os.close(theirs)
        self.started[pid] = None
        self._starting[ready] = pid
        if cores is not None:
            self._limit(pid, cores)

    def _limit(self, pid: int, cores: float) -> dict[str, Any]:
        quota = self.started[pid]
        if quota is None:
            quota = self.started[pid] = Quota(pid, cores)
        else:
            quota.set(cores)
        return {"kind": quota.kind}

    def end(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a server; where it is SIGKILL, wait until it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if number == signal.SIGKILL and ends_within(pid, _END_S):
            os.waitpid(pid, 0)
            if (quota := self.started.pop(pid)) is not None:
                quota.close()

    def _say(self, message: dict[str, Any], **more: Any) -> None:
        kind = {quota.kind for quota in self.started.values() if quota is not None}
        self._control.sendall(json.dumps({"quota": min(kind, default=None), **message, **more}).encode() + b"\n")


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
    os._exit(0)  # TensorFlow takes a second to leave
