"""Whatever kills the parent, nothing of it is left: neither the helper, nor trials, nor what the target started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

PARENT = """
import sys
from xttsbench.execution.helper import Helper
from xttsbench.execution.child import Limits
from xttsbench.execution.trial import LiveTrial, run_trial
from xttsbench.records.trial import TrialSpec

standing, running = map(TrialSpec.model_validate_json, sys.argv[1:])
with Helper() as helper:
    print(helper.pid, flush=True)
    helper.wait_ready()
    live = LiveTrial(standing, helper)
    live.open(Limits(60.0, 30.0))
    print(live.pid, flush=True)
    run_trial(running, helper, Limits(120.0, 60.0))
"""


@pytest.fixture
def parent(spec, tmp_path, temporary):
    """A parent in a process of its own, with a trial that stands still between its turns, and one under way.

    The process, the helper's pid, and the file of the pids of the trial under way and of what it started.
    """
    pids = tmp_path / "pids"
    standing = spec("good", kind="arm", turns=True)
    running = spec("never_ends_with_a_child", kwargs={"pids": str(pids)}, window_s=100.0, steps=5000)
    command = [sys.executable, "-c", PARENT, standing.model_dump_json(), running.model_dump_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield process, int(process.stdout.readline()), pids
        finally:
            process.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: how.name)
def test_nothing_outlives_the_parent(parent, wait_for, gone, temporary, how):
    process, helper, pids = parent
    standing = int(process.stdout.readline())
    running = [int(pid) for pid in wait_for(pids).split()]
    assert len(running) == 2
    assert "State:\tT" in wait_for(f"/proc/{standing}/status")
    assert list(temporary.rglob("__autograph*"))
    os.kill(process.pid, how)
    process.wait()
    assert gone(helper, standing, *running) == []
    assert list(temporary.iterdir()) == []


def test_nothing_outlives_a_parent_that_dies_while_tensorflow_is_imported(parent, gone):
    process, helper, _ = parent
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert gone(helper) == []
