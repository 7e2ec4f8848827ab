"""What a training process reports, on its way to the disk and to whoever watches, with the time left."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from xttsbench.diagnosis.training import Starvation, wait_fraction
from xttsbench.errors import JournalError
from xttsbench.execution import journal
from xttsbench.records.report import Finding
from xttsbench.records.training import Begun, Evaluated, HistoryLine, Interval, Spoken, Watched


class TrainProgress(Protocol):
    """Reports a training run to the user; the command line draws it."""

    def phase(self, name: str) -> None:
        """The process begins something else: ``setup``, ``warm_up``, ``as_is``."""

    def begun(self, begun: Begun) -> None:
        """Everything is ready."""

    def interval(self, interval: Interval, watched: Watched, steps: int, left_s: float) -> None:
        """An interval ended, of a run of so many steps that has so many seconds left."""

    def evaluated(self, evaluated: Evaluated) -> None:
        """The held-out loss is known."""

    def spoken(self, spoken: Spoken) -> None:
        """The model's speech was heard."""

    def say(self, sentence: str) -> None:
        """Something that deserves a line."""


class Silent:
    """Progress that nobody watches."""

    def phase(self, name: str) -> None:
        """Ignore it."""

    def begun(self, begun: Begun) -> None:
        """Ignore it."""

    def interval(self, interval: Interval, watched: Watched, steps: int, left_s: float) -> None:
        """Ignore it."""

    def evaluated(self, evaluated: Evaluated) -> None:
        """Ignore it."""

    def spoken(self, spoken: Spoken) -> None:
        """Ignore it."""

    def say(self, sentence: str) -> None:
        """Ignore it."""


class SessionProgress:
    """Hears a session of training (see :class:`xttsbench.execution.training.Listener`).

    Args:
        directory: of the run.
        session: its number.
        progress: reports it to the user.
        explain: gives the finding behind a share of the time that is waiting for data.
        clock: seconds.
    """

    def __init__(
        self,
        directory: Path,
        session: int,
        progress: TrainProgress,
        explain: Callable[[float], Finding],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lines: list[HistoryLine] = []
        self._directory, self._session, self._progress = directory, session, progress
        self._explain, self._clock = explain, clock
        self._starvation = Starvation()
        self._begun: tuple[Begun, float] | None = None
        self._intervals = 0
        self._writes = True

    def phase(self, name: str) -> None:
        """Pass it on."""
        self._progress.phase(name)

    def stopping(self) -> None:
        """Say what will happen."""
        self._progress.say("Ending at the next step, with a checkpoint; a second signal ends it at once.")

    def told(self, line: HistoryLine) -> None:
        """Keep it, and report what a user wants to know."""
        line = line.model_copy(update={"session": self._session})
        self.lines.append(line)
        if self._writes:
            try:
                journal.append_history(self._directory, line)
            except JournalError as error:
                # The checkpoints are what counts; the process that writes them tells of its own troubles.
                self._writes = False
                self._progress.say(f"Warning: {error}")
        if line.begun is not None:
            self._begun = line.begun, self._clock()
            self._progress.begun(line.begun)
        if line.interval is not None and line.watched is not None:
            self._interval(line.interval, line.watched)
        if line.evaluated is not None:
            self._progress.evaluated(line.evaluated)
        if line.spoken is not None:
            self._progress.spoken(line.spoken)
        if line.fitted is not None:
            size = f"tokens_per_batch={line.fitted.tokens_per_batch}"
            need = f"{line.fitted.peak_bytes / 2**20:.0f} of {line.fitted.limit_bytes / 2**20:.0f} MiB"
            self._progress.say(f"Fitted to memory: {size}, whose steps take {need}.")
        if line.warned is not None:
            self._progress.say(f"Warning: {line.warned}.")

    def _interval(self, interval: Interval, watched: Watched) -> None:
        self._intervals += 1
        if self._begun is None:
            return
        begun, since_s = self._begun
        now_s, last = self._clock(), interval.first_step + interval.steps - 1
        left_s = (now_s - since_s) / max(last - begun.step, 1) * max(begun.steps - last, 0)
        self._progress.interval(interval, watched, begun.steps, left_s)
        share = wait_fraction(watched)
        if share is None or self._intervals == 1:  # in the first one the pipeline fills
            return
        self._starvation, sentence = self._starvation.after(self._explain(share), share, now_s)
        if sentence is not None:
            self._progress.say(sentence)
