"""The pool in a program of its own: a script without a guard, a file loaded by its path, a parent that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

import xttsbench

SCRIPT = """
import importlib.util, os, pathlib, sys
with open(os.environ["STARTS"], "a") as file:
    file.write("started\\n")  # no guard: whoever runs this file again is seen
import tensorflow as tf
from xttsbench.fixes.processes.rewrite import in_processes

spec = importlib.util.spec_from_file_location("by_path", pathlib.Path(__file__).parent / "elsewhere" / "features.py")
module = importlib.util.module_from_spec(spec)
sys.modules["by_path"] = module
spec.loader.exec_module(module)
module.OFFSET = 100  # set after the import, as a target's make() may

def in_main(value):
    return value * 2 + by_name(value)

def by_name(value):
    return module.kept(value)

def call(function):
    return lambda i: tf.numpy_function(function, [i], tf.int64)

dataset = in_processes(tf.data.Dataset.range(4).map(call(module.shifted)).map(call(in_main)), 2)
print(*dataset.as_numpy_iterator(), flush=True)
"""
FEATURES = """
import sys
OFFSET = 1
LOADED_TENSORFLOW = "tensorflow" in sys.modules

def shifted(value):
    assert "tensorflow" not in sys.modules
    return value + OFFSET

def kept(value):
    return value % 5
"""


def started(tmp_path, script, **pipes):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "features.py").write_text(FEATURES, encoding="utf-8")
    file = tmp_path / "script.py"
    file.write_text(script, encoding="utf-8")
    root = str(Path(xttsbench.__file__).parents[1])
    environment = os.environ | {"STARTS": str(tmp_path / "starts"), "PYTHONPATH": root, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True, env=environment, **pipes)


def test_a_script_without_a_guard_runs_once_and_a_file_is_found_by_its_path(tmp_path):
    with started(tmp_path, SCRIPT) as process:
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert printed.split() == [str(v * 2 + v % 5) for v in range(100, 104)]
    assert (tmp_path / "starts").read_text(encoding="utf-8") == "started\n"


LEAVING = (
    SCRIPT
    + """
import time

def slow(value):
    time.sleep(0.02)
    return value

endless = tf.data.Dataset.counter().map(call(slow), num_parallel_calls=4).prefetch(4)
iterator = iter(in_processes(endless, 2))
next(iterator)
print("leaving", flush=True)
"""
)


def test_a_program_ends_in_silence_while_calls_are_under_way(tmp_path):
    with started(tmp_path, LEAVING, stderr=subprocess.PIPE) as process:
        for line in process.stdout:
            if line == "leaving\n":
                break
        workers = psutil.Process(process.pid).children(recursive=True)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "Traceback" not in said
    assert not psutil.wait_procs(workers, timeout=30)[1]


WAITING = (
    SCRIPT
    + """
def hang(value):
    while value >= 0:  # the lock is never free for long, and no message comes
        pass

dataset = in_processes(tf.data.Dataset.range(4).map(call(hang), num_parallel_calls=2), 2)
iterator = iter(dataset)
print("running", flush=True)
next(iterator)
"""
)


def test_a_killed_parent_leaves_no_process_behind(tmp_path):
    with started(tmp_path, WAITING) as process:
        for line in process.stdout:
            if line == "running\n":
                break
        workers = psutil.Process(process.pid).children(recursive=True)
        deadline = time.monotonic() + 60
        while sum(worker.cpu_times().user > 1.0 for worker in workers) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)  # until the functions hang
        process.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs(workers, timeout=30)
    assert len(gone) >= 2
    assert not alive
