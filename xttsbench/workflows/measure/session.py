"""The trials of a run, one after another or in turns: a helper for every block, each in the journal as it ends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from xttsbench.errors import HelperError
from xttsbench.execution.child import now_utc
from xttsbench.execution.ending import interruptible
from xttsbench.execution.helper import Helper
from xttsbench.execution.journal import ROUNDS, append_trial, keep_rounds, keep_trials
from xttsbench.execution.limits import Limits, at_pace
from xttsbench.execution.trial import Child, LiveTrial, Verdict, run_trial
from xttsbench.planning import IMPORT_S
from xttsbench.probes.clock import canary_ns
from xttsbench.probes.monitor import Monitor, processors_in_use
from xttsbench.probes.nvml import open_gpus
from xttsbench.probes.procfs import cpu_allowance, obtainable_bytes
from xttsbench.records.redaction import Redaction
from xttsbench.records.trial import TrialRecord, TrialSpec, TrialStatus, interrupted
from xttsbench.workflows.measure.described import described
from xttsbench.workflows.measure.sources import Sources
from xttsbench.workflows.measure.sources import said as said_changed

_GLANCE_S: Final = 0.5  # how long is looked at a time whether others still compute


class Progress(Protocol):
    """Called as a run goes on."""

    def trial(self, name: str, spent_s: float, budget_s: float) -> None:
        """A trial begins, so many seconds into the time for the verdict."""

    def step(self, phase: str, steps: int) -> None:
        """A trial is in this phase, with so many steps so far."""

    def done(self, name: str, status: str, seconds: float) -> None:
        """A trial ended."""

    def status(self, sentence: str) -> None:
        """Shows an interim result."""


class Silent:
    """Progress that nobody watches."""

    def trial(self, *_: Any, **__: Any) -> None:
        """Ignore it."""

    step = done = status = phase = begun = interval = evaluated = spoken = say = trial


class Session:
    """Runs trials and keeps them; a context manager.

    Children of one helper share its memory layout, so a trial of another block than the last one's gets a fresh
    helper. Ctrl-C is a trial with the status ``interrupted``, whenever it comes; the caller ends the run then.

    A run that goes on is asked for its trials from the start. One that ended before comes back from the journal; only
    those that did not are run.

    Args:
        directory: of the run.
        earlier: those of the journal of a run that goes on.
        helper: a running helper to go on with, for trials of ``block``; it stays the caller's and is never ended here.
        block: see ``helper``.
        print_to_stderr: what targets print goes to standard error.
        log: file that it goes to instead, with what they say on standard error; ``None`` for none.
        progress: told of each trial.
        budget_s: seconds that the progress is measured against.
        began: ``time.monotonic()`` at the start of the run.
        scripts: the trials are scripts, see :class:`xttsbench.execution.helper.Helper`.
        redaction: what keeps secrets out of the journal.
    """

    def __init__(
        self,
        directory: Path,
        *,
        earlier: Sequence[TrialRecord] = (),
        helper: Helper | None = None,
        block: int | None = None,
        print_to_stderr: bool = False,
        log: Path | None = None,
        progress: Progress | None = None,
        budget_s: float,
        began: float | None = None,
        scripts: bool = False,
        redaction: Redaction | None = None,
    ) -> None:
        self.trials: list[TrialRecord] = []
        self.earlier = {record.spec.trial_id: record for record in earlier if record.status != "interrupted"}
        self._goes_on = bool(earlier)
        self._directory = directory
        self._helper = helper
        self._borrowed = helper
        self._block = block
        self._works = helper is not None
        self._print_to_stderr = print_to_stderr
        self._log = log
        self._progress: Progress = progress or Silent()
        self._budget_s = budget_s
        self._began = time.monotonic() if began is None else began
        self._scripts = scripts
        self._redaction = redaction or Redaction()
        self._imports: tuple[str, ...] = ()
        self._why_alone: str | None = None
        self._gpus = open_gpus()
        self._sources = Sources()
        self._beside = partial(Monitor, gpus=(None, self._gpus[1]))
        self.import_s = IMPORT_S
        """Seconds that the last helper took to start; an estimate before there was one."""
        self.fills_anew = True
        """Each trial is a process of its own, whose caches in memory begin empty."""

    @property
    def spent_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    @property
    def block(self) -> int | None:
        """The block whose trials the helper at hand may run, or ``None`` where there is no helper."""
        return self._block if self._helper is not None else None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end_helper()
        if self._gpus[0] is not None:
            self._gpus[0].close()
        if kind is None:  # all are in the journal, or were measured again
            with suppress(OSError):
                (self._directory / ROUNDS).unlink()
            if self._goes_on and not interrupted(self.trials):  # some may have been measured again in another order
                self.earlier.clear()
                self.replace_all([*self.trials])

    def run(
        self,
        spec: TrialSpec,
        limits: Limits,
        label: str | None = None,
        *,
        note: str | None = None,
        verdict: Verdict | None = None,
    ) -> TrialRecord:
        """Run one trial to its end, whatever that is, and write it to the journal, with a note where one is given.

        Limits follow the machine's pace. A trial that ended earlier is not run again. One that asks after its rounds
        whether they suffice hears the ``verdict``.

        Raises:
            HelperError: TensorFlow cannot be started here.
            JournalError: the journal cannot be written.
        """
        if (kept := self._kept(spec)) is not None:
            self.trials.append(kept)
            return kept
        if self.source_changed(spec):
            return self.trials[-1]
        for _ in range(2):  # a helper that was killed between two trials is replaced
            try:
                record = self._attempt(spec, limits, label, verdict)
                break
            except HelperError as error:
                if not self._works:
                    raise
                self._end_helper()
                record = _never_begun(spec, "killed", str(error))
            except KeyboardInterrupt:
                record = _never_begun(spec, "interrupted", "interrupted before the trial began")
                break
        if note is not None:
            record = record.model_copy(update={"notes": (*record.notes, note)})
        return self.keep(record, label or described(spec))

    def run_all(self, specs: Sequence[TrialSpec], limits: Limits, *, most: int = 1) -> list[TrialRecord]:
        """Run trials of one block in which nothing is timed, up to ``most`` of them at a time; see :meth:`run`.

        They are kept in the order in which they are given. Where the user ends the run, the last record says so.
        """
        found: list[TrialRecord] = []
        waiting, live = deque(specs), deque[tuple[TrialSpec, Child]]()
        alone = most < 2 or self._gpus[0] is not None or any(spec.trial_id in self.earlier for spec in specs)
        if self.source_changed(specs[0]):
            return [self.trials[-1]]
        try:
            while (waiting or live) and not interrupted(found):
                if alone:
                    found.append(self.run(waiting.popleft(), limits))
                    continue
                while waiting and len(live) < most:
                    with interruptible():
                        live.append((waiting[0], self._child(waiting[0])))
                    waiting.popleft()
                spec, child = live.popleft()
                try:
                    with interruptible():
                        child.follow(self.at_pace(limits, ()))
                except KeyboardInterrupt:
                    child.collected.interrupted()
                found.append(self.keep(child.end(), described(spec)))
        except HelperError:
            if not self._works:
                raise
            self._end_helper()
            found.extend(self.never_begun(spec, "killed", "the helper process is gone") for spec in waiting)
        except KeyboardInterrupt:
            found.append(self.never_begun((*waiting, specs[-1])[0], "interrupted", "interrupted before it began"))
        finally:
            for _, child in live:
                child.end()
        return found

    def source_changed(self, spec: TrialSpec) -> bool:
        """Whether a file of the user's was saved since the first trial: this one is kept as never begun then."""
        self._sources.begin(spec.target)
        if (path := self._sources.changed()) is not None:
            never = _never_begun(spec, "interrupted", said_changed(path))
            self.keep(never.model_copy(update={"changed_file": path}), spec.trial_id)
        return path is not None

    def _child(self, spec: TrialSpec) -> Child:
        helper = self._helper_for(spec.block)
        self.announce(described(spec))
        return Child(spec, helper, monitor=self._beside, progress=self._progress.step)

    @property
    def side_by_side(self) -> Session | str:
        """Session that opens processes which live side by side, this one; or the reason for none."""
        if self._gpus[0] is not None:
            return "each process takes the GPU's memory for itself"
        return self._why_alone or self

    def runs_scripts_again(self, imports: Sequence[str], why_alone: str | None, said: str) -> None:
        """From now on scripts run that have run before.

        Their helper imports ``imports`` for them, ``said`` tells the user so, and ``why_alone`` is why they cannot take
        turns.
        """
        self._imports, self._why_alone = tuple(imports), why_alone
        self._progress.status(said)
        self._end_helper()

    @property
    def available_bytes(self) -> int:
        """Memory that more processes may take."""
        return obtainable_bytes()

    def announce(self, label: str) -> None:
        """Say what begins."""
        self._progress.trial(label, self.spent_s, self._budget_s)

    def at_pace(self, limits: Limits, live: Sequence[TrialRecord]) -> Limits:
        """Limits at the pace of the machine, by the trials so far and those of live processes."""
        return at_pace(limits, self.import_s, [*self.trials, *live])

    @property
    def processors(self) -> int:
        """Number of processes that may compute at once."""
        return max(int(cpu_allowance().allowed_cpus), 1)

    def wait_for_quiet(self, share: float, most_s: float) -> float:
        """Wait until others take at most that share of the processors, while no trial computes.

        Args:
            share: of the processors that this process may use; stolen time counts.
            most_s: seconds after which it goes on all the same.

        Returns:
            The seconds that it took.
        """
        began_s, said = self.spent_s, False
        while (left_s := began_s + most_s - self.spent_s) > 0:
            taken = processors_in_use(min(_GLANCE_S, left_s))
            if taken is None or taken <= share:
                break
            if not said:
                self.announce(f"others use {taken:.0%} of the processor: waiting up to {most_s:.0f} s for quiet")
                said = True
        return self.spent_s - began_s

    def start(self, spec: TrialSpec, label: str) -> LiveTrial:
        """Start a process that takes turns; it builds and warms up its configuration; :meth:`LiveTrial.open` waits.

        Raises:
            HelperError: TensorFlow cannot be started here, or the helper died and took its processes along.
        """
        self._sources.begin(spec.target)
        helper = self._helper_for(spec.block)
        self.announce(label)
        return LiveTrial(spec, helper, monitor=self._beside, progress=self._progress.step, canary=canary_ns)

    def close(self, live: LiveTrial, label: str) -> TrialRecord:
        """End a process that took turns, keep its record and write it to the journal.

        Raises:
            JournalError: the journal cannot be written.
        """
        return self.keep(live.end(), label)

    def keep_rounds(self, living: Sequence[TrialRecord]) -> None:
        """Write down what trials that take turns have measured so far; see :meth:`close`."""
        keep_rounds(self._directory, [self._redaction.kept(record) for record in living])

    def never_begun(
        self, spec: TrialSpec, status: TrialStatus = "interrupted", cause: str = "interrupted before the trial began"
    ) -> TrialRecord:
        """Keep that a trial never began: the user ended the run before, or the helper is gone."""
        return self.keep(_never_begun(spec, status, cause), spec.trial_id)

    def keep(self, record: TrialRecord, label: str) -> TrialRecord:
        """Keep a trial that has ended, and write it to the journal; raises :class:`JournalError` where it cannot be."""
        record = self._sources.judged(record)
        self.trials.append(record)
        self._write(record)
        self._progress.done(label, record.status, record.duration_s)
        return record

    def _write(self, record: TrialRecord) -> None:
        append_trial(self._directory, self._redaction.kept(record))

    def replace_all(self, trials: Sequence[TrialRecord]) -> None:
        """Have these trials in place of those so far, in the journal as well; others go to a file beside it.

        Those of a run that goes on which were not asked for yet stay in the journal, before them.
        """
        self.trials[:] = trials
        keep_trials(self._directory, [self._redaction.kept(record) for record in (*self.earlier.values(), *trials)])

    def had(self, spec: TrialSpec) -> bool:
        """Whether a run that goes on has had this very trial."""
        kept = self.earlier.get(spec.trial_id)
        return kept is not None and kept.spec in (spec, self._redaction.kept(spec))

    def _kept(self, spec: TrialSpec) -> TrialRecord | None:
        had, kept = self.had(spec), self.earlier.pop(spec.trial_id, None)
        return kept if had else None

    def _attempt(self, spec: TrialSpec, limits: Limits, label: str | None, verdict: Verdict | None) -> TrialRecord:
        with interruptible():
            helper = self._helper_for(spec.block)
        self.announce(label or described(spec))
        monitor, paced = partial(Monitor, gpus=self._gpus), self.at_pace(limits, ())
        return run_trial(spec, helper, paced, monitor=monitor, progress=self._progress.step, verdict=verdict)

    def _helper_for(self, block: int) -> Helper:
        if self._helper is not None and block == self._block and self._helper.exit_code() is None:
            return self._helper
        self._end_helper()
        if not self._scripts or self._imports:
            self.announce("starting TensorFlow in a process of its own")
        helper = Helper(
            print_to_stderr=self._print_to_stderr,
            log=self._log,
            has_gpu=self._gpus[0] is not None,
            scripts=self._scripts,
            imports=self._imports,
        )
        self._helper, self._block = helper, block
        began = time.monotonic()
        helper.__enter__()
        helper.wait_ready()
        self.import_s = time.monotonic() - began
        self._works = True
        return helper

    def _end_helper(self) -> None:
        if self._helper is not None and self._helper is not self._borrowed:
            self._helper.__exit__(None, None, None)
        self._helper = None


def _never_begun(spec: TrialSpec, status: TrialStatus, cause: str) -> TrialRecord:
    return TrialRecord(
        spec=spec,
        status=status,
        cause=cause,
        started_utc=now_utc(),
        duration_s=0.0,
    )
