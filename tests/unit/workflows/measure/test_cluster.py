"""The run's side of a cluster without any engine: devices answer from a script, and die in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xttsbench.execution.journal import BROKEN_OFF, TRIALS, append_trial, read_trials
from xttsbench.planning import Part, Slot, arm_trial
from xttsbench.records.machine import MeasuredOn
from xttsbench.records.trial import RoundMark, TrialRecord
from xttsbench.workflows.measure.cluster import MOST_LOSSES, Cluster, _Held
from xttsbench.workflows.measure.messages import PartOrder, Place, Told
from xttsbench.workflows.measure.session import Session

Act = Callable[[PartOrder], Iterable[Told]]


class GoneError(Exception):
    """A device is lost."""


class Engine:
    """As much of Ray as the run uses."""

    exceptions = SimpleNamespace(RayError=GoneError, RayTaskError=GoneError)

    def __init__(self) -> None:
        self.killed: list[Any] = []

    def remote(self, actor: type) -> type:
        return actor

    def nodes(self) -> list[Any]:
        return []

    def wait(self, messages: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return messages[:1], messages[1:]

    def get(self, message: Callable[[], str]) -> str:
        return message()

    def kill(self, actor: Any) -> None:
        self.killed.append(actor)


class Actor:
    """A device that answers each order by the next of its acts."""

    def __init__(self, *acts: Act) -> None:
        self._acts, self._says = deque(acts), iter(())
        self.orders: list[PartOrder] = []
        self.measure, self.hear = SimpleNamespace(remote=self._measure), SimpleNamespace(remote=self._hear)

    def _measure(self, order: str) -> None:
        self.orders.append(PartOrder.model_validate_json(order))
        self._says: Iterator[Told] = iter(self._acts.popleft()(self.orders[-1]))

    def _hear(self, _: Any = None) -> Callable[[], str]:
        return lambda: next(self._says).model_dump_json()


@pytest.fixture
def world(build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cluster of devices that measure as they are told."""
    monkeypatch.setattr("xttsbench.workflows.measure.cluster._NOBODY_S", 0.0)
    monkeypatch.setattr("xttsbench.workflows.measure.cluster._LISTENS_S", 0.0)
    comparison = build.comparison("a", "b", again=False, blocks=6)

    class World:
        whole = comparison

        def __init__(self) -> None:
            self.engine, self.said = Engine(), []
            self.cluster = Cluster(self.engine)
            self.cluster._looked_s = float("inf")  # nobody joins

        def device(self, *acts: Act) -> Actor:
            actor, name = Actor(*acts), f"n{len(self.cluster._free)}"
            on = MeasuredOn(node=name, host="h", device="CPU", fingerprint="f")
            self.cluster._free.append(_Held(Place(node=name), actor, machine=on))
            return actor

        def record(self, order: PartOrder, arm: str, number: int, node: str = "n0") -> TrialRecord:
            how, planned = order.how, next(one for one in comparison.arms if one.id == arm)
            slot = Slot(planned, comparison.accelerators[0])
            where = {"number": (how["first"] or 0) + number, "block": how["first_block"], "window_s": 1.0, "seed": 0}
            spec = arm_trial(comparison, slot, **where).model_copy(update={"turns": True})
            mark = RoundMark(round=0, start_ns=0, end_ns=1)
            changes = {"spec": spec, "rounds": (mark,)}
            return build.on(build.arm_trial(arm, 0.02, block=spec.block).model_copy(update=changes), node)

        def measures(self, *, node: str = "n0", lives: str = "", then: Any = None) -> Act:
            """An act: the trials of a and b; or those before ``then`` comes, while others still live."""

            def act(order: PartOrder) -> Iterator[Told]:
                yield Told(says="begins")
                own = {arm: self.record(order, arm, number, node) for number, arm in enumerate("ab")}
                yield Told(rounds=tuple(own.values()))
                for arm in [one for one in own if one not in lives]:
                    yield Told(trial=own[arm])
                if isinstance(then, BaseException):
                    raise then
                yield then or Told(ends=True)

            return act

        def session(self, **how: Any) -> Session:
            session = Session(tmp_path, budget_s=1e6, **how)
            session.announce = self.said.append  # type: ignore[method-assign]
            return session

        def go(self, session: Session, *parts: Part) -> list[TrialRecord]:
            return self.cluster.compare(parts, session, budget_s=1e6, seed=0)

        def ids(self) -> list[str]:
            return [f"{one.spec.block}:{one.spec.trial_id}" for one in read_trials(tmp_path)]

    return World()


def test_one_device_numbers_its_trials_after_those_before(world) -> None:
    """Two of one number are one in the journal."""
    world.device(*[world.measures()] * 2)
    with world.session() as session:
        for block in (0, 1):
            world.go(session, Part(world.whole, block, 3))
    assert sorted(world.ids()) == ["0:000-a", "0:001-b", "1:002-a", "1:003-b"]


