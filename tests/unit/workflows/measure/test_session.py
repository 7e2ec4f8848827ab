"""The session: a helper for each block, the journal before the next trial, and whatever the helper does."""

from __future__ import annotations

from pathlib import Path
from time import sleep
from typing import Any, ClassVar

import pytest

from xttsbench.errors import HelperError
from xttsbench.execution.journal import BROKEN_OFF, append_trial, read_trials
from xttsbench.execution.limits import Limits
from xttsbench.records.redaction import Redaction
from xttsbench.records.trial import TrialRecord, TrialSpec
from xttsbench.workflows.measure.session import Session

LIMITS = Limits(10.0, 5.0)


class FakeHelper:
    """Counts how often it was started and ended."""

    made: ClassVar[list[FakeHelper]] = []
    refuses: ClassVar[int] = 0

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.dead = self.ended = False
        FakeHelper.made.append(self)

    def __enter__(self) -> FakeHelper:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True

    def wait_ready(self) -> None:
        if FakeHelper.refuses > 0:
            FakeHelper.refuses -= 1
            raise HelperError("did not start")

    def exit_code(self) -> int | None:
        return 1 if self.dead else None


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """``world.script`` is what the next trials do; ``world.ran`` the helper of each."""

    class World:
        def __init__(self) -> None:
            self.directory = tmp_path
            self.script: list[Any] = []
            self.ran: list[FakeHelper] = []
            self.limits: list[Limits] = []

        def run_trial(self, spec: TrialSpec, helper: FakeHelper, limits: Limits, **_: Any) -> TrialRecord:
            self.ran.append(helper)
            self.limits.append(limits)
            act = self.script.pop(0) if self.script else "ok"
            if isinstance(act, BaseException):
                raise act
            return TrialRecord(spec=spec, status=act, started_utc="2026-01-01T00:00:00", duration_s=1.0)

    FakeHelper.made, FakeHelper.refuses = [], 0
    world = World()
    monkeypatch.setattr("xttsbench.workflows.measure.session.Helper", FakeHelper)
    monkeypatch.setattr("xttsbench.workflows.measure.session.run_trial", world.run_trial)
    monkeypatch.setattr("xttsbench.workflows.measure.session.open_gpus", lambda: (None, "none here"))
    return world


def spec(block: int = 0) -> TrialSpec:
    return TrialSpec(trial_id="000", block=block, kind="arm", target="m:f")


def test_every_block_has_a_helper_of_its_own(world) -> None:
    with Session(world.directory, budget_s=10) as session:
        for block in (0, 0, 1, 1, 2):
            session.run(spec(block), LIMITS)
            assert session.block == block
    assert [FakeHelper.made.index(helper) for helper in world.ran] == [0, 0, 1, 1, 2]
    assert all(helper.ended for helper in FakeHelper.made)


def test_each_trial_is_in_the_journal_before_the_next(world) -> None:
    with Session(world.directory, budget_s=10) as session:
        for number in range(3):
            session.run(spec(), LIMITS)
            assert len(read_trials(world.directory)) == number + 1 == len(session.trials)


def test_limits_follow_what_starting_took_here(world) -> None:
    with Session(world.directory, budget_s=10) as session:
        session.run(spec(), LIMITS)
        session.import_s = 18.0
        session.run(spec(), LIMITS)
        session.run(spec(), Limits(10.0, 5.0, most_s=40.0))
    assert [limits.stall_s for limits in world.limits[1:]] == [72.0, 72.0]
    assert [limits.time_s for limits in world.limits[1:]] == [72.0, 40.0]


def test_a_helper_that_died_is_replaced_and_the_trial_is_run(world) -> None:
    with Session(world.directory, budget_s=10) as session:
        session.run(spec(), LIMITS)
        FakeHelper.made[0].dead = True
        assert session.run(spec(), LIMITS).status == "ok"
        world.script = [HelperError("gone"), "ok"]
        assert session.run(spec(), LIMITS).status == "ok"
    assert len(FakeHelper.made) == 3


def test_a_trial_that_no_helper_will_begin_is_a_result(world) -> None:
    with Session(world.directory, budget_s=10) as session:
        session.run(spec(), LIMITS)
        world.script = [HelperError("gone"), HelperError("gone again")]
        record = session.run(spec(), LIMITS)
        assert (record.status, record.cause) == ("killed", "gone again")
        assert session.run(spec(), LIMITS).status == "ok"
    assert [trial.status for trial in read_trials(world.directory)] == ["ok", "killed", "ok"]


def test_a_helper_that_never_starts_ends_the_run(world) -> None:
    FakeHelper.refuses = 1
    with pytest.raises(HelperError, match="did not start"), Session(world.directory, budget_s=10) as session:
        session.run(spec(), LIMITS)
    assert FakeHelper.made[0].ended


