"""What the NVIDIA driver says of its GPUs, from a process of its own: one that is ill holds whoever asks it."""

from __future__ import annotations

import json
import os
import sys

from xttsbench.probes.machine import driver
from xttsbench.worker.parent import die_with_parent

if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit("xttsbench.worker.machine.driver is started by xttsbench itself, with the number of a pipe.")
    die_with_parent()
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as lines:
        lines.write(json.dumps({"stage": "done", "driver": driver().model_dump()}) + "\n")
