"""Nothing of a trial outlives it, no stranger is killed, and nobody who is silent or deaf holds us up."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.processes import freed_ids_signalled, marked, still_running
from xttsbench.errors import HelperError
from xttsbench.execution import helper as helpers
from xttsbench.execution import training
from xttsbench.execution.child import Collected, Follower
from xttsbench.execution.helper import Helper
from xttsbench.execution.limits import Limits
from xttsbench.execution.training import run_training
from xttsbench.execution.trial import Child, LiveTrial, run_trial
from xttsbench.processes import readable
from xttsbench.records.training import TrainJob
from xttsbench.records.trial import TrialRecord, TrialSpec, Turn

STAND_IN = Path(__file__).with_name("stand_in.py")
SOON = Limits(20.0, 10.0)
LONG_LINE = {"long": "x" * 299_000}
"""Keyword arguments whose line is longer than what a socket holds."""


def started(_: str, *arguments: int | str, environment: dict[str, str], **more: Any) -> subprocess.Popen[bytes]:
    """The stand-in of a process, in place of ``execution.child.start``."""
    return subprocess.Popen(
        [sys.executable, str(STAND_IN), *map(str, arguments)],
        pass_fds=[one for one in arguments if isinstance(one, int)],
        env=environment,
        start_new_session=True,
    )


class Beside:
    """A helper, and what its trials have left running."""

    def __init__(self, **variables: str) -> None:
        self.mark = f"LEAVES={uuid.uuid4()}"
        self.helper = Helper(environment={"LEAVES": self.mark.removeprefix("LEAVES="), **variables})

    def left(self, within_s: float = 0.0) -> list[int]:
        end = time.monotonic() + within_s
        while found := [pid for pid in marked(self.mark) if pid != self.helper.pid]:
            if time.monotonic() >= end:
                break
            time.sleep(0.02)
        return found

    def kill_all(self) -> None:
        for pid in marked(self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Beside]]:
    """``beside(NAME=value)``: a helper that has started, with those variables; it is left with the test."""
    monkeypatch.setattr(helpers, "start", started)
    made: list[Beside] = []

    def make(**variables: str) -> Beside:
        made.append(Beside(**variables))
        made[-1].helper.__enter__().wait_ready()
        return made[-1]

    yield make
    for one in made:
        one.helper.__exit__(None, None, None)
        one.kill_all()


def spec_of(target: str, **kwargs: Any) -> TrialSpec:
    return TrialSpec(trial_id=f"000-{target}", kind="arm", target=target, kwargs=kwargs)


def within(seconds: float, work: Callable[[], Any], release: Callable[[], Any]) -> Any:
    """What the work returns; a failure where it takes longer, after what it waits for was released."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    hung = thread.is_alive()
    if hung:
        release()
        thread.join(10.0)
    assert not hung, f"it was still busy after {seconds:.0f} s"
    return found[0]


# What is left behind


@pytest.mark.parametrize("target", ["session", "daemon", "generations"])
def test_what_a_trial_leaves_behind_in_other_sessions_ends_with_it(beside, target) -> None:
    one = beside()
    assert run_trial(spec_of(target), one.helper, SOON).status == "ok"
    assert one.left() == []
    assert run_trial(spec_of("fine"), one.helper, SOON).status == "ok"


def test_of_trials_side_by_side_each_keeps_what_it_started_until_it_ends(beside) -> None:
    one = beside()
    first = LiveTrial(spec_of("turns", leaves="daemon"), one.helper)
    assert first.open(SOON)
    of_first = set(one.left())
    second = LiveTrial(spec_of("turns", leaves="daemon"), one.helper)
    assert second.open(SOON)
    assert len(one.left()) == 4
    assert second.turn(Turn(round=0, batches=1), 10.0) is not None
    assert second.end().status == "ok"
    assert set(one.left()) == of_first
    assert first.turn(Turn(round=0, batches=1), 10.0) is not None
    assert first.end().status == "ok"
    assert one.left() == []


def test_one_that_forks_faster_than_it_is_killed_is_given_up_on(beside) -> None:
    one = beside()
    record = run_trial(spec_of("hopping"), one.helper, SOON)
    assert record.status == "ok"
    assert record.duration_s < 8.0
    assert run_trial(spec_of("fine"), one.helper, SOON).status == "ok"
    assert one.left(within_s=8.0) == []


