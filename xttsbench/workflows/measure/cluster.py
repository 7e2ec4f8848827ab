"""Parts of comparisons on the devices of a Ray cluster, one part a device at a time; the run's side.

Configurations that are compared are turns of one part, and a part stays on one device, so that Ray has nothing to do
but to carry parts there and messages back. What is decided, and the journal, are the run's, as at home. A device that
is lost costs its part, which is measured again as a whole on another one. Ray is imported when a cluster is asked for.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from xttsbench.errors import HelperError, InvalidInputError, UsageError, first_line
from xttsbench.execution.ending import interruptible
from xttsbench.planning import Part, Slot, arm_trial
from xttsbench.records.machine import MeasuredOn
from xttsbench.records.plan import RunPlan
from xttsbench.records.trial import TrialRecord, TrialSpec, interrupted
from xttsbench.records.variables import KNOWN
from xttsbench.workflows.measure.device import Device, package_identity
from xttsbench.workflows.measure.messages import Admission, Admitted, PartOrder, Place, Told
from xttsbench.workflows.measure.session import Session
from xttsbench.workflows.measure.turns import AfterRound, Enough

MOST_LOSSES: Final = 3
"""Devices that may be lost in one part; then the run ends, and may be resumed."""
_ADMITS_S: Final = 120.0  # A device that other work of the cluster holds for so long is left out
_NOBODY_S: Final = 60.0  # Without any device for so long the run ends
_LOOKS_S: Final = 5.0  # How often new machines are looked for
_LISTENS_S: Final = 0.5
_CHOOSES: Final = "VISIBLE_DEVICES"  # Ends variables by which the engine gives a process its device


@contextmanager
def connected(on: str) -> Iterator[Cluster]:
    """The cluster that ``--on`` names, ``ray`` or ``ray:ADDRESS``, for as long as it is needed.

    Raises:
        UsageError: it names something else, Ray is not installed, or no cluster answers there.
    """
    engine, _, address = on.partition(":")
    if engine != "ray":
        raise UsageError(f"--on {on!r}: write ray for the cluster of this machine, or ray:HOST:PORT.")
    try:
        import ray
    except ImportError as error:
        raise UsageError(f"--on {on}: Ray is not installed here ({error}): pip install 'xttsbench[ray]'.") from error
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or "auto", log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise UsageError(
            f"--on {on}: no Ray cluster answers ({first_line(error)}); start one with 'ray start --head', and name "
            "its address, as in --on ray:192.0.2.1:6379."
        ) from error
    finally:
        signal.signal(signal.SIGTERM, before)  # Ray's own ends the process without a report
    try:
        yield Cluster(ray)
    finally:
        ray.shutdown()


@dataclass(eq=False)
class _Held:
    """A device that is held for the run: its actor, and the part that it measures, with the live trials of that."""

    place: Place
    actor: Any
    machine: MeasuredOn | None = None
    part: Part | None = None
    living: tuple[TrialRecord, ...] = ()
    began: bool = False

    @property
    def label(self) -> str:
        return self.machine.label if self.machine is not None else f"node {self.place.node[:8]}"

    @property
    def blocks(self) -> range:
        return range(0) if self.part is None else range(self.part.block, self.part.block + max(self.part.rounds, 1))


class Cluster:
    """The devices of a cluster that are held for a run: each GPU, or of a machine without any its processors.

    Args:
        ray: the module, connected.
        actor: class that measures on a machine.

    Attributes:
        environments: of the devices' machines, as in ``environment.json``, in the order in which they answered.
    """

    def __init__(self, ray: Any, actor: type = Device) -> None:
        self._ray = ray
        self._actor = ray.remote(actor)
        self._known: set[Place] = set()
        self._opening: dict[Any, _Held] = {}
        self._free: deque[_Held] = deque()
        self._running: dict[Any, _Held] = {}  # by the next message
        self._looked_s = -_LOOKS_S
        self._wanted: dict[str, Any] = {}
        self.environments: list[dict[str, Any]] = []

    def admit(self, plan: RunPlan) -> int:
        """Hold every device for a run; returns how many there are.

        Raises:
            UsageError: there is none.
            InvalidInputError: what a machine would measure is not what is here.
        """
        variables = {name: os.environ[name] for name in {*os.environ} & {*KNOWN} if not name.endswith(_CHOOSES)}
        self._wanted = {"plan": plan, "package": package_identity(), "folder": os.getcwd(), "variables": variables}
        until_s, refused = time.monotonic() + _ADMITS_S, self._look()
        while self._opening and time.monotonic() < until_s and not refused:
            with interruptible():
                refused = self._look(_LISTENS_S)
        if refused:
            raise InvalidInputError(f"--on ray: {'; '.join(refused)}.")
        if not self._free:
            raise UsageError("--on ray: no machine of the cluster has a GPU or a processor that is free for trials.")
        return len(self._free)

    def _look(self, wait_s: float = 0.0) -> list[str]:
        """Ask new machines whether they can measure, and hear the answers; why devices are not used, one by one."""
        if time.monotonic() - self._looked_s > _LOOKS_S:
            self._looked_s = time.monotonic()
            for place in sorted(self._places() - self._known, key=lambda one: (one.node, one.index)):
                self._known.add(place)
                self._open(place)
        if not self._opening:
            time.sleep(wait_s)
            return []
        refused = []
        for answer in self._ray.wait([*self._opening], num_returns=len(self._opening), timeout=wait_s)[0]:
            held = self._opening.pop(answer)
            try:
                said = Admitted.model_validate_json(self._ray.get(answer))
            except self._ray.exceptions.RayTaskError as error:
                refused.append(f"{held.label}: {first_line(error.cause)}")
                continue
            except self._ray.exceptions.RayError as error:
                if held.place in self._places():  # else it is gone already
                    refused.append(f"{held.label}: {str(error).strip().splitlines()[-1]}")
                continue
            held.machine = said.machine
            if said.refused is not None:
                refused.append(f"{held.label}: {said.refused.rstrip('.')}")
                self._ray.kill(held.actor)
                continue
            self._free.append(held)
            self.environments.append(said.environment)
        return refused

    def _places(self) -> set[Place]:
        found = set()
        for node in self._ray.nodes():
            gpus, cpus = (int(node["Resources"].get(name, 0)) for name in ("GPU", "CPU"))
            devices = (gpus or 1) if cpus else 0
            for index in range(devices if node["Alive"] else 0):
                place = {"node": node["NodeID"], "index": index, "devices": devices}
                found.add(Place(**place, gpu=bool(gpus), cpus=cpus // devices))
        return found

    def _open(self, place: Place) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(place.node, soft=False)
        sized = {"num_cpus": place.cpus, "num_gpus": int(place.gpu), "scheduling_strategy": there}
        sized["runtime_env"] = {"env_vars": {"RAY_worker_niceness": "0"}}  # its workers give way to all others
        actor = self._actor.options(max_concurrency=2, **sized).remote()
        asked = Admission(place=place, **self._wanted)
        self._opening[actor.admit.remote(asked.model_dump_json())] = _Held(place, actor)

    def compare(self, parts: Sequence[Part], session: Session, *, budget_s: float, **how: Any) -> list[TrialRecord]:
        """Run the parts of a comparison on the devices; see :func:`~xttsbench.workflows.measure.arms.compare_arms`."""
        enough: Enough | None = how.pop("enough", None)
        after_round: AfterRound | None = how.pop("after_round", None)
        before, until_s = len(session.trials), session.spent_s + budget_s
        waiting = deque(replace(part, first=before) if part.first is None and before else part for part in parts)
        lost: dict[int, list[str]] = {}  # by block: devices
        someone_s = session.spent_s
        try:
            while waiting or self._running:
                with interruptible():
                    for why in self._look(0.0 if self._running or self._free else _LISTENS_S):
                        session.announce(f"not used: {why}")
                    while waiting and self._free:
                        self._give(waiting[0], session, until_s, how, asks=enough is not None)
                        waiting.popleft()
                    if self._running:
                        someone_s = session.spent_s
                    elif session.spent_s - someone_s > _NOBODY_S:
                        _end(session, waiting[0], f"for {_NOBODY_S:.0f} s the cluster has had no device")
                    ready = self._ray.wait([*self._running], timeout=_LISTENS_S)[0] if self._running else []
                for message in ready:
                    held = self._running.pop(message)
                    try:
                        told = Told.model_validate_json(self._ray.get(message))
                        held.began = True
                    except self._ray.exceptions.RayError as error:
                        told = Told(failed=first_line(error))
                        self._known.discard(held.place)  # where its machine lives it may be opened again
                    if told.failed is not None:
                        waiting.appendleft(part := self._lose(held, session, before, told.failed, lost))
                        if len(lost.get(part.block, ())) == MOST_LOSSES:
                            _end(session, part, f"devices were lost in it: {', '.join(lost[part.block])}")
                        continue
                    self._take(told, held, session, lost)
                    if told.trial is not None and told.trial.status == "interrupted":
                        raise KeyboardInterrupt
                    trials = [*session.trials, *self._living(), *held.living]
                    if told.rounds and held.part is not None and after_round is not None:
                        after_round(max(len(one.rounds) for one in told.rounds), held.part.rounds, trials)
                    if told.ends:
                        self._free.append(held)
                    else:
                        done = sorted(enough(trials)) if told.asks and enough is not None else None
                        self._running[held.actor.hear.remote(done)] = held
        except KeyboardInterrupt:
            self._interrupt(session, waiting)
        session.keep_rounds([])
        ranked = sorted(session.trials[before:], key=lambda trial: (trial.status == "interrupted", trial.spec.block))
        if ranked != session.trials[before:]:  # as if one had been measured after the other
            session.replace_all([*session.trials[:before], *ranked])
        return session.trials[before:]

    def _give(self, part: Part, session: Session, until_s: float, how: dict[str, Any], *, asks: bool) -> None:
        """Have a free device measure a part."""
        if session.source_changed(_spec(part)):
            raise KeyboardInterrupt  # the run ends, as if the user had asked for it
        held = self._free.popleft()
        held.part, held.living, held.began = part, (), False
        named = {"first_block": part.block, "rounds": part.rounds, "first": part.first}
        order = PartOrder(
            comparison=part.comparison,
            how={**how, **named, "budget_s": max(until_s - session.spent_s, 0.0)},
            asks=asks,
            earlier=tuple(trial for trial in session.earlier.values() if trial.spec.block in held.blocks),
        )
        held.actor.measure.remote(order.model_dump_json())
        self._running[held.actor.hear.remote()] = held

    def _take(self, told: Told, held: _Held, session: Session, lost: dict[int, list[str]]) -> None:
        if told.says is not None:
            session.announce(f"{held.label}: {told.says}")
        if told.rounds is not None:
            held.living = told.rounds
            session.keep_rounds([*self._living(), *held.living])
        if (record := told.trial) is None:
            return
        had = session.earlier.pop(record.spec.trial_id, None)
        if had is not None and had.started_utc == record.started_utc:
            session.trials.append(had)
            return
        if before := lost.get(held.blocks.start):
            note = f"repeat {held.blocks.start} was measured again, since {', '.join(before)} was lost in it"
            record = record.model_copy(update={"notes": (*record.notes, note)})
        held.living = tuple(one for one in held.living if one.spec.trial_id != record.spec.trial_id)
        session.keep(record, f"{held.label}: {record.spec.arm or record.spec.kind}")

    def _lose(self, held: _Held, session: Session, before: int, why: str, lost: dict[int, list[str]]) -> Part:
        """Leave out a device that is gone, with the trials of its part, which come after so many others."""
        if held.part is None:
            raise HelperError(f"{held.label}: {why}")
        self._ray.kill(held.actor)
        if held.began:  # else it was gone before
            lost.setdefault(held.part.block, []).append(held.label)
        session.announce(f"{held.label} is lost ({why}); repeat {held.part.block} is measured elsewhere")
        came = session.trials[before:]
        left = [one for one in came if one.spec.block not in held.blocks]
        if len(left) < len(came):
            session.keep_rounds([])
            session.replace_all([*session.trials[:before], *left])
        session.keep_rounds(self._living())
        return held.part

    def _interrupt(self, session: Session, waiting: Sequence[Part]) -> None:
        """End every device that measures; whole rounds of theirs count."""
        for held in self._running.values():
            self._ray.kill(held.actor)
        ended = {"status": "interrupted", "cause": "interrupted while its turns went on"}
        for held in self._running.values():
            for record in held.living:  # one of each part, as at home
                update = ended if record is held.living[-1] else {}
                session.keep(record.model_copy(update=update), record.spec.trial_id)
        if not interrupted(session.trials):
            parts = [held.part for held in self._running.values() if held.part is not None]
            session.never_begun(_spec([*parts, *waiting][0]))
        self._running.clear()

    def _living(self) -> list[TrialRecord]:
        return [record for held in self._running.values() for record in held.living]


def _end(session: Session, part: Part, why: str) -> None:
    """End the run, as if the user had asked for it, at a part that nobody can measure."""
    session.announce(f"the run ends: {why}")
    session.never_begun(_spec(part), cause=why)
    raise KeyboardInterrupt


def _spec(part: Part) -> TrialSpec:
    """Specification of a part's first trial."""
    slot, window_s = Slot(part.comparison.baseline, part.comparison.accelerators[0]), part.comparison.window_s
    return arm_trial(part.comparison, slot, number=part.first or 0, block=part.block, window_s=window_s, seed=0)