def test_the_ended_trials_of_a_lost_block_are_left_out_whatever_their_machine_is_called(world) -> None:
    lost = world.device(world.measures(node="redacted", lives="b", then=GoneError("node died")))
    world.device(world.measures(node="n1"))
    with world.session() as session:
        trials = world.go(session, Part(world.whole, 0, 3, 1))
    assert {one.machine.node for one in trials} == {"n1"}
    assert world.engine.killed == [lost]
    assert sum(" is lost (node died)" in one for one in world.said) == 1
    assert all("h (n0), CPU was lost in it" in one.notes[-1] for one in trials)


def test_a_device_on_which_nothing_can_be_measured_costs_its_block_and_not_the_run(world) -> None:
    world.device(lambda _: [Told(failed="TensorFlow does not start")])
    world.device(world.measures(node="n1"))
    with world.session() as session:
        trials = world.go(session, Part(world.whole, 0, 3, 1))
    assert [(one.spec.arm, one.status, one.machine.node) for one in trials] == [("a", "ok", "n1"), ("b", "ok", "n1")]


def test_losses_without_end_end_the_run_with_the_devices_named(world) -> None:
    for _ in range(MOST_LOSSES + 1):
        world.device(lambda _: [Told(failed="broken")])
    with world.session() as session:
        (last,) = world.go(session, Part(world.whole, 0, 3, 1))
    assert (last.status, last.cause.count("CPU")) == ("interrupted", MOST_LOSSES)
    assert len(world.cluster._free) == 1
    assert f"the run ends: {last.cause}" in world.said


def test_a_device_that_was_gone_before_is_no_loss_of_the_block(world) -> None:
    def gone(_: PartOrder) -> Iterator[Told]:
        raise GoneError("node died")
        yield

    for _ in range(MOST_LOSSES):
        world.device(gone)
    world.device(world.measures(node="n3"))
    with world.session() as session:
        trials = world.go(session, Part(world.whole, 0, 3, 1))
    assert [one.status for one in trials] == ["ok", "ok"]
    assert not any(one.notes for one in trials)


def test_ctrl_c_keeps_the_rounds_of_all_but_one_configuration(world) -> None:
    for node in ("n0", "n1"):
        world.device(world.measures(node=node, lives="ab"))
    comes = deque("....")  # two messages of each device, and then the signal

    def wait(messages: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        if not comes:
            raise KeyboardInterrupt
        comes.popleft()
        return messages[:1], messages[1:]

    world.engine.wait = wait
    with world.session() as session:
        trials = world.go(session, Part(world.whole, 0, 3, 1), Part(world.whole, 3, 3, 10))
    found = [(one.spec.arm, one.machine.node, one.status) for one in trials]
    assert found == [(arm, node, how) for arm, how in (("a", "ok"), ("b", "interrupted")) for node in ("n0", "n1")]


def test_the_last_part_is_not_lost_where_the_run_ends_while_it_is_handed_out(world) -> None:
    world.device(world.measures())
    with world.session() as session:
        session.source_changed = lambda _: exec("raise KeyboardInterrupt")  # type: ignore[method-assign]
        (never,) = world.go(session, Part(world.whole, 0, 3, 1))
    assert (never.status, never.duration_s) == ("interrupted", 0.0)


def test_where_one_device_ends_the_run_the_others_do(world) -> None:
    def ends(order: PartOrder) -> Iterator[Told]:
        yield Told(trial=world.record(order, "a", 0).model_copy(update={"status": "interrupted"}))

    world.device(ends)
    other = world.device(world.measures(node="n1", lives="ab"))
    with world.session() as session:
        trials = world.go(session, Part(world.whole, 0, 3, 1), Part(world.whole, 3, 3, 10), Part(world.whole, 6, 3, 20))
    assert len(other.orders) == 1
    assert {one.spec.block for one in trials} <= {0, 3}
    assert other in world.engine.killed


def test_a_run_that_goes_on_loses_nothing_that_it_has_not_come_to_yet(world, tmp_path: Path) -> None:
    """Parts come back in another order, and a device is lost, while later blocks are in the journal only."""
    parts = [Part(world.whole, block, 3, 1 + 10 * block) for block in (0, 3, 6)]
    orders = [PartOrder(comparison=world.whole, how={"first": part.first, "first_block": part.block}) for part in parts]
    before = [world.record(order, arm, number) for order in orders for number, arm in enumerate("ab")]
    for one in before:
        append_trial(tmp_path, one)
    replays: Act = lambda order: [*(Told(trial=one) for one in order.earlier), Told(ends=True)]  # noqa: E731
    dies: Act = world.measures(lives="ab", then=GoneError("node died"))

    def half(order: PartOrder) -> Iterator[Told]:
        yield Told(trial=order.earlier[0])
        yield from dies(order)

    world.device(half)
    world.device(replays, world.measures(), replays)
    with world.session(earlier=before) as session:
        world.go(session, parts[1], parts[0])
        there = (tmp_path / TRIALS).read_text()
        assert all(one.model_dump_json() in there for one in before[4:])
        world.go(session, parts[2])
    broken = tmp_path / BROKEN_OFF
    assert not broken.exists() or not any(one.model_dump_json() in broken.read_text() for one in before[4:])
    assert before[4:] == [one for one in read_trials(tmp_path) if one.spec.block == 6]
