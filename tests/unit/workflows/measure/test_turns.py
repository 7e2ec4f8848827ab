"""Arms in turns: how many batches, in which order, when it ends and what is kept, with processes that only pretend."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from xttsbench.analysis.disturbance import ABOVE_QUIET
from xttsbench.errors import HelperError
from xttsbench.records.plan import Accelerator
from xttsbench.records.readings import HostReadings
from xttsbench.records.rows import StepRow
from xttsbench.records.trial import Readings, RoundMark, Segment, TrialRecord
from xttsbench.workflows.measure.arms import compare_arms

GIB = 2**30


class Pretends:
    """A process whose batches take what the session says, on the session's clock; the first one takes longer."""

    def __init__(self, session, spec) -> None:
        self.spec, self.collected = spec, self
        self.over = False
        self.own_bytes = session.own_bytes
        self.turns: list[Any] = []
        self.limits: list[float] = []
        self.status, self.cause = "ok", None
        self._session = session
        self._rows: dict[str, list[StepRow]] = {}
        self._marks: list[RoundMark] = []

    def open(self, limits) -> None:
        self._session.spent_s += self._session.open_s
        if self.spec.arm in self._session.broken:
            self._ends("raised", "no such file")

    def turn(self, turn, limit_s) -> float | None:
        if self.over:
            return None
        act = self._session.acts.pop((self.spec.arm, turn.round), None)
        if act == "interrupt":
            raise KeyboardInterrupt
        if act is not None:
            self._ends(act, f"it {act}")
            return None
        self.turns.append(turn)
        self.limits.append(limit_s)
        self._session.order.append((turn.round, self.spec.arm))
        pace_s = self._session.pace_s.get(self.spec.arm, 0.05)
        size = self._session.sizes.get(self.spec.arm, 4)
        began_ns = int(self._session.spent_s * 1e9)
        self._session.spent_s += pace_s * (turn.batches + turn.discarded)
        row = StepRow(start_ns=0, wall_ns=int(pace_s * 1e9), batch_size=size, round=max(turn.round, 0))
        self._rows.setdefault("settling" if turn.round < 0 else "as_is", []).extend([row] * turn.batches)
        if turn.round >= 0:
            end_ns = int(self._session.spent_s * 1e9)
            took_ns = 2_000_000 if turn.round in self._session.disturbed else 1_000_000
            mark = RoundMark(round=turn.round, start_ns=began_ns, end_ns=end_ns, canary_before_ns=took_ns)
            self._marks.append(mark)
        self._session.read(began_ns, self._session.stolen.get(turn.round, 0.0))
        return pace_s * turn.batches

    def so_far(self) -> TrialRecord:
        segments = [
            Segment(name=name, columns=dict(zip(StepRow._fields, zip(*rows, strict=True), strict=True)))
            for name, rows in self._rows.items()
        ]
        return TrialRecord(
            spec=self.spec,
            status=self.status,
            cause=self.cause,
            started_utc="t",
            duration_s=1.0,
            segments=tuple(segments),
            rounds=tuple(self._marks),
            readings=Readings(host=self._session.machine()),
        )

    def interrupted(self) -> None:
        self._ends("interrupted", "interrupted")

    def end(self) -> None:
        self._session.dropped.append(self.spec.arm)

    def _ends(self, status, cause) -> None:
        self.over, self.status, self.cause = True, status, cause