def test_ctrl_c_between_two_trials_is_a_trial_that_never_began(world) -> None:
    world.script = ["ok", KeyboardInterrupt()]
    with Session(world.directory, budget_s=10) as session:
        session.run(spec(), LIMITS)
        record = session.run(spec(), LIMITS)
    assert (record.status, record.cause) == ("interrupted", "interrupted before the trial began")
    assert read_trials(world.directory)[-1] == record


def test_it_goes_on_with_a_helper_of_the_caller_s_and_leaves_it(world) -> None:
    own = FakeHelper()
    before = [TrialRecord(spec=spec(), status="ok", started_utc="t", duration_s=1.0)]
    with Session(world.directory, helper=own, block=1, budget_s=10) as session:  # type: ignore[arg-type]
        session.trials.extend(before)
        assert session.block == 1
        session.run(spec(1), LIMITS)
        session.run(spec(2), LIMITS)
        assert len(session.trials) == 3
    assert world.ran[0] is own
    assert world.ran[1] is not own
    assert not own.ended
    assert world.ran[1].ended


def test_a_trial_that_ended_before_is_not_run_again(world) -> None:
    before = TrialRecord(spec=spec(), status="killed", cause="out of memory", started_utc="t", duration_s=1.0)
    with Session(world.directory, earlier=[before], budget_s=10) as session:
        assert session.run(spec(), LIMITS) == before
        assert session.trials == [before]
        assert session.run(spec(), LIMITS).status == "ok"  # once only
    assert len(world.ran) == 1


def test_a_trial_that_was_interrupted_is_run_again_and_replaces_it(world) -> None:
    world.script = [KeyboardInterrupt(), "ok"]
    with Session(world.directory, budget_s=10) as session:
        session.run(spec(), LIMITS)
    with Session(world.directory, earlier=read_trials(world.directory), budget_s=10) as session:
        assert session.run(spec(), LIMITS).status == "ok"
    assert [trial.status for trial in read_trials(world.directory)] == ["ok"]


class Masks(Redaction):
    """Keeps one word out of arguments, and knows what it has kept out before."""

    def kept(self, value: Any, name: str = "") -> Any:
        if isinstance(value, TrialRecord):
            return value.model_copy(update={"spec": self.kept(value.spec)})
        return value.model_copy(update={"kwargs": {"key": "***"}}) if "key" in value.kwargs else value


def test_a_run_that_goes_on_finds_its_trials_again_and_keeps_secrets_out_of_its_journal(world) -> None:
    asked = [spec().model_copy(update={"trial_id": str(n), "kwargs": {"key": "s3cret"}}) for n in range(3)]
    for before in ([], asked[:1]):
        earlier = read_trials(world.directory) if before else ()
        with Session(world.directory, earlier=earlier, budget_s=10, redaction=Masks()) as session:
            for one in asked if before else asked[:2]:
                session.run(one, LIMITS)
        if not before:  # another one than is asked for, so that the journal is written anew
            append_trial(world.directory, read_trials(world.directory)[0].model_copy(update={"spec": spec(9)}))
    assert len(world.ran) == 3
    assert [trial.spec.trial_id for trial in read_trials(world.directory)] == ["0", "1", "2"]
    assert not [path for path in world.directory.iterdir() if "s3cret" in path.read_text()]


def test_another_trial_under_the_same_id_gives_way_to_the_one_that_is_asked_for(world) -> None:
    before = TrialRecord(spec=spec(block=3), status="ok", started_utc="t", duration_s=1.0)
    append_trial(world.directory, before)
    with Session(world.directory, earlier=[before], budget_s=10) as session:
        asked_for = session.run(spec(), LIMITS)
    assert len(world.ran) == 1
    assert read_trials(world.directory) == [asked_for]
    assert before.model_dump_json() in (world.directory / BROKEN_OFF).read_text()


class FakeLive:
    """A process that takes turns and has had some."""

    def __init__(self, spec: TrialSpec, helper: FakeHelper, **_: Any) -> None:
        self.spec, self.helper, self.ended = spec, helper, False

    def end(self) -> TrialRecord:
        self.ended = True
        return TrialRecord(spec=self.spec, status="ok", started_utc="t", duration_s=1.0)


def test_processes_that_take_turns_share_a_helper_and_are_written_down_as_they_end(world, monkeypatch) -> None:
    monkeypatch.setattr("xttsbench.workflows.measure.session.LiveTrial", FakeLive)
    with Session(world.directory, budget_s=10) as session:
        assert session.side_by_side is session
        lives = [session.start(spec().model_copy(update={"trial_id": f"00{n}"}), "warming up") for n in range(3)]
        assert {live.helper for live in lives} == {FakeHelper.made[0]}
        assert session.trials == []
        session.close(lives[1], "b")
        lives[0].end()
        assert [trial.spec.trial_id for trial in read_trials(world.directory)] == ["001"]
        assert lives[0].ended
        session.never_begun(lives[2].spec)
    assert [trial.status for trial in read_trials(world.directory)] == ["ok", "interrupted"]