@pytest.mark.parametrize("target", ["stands_still", "silent"])
def test_one_that_stands_still_or_says_nothing_breaks_its_limit(beside, target) -> None:
    one = beside()
    record = run_trial(spec_of("session", then=target), one.helper, Limits(20.0, 1.0))
    assert record.status == "stalled"
    assert record.duration_s < 8.0
    assert one.left() == []


def test_one_that_hangs_up_and_lives_is_ended(beside) -> None:
    one = beside()
    record = run_trial(spec_of("session", then="hangs_up"), one.helper, SOON)
    assert (record.status, record.cause) == ("exited", "closed its pipe in phase 'fork' and did not end")
    assert one.left() == []


def test_nothing_is_left_when_the_parent_goes_away_meanwhile(beside) -> None:
    one = beside()
    trials = [Child(spec_of("session", then="silent"), one.helper) for _ in range(2)]
    end = time.monotonic() + 10.0
    while len(one.left()) < 4 and time.monotonic() < end:
        time.sleep(0.02)
    assert len(one.left()) == 4
    one.helper.control.close()
    assert one.helper.exit_code(5.0) == 0
    assert one.left() == []
    for trial in trials:
        trial.lines.connection.close()


def test_a_helper_that_was_stopped_holds_nobody_up_and_leaves_nothing(beside, monkeypatch) -> None:
    monkeypatch.setattr(helpers, "_FORK_S", 0.5, raising=False)
    one = beside()
    child = Child(spec_of("session", then="silent"), one.helper)
    end = time.monotonic() + 10.0
    while len(one.left()) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    os.kill(one.helper.pid, signal.SIGSTOP)
    child.follow(Limits(1.0, 1.0))
    record = child.end()
    assert record.status == "time_limit"
    assert record.duration_s < 15.0
    with pytest.raises(HelperError, match="did not fork a trial"):
        run_trial(spec_of("fine"), one.helper, SOON)
    one.helper.__exit__(None, None, None)
    assert marked(one.mark) == []


@pytest.mark.parametrize("leaves", ["session", "daemon", "generations"])
def test_what_was_left_in_other_sessions_ends_though_the_helper_was_killed(beside, bystander, leaves) -> None:
    one = beside()
    trial = LiveTrial(spec_of("turns", leaves=leaves), one.helper)
    assert trial.open(SOON)
    assert len(one.left()) > 1
    os.kill(one.helper.pid, signal.SIGKILL)
    trial.end()
    one.helper.__exit__(None, None, None)
    assert one.left() == []
    assert lives(bystander)


# Whose process id it is


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


