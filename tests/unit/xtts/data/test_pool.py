"""Work in several processes: in order, with its errors, and none that outlives the parent."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.processes import still_running
from xttsbench.errors import XttsbenchError
from xttsbench.xtts.data.pool import allowed_workers, in_processes

# A script without the usual guard, killed while its workers work; they say who they are in a file each.
SCRIPT = """
import sys, time
from pathlib import Path
from xttsbench.xtts.data.pool import in_processes

print("started", flush=True)
for _ in in_processes(time.sleep, [0.01] * 2 + [60] * 2, 2):
    print("done", flush=True)
"""


def test_results_come_in_order() -> None:
    assert list(in_processes(operator.neg, range(60), 2)) == [-number for number in range(60)]


def test_one_worker_is_this_process() -> None:
    assert list(in_processes(_pid, range(2), 1)) == [os.getpid()] * 2


def test_an_error_comes_back_as_it_is() -> None:
    results = in_processes(os.stat, ["/", "/nowhere"], 2)
    next(results)
    with pytest.raises(FileNotFoundError) as caught:
        next(results)
    assert caught.value.errno == 2


def test_a_process_that_dies_is_one_sentence() -> None:
    with pytest.raises(XttsbenchError, match=r"one of 2 processes .* died, .*--workers"):
        list(in_processes(os._exit, [3], 2))


def test_the_cores_allowed_are_the_default() -> None:
    assert 1 <= allowed_workers() <= len(os.sched_getaffinity(0))


def test_workers_of_a_script_without_a_guard_neither_run_it_again_nor_outlive_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert [process.stdout.readline() for _ in range(3)] == [b"started\n", b"done\n", b"done\n"]
        workers = _children(process.pid)
        assert len(workers) >= 2
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert still_running(workers, 20.0) == []


def _pid(_: int) -> int:
    return os.getpid()


def _children(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]
