"""``python -m xttsbench.worker.training FD ROWS``: trains as the parent at the other end of the socket FD says.

ROWS is the descriptor of the memory for rows.
"""

from __future__ import annotations

import signal
import socket
import time

from xttsbench.worker.parent import Stop, answer, closed, die_with_parent, quiet_unless_it_fails


def main(connection: socket.socket, rows: int, began: float) -> int:
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

    return serve(connection, rows, stop, began)


if __name__ == "__main__":
    answer(lambda connection, rows: main(connection, rows, time.monotonic()), "xttsbench.worker.training", 1)
