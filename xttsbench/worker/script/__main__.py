"""``python -P -m xttsbench.worker.script FD ROWS``: run a script unchanged until enough is measured, and tell over FD.

ROWS is the descriptor of the memory for rows.
"""

from __future__ import annotations

import socket
import sys

if __name__ == "__main__":
    if len(sys.argv) != 3 or not "".join(sys.argv[1:]).isdigit():
        sys.exit("xttsbench.worker.script is started by xttsbench itself, with the numbers of two descriptors.")
    from xttsbench.worker.script.process import main

    main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