class World:
    """A session of such processes."""

    def __init__(self, **fields: Any) -> None:
        self.trials: list[TrialRecord] = []
        self.earlier: dict[str, TrialRecord] = {}
        self.spent_s = 0.0
        self.block = None
        self.available_bytes = 16 * GIB
        self.processors = 2
        self.own_bytes = GIB // 2
        self.open_s = 1.0
        self.pace_s: dict[str, float] = {}
        self.sizes: dict[str, int] = {}
        self.broken: set[str] = set()
        self.acts: dict[Any, str] = {}
        self.disturbed: set[int] = set()
        self.stolen: dict[int, float] = {}
        """Share of both processors that is stolen in the turns of a round, on top of what the target leaves idle."""
        self.waits: list[tuple[float, float]] = []
        self.waited_s = 0.0
        self._samples: list[tuple[int, float]] = [(0, 0.0)]
        self.order: list[Any] = []
        self.lives: list[Pretends] = []
        self.dropped: list[str] = []
        self.alone: list[tuple[str, str | None]] = []
        self.said: list[str] = []
        self.kept_rounds: list[list[tuple[str, int]]] = []
        self.start_raises: BaseException | None = None
        for name, value in fields.items():
            setattr(self, name, value)

    def had(self, spec) -> bool:
        return spec.trial_id in self.earlier

    def keep_rounds(self, living) -> None:
        self.kept_rounds.append([(record.spec.arm, len(record.rounds)) for record in living])

    @property
    def side_by_side(self) -> World:
        return self

    def read(self, began_ns, share) -> None:
        """The machine's counters at the begin and the end of a turn."""
        steal_s, end_ns = self._samples[-1][1], int(self.spent_s * 1e9)
        self._samples += [(began_ns, steal_s), (end_ns, steal_s + 2 * share * (end_ns - began_ns) / 1e9)]

    def machine(self) -> HostReadings:
        if not self.stolen:
            return HostReadings()
        t_ns = tuple(t for t, _ in self._samples)
        nothing = tuple(0.0 for _ in t_ns)
        return HostReadings(
            allowed_cpus=2.0,
            t_ns=t_ns,
            cpu_s=nothing,
            parent_cpu_s=nothing,
            machine_busy_s=nothing,
            machine_steal_s=tuple(steal_s for _, steal_s in self._samples),
            machine_idle_s=tuple(2 * t / 1e9 - steal_s for t, steal_s in self._samples),
        )

    def wait_for_quiet(self, share, most_s) -> float:
        self.waits.append((share, most_s))
        waited_s = min(self.waited_s, max(most_s, 0.0))
        self.spent_s += waited_s
        return waited_s

    def start(self, spec, label):
        self.said.append(label)
        if self.start_raises is not None:
            raise self.start_raises
        self.lives.append(Pretends(self, spec))
        return self.lives[-1]

    def close(self, live, label):
        self.trials.append(live.so_far())
        return self.trials[-1]

    def source_changed(self, spec):
        return False

    def at_pace(self, limits, live):
        return limits

    def never_begun(self, spec):
        self.trials.append(TrialRecord(spec=spec, status="interrupted", started_utc="t", duration_s=0.0))
        return self.trials[-1]

    def announce(self, label) -> None:
        self.said.append(label)

    def run(self, spec, limits, label=None, *, note=None):
        if spec.trial_id in self.earlier:
            self.trials.append(self.earlier.pop(spec.trial_id))
            return self.trials[-1]
        self.alone.append((spec.arm, note))
        self.spent_s += 2.0
        self.trials.append(TrialRecord(spec=spec, status="ok", started_utc="t", duration_s=2.0))
        return self.trials[-1]


def measured(
    build, *arms, world=None, budget_s=1e6, planned=3, seed=0, enough=lambda _: (), after_round=None, **options
):
    comparison, world = build.comparison(*arms, blocks=planned, **options), world or World()
    asked = {"budget_s": budget_s, "seed": seed, "enough": enough, "after_round": after_round}
    return world, compare_arms(comparison, world, parity=False, **asked)


def counted(world, arm):
    return [turn.batches for live in world.lives if live.spec.arm == arm for turn in live.turns if turn.round >= 0]


def test_each_round_is_kept_before_the_next_one_begins(build) -> None:
    world, _ = measured(build, "a", "b", planned=4)
    assert [{count for _, count in kept} for kept in world.kept_rounds] == [{1}, {2}, {3}, {4}]
    assert all(len(kept) == 3 for kept in world.kept_rounds)


