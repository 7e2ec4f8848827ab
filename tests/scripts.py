"""A script in a process of its own, run as the parent runs it, but without the parent; and what is allowed to it here.

``python scripts.py FD ROWS`` runs one, and tells over FD; ROWS is the descriptor of the memory for rows.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import Any

from xttsbench.execution.child import SharedRows
from xttsbench.records.trial import TrialSpec
from xttsbench.worker.script.again.overlays import tried
from xttsbench.worker.script.process import main

Message = dict[str, Any]

_PROGRAM = """
import socket, sys
from xttsbench.worker.script import process
from xttsbench.worker.script.again import overlays
{before}
process.main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
"""


def run_script(
    spec: TrialSpec, *, before: str = "", **how: Any
) -> tuple[list[Message], subprocess.CompletedProcess[str]]:
    """Messages of the script's process, where a line of Python runs ``before`` it, and how it ended."""
    ours, theirs = socket.socketpair()
    with ours, theirs, SharedRows(1) as rows:
        ours.sendall(spec.model_dump_json().encode() + b"\n")
        descriptors = [theirs.fileno(), rows.fileno()]
        ended = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM.format(before=before), *map(str, descriptors)],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **how,
        )
        theirs.close()
        with ours.makefile("r", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines], ended


def why_nothing_is_kept() -> str | None:
    """Why what a process writes cannot be kept in memory here; ``None`` where it can."""
    found = tried()
    return found if isinstance(found, str) else None


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
