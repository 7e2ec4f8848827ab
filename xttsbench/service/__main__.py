"""One server in the foreground, ``python -m xttsbench.service dispatcher|worker OPTIONS``, until it is asked to end.

It says its address in one line on standard output once it answers. Asked to end, a worker first serves to their end the
epochs that are read from it; the second signal ends it at once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from types import FrameType
from typing import Any, Final

from xttsbench.service import servers

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_BY_SIGNAL: Final = 128  # the exit code of what a signal ended is that much more than its number


def run(what: str, options: dict[str, Any]) -> int:
    """Serve; returns the exit code.

    Args:
        what: ``dispatcher`` or ``worker``.
        options: arguments of that function of :mod:`~xttsbench.service.servers`; ``host``, under which others reach
            this machine; ``drain_s``; ``as_json``.
    """
    heeded = [one for one in _SIGNALS if signal.getsignal(one) != signal.SIG_IGN]  # nohup has one ignored
    for number in heeded:
        signal.signal(number, signal.SIG_DFL)  # until it serves, any signal ends it at once
    host, drain_s, as_json = (options.pop(name) for name in ("host", "drain_s", "as_json"))
    try:
        server = getattr(servers, what)(**options, **({"host": host} if what == "worker" else {}))
    except Exception as error:
        print(f"Error: the {what} could not be started: {error}", file=sys.stderr)
        return 1
    asked: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        if asked:
            os._exit(_BY_SIGNAL + number)
        asked.append(number)

    for number in heeded:
        signal.signal(number, end)
    address = f"{host}:{server.bound_port()}"
    address = address if what == "worker" else f"grpc://{address}"
    print(json.dumps({"address": address, "pid": os.getpid()}) if as_json else address, flush=True)
    while not asked:
        time.sleep(0.2)  # and no pause(), which a signal just before it would not end
    until = time.monotonic() + drain_s
    while what == "worker" and server.num_tasks() and time.monotonic() < until:
        time.sleep(0.2)
    server.stop()
    return _BY_SIGNAL + asked[0]


if __name__ == "__main__":
    os._exit(run(sys.argv[1], json.loads(sys.argv[2])))  # the server has stopped, and TensorFlow takes seconds to leave