def test_each_arm_has_one_turn_a_round_in_an_order_of_its_own(build) -> None:
    world, trials = measured(build, "a", "b", "c", planned=4)
    for number in range(4):
        assert Counter(arm for when, arm in world.order if when == number) == dict.fromkeys(
            ["a", "b", "c", "a:again"], 1
        )
    orders = [[arm for when, arm in world.order if when == number] for number in range(4)]
    assert len({tuple(order) for order in orders}) > 1
    assert [trial.spec.arm for trial in trials] == ["a", "b", "c", "a:again"]
    assert all(trial.spec.turns and trial.spec.block == 0 and len(trial.rounds) == 4 for trial in trials)
    assert len({trial.spec.trial_id for trial in trials}) == 4
    assert world.order == measured(build, "a", "b", "c", planned=4)[0].order
    assert world.order != measured(build, "a", "b", "c", planned=4, seed=1)[0].order


def test_two_arms_alternate_so_that_a_drift_within_a_round_hits_both(build) -> None:
    world, _ = measured(build, "a", "b", planned=4, again=False)
    orders = [[arm for when, arm in world.order if when == number] for number in range(4)]
    assert orders[0] == orders[1][::-1]
    assert orders[2] == orders[3][::-1]


@pytest.mark.parametrize(("slowest_s", "batches"), [(0.001, 400), (0.1, 10), (0.2, 8), (0.3, 7), (5.0, 2)])
def test_all_draw_as_many_batches_and_the_slowest_takes_a_second(build, slowest_s, batches) -> None:
    world, _ = measured(
        build, "a", "b", world=World(pace_s={"a": slowest_s / 8, "b": slowest_s, "a:again": slowest_s / 8})
    )
    assert {tuple(counted(world, arm)) for arm in ("a", "b", "a:again")} == {(batches,) * 3}
    drawn = {sum(turn.batches + turn.discarded for turn in live.turns) for live in world.lives}
    assert len(drawn) == 1  # and so the same ones


def test_an_arm_with_larger_batches_draws_as_many_samples(build) -> None:
    pace = {"a": 0.05, "b": 0.2, "a:again": 0.05}
    world, _ = measured(build, "a", "b", world=World(pace_s=pace, sizes={"b": 16}))
    assert set(counted(world, "a")) == {20}
    assert set(counted(world, "b")) == {5}


def test_before_the_first_round_the_slowest_settles_for_a_while(build) -> None:
    world, _ = measured(build, "a", "b", world=World(pace_s={"b": 0.01}))
    before = [turn.batches for turn in world.lives[0].turns if turn.round < 0]
    assert before[0] == 2
    assert before[-1] * 0.05 >= 0.3
    assert [turn.round for turn in world.lives[0].turns] == [-1] * len(before) + [0, 1, 2]


def test_a_turn_that_takes_many_times_its_pace_is_taken_to_hang(build) -> None:
    world, _ = measured(build, "a", "b", world=World(pace_s={"b": 2.0}))
    quick, slow = world.lives[0].limits, world.lives[1].limits
    assert slow[0] == 100.0  # the first batch may take what the trial may
    assert quick[-1] == 15.0
    assert slow[-1] == pytest.approx(30 * 2 * 2.0)


def test_an_arm_that_ends_in_its_turn_is_kept_and_the_others_go_on(build) -> None:
    _, trials = measured(build, "a", "b", "c", world=World(acts={("b", 1): "killed"}))
    found = {trial.spec.arm: (trial.status, len(trial.rounds)) for trial in trials}
    assert found == {"a": ("ok", 3), "b": ("killed", 1), "c": ("ok", 3), "a:again": ("ok", 3)}


@pytest.mark.parametrize("arm", ["a", "a:again"])
def test_a_baseline_that_ends_ends_the_rounds(build, arm) -> None:
    _, trials = measured(build, "a", "b", "c", world=World(acts={(arm, 1): "killed"}))
    assert {trial.spec.arm for trial in trials if len(trial.rounds) > 2} == set()
    assert [trial.status for trial in trials if trial.spec.arm == arm] == ["killed"]


def test_when_no_candidate_is_left_the_rounds_end(build) -> None:
    _, trials = measured(build, "a", "b", world=World(acts={("b", 0): "killed"}))
    assert max(len(trial.rounds) for trial in trials) <= 1


def test_a_candidate_that_cannot_be_opened_is_kept_with_its_reason(build) -> None:
    _, trials = measured(build, "a", "b", "c", world=World(broken={"b"}))
    assert {trial.spec.arm: trial.status for trial in trials} == {"a": "ok", "b": "raised", "c": "ok", "a:again": "ok"}


