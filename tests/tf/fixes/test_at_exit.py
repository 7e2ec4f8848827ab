"""The end of a program while functions of its pipelines are under way: soon, in silence, with its own exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import xttsbench

PROGRAM = """
import atexit, os, sys, threading, time
import tensorflow as tf
from xttsbench.fixes.graph import apply

def called(function):
    data = tf.data.Dataset.counter().map(lambda i: tf.numpy_function(function, [i], tf.int64))
    return iter(apply(data, "parallel-map:4 + prefetch:4"))
"""
COME_BACK = """
def slow(value):
    os.write(1, b"+")
    time.sleep(0.05)
    os.write(1, b"-")
    return value

here = called(slow)
next(here)
"""
ONE_DOES_NOT = """
def third_hangs(value):
    while value == 2:
        time.sleep(0.01)
    return value

here = called(third_hangs)
next(here)
"""
A_THREAD_READS = """
atexit.register(time.sleep, 0.5)  # runs after what is registered later, and the thread goes on meanwhile

def slow(value):
    time.sleep(0.05)
    return value

here = called(slow)

def read():
    while True:
        next(here)

next(here)
threading.Thread(target=read, daemon=True).start()
"""
LEAVE = """
print("leaving", flush=True)
print("leaving", file=sys.stderr, flush=True)  # TensorFlow said what it says at its start before
sys.exit(3)
"""


def ended(tmp_path, script):
    """What a program printed up to its end, which comes soon."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM + script + LEAVE, encoding="utf-8")
    root = str(Path(xttsbench.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": root, "TF_CPP_MIN_LOG_LEVEL": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, str(file)], text=True, env=environment, **pipes) as process:
        try:
            printed, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 3
    assert said.partition("leaving\n")[1:] == ("leaving\n", "")
    return printed


def test_calls_under_way_come_back_before_the_interpreter_is_finalized(tmp_path):
    printed = ended(tmp_path, COME_BACK)
    assert "leaving" in printed
    assert printed.count("+") == printed.count("-")


@pytest.mark.parametrize("script", [ONE_DOES_NOT, A_THREAD_READS])
def test_a_call_that_does_not_come_back_or_is_waited_for_by_a_thread_holds_nothing_up(tmp_path, script):
    assert ended(tmp_path, script) == "leaving\n"
