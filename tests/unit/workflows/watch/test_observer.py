import json
import mmap
import os

import pytest

from xttsbench.probes.processes import running
from xttsbench.records.rows import RowMemory, StepRow
from xttsbench.records.trial import TrialSpec
from xttsbench.workflows.watch.observer import About, Observer

MS = 1_000_000


class Script:
    """Stands for a process: writes rows of steps, one after another."""

    def __init__(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XTTSBENCH_RUNTIME", str(tmp_path / "runtime"))
        self.rows = RowMemory(mmap.mmap(-1, RowMemory.size_bytes(512)))
        self.out, self.at = tmp_path, 0
        spec = TrialSpec(trial_id="watch", kind="script", target="train.py")
        about = About("train.py --epochs 1", "xttsbench diagnose train.py -- --epochs 1", summary_s=0.0)
        monkeypatch.setattr("socket.gethostname", lambda: "our-machine")
        self.observer = Observer(tmp_path, spec, self.rows, about, tensorboard=tmp_path / "scalars")
        self.segment = self.rows.segment("as_is")
        self.observer.started(os.getpid())

    def steps(self, *walls_ms, wait_ms=0.0):
        for wall in walls_ms:
            wall_ns, wait_ns = round(wall * MS), round(wait_ms * MS)
            self.segment.append(
                StepRow(
                    self.at, wall_ns, wait_ns=wait_ns, step_ns=wall_ns - wait_ns, calls=1, calls_ns=wall_ns - wait_ns
                )
            )
            self.at += wall_ns

    def read(self, name):
        return json.loads((self.out / name).read_text())


@pytest.fixture
def script(tmp_path, monkeypatch):
    return Script(tmp_path, monkeypatch)


def test_what_is_seen_is_on_disk_while_it_goes_on_and_says_when_it_is_over(script):
    assert running() == {os.getpid(): script.out}
    assert script.read("summary.json")["step_time_s"] is None
    script.steps(*[10.0] * 50, wait_ms=6.0)
    script.observer.tick()
    script.observer.tick()  # rows are read one tick late: what XLA compiled in them is told afterwards
    found, live = script.read("summary.json"), script.read("live.json")
    assert (found["steps"], found["bottleneck"], found["over"]) == (50, "input", False)
    assert found["step_time_s"]["estimate"] == pytest.approx(0.01)
    assert found["input_wait_fraction"]["estimate"] == pytest.approx(0.6)
    assert (live["steps"], live["over"]) == (50, False)
    script.observer.take({"ended": "returned", "exit_code": 0, "done": True})
    script.observer.finish(exit_code=0)
    script.observer.conclude(script.observer.summary())
    assert script.read("live.json")["over"]
    assert script.read("summary.json")["ended"] == "returned"
    assert running() == {}
    (scalars,) = (script.out / "scalars").iterdir()
    assert b"xttsbench/step_time_s" in scalars.read_bytes()
    assert "our-machine" not in scalars.name  # not with --redact, and nobody needs it


def test_a_run_that_trains_again_after_its_end_goes_on(script):
    script.steps(*[10.0] * 30)
    script.observer.take({"ended": "returned", "exit_code": None, "done": True})
    script.observer.finish()
    script.observer.tick()
    assert script.read("live.json")["over"]
    script.steps(*[10.0] * 30)
    script.observer.tick()
    script.observer.tick()
    assert not script.read("summary.json")["over"]
    assert script.read("summary.json")["steps"] == 60
    assert running() == {os.getpid(): script.out}


def test_a_line_that_is_seen_in_a_stalled_step_is_its_cause_and_no_line_of_the_others(script):
    script.steps(*[10.0] * 40, 200.0, *[10.0] * 10)
    saving = ["/home/me/train.py", 31, "main", "io"]
    inside = [[at * MS, 10 * MS, *saving] for at in (450, 500, 550)]
    before = [[-5 * MS, 10 * MS, "/home/me/train.py", 3, "main", "python"]]  # while data were made: no step's
    script.observer.take({"samples": before + inside})
    script.observer.take({"counted": {"steps": 2, "eager_ops_per_step": 3.0, "function_calls_per_step": 1.0}})
    script.observer.finish(exit_code=0)
    (cause,) = script.observer.running.stalls.causes
    assert (cause.what, cause.count) == ("saving or writing (train.py:31)", 1)
    profile = script.observer.profile()
    assert (profile.samples, profile.kinds) == (3, {"io": pytest.approx(1.0)})
    (line,) = profile.lines
    assert line.steps_share == pytest.approx(1 / 51)
    assert profile.eager_ops_per_step == 3.0


def test_a_process_that_was_killed_is_named_so_and_keeps_what_was_seen(script):
    script.steps(*[10.0] * 30)
    script.observer.finish(signal="SIGKILL")
    watched = script.observer.watched()
    assert (watched.steps, watched.ended, watched.signal) == (30, "killed", "SIGKILL")
    record = script.observer.record()
    assert record.watched == watched
    assert record.segment("as_is").steps == 30


def test_steps_that_were_too_quick_to_be_read_are_counted(script):
    script.steps(*[1.0] * 2000)
    script.observer.finish(exit_code=0)
    watched = script.observer.watched()
    assert watched.steps == 2000
    assert watched.lost_steps == 2000 - 511


def test_steps_in_a_graph_that_were_overwritten_before_they_were_read_are_counted_once(script):
    for lost in (30, 30, 70):
        script.observer.take({"part": "script", "value": {"lost_steps": lost}})
        script.steps(*[1.0] * 10)
        script.observer.tick()
    script.observer.finish(exit_code=0)
    watched = script.observer.watched()
    assert (watched.steps, watched.lost_steps) == (100, 70)
