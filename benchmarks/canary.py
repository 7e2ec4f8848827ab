"""Is the canary even on a quiet machine, and slower on a crowded one? Prints both; nothing else should run.

``python benchmarks/canary.py``: its spread over 40 calls alone (what a turn's validity rests on: the lower quarter
within 10 % of the fastest), and how much slower its median is beside two processes a core that stream through memory.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

from xttsbench.probes.clock import canary_ns

_HOG = "import numpy\nprint(flush=True)\nwhile True: numpy.zeros(1 << 22).sum()"


def main() -> None:
    for _ in range(10):
        canary_ns()  # the first calls of a process are slower
    alone = sorted(canary_ns() for _ in range(40))
    hogs = [
        subprocess.Popen([sys.executable, "-c", _HOG], stdout=subprocess.PIPE) for _ in range(2 * (os.cpu_count() or 1))
    ]
    beside = []
    try:
        for hog in hogs:
            hog.stdout.readline()  # it is under way
        for _ in range(40):
            time.sleep(0.02)  # all of them would fit into one turn of the processor
            beside.append(canary_ns())
    finally:
        for hog in hogs:
            hog.kill()
            hog.communicate()
    spread = alone[10] / alone[0]
    slower = statistics.median(beside) / statistics.median(alone)
    print(
        f"alone: {alone[0] / 1e6:.3f} ms, lower quarter {100 * (spread - 1):.1f} % above the fastest (goal: under 10 %)"
    )
    print(f"beside {len(hogs)} processes that stream through memory: {slower:.2f} times as long (goal: over 1.1)")


if __name__ == "__main__":
    main()
