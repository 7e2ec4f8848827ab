"""One helper process for the whole folder: TensorFlow is imported once, every test forks from it."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from tests.processes import still_running
from xttsbench.execution.helper import Helper
from xttsbench.execution.limits import Limits
from xttsbench.execution.trial import run_trial
from xttsbench.records.trial import TrialSpec

BAD = Path(__file__).parents[2] / "targets" / "bad.py"


@pytest.fixture(scope="session")
def helper():
    with Helper() as started:
        started.wait_ready()
        yield started


def spec_of(target, *, kind="ladder", **changes):
    fields = {"window_s": 0.5, "steps": 20, "min_steps": 3} | changes
    return TrialSpec(trial_id=f"000-{kind}", kind=kind, target=f"{BAD}:{target}", **fields)


@pytest.fixture
def spec():
    return spec_of


@pytest.fixture(scope="session")
def trial(helper):
    """``trial(name, kind=..., time_s=..., stall_s=..., **spec fields)`` runs one and gives its record."""

    def run(target, *, time_s=60.0, stall_s=30.0, monitor=None, progress=None, **changes):
        limits = Limits(time_s=time_s, stall_s=stall_s)
        return run_trial(spec_of(target, **changes), helper, limits, monitor=monitor, progress=progress)

    return run


@pytest.fixture
def gone():
    """``gone(*pids)``: the pids that still run after a second's grace, tripled for a busy machine."""
    return lambda *pids, within_s=3.0: still_running(pids, within_s)


@pytest.fixture
def wait_for():
    """``wait_for(path)``: the text of a file once it is there and not empty."""

    def wait(path, within_s=60.0):
        end = time.monotonic() + within_s
        while not (os.path.exists(path) and Path(path).read_bytes()):
            if time.monotonic() > end:
                pytest.fail(f"{path} did not appear within {within_s} s")
            time.sleep(0.02)
        return Path(path).read_text(encoding="utf-8")

    return wait


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """An empty temporary folder of this process and of those that it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder
