"""A device of a cluster: the process on its machine that measures one part of a comparison after another.

It is the parent of that machine's trials. What measures there is what measures at home
(:mod:`xttsbench.workflows.measure.arms`); only the journal is elsewhere, so each trial, and each round of those that
take turns, is told to the run as JSON. No file of the run is written on this machine. No engine is imported here.
"""

from __future__ import annotations

import os
import platform
import queue
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from xttsbench.errors import HelperError, XttsbenchError, first_line
from xttsbench.probes.environment import environment, fingerprint, guard, require_tensorflow
from xttsbench.records.machine import MeasuredOn
from xttsbench.records.trial import TrialRecord, TrialSpec
from xttsbench.targets.spec import parse_target
from xttsbench.workflows.code_identity import code_identity, data_identity
from xttsbench.workflows.measure.arms import compare_arms
from xttsbench.workflows.measure.messages import Admission, Admitted, PartOrder, Told
from xttsbench.workflows.measure.session import Session, Silent

ANSWER_S: Final = 120.0
"""Seconds that a device waits for an answer, with its trials stopped."""
_CHOSEN: Final = "CUDA_VISIBLE_DEVICES"
_ENGINE_SETS: Final = "OMP_NUM_THREADS"  # Ray does, for processes that are no trials


def package_identity() -> str | None:
    """Hash of this package's Python files."""
    return code_identity("", bundled=True)


class Device:
    """An actor whose methods run in two threads: one measures a part, the other says what came of it so far."""

    def __init__(self) -> None:
        self._told: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._admission: Admission
        self._machine: MeasuredOn
        self.processors: Sequence[int] = ()
        """Processors of this device: its share of the machine's."""

    def admit(self, text: str) -> str:
        """Take a run on, given as :class:`Admission`; returns :class:`Admitted`."""
        self._admission = wanted = Admission.model_validate_json(text)
        os.environ.pop(_ENGINE_SETS, None)
        os.environ.update(wanted.variables)
        with suppress(OSError):
            os.chdir(wanted.folder)
        try:
            refused = _why_refused(wanted)
        except XttsbenchError as error:
            refused = str(error)
        found, place, every = environment(), wanted.place, sorted(os.sched_getaffinity(0))
        # Once, while this thread may still use all: a part narrows the thread that measures it.
        share = max(len(every) // place.devices, 1)
        self.processors = every[place.index * share :][:share] or every[-1:]
        # The engine chooses a GPU for each of its processes, so that equal machines would be told apart by that.
        found["fingerprint"] = fingerprint(found | {"variables": {}})
        hides = guard(Path(os.devnull), wanted.plan)
        found = hides.kept(found)
        machine = MeasuredOn(
            node=place.node[:8],
            host=platform.node(),
            device=f"GPU {os.environ.get(_CHOSEN, place.index)}" if place.gpu else "CPU",
            processor=found["cpu"]["model"],
            fingerprint=found["fingerprint"],
        )
        self._machine = hides.kept(machine)
        return Admitted(machine=self._machine, environment=found, refused=refused).model_dump_json()

    def hear(self, done: list[str] | None = None) -> str:
        """The next :class:`Told` once there is one, after an answer: the configurations that need no more rounds."""
        if done is not None:
            self._answers.put(done)
        return self._told.get()

    def measure(self, text: str) -> None:
        """Measure a part, given as :class:`PartOrder`."""
        plan, nowhere = self._admission.plan, Path(os.devnull)
        try:
            order = PartOrder.model_validate_json(text)
            os.sched_setaffinity(0, self.processors)  # of this thread, and of what it starts
            session = _TellingSession(
                nowhere,
                tell=self._tell,
                machine=self._machine,
                earlier=order.earlier,
                log=nowhere if plan.redact else None,
                budget_s=order.how["budget_s"],
                redaction=guard(nowhere, plan),
            )
            with session:
                compare_arms(order.comparison, session, enough=self._ask if order.asks else None, **order.how)
        except Exception as error:
            known = isinstance(error, XttsbenchError)
            self._tell(failed=str(error) if known else f"{type(error).__name__}: {first_line(error)}")
        finally:
            self._tell(ends=True)

    def _tell(self, **what: Any) -> None:
        self._told.put(Told(**what).model_dump_json())

    def _ask(self, _: Sequence[TrialRecord]) -> list[str]:
        self._tell(asks=True)
        try:
            return self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise HelperError(f"the run gave no answer for {ANSWER_S:.0f} s.") from None


class _TellingSession(Session):
    """A session whose journal is the run's."""

    def __init__(self, directory: Path, *, tell: Callable[..., None], machine: MeasuredOn, **more: Any) -> None:
        super().__init__(directory, progress=_TellingProgress(tell), **more)
        self._tell, self._machine = tell, machine

    def _kept(self, spec: TrialSpec) -> TrialRecord | None:
        record = super()._kept(spec)
        if record is not None:  # it comes from the journal, and is not written there again
            self._tell(trial=record)
        return record

    def _write(self, record: TrialRecord) -> None:
        self._tell(trial=self._kept_here(record))

    def keep_rounds(self, living: Sequence[TrialRecord]) -> None:
        self._tell(rounds=tuple(map(self._kept_here, living)))

    def _kept_here(self, record: TrialRecord) -> TrialRecord:
        kept: TrialRecord = self._redaction.kept(record.model_copy(update={"machine": self._machine}))
        return kept


class _TellingProgress(Silent):
    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell

    def trial(self, name: str, *_: Any, **__: Any) -> None:
        """Tell what begins."""
        self._tell(says=name)


def _why_refused(wanted: Admission) -> str | None:
    """Why trials of a run would be of something else on this machine; ``None`` where they are not."""
    plan, comparison = wanted.plan, wanted.plan.comparison
    require_tensorflow()
    if package_identity() != wanted.package:
        return f"xttsbench in {Path(__file__).parents[2]} is another version than that of the run"
    if comparison is not None and comparison.bundled:
        # Here and not above: reading speech data is the bundled workload's alone.
        from xttsbench.workflows.bundled import prepare

        prepare([arm.kwargs for arm in comparison.arms])
        if data_identity([arm.kwargs.get("data") for arm in comparison.arms]) != plan.data:
            return "the data set is another one than that of the run"
    elif plan.code is not None and code_identity(plan.target, bundled=False) != plan.code:
        spec = parse_target(plan.target)
        place = spec.place if spec.kind == "file" else f"{spec.place} in {spec.folder}"
        return f"the code of {place} is not that of the run: a Python file there, or beside it, is another one"
    return None
