"""The canary is the same work each time, and sees a core that is shared."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from xttsbench.worker.canary import canary_ns


@pytest.mark.measured
def test_it_is_even_and_takes_a_millisecond() -> None:
    canary_ns()
    taken = sorted(canary_ns() for _ in range(20))
    # The lower quarter is what the gate takes for quiet; within 10 % of it a turn is valid.
    assert 0 < taken[0] <= taken[5] < 1.1 * taken[0]
    assert taken[5] < 5e6


@pytest.mark.measured
def test_it_sees_a_machine_whose_memory_and_cores_are_crowded() -> None:
    canary_ns()
    alone = min(canary_ns() for _ in range(5))
    code = "import numpy\nwhile True: numpy.zeros(1 << 22).sum()"
    hogs = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        time.sleep(0.5)
        crowded = sorted(canary_ns() for _ in range(21))[10]
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert crowded > alone
