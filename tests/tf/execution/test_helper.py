"""The helper: starts once, forks clean trials, keeps standard output for the report, and says when it cannot start."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from xttsbench.errors import HelperError
from xttsbench.execution.helper import Helper
from xttsbench.execution.limits import Limits
from xttsbench.execution.trial import run_trial
from xttsbench.records.readings import Readings


def test_its_environment_reaches_it_and_its_trials_and_it_leaves_nothing_when_it_is_left(
    helper, spec, wait_for, gone, capfd, tmp_path
):
    with Helper(environment={"XTTSBENCH_TEST": "set", "TMPDIR": str(tmp_path)}, print_to_stderr=True) as own:
        own.wait_ready()
        assert "XTTSBENCH_TEST=set" in wait_for(f"/proc/{own.pid}/environ").split("\0")
        assert "XTTSBENCH_TEST" not in wait_for(f"/proc/{helper.pid}/environ")
        assert run_trial(spec("prints", kind="pipeline"), own, Limits(60.0, 30.0)).status == "ok"
        # AutoGraph writes the source of what it converts there, and would remove it where Python shuts down.
        assert run_trial(spec("good", kind="arm"), own, Limits(60.0, 30.0)).status == "ok"
        pid = own.pid
    assert gone(pid) == []
    assert [path.name for path in tmp_path.iterdir()] == []
    out, err = capfd.readouterr()
    assert out == ""
    assert "[bold red]not markup[/] {not json}" in err


def test_one_that_cannot_import_tensorflow_says_so(tmp_path, capfd):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise ImportError('broken installation')\n")
    with (
        Helper(environment={"PYTHONPATH": f"{tmp_path}:{':'.join(filter(None, sys.path))}"}) as broken,
        pytest.raises(HelperError, match="did not start"),
    ):
        broken.wait_ready()
    assert "broken installation" in capfd.readouterr().err


def test_a_helper_that_is_gone_is_an_error_and_not_a_hang(spec):
    with Helper() as ended:
        os.kill(ended.pid, signal.SIGKILL)
        with pytest.raises(HelperError):
            ended.wait_ready()
        assert ended.exit_code(5.0) == -9
        with pytest.raises(HelperError, match=r"gone|did not fork"):
            run_trial(spec("good"), ended, Limits(10.0, 10.0))


def test_one_that_was_never_started_has_no_process(spec):
    idle = Helper()
    with pytest.raises(HelperError, match="not running"):
        _ = idle.pid
    with pytest.raises(HelperError, match="not running"):
        run_trial(spec("good"), idle, Limits(10.0, 10.0))
    assert idle.wait_status(1, 0.0) is None
    assert idle.exit_code() is None


def test_each_trial_is_a_fork_of_the_same_helper_in_a_group_of_its_own(helper, trial):
    pids = []
    for _ in range(2):
        trial("good_dataset", kind="pipeline", monitor=lambda pid: pids.append(pid) or Quiet())
    assert len(set(pids)) == 2
    assert helper.pid not in pids


def test_one_that_is_forked_after_the_user_interrupted_is_ended_and_told_from_the_next(helper, spec, monkeypatch, gone):
    """The answer to a request comes when nobody waits for it any more: while another trial is ended, or forked."""
    heard, forked = helper._heard, []
    monkeypatch.setattr(helper, "_heard", lambda event: forked.append(event) or heard(event))
    for again in (False, True):
        forked.clear()
        with monkeypatch.context() as interrupted:
            interrupted.setattr(helper, "_next_event", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                run_trial(spec("hangs_while_built"), helper, Limits(60.0, 30.0))
        if again:
            assert run_trial(spec("good", kind="arm"), helper, Limits(60.0, 30.0)).status == "ok"
        else:
            assert helper.wait_status(helper.pid, 5.0) is None  # no trial has this number
        forked[:] = [event for event in forked if event["event"] == "forked"]
        assert len(forked) == 1 + again
        assert gone(forked[0]["pid"]) == []


class Quiet:
    """A monitor that reads nothing."""

    def due(self, now_ns):
        return 1.0

    def tick(self, now_ns):
        pass

    def readings(self):
        return Readings()