def test_with_a_gpu_no_two_processes_live_side_by_side(world, monkeypatch) -> None:
    class Gpus:
        def close(self) -> None:
            pass

    monkeypatch.setattr("xttsbench.workflows.measure.session.open_gpus", lambda: (Gpus(), None))
    with Session(world.directory, budget_s=10) as session:
        assert session.side_by_side == "each process takes the GPU's memory for itself"


def test_it_waits_until_others_use_less_and_then_no_longer(world, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, said = [0.6, 0.5, 0.1, 0.0], []
    monkeypatch.setattr("xttsbench.workflows.measure.session.processors_in_use", lambda seconds: taken.pop(0))
    with Session(world.directory, budget_s=100.0) as session:
        monkeypatch.setattr(session, "announce", said.append)
        assert 0 <= session.wait_for_quiet(0.2, 5.0) < 5.0
    assert taken == [0.0]
    assert said == ["others use 60% of the processor: waiting up to 5 s for quiet"]


def test_a_neighbour_that_stays_is_waited_for_so_long_and_no_longer(world, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(
        "xttsbench.workflows.measure.session.processors_in_use",
        lambda seconds: looks.append(seconds) or sleep(seconds) or 1.0,
    )
    with Session(world.directory, budget_s=100.0) as session:
        assert session.wait_for_quiet(0.2, 0.0) == pytest.approx(0.0, abs=0.01)
        assert session.wait_for_quiet(0.2, 0.7) >= 0.7
    assert sum(looks) >= 0.6
    assert max(looks) <= 0.5


class FakeChild:
    """A trial on its way; ``ends`` is what each comes to, by id."""

    alive: ClassVar[list[str]] = []
    most: ClassVar[int] = 0
    ends: ClassVar[dict[str, Any]] = {}

    def __init__(self, spec: TrialSpec, *_: Any, **__: Any) -> None:
        self.spec, self.status, self.collected = spec, "ok", self
        FakeChild.alive.append(spec.trial_id)
        FakeChild.most = max(FakeChild.most, len(FakeChild.alive))

    def follow(self, limits: Limits) -> None:
        found = FakeChild.ends.get(self.spec.trial_id, "ok")
        if isinstance(found, BaseException):
            raise found
        self.status = found

    def interrupted(self) -> None:
        self.status = "interrupted"

    def end(self) -> TrialRecord:
        FakeChild.alive.remove(self.spec.trial_id)
        return TrialRecord(spec=self.spec, status=self.status, started_utc="2026-01-01T00:00:00", duration_s=1.0)


@pytest.mark.parametrize("most", [2, 3, 9])
@pytest.mark.parametrize("end", ["ok", "stalled", KeyboardInterrupt()])
def test_trials_side_by_side_are_kept_in_their_order_and_none_is_left_behind(world, monkeypatch, most, end) -> None:
    monkeypatch.setattr("xttsbench.workflows.measure.session.Child", FakeChild)
    FakeChild.alive, FakeChild.most, FakeChild.ends = [], 0, {"2": end}
    specs = [spec().model_copy(update={"trial_id": str(number)}) for number in range(5)]
    with Session(world.directory, budget_s=10) as session:
        found = session.run_all(specs, LIMITS, most=most)
    assert (FakeChild.most, FakeChild.alive) == (min(most, 5), [])
    kept = 3 if isinstance(end, BaseException) else 5
    assert [trial.spec.trial_id for trial in found] == [str(number) for number in range(kept)]
    assert found[2].status == ("interrupted" if kept == 3 else end)
    assert read_trials(world.directory) == found == session.trials


def test_with_one_at_a_time_each_is_run_by_itself(world) -> None:
    with Session(world.directory, budget_s=10) as session:
        assert [trial.status for trial in session.run_all([spec(), spec()], LIMITS)] == ["ok", "ok"]
    assert len(world.ran) == 2


def test_trials_that_are_not_asked_for_yet_stay_in_the_journal(world, build) -> None:
    asked = [spec().model_copy(update={"trial_id": str(n)}) for n in range(3)]
    with Session(world.directory, budget_s=10) as session:
        for one in asked:
            session.run(one, LIMITS)
    with Session(world.directory, earlier=read_trials(world.directory), budget_s=10) as session:
        session.run(asked[0], LIMITS)
        session.replace_all(session.trials)
        assert len(read_trials(world.directory)) == 3
        assert not (world.directory / BROKEN_OFF).exists()
    assert len(read_trials(world.directory)) == 1


def test_of_a_trial_that_another_machine_measured_again_the_last_counts(world, build) -> None:
    for node in ("n0", "n1"):
        append_trial(world.directory, build.on(build.arm_trial("a"), node))
    assert [one.machine.node for one in read_trials(world.directory)] == ["n1"]


def test_that_a_part_of_a_cluster_never_went_on_hides_no_trial_of_it(world, build) -> None:
    trial = build.on(build.arm_trial("a"), "n0")
    append_trial(world.directory, trial)
    append_trial(world.directory, TrialRecord(spec=trial.spec, status="interrupted", started_utc="t", duration_s=0.0))
    assert [one.status for one in read_trials(world.directory)] == ["ok", "interrupted"]