def lives(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has survived whatever was sent to it just now."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.3)
    return process.returncode is None


@pytest.fixture(params=[False, True], ids=["kernel-6.9", "kernel-5.10"])
def old_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the kernel does not know how to signal a process group through a descriptor."""
    send = signal.pidfd_send_signal

    def sent(descriptor: int, number: int, info: None = None, flags: int = 0) -> None:
        if flags:
            raise OSError(errno.EINVAL, "Invalid argument")
        send(descriptor, number)

    if request.param:
        monkeypatch.setattr(signal, "pidfd_send_signal", sent)
    return bool(request.param)


def test_who_has_the_id_of_a_trial_that_ended_is_not_killed(beside, bystander, old_kernel, monkeypatch) -> None:
    one = beside()
    child = Child(spec_of("fine"), one.helper)
    child.follow(SOON)
    assert one.helper.wait_status(child.pid, 10.0) == 0
    monkeypatch.setattr(one.helper, "wait_status", lambda pid, timeout_s: None)  # it knows no trial of that number
    child.pid = bystander.pid
    assert child.end().status == "ok"
    assert lives(bystander)


def test_who_has_the_id_of_a_trial_whose_end_was_not_heard_of_is_not_killed(beside, bystander, old_kernel) -> None:
    """The kernel has given the number away; the helper's word that the trial ended has not been read yet."""
    one = beside()
    child = Child(spec_of("fine"), one.helper)
    ended = one.helper._descriptors[child.pid]
    assert readable([ended], 10.0) == {ended}
    while os.path.exists(f"/proc/{child.pid}"):
        time.sleep(0.01)
    one.helper._descriptors[bystander.pid] = one.helper._descriptors.pop(child.pid)
    one.helper.signal(bystander.pid, signal.SIGKILL)
    assert lives(bystander)
    one.helper._descriptors[child.pid] = one.helper._descriptors.pop(bystander.pid)
    child.end()


def test_the_group_of_a_trial_whose_helper_was_killed_is_killed(beside, old_kernel, tmp_path) -> None:
    one = beside()
    child = Child(spec_of("beside", folder=str(tmp_path)), one.helper)
    end = time.monotonic() + 10.0
    while not (tmp_path / "there").exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert len(one.left()) == 2
    os.kill(one.helper.pid, signal.SIGKILL)
    child.follow(SOON)
    assert "helper" in child.end().cause
    assert one.left(within_s=3.0) == []


TRAINS = """
import json, socket, subprocess, sys
control = socket.socket(fileno=int(sys.argv[1]))
json.loads(control.makefile().readline())
open({pid!r}, "w").write(str(subprocess.Popen(["sleep", "60"]).pid))
control.sendall(b'{{"done": true}}\\n')
"""


def trained(source: str, monkeypatch: pytest.MonkeyPatch) -> TrialRecord:
    """The record of a session in which this program trains."""

    def start(_: str, *descriptors: int, **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-S", "-c", source, *map(str, descriptors)], pass_fds=descriptors, start_new_session=True
        )

    monkeypatch.setattr(training, "start", start)
    job = TrainJob(directory="run", recipe=LONG_LINE, config={}, data="data")
    return run_training(job, spec_of("train"), Ignores(), variables={}).record


class Ignores:
    """A listener that does nothing."""

    def phase(self, name: str) -> None: ...

    def told(self, line: object) -> None: ...

    def stopping(self) -> None: ...


def test_what_a_training_leaves_behind_is_killed_while_the_id_of_its_group_is_its_own(monkeypatch, tmp_path) -> None:
    strangers = freed_ids_signalled(monkeypatch)
    assert trained(TRAINS.format(pid=str(tmp_path / "pid")), monkeypatch).status == "ok"
    assert still_running([int((tmp_path / "pid").read_text())]) == []
    assert strangers == []


def test_a_training_that_ends_without_reading_its_job_is_named(monkeypatch) -> None:
    record = trained("import sys; sys.exit(3)", monkeypatch)
    assert (record.status, "exit code 3" in record.cause) == ("exited", True)


# Who does not read, or has no low descriptor left


def test_one_that_never_reads_breaks_its_limit(beside) -> None:
    one = beside(DEAF="1")
    record = within(
        15.0, lambda: run_trial(spec_of("fine", **LONG_LINE), one.helper, Limits(20.0, 1.0)), release=one.kill_all
    )
    assert record.status == "stalled"
    assert record.duration_s < 8.0
    assert one.left() == []


def test_one_that_reads_late_hears_all_of_a_long_line(beside) -> None:
    one = beside(SLOW="0.5")
    assert run_trial(spec_of("fine", **LONG_LINE), one.helper, SOON).status == "ok"


def test_what_was_said_before_the_end_is_heard_by_who_still_had_something_to_say() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b'{"phase": "setup"}\n{"status": "raised", "cause": "it broke"}\n')
        theirs.close()
        follower = Follower(ours, Collected(spec_of("fine")))
        follower.lines.tell("x" * 299_000)
        follower.follow(SOON)
    assert (follower.collected.phase, follower.collected.cause) == ("setup", "it broke")


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """All low descriptors of this process are taken, up to 1,100."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip(f"this system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    yield
    for descriptor in opened:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_trial_runs_beside_1100_descriptors_of_ours_and_of_the_helper(many_descriptors, beside) -> None:
    one = beside(FILES="1100")
    assert run_trial(spec_of("session"), one.helper, SOON).status == "ok"
    assert one.left() == []


def test_descriptors_that_can_be_read_are_told_from_those_that_can_be_written(many_descriptors) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert ours.fileno() > 1023
        assert readable([ours], 0.0) == set()
        assert readable([ours], None, writable=ours) == set()
        theirs.send(b".")
        assert readable([ours], None, writable=ours) == readable([ours], None) == {ours.fileno()}
        ours.recv(1)
        theirs.close()
        assert readable([ours], 10.0) == {ours.fileno()}
