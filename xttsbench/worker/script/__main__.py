"""``python -P -m xttsbench.worker.script FD``: run a script unchanged and tell the parent over the socket FD."""

from __future__ import annotations

import socket
import sys

if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit("xttsbench.worker.script is started by xttsbench itself, with the number of a socket.")
    from xttsbench.worker.script.process import main

    main(socket.socket(fileno=int(sys.argv[1])))
