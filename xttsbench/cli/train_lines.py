"""Progress of training on standard error: a line for an interval, rewritten in place on a terminal."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from xttsbench.records.train_history import Begun, Spoken, Watched
    from xttsbench.records.training import Evaluated, Interval

_PHASES: Final = {
    "setup": "starting TensorFlow, reading the data, building the model",
    "fit": "looking for the largest batch that fits into memory",
    "listening": "letting the model speak",
    "warm_up": "taking a step of each shape of batches, so that all is compiled",
}


class TrainLines:
    """Draws what :class:`xttsbench.workflows.train_told.TrainProgress` says."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._told_time = False
        self._learns = True

    def phase(self, name: str) -> None:
        """Say what takes its time now."""
        if name in _PHASES:
            self._write(f"{_PHASES[name]} ...", final=not self._terminal)

    def begun(self, begun: Begun) -> None:
        """The effective batch, and where the run stands."""
        self._learns = begun.learns
        clips, parts = begun.clips_per_update, begun.accumulation * begun.replicas
        batch = (
            f"effective batch: {_count(clips)} clips = {_count(clips / parts)} x {begun.accumulation} accumulated x "
            f"{begun.replicas} replica{'' if begun.replicas == 1 else 's'}"
        )
        self._write(
            f"{begun.parameters / 1e6:.2f} M parameters; {batch}; {begun.updates_per_epoch} updates an epoch of "
            f"{begun.clips} clips",
            final=True,
        )
        if begun.step:
            self._write(f"going on after step {begun.step} of {begun.steps}", final=True)

    def interval(self, interval: Interval, watched: Watched, steps: int, left_s: float) -> None:
        """Step, loss, speed, waiting, time left."""
        from xttsbench.reporting.units import duration

        last = interval.first_step + interval.steps - 1
        if not self._told_time and last < steps:
            self._told_time = True
            self._write(f"expected: the other {steps - last:,} steps in about {duration(left_s)}", final=True)
        loss = "no step was applied" if interval.loss is None else f"loss {interval.loss:.4f}"
        loss = loss if self._learns else "nothing is learnt"
        rate, waits = watched.valid_frames / watched.wall_s, watched.wait_s / watched.wall_s
        left = f", {duration(left_s)} left" if last < steps else ""
        self._write(
            f"step {last:,} of {steps:,}: {loss}, {rate:,.0f} valid frames/s, {waits:.1%} waiting{left}",
            final=not self._terminal,
        )

    def evaluated(self, evaluated: Evaluated) -> None:
        """The held-out loss."""
        best = ", the lowest so far" if evaluated.best else ""
        told = "".join(f", {name} {value:.3f}" for name, value in evaluated.metrics.items() if value is not None)
        self._write(f"step {evaluated.step:,}: held-out loss {evaluated.loss:.4f}{best}{told}", final=True)

    def spoken(self, spoken: Spoken) -> None:
        """What was heard, a line for held-out and one for training texts."""
        groups: dict[str, list[str]] = {}
        for name, value in spoken.metrics.items():
            group, _, what = name.rpartition("/")
            if value is not None:
                groups.setdefault(group, []).append(f"{what.replace('_', ' ')} {value:.3g}")
        for group, told in groups.items():
            self._write(f"speech of {group.replace('_', '-')} texts: {', '.join(told)}", final=True)

    def say(self, sentence: str) -> None:
        """A line of its own."""
        self._write(sentence, final=True)

    def close(self) -> None:
        """Leave the last line standing."""
        if self._terminal:
            sys.stderr.write("\n")

    def _write(self, text: str, *, final: bool) -> None:
        printable = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
        if self._terminal and not final:
            printable = printable[: shutil.get_terminal_size((100, 24)).columns - 1]
        start = "\r\x1b[2K" if self._terminal else ""
        sys.stderr.write(start + printable + ("\n" if final else ""))
        sys.stderr.flush()


def _count(number: float) -> str:
    """Means of a token budget have a decimal, whole numbers none."""
    return f"{number:g}" if float(number).is_integer() else f"{number:.1f}"
