"""``python -P -m xttsbench.worker.script FD ROWS [SIGNALS]``: run a script unchanged, and tell the parent over FD.

ROWS is the descriptor of the memory for rows. With SIGNALS, numbers joined by commas that the parent holds back, the
script is watched to its end; else it is stopped once enough was measured.
"""

from __future__ import annotations

import socket
import sys

if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or not "".join(sys.argv[1:]).replace(",", "").isdigit():
        sys.exit("xttsbench.worker.script is started by xttsbench itself, with the numbers of two descriptors.")
    connection, rows, *held_back = sys.argv[1:]
    if held_back:
        from xttsbench.worker.script.to_the_end import main as watch

        sys.exit(watch(socket.socket(fileno=int(connection)), int(rows), tuple(map(int, held_back[0].split(",")))))
    from xttsbench.worker.script.process import main

    main(socket.socket(fileno=int(connection)), int(rows))
