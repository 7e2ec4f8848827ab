"""``python -m xttsbench.worker.training FD``: trains as the parent at the other end of the socket FD says."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
import traceback

from xttsbench.worker.parent import closed, die_with_parent
from xttsbench.worker.quiet import quiet_unless_it_fails
from xttsbench.worker.training.stop import Stop


def main(connection: socket.socket, began: float) -> int:
    """Train until the run is over, a signal comes, or the parent goes away; returns the exit code of this process."""
    die_with_parent()
    if closed(connection):  # the parent died before the kernel was asked
        return 1
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop.ask)
    # Here and not above: it takes seconds, in which a signal must not end this process half-way.
    with quiet_unless_it_fails():
        from xttsbench.worker.training.session import serve

    return serve(connection, stop, began)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit("xttsbench.worker.training is started by xttsbench itself, with the number of a socket.")
    code = 1
    try:
        with socket.socket(fileno=int(sys.argv[1])) as control:
            code = main(control, time.monotonic())
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone: so are we
    except Exception:
        traceback.print_exc()  # TensorFlow cannot be imported, say: os._exit would swallow it
    finally:
        # Not sys.exit: a live Python function in tf.data can hang or abort the interpreter's own shutdown.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)
