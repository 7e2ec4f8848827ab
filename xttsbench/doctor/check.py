"""What a check is: a name, what it looks at, and a function from what was read of a machine to what it says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from xttsbench.records.machine import Check, Figure, Machine, Status

_Judge = Callable[[Machine], "Said | None"]


@dataclass(frozen=True)
class Said:
    """What a check says; see :class:`~xttsbench.records.machine.Check`."""

    status: Status
    seen: str
    figures: Mapping[str, Figure]
    remedy: str = ""


@dataclass(frozen=True)
class MachineCheck:
    """One thing that may be wrong with a machine.

    Attributes:
        id: its name, for programs.
        about: what it looks at, in a few words.
        judge: what it says; ``None`` where there is nothing of the kind to check.
    """

    id: str
    about: str
    judge: _Judge

    def __call__(self, machine: Machine) -> Check | None:
        """What the check says of a machine; ``None`` where it does not apply."""
        said = self.judge(machine)
        if said is None:
            return None
        return Check(
            id=self.id,
            about=self.about,
            status=said.status,
            seen=said.seen,
            figures=dict(said.figures),
            remedy=said.remedy,
        )


def check(name: str, about: str) -> Callable[[_Judge], MachineCheck]:
    """Make a check of a function."""
    return lambda judge: MachineCheck(name, about, judge)
