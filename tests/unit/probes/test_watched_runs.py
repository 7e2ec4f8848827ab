import os
import subprocess
import sys

import pytest

from xttsbench.probes.watched_runs import announce, read_live, running
from xttsbench.records.monitoring import LIVE_FILE, LiveRun, RecentSteps, running_directory


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("XTTSBENCH_RUNTIME", str(tmp_path / "runtime"))


def test_a_running_process_leads_to_its_run_and_is_closed_to_others(tmp_path):
    assert running() == {}
    file = announce(os.getpid(), tmp_path / "run")
    assert file == running_directory() / f"{os.getpid()}.json"
    assert running_directory().stat().st_mode & 0o777 == 0o700
    assert running() == {os.getpid(): tmp_path / "run"}


def test_the_file_of_a_dead_process_is_removed_and_a_broken_one_is_passed_over(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    file = announce(dead.pid, tmp_path)
    (running_directory() / "1.json").write_text("{half")
    assert running() == {}
    assert not file.exists()


def test_without_a_place_for_it_nothing_is_announced(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XTTSBENCH_RUNTIME", str(tmp_path / "file"))
    assert announce(os.getpid(), tmp_path) is None
    assert running() == {}


def test_a_run_says_how_it_goes_or_nothing(tmp_path):
    live = LiveRun(
        pid=7, script="train.py", started_utc="2026-01-01T00:00:00Z", updated_utc="2026-01-01T00:00:01Z", over=False,
        steps=3, recent=RecentSteps(steps=3, step_time_s=0.25, input_wait_fraction=0.5),
    )  # fmt: skip
    assert read_live(tmp_path) is None
    (tmp_path / LIVE_FILE).write_text(live.model_dump_json())
    assert read_live(tmp_path) == live
    (tmp_path / LIVE_FILE).write_text(live.model_dump_json()[:-5])
    assert read_live(tmp_path) is None
