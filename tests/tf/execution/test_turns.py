"""Live processes that take turns: on the same batches, standing still in between, and each way in which one can end."""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path

import pytest

from xttsbench.execution.limits import Limits
from xttsbench.execution.trial import LiveTrial
from xttsbench.probes.monitor import Monitor
from xttsbench.records.trial import TrialRecord, TrialSpec, Turn

ARMS = Path(__file__).parents[2] / "targets" / "arms.py"
LIMITS = Limits(60.0, 30.0)


def spec_of(name="waits", **kwargs):
    return TrialSpec(trial_id=f"000-{name}", kind="arm", target=f"{ARMS}:{name}", kwargs=kwargs, turns=True, arm=name)


@pytest.fixture
def live(helper):
    """``live(name, **kwargs)`` opens a process; all are ended after the test."""
    opened = []

    def start(name="waits", *, monitor=None, canary=None, **kwargs):
        one = LiveTrial(spec_of(name, **kwargs), helper, monitor=monitor, canary=canary)
        opened.append(one)
        assert one.open(LIMITS)
        return one

    yield start
    for one in opened:
        one.end()


def pid_of(trial):
    return trial.pid


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def test_two_take_turns_on_the_same_batches_and_one_stands_still_while_the_other_runs(live):
    quick, slow = live(ms=1.0), live(ms=4.0)
    for number, batches in enumerate((5, 3)):
        for one, other in ((quick, slow), (slow, quick)):
            before = state(pid_of(other))
            seconds = one.turn(Turn(round=number, batches=batches, discarded=2), 30.0)
            assert (before, state(pid_of(one)), state(pid_of(other))) == ("T", "T", "T")
            # The first of them may have been begun in the turn before, and its wait has passed then.
            assert seconds >= (batches - 1) * one.spec.kwargs["ms"] / 1e3
    for record in (quick.end(), slow.end()):
        assert (record.status, record.cause, record.notes) == ("ok", None, ())
        as_is, start = record.segment("as_is"), record.segment("turn_start")
        assert as_is.warmup_steps == 0
        assert as_is.columns["round"] == (0,) * 5 + (1,) * 3
        assert as_is.columns["batch"] == (2, 3, 4, 5, 6, 9, 10, 11)
        assert start.columns["batch"] == (0, 1, 7, 8)
        assert start.columns["round"] == (0, 0, 1, 1)
        assert [mark.round for mark in record.rounds] == [0, 1]
        for mark in record.rounds:
            own = [
                (begin, wall)
                for begin, wall, number in zip(
                    *(as_is.columns[c] for c in ("start_ns", "wall_ns", "round")), strict=True
                )
                if number == mark.round
            ]
            assert mark.start_ns <= own[0][0]
            assert sum(wall for _, wall in own) <= mark.end_ns - mark.start_ns
        assert TrialRecord.model_validate_json(record.model_dump_json()) == record
    both = sorted((mark.start_ns, mark.end_ns) for trial in (quick, slow) for mark in trial.end().rounds)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(both))


def test_the_time_for_which_it_stood_still_is_in_no_row(live):
    one = live(ms=1.0)
    for number in range(3):
        one.turn(Turn(round=number, batches=4), 30.0)
        time.sleep(0.5)
    columns = one.end().segment("as_is").columns
    assert max(columns["wall_ns"]) < 400_000_000


def test_what_runs_before_the_first_round_is_apart(live):
    one = live(ms=1.0)
    one.turn(Turn(round=-1, batches=3), 30.0)
    one.turn(Turn(round=0, batches=2), 30.0)
    record = one.end()
    assert record.segment("settling").columns["batch"] == (0, 1, 2, 3)
    assert record.segment("as_is").columns["batch"] == (5, 6)
    assert [mark.round for mark in record.rounds] == [0]