def test_a_baseline_that_cannot_be_opened_costs_no_other_process(build) -> None:
    world, trials = measured(build, "a", "b", world=World(broken={"a"}))
    assert [(trial.spec.arm, trial.status) for trial in trials] == [("a", "raised")]
    assert world.dropped == ["b"]  # was started beside it
    assert world.alone == []


def test_a_target_that_cannot_be_opened_twice_is_measured_in_blocks(build) -> None:
    world, trials = measured(build, "a", "b", world=World(broken={"b", "a:again"}), planned=2)
    assert world.dropped == ["a", "b", "a:again"]
    assert len(trials) == len(world.alone) == 6
    (note,) = {note for _, note in world.alone}
    assert note.endswith("beside a no other process could be opened (no such file)")


def test_what_does_not_fit_into_memory_is_measured_in_blocks(build) -> None:
    world, _ = measured(build, "a", "b", "c", world=World(own_bytes=6 * GIB))
    assert world.dropped == ["a", "b"]
    assert {arm for arm, _ in world.alone} == {"a", "b", "c", "a:again"}
    assert "2 more processes of 7.8 GiB do not fit into the 16.0 GiB" in world.alone[0][1]


def test_a_helper_that_dies_while_processes_are_opened_leaves_blocks(build) -> None:
    world, _ = measured(build, "a", "b", world=World(start_raises=HelperError("it is gone")))
    assert world.alone[0][1].endswith("it is gone")


def test_as_many_are_opened_at_once_as_there_are_processors(build) -> None:
    began = []
    world = World()
    start, opened = world.start, []

    def starts(spec, label):
        live = start(spec, label)
        waits = live.open
        began.append(spec.arm)

        def opens(limits):
            opened.append((spec.arm, len(began)))
            waits(limits)

        live.open = opens
        return live

    world.start = starts
    measured(build, *"abcd", world=world)
    assert opened == [("a", 2), ("b", 3), ("c", 4), ("d", 5), ("a:again", 5)]


def test_no_round_begins_that_is_not_expected_to_end_in_time(build) -> None:
    # Three processes open in 3 s, settle in some, and a round takes 3 s and a little.
    world, trials = measured(build, "a", "b", planned=50, budget_s=20.0)
    assert 2 <= len(trials[0].rounds) < 6
    assert world.spent_s <= 20.0


def test_accelerators_are_groups_of_their_own_that_share_the_time(build) -> None:
    devices = (Accelerator(), build.emulated())
    _, trials = measured(build, "a", "b", planned=50, budget_s=40.0, accelerators=devices)
    rounds = {trial.spec.emulated_ms: len(trial.rounds) for trial in trials}
    assert len(trials) == 6
    assert min(rounds.values()) >= 3
    assert [trial.spec.emulated_ms for trial in trials] == [(10.0,)] * 3 + [()] * 3


def test_arms_that_are_decided_have_no_more_turns(build) -> None:
    told = []

    def enough(trials):
        rounds = {trial.spec.arm: len(trial.rounds) for trial in trials}
        told.append(rounds)
        return {"b"} if rounds["c"] < 3 else {"b", "c"}

    world, _ = measured(build, "a", "b", "c", planned=9, enough=enough)
    assert [len(counted(world, arm)) for arm in ("a", "b", "c", "a:again")] == [3, 1, 3, 3]
    assert told[0] == {"a": 1, "b": 1, "c": 1, "a:again": 1}


def test_what_is_clearly_faster_ends_after_two_rounds_and_each_accelerator_by_itself(build) -> None:
    pace = {"a": 0.08, "b": 0.01, "a:again": 0.08}
    devices = (Accelerator(), build.emulated())
    world, trials = measured(build, "a", "b", world=World(pace_s=pace), planned=9, enough=None, accelerators=devices)
    assert {len(trial.rounds) for trial in trials} == {2}
    assert len(trials) == 6
    world.pace_s = dict.fromkeys(pace, 0.05)
    assert {len(trial.rounds) for trial in measured(build, "a", "b", planned=5, enough=None)[1]} == {5}


