"""Rounds that would decide a fix, as its reason has them, and whether a busy machine is why they are many. Pure."""

from __future__ import annotations

import re
from typing import Final

from xttsbench.records.report import Report

ROUNDS: Final = re.compile(r"about (\d+) more rounds? like these would(?: decide)?(?: \((\d+) s\))?")
DISTURBED: Final = 0.1  # Share of the processors from which what others took is why a report is undecided
_MANY: Final = 50  # Rounds from which a quieter machine is the shorter way, where others disturb this one


def taken(report: Report) -> float:
    """Share of the processors that others took."""
    found = report.disturbance
    shares = (found.steal_share, found.foreign_share, found.throttled_share) if found is not None else ()
    return sum(share or 0.0 for share in shares)


def wants_quiet(why: str, report: Report) -> bool:
    """Whether a quieter machine would decide what this one would not in a sensible time."""
    found = ROUNDS.search(why)
    return found is not None and int(found[1]) >= _MANY and taken(report) >= DISTURBED


def that_decide(why: str, report: Report) -> str:
    """Sentence on the rounds that would decide, and what the next command does about them; empty where none is said."""
    if (found := ROUNDS.search(why)) is None:
        return ""
    rounds = f"about {found[1]} more round{'s' * (found[1] != '1')}"
    if wants_quiet(why, report):
        return f"Run the next command when the machine is quieter: now {rounds} would be needed"
    return f"{rounds.capitalize()} would decide it, and the next command has the time for them"
