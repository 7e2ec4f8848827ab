"""What a model that learns has to show, and what one that was taught the wrong texts must not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WINDOW = 20  # steps at whose end a loss is judged, by their mean
EARLY_STEP = 200
EARLY_FALL, LATE_FALL = 3.5, 10.0
"""Loss of the first step over the mean of the window that ends at :data:`EARLY_STEP`, and at the last step."""


@dataclass(frozen=True)
class Goal:
    """Bounds of a figure, which themselves are within."""

    low: float = -math.inf
    high: float = math.inf

    def holds(self, value: float) -> bool:
        """Whether a value is within."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f">= {self.low:g}"
        return f"<= {self.high:g}" if math.isinf(self.low) else f"{self.low:g} .. {self.high:g}"


ERROR_RATE = Goal(high=0.15)
GOALS = {
    "phone_error_rate": ERROR_RATE,
    "phone_error_rate_sound": ERROR_RATE,
    "wrong_over_right": Goal(low=4.0),
    "length_ratio": Goal(low=0.9, high=1.1),
    "speaker_swapped": Goal(low=0.9),
    "phone_error_rate_truth": Goal(high=0.01),
}
"""By the name of a figure in :class:`xttsbench.xtts.evaluate.Heard`."""
WORDS = {
    "phone_error_rate": "phone error rate",
    "phone_error_rate_sound": "phone error rate through Griffin-Lim",
    "wrong_over_right": "loss with the wrong text / the right one",
    "length_ratio": "length / the recorded clip's",
    "speaker_swapped": "swapped reference: is the other speaker",
    "phone_error_rate_truth": "phone error rate of the recorded clips",
}
CONTROL = ("phone_error_rate", "phone_error_rate_sound", "wrong_over_right")
"""What tells a model that reads from one that does not; the others have nothing to do with the text."""
SIDES = {"training": "training clips", "held_out": "held-out clips"}
REPORTED = {("held_out", "wrong_over_right"), *((side, "phone_error_rate_truth") for side in SIDES)}
"""Beside their goals and no gates: shown the frames before, a model continues a clip that is new to it by its sound;
and the recorded clips say how far the recogniser can be trusted."""


@dataclass(frozen=True)
class Gate:
    """A figure beside its goal."""

    name: str
    value: float | None
    goal: Goal
    must_miss: bool = False  # of the control: the goal is that the figure is out of bounds
    is_gate: bool = True  # false for what is only reported

    @property
    def met(self) -> bool:
        """Whether the figure is as it has to be; never where there is none."""
        return self._number is not None and self.goal.holds(self._number) is not self.must_miss

    @property
    def _number(self) -> float | None:
        return self.value if self.value is not None and math.isfinite(self.value) else None

    def shown(self) -> dict[str, Any]:
        """Return the gate as JSON has it, which knows no infinity."""
        value = None if self._number is None else round(self._number, 4)
        goal = f"not {self.goal}" if self.must_miss else str(self.goal)
        return {"name": self.name, "value": value, "goal": goal, "met": self.met, "gate": self.is_gate}


def fall(losses: Mapping[int, float], last: int) -> float | None:
    """Return the loss of the first step over the mean loss of the window that ends at a step.

    Args:
        losses: by the number of the step, from 1; a step that was left out has none.
        last: the window's last step.

    Returns:
        None where the first step, or all of the window, has no loss.
    """
    window = [losses[step] for step in range(last - WINDOW + 1, last + 1) if step in losses]
    return losses[1] / (sum(window) / len(window)) if window and 1 in losses else None


def early_gate(losses: Mapping[int, float]) -> Gate:
    """Return the gate of the first 200 steps."""
    return _fall_gate(losses, EARLY_STEP, EARLY_FALL)


def late_gate(losses: Mapping[int, float], steps: int) -> Gate:
    """Return the gate of the whole run's loss."""
    return _fall_gate(losses, steps, LATE_FALL)


def heard_gates(heard: Mapping[str, Mapping[str, float | None]]) -> list[Gate]:
    """Return the gates of what was heard of the model, ``{side: figures}``."""
    return [
        Gate(f"{words}, {SIDES[side]}", heard[side][name], GOALS[name], is_gate=(side, name) not in REPORTED)
        for name, words in WORDS.items()
        for side in SIDES
    ]


def control_gates(heard: Mapping[str, Mapping[str, float | None]]) -> list[Gate]:
    """Return the gates of what was heard of the control, which has to miss the goals."""
    return [
        Gate(f"control: {WORDS[name]}, {SIDES[side]}", heard[side][name], GOALS[name], must_miss=True)
        for name in CONTROL
        for side in SIDES
        if (side, name) not in REPORTED
    ]


def all_met(gates: Sequence[Gate]) -> bool:
    """Return whether all of them that are gates are met."""
    return all(gate.met for gate in gates if gate.is_gate)


def table(gates: Sequence[Gate]) -> str:
    """Return the gates for people."""
    lines = [f"{'gate':66} {'value':>8} {'goal':>14} {'met':>4}"]
    for gate in gates:
        own = gate.shown()
        value = "none" if own["value"] is None else f"{own['value']:.3f}"
        remark = "" if gate.is_gate else "  (reported, no gate)"
        lines.append(f"{gate.name:66} {value:>8} {own['goal']:>14} {'yes' if gate.met else 'NO':>4}{remark}")
    return "\n".join(lines)


def _fall_gate(losses: Mapping[int, float], last: int, goal: float) -> Gate:
    name = f"loss of step 1 / mean of steps {last - WINDOW + 1}-{last}"
    return Gate(name, fall(losses, last), Goal(low=goal))
