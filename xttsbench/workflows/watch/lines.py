"""Lines that the main thread of a watched process was seen in, by the steps in which it was."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import numpy as np

from xttsbench.analysis.running import Running
from xttsbench.analysis.steps import Steps
from xttsbench.records.trial import StackLine, StepProfile

_MOST: Final = 500
_PENDING: Final = 4096
_SHOWN: Final = 12
_IN_STALLS: Final = 0.7
"""Share of a line's time that is in steps that stalled, from which it is a line of those steps and not of all."""
_DOES: Final = {
    "io": "saving or writing",
    "python": "Python code",
    "sync": "fetching values from the device",
    "tensorflow": "launching ops from Python",
    "function": "a compiled function",
    "python_function": "a Python function inside the step",
}
"""Activity of the main thread, in words, by the kind of its line."""


class Line(NamedTuple):
    """A line that was seen."""

    file: str  # empty where no line of the script is known
    line: int
    function: str
    kind: str

    @property
    def does(self) -> str:
        """Activity of the thread there, in words."""
        return f"{_DOES[self.kind]} ({PurePath(self.file).name}:{self.line})" if self.file else _DOES[self.kind]


class SampledLines:
    """Samples of the main thread, each with the seconds that it stands for, summed up by line."""

    def __init__(self) -> None:
        self._pending: deque[tuple[float, float, Line]] = deque(maxlen=_PENDING)
        self._placed: list[tuple[float, float, Line]] = []  # of the newest steps
        self._weights: defaultdict[Line, float] = defaultdict(float)
        self._stalled: defaultdict[Line, float] = defaultdict(float)
        self._count = 0

    def extend(self, samples: Iterable[Any]) -> None:
        """Take samples of a message: time and weight in nanoseconds, file, line, function, kind."""
        self._pending.extend((at / 1e9, weight / 1e9, Line(*line)) for at, weight, *line in samples)

    def place(self, steps: Steps) -> None:
        """Assign samples to these steps; a sample between steps or before them belongs to none."""
        begins, ends = steps.start_s, steps.start_s - steps.pause_s + steps.wall_s
        last_s = float(ends[-1])
        self._placed = []
        while self._pending and self._pending[0][0] <= last_s:
            at, weight, line = self._pending.popleft()
            index = int(np.searchsorted(ends, at))
            if index >= len(ends) or at < begins[index]:
                continue
            self._placed.append((weight, at, line))
            self._count += 1
            if line in self._weights or len(self._weights) < _MOST:
                self._weights[line] += weight

    def why(self, start_s: float, end_s: float) -> str | None:
        """Main activity of the thread in one of these steps, which stalled; ``None`` without samples."""
        found: defaultdict[Line, float] = defaultdict(float)
        for weight, at, line in self._placed:
            if start_s <= at <= end_s:
                found[line] += weight
        return max(found, key=lambda line: found[line]).does if found else None

    def note_stalls(self, steps: Steps, threshold_s: float) -> None:
        """Add up what was seen in those of these steps that took longer than the threshold."""
        slow = steps.wall_s > threshold_s
        begins, ends = steps.start_s[slow], steps.start_s[slow] + steps.wall_s[slow]
        for weight, at, line in self._placed:
            if len(begins) and bool(np.any((begins <= at) & (at <= ends))) and line in self._weights:
                self._stalled[line] += weight

    def profile(self, counted: dict[str, Any], running: Running) -> StepProfile | None:
        """Profile from samples, counts of a few steps, and totals of the run; ``None`` without samples and counts."""
        total_s, stretches = sum(self._weights.values()), running.stretches
        if not counted and not total_s:
            return None
        steps = max(sum(one.steps for one in stretches), 1)
        lines = [
            StackLine(**line._asdict(), share=weight / total_s, steps_share=self._steps_share(line, weight, running))
            for line, weight in self._weights.items()
        ]
        kinds: defaultdict[str, float] = defaultdict(float)
        for one in lines:
            kinds[one.kind] += one.share
        nothing = ("eager_ops_per_step", "eager_op_time_s", "op_floor_s", "function_calls_per_step")
        return StepProfile.model_validate(
            dict.fromkeys(nothing, 0.0)
            | {"ops": {}}
            | counted
            | {
                "steps": max(counted.get("steps", 0), 1),
                "samples": self._count,
                "step_s": sum(one.step_s for one in stretches) / steps,
                "kinds": kinds,
                "lines": tuple(sorted(lines, key=lambda one: -one.share)[:_SHOWN]),
            }
        )

    def _steps_share(self, line: Line, weight: float, running: Running) -> float:
        """Share of the steps that reach a line: of one that is seen in steps that stalled alone, theirs."""
        if self._stalled.get(line, 0.0) < _IN_STALLS * weight:
            return 1.0
        count = next((one.count for one in running.stalls.causes if one.what == line.does), 1)
        return min(count / max(running.steps, 1), 1.0)
