"""The process that imports TensorFlow once and forks the servers of a cluster on this machine.

It answers requests of the parent, one message each, guards the quotas, and ends with the parent: the kernel kills it
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


class Nursery:
    """The servers that were started and have not been killed.

    Args:
        control: to the parent.
        folder: what each server prints goes to a file there.
    """

    def __init__(self, control: socket.socket, folder: str) -> None:
        self._control, self._folder = control, folder
        self._started: dict[int, Quota | None] = {}
        self._starting: dict[int, int] = {}  # descriptors on which a server says its port

    def serve(self) -> None:
        """Answer requests until the parent closes its end."""
        self._say({})
        while True:
            stops = [quota for quota in self._started.values() if quota is not None and quota.kind == "stops"]
            found = readable([self._control, *self._starting], TICK_S if stops else None)
            for quota in stops:
                with contextlib.suppress(OSError):
                    quota.tick()
            for ready in found & self._starting.keys():
                pid = self._starting.pop(ready)
                said = os.read(ready, 4096) or b'{"error": "it ended"}'
                os.close(ready)
                self._say({"pid": pid, **json.loads(said)})
            if self._control.fileno() in found:
                if not (request := self._control.recv(65536)):
                    break
                self._answer(json.loads(request))
        for pid in self._started:
            os.kill(pid, signal.SIGKILL)
        for pid in list(self._started):
            self._kill(pid)

    def _answer(self, request: dict[str, Any]) -> None:
        """Do what the parent asks; the answer to ``start`` comes once the server listens."""
        match request:
            case {"start": what, "log": log, "cores": cores, **options}:
                self._start(str(what), str(log), cores, options)
            case {"kill": pid}:
                self._kill(pid)
                self._say({})
            case {"limit": pid, "cores": cores}:
                self._limit(pid, cores)
                self._say({})

    def _start(self, what: str, log: str, cores: float | None, options: dict[str, Any]) -> None:
        ready, theirs = os.pipe()
        if not (pid := os.fork()):
            try:
                for held in (self._control.fileno(), ready, *self._starting):
                    os.close(held)
                self._become(what, log, options, theirs)
            finally:
                os._exit(1)
        os.close(theirs)
        self._started[pid], self._starting[ready] = None, pid
        if cores is not None:
            self._limit(pid, cores)

    def _become(self, what: str, log: str, options: dict[str, Any], ready: int) -> None:
        """Serve until killed, in the fork."""
        die_with_parent()
        output = os.open(os.path.join(self._folder, log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            said = {"port": (server := getattr(servers, what)(**options)).bound_port()}
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"[:500]}
        os.write(ready, json.dumps(said).encode())
        os.close(ready)
        while "port" in said and server:
            signal.pause()

    def _limit(self, pid: int, cores: float) -> None:
        if (quota := self._started[pid]) is None:
            self._started[pid] = Quota(pid, cores)
        else:
            quota.set(cores)

    def _kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        if ends_within(pid, _END_S):
            os.waitpid(pid, 0)
            if (quota := self._started.pop(pid)) is not None:
                quota.close()

    def _say(self, message: dict[str, Any]) -> None:
        kinds = {quota.kind for quota in self._started.values() if quota is not None}
        self._control.send(json.dumps({"quota": min(kinds, default=None), **message}).encode())


def main(descriptor: int, folder: str) -> None:
    """Import TensorFlow and serve."""
    control = socket.socket(fileno=descriptor)
    die_with_parent()
    if closed(control):  # it died before the kernel was asked
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a key goes to the whole group, and the parent decides what ends
    importlib.import_module("tensorflow")
    sweep()
    Nursery(control, folder).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
    os._exit(0)  # TensorFlow takes a second to leave