@pytest.mark.parametrize(("disturbed", "rounds"), [({1}, 5), ({1, 4}, 6), ({3}, 5), ({1, 2, 3, 4, 5}, 4)])
def test_a_round_that_others_disturbed_is_measured_again(build, disturbed, rounds) -> None:
    _, trials = measured(build, "a", "b", planned=4, world=World(disturbed=disturbed))
    assert {len(trial.rounds) for trial in trials} == {rounds}


def test_after_a_disturbed_round_it_waits_for_quiet_and_thirty_seconds_in_all(build) -> None:
    world = World(stolen={1: 0.4, 3: 0.5}, waited_s=20.0)
    _, trials = measured(build, "a", "b", planned=5, world=world)
    assert {len(trial.rounds) for trial in trials} == {7}
    assert [share for share, _ in world.waits] == pytest.approx([ABOVE_QUIET] * 2, abs=1e-6)
    assert [most_s for _, most_s in world.waits] == pytest.approx([30.0, 10.0])


def test_it_waits_no_longer_than_there_is_time_for_another_round(build) -> None:
    world = World(stolen={1: 0.4}, waited_s=20.0)
    measured(build, "a", "b", planned=5, world=world, budget_s=20.0)
    assert len(world.waits) == 1
    assert 0 < world.waits[0][1] < 15.0


def test_steady_disturbance_is_not_waited_for(build) -> None:
    world = World(stolen=dict.fromkeys(range(9), 0.35))
    measured(build, "a", "b", planned=5, world=world)
    assert world.waits == []


def test_how_it_stands_is_told_after_each_round(build) -> None:
    told = []

    def standing(done, rounds, trials):
        told.append((done, rounds, {len(trial.rounds) for trial in trials}))

    world, _ = measured(build, "a", "b", after_round=standing)
    assert told == [(1, 3, {1}), (2, 3, {2}), (3, 3, {3})]
    assert "round 2 of 3 at most: 3 configurations in turn, real device" in world.said


def test_ctrl_c_in_a_turn_keeps_what_the_others_have_measured(build) -> None:
    world, trials = measured(build, "a", "b", "c", world=World(acts={("b", 1): "interrupt"}))
    assert trials[-1].spec.arm == "b"
    assert [trial.status for trial in trials] == ["ok", "ok", "ok", "interrupted"]
    assert trials[-1].segment("as_is").steps > 0
    assert world.alone == []


def test_ctrl_c_before_the_first_round_keeps_that_it_came(build) -> None:
    world, trials = measured(build, "a", "b", world=World(acts={("b", -1): "interrupt"}))
    assert [trial.status for trial in trials] == ["interrupted"]
    assert world.dropped == ["a", "a:again"]


def test_ctrl_c_while_the_first_process_is_started(build) -> None:
    _, trials = measured(build, "a", "b", world=World(start_raises=KeyboardInterrupt()))
    assert [(trial.spec.arm, trial.status) for trial in trials] == [("a", "interrupted")]


def test_a_run_that_goes_on_measures_nothing_twice(build) -> None:
    _, before = measured(build, "a", "b")
    world, trials = measured(build, "a", "b", world=World(earlier={trial.spec.trial_id: trial for trial in before}))
    assert trials == before
    assert world.lives == []


def test_a_run_that_goes_on_measures_all_arms_again_where_one_is_missing(build) -> None:
    _, before = measured(build, "a", "b")
    world, trials = measured(build, "a", "b", world=World(earlier={trial.spec.trial_id: trial for trial in before[:2]}))
    assert len(world.lives) == 3
    assert world.earlier == {}
    assert len(trials) == 3


def test_processes_that_may_have_loaded_two_versions_of_a_file_are_dropped(build) -> None:
    world = World()

    def changed(spec) -> bool:
        world.never_begun(spec)
        return True

    world.source_changed = changed
    _, trials = measured(build, "a", "b", world=world)
    assert [(trial.spec.arm, trial.status) for trial in trials] == [("a", "interrupted")]
    assert world.dropped == ["a", "b", "a:again"]
    assert world.alone == []