def test_it_is_read_at_both_ends_of_a_turn_and_the_machine_is_looked_at_while_all_stand_still(live):
    seen = []

    def canary():
        seen.append(state(pid_of(one)))
        return 1_000_000 * len(seen)

    one = live(ms=30.0, monitor=lambda pid: Monitor(pid, gpus=(None, "none in this test")), canary=canary)
    one.turn(Turn(round=0, batches=4, discarded=0), 30.0)
    record = one.end()
    assert seen == ["T", "T"]
    (mark,) = record.rounds
    assert (mark.canary_before_ns, mark.canary_after_ns) == (1_000_000, 2_000_000)
    times = record.readings.host.t_ns
    assert times[0] <= mark.start_ns
    assert times[-1] >= mark.end_ns - 50_000_000


def test_a_step_is_warmed_up_before_the_first_turn(live):
    one = live("steps", ms=1.0, shapes=3)
    one.turn(Turn(round=0, batches=6), 30.0)
    record = one.end()
    assert record.segment("warm_up").steps == 3
    assert sum(record.segment("as_is").columns["traces"]) == 0


def test_its_record_so_far_does_not_end_it(live):
    one = live(ms=1.0)
    one.turn(Turn(round=0, batches=4), 30.0)
    assert one.so_far().segment("as_is").steps == 4
    one.turn(Turn(round=1, batches=4), 30.0)
    assert len(one.so_far().rounds) == 2
    assert one.end().segment("as_is").steps == 8


@pytest.mark.parametrize(
    ("act", "status", "cause"),
    [("raise", "raised", "the tenth batch is broken"), ("kill", "killed", "SIGKILL"), ("hang", "stalled", "as_is")],
)
def test_one_that_ends_in_its_turn_keeps_its_rounds_and_the_other_goes_on(live, gone, act, status, cause):
    broken, good = live(ms=1.0, act=act), live(ms=1.0)
    for one in (broken, good):
        assert one.turn(Turn(round=0, batches=4), 30.0) is not None
    assert broken.turn(Turn(round=1, batches=9), 3.0) is None
    record = broken.end()
    assert record.status == status
    assert cause in record.cause
    assert [mark.round for mark in record.rounds] == [0]
    assert record.segment("as_is").columns["round"][:4] == (0,) * 4
    assert gone(pid_of(broken)) == []
    assert good.turn(Turn(round=1, batches=9), 30.0) is not None
    assert good.end().status == "ok"


def test_one_that_dies_between_turns_is_noticed_at_its_next(live):
    one = live(ms=1.0)
    one.turn(Turn(round=0, batches=2), 30.0)
    os.kill(pid_of(one), signal.SIGKILL)
    assert one.turn(Turn(round=1, batches=2), 30.0) is None
    record = one.end()
    assert (record.status, [mark.round for mark in record.rounds]) == ("killed", [0])
    assert "SIGKILL" in record.cause


def test_one_that_cannot_be_opened_says_why(helper):
    one = LiveTrial(spec_of("waits", nonsense=1), helper)
    assert not one.open(LIMITS)
    record = one.end()
    assert record.status == "raised"
    assert "nonsense" in record.cause


def test_one_that_is_awake_between_turns_is_told(live):
    one = live("spins")
    one.turn(Turn(round=0, batches=2), 30.0)
    os.kill(pid_of(one), signal.SIGCONT)  # as nobody should
    time.sleep(0.5)
    one.turn(Turn(round=1, batches=2), 30.0)
    (note,) = one.end().notes
    assert note.startswith("while others had their turn, it used 0.")


@pytest.mark.measured
def test_a_turn_of_a_fast_one_goes_on_until_what_was_ready_is_gone(live):
    quick = live(ms=1.0)
    seconds = quick.turn(Turn(round=0, batches=3, least_s=0.3), 30.0)
    record = quick.end()
    assert 0.3 <= seconds < 5.0
    assert record.segment("as_is").steps > 20
    assert record.segment("turn_start").steps > 5
