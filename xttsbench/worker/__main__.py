"""``python -m xttsbench.worker FD [scripts [MODULE ...]]``: the helper process, on the socket FD."""

from __future__ import annotations

import os
import socket
import sys

from xttsbench.worker.helper import serve

if __name__ == "__main__":
    if not sys.argv[1:2] or not sys.argv[1].isdigit() or sys.argv[2:3] not in ([], ["scripts"]):
        sys.exit("xttsbench.worker is started by xttsbench itself, with the number of a socket.")
    try:
        with socket.socket(fileno=int(sys.argv[1])) as control:
            if sys.argv[2:]:
                serve(control, scripts=True, modules=sys.argv[3:])
            else:
                serve(control)
    except (BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        pass  # the parent is gone: so are we
    os._exit(0)  # taking TensorFlow down takes seconds, and there is nothing to take down
