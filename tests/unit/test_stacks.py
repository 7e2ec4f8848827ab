"""Stacks of other threads are read without harm: Python 3.11 crashes where garbage is collected meanwhile."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import pytest

from xttsbench.stacks import stacks

HARD = """
import gc, os, sys, threading, time
from xttsbench.stacks import stacks

class Garbage:
    def __init__(self):
        self.itself = self

    def __del__(self):
        time.sleep(1e-4)  # other threads run on

def deep(frames):
    return deep(frames - 1) if frames else sum(range(2000))

def work():
    while True:
        deep(700)  # its stack is several chunks of memory, which are given back

def walked(frames):
    for frame in frames.values():
        while frame is not None:
            frame = frame.f_back

threading.Thread(target=work, daemon=True).start()
sys.setswitchinterval(1e-4)
gc.set_threshold(30)
ends = time.perf_counter() + 4
while time.perf_counter() < ends:
    Garbage()
    if sys.argv[1] == "stacks":
        with stacks() as frames:
            walked(frames)
    else:
        walked(sys._current_frames())
os._exit(0)
"""


def run(way: str) -> int:
    return subprocess.run([sys.executable, "-c", HARD, way], timeout=60, check=False).returncode


def test_a_thread_that_runs_on_while_garbage_is_collected_is_sampled_without_a_crash() -> None:
    assert run("stacks") == 0


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from Python 3.12 on nothing is collected there")
def test_without_it_python_crashes() -> None:
    assert any(run("frames") < 0 for _ in range(5))  # else what is tested above is of no use any more


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from Python 3.12 on nothing is collected there")
def test_the_first_of_two_threads_to_leave_lets_nothing_be_collected_beneath_the_other() -> None:
    entered, leaves = threading.Event(), threading.Event()

    def other() -> None:
        with stacks():
            entered.set()
            leaves.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(10)
    threading.Timer(0.1, leaves.set).start()
    with stacks():
        assert not thread.is_alive() or leaves.is_set()
        assert not gc.isenabled()
    thread.join()
    assert gc.isenabled()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from Python 3.12 on nothing is collected there")
def test_a_process_forked_meanwhile_collects_garbage() -> None:
    with stacks():
        child = threading.Thread(target=forked, args=(told := [],))
        child.start()
        child.join(10)
    assert told == [0]


def forked(told: list[int]) -> None:
    if not (pid := os.fork()):
        with stacks():  # nobody is within here any more
            pass
        os._exit(0 if gc.isenabled() else 1)
    told.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from Python 3.12 on nothing is collected there")
def test_collection_is_as_it_was_afterwards() -> None:
    for collects in (True, False):
        (gc.enable if collects else gc.disable)()
        try:
            with stacks() as frames:
                assert threading.get_ident() in frames
                assert not gc.isenabled()
            assert gc.isenabled() == collects
        finally:
            gc.enable()
