"""``python -m xttsbench.worker FD``: the helper process, talking to its parent over the socket FD."""

from __future__ import annotations

import socket
import sys

from xttsbench.worker.helper import serve

if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit("xttsbench.worker is started by xttsbench itself, with the number of a socket.")
    try:
        with socket.socket(fileno=int(sys.argv[1])) as control:
            serve(control)
    except (BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        pass  # the parent is gone: so are we
