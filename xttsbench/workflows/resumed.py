"""Whether a run may be resumed: the differences of its plan from the one that is asked for now."""

from __future__ import annotations

from typing import Final

from xttsbench.records.base import Record
from xttsbench.records.plan import RunPlan

_MAY_DIFFER: Final = frozenset({"command", "created_utc", "budget_s"})
"""Fields of a plan that say nothing about what is measured."""


def differences(before: RunPlan, now: RunPlan) -> list[str]:
    """Why trials of the one plan are not comparable with those of the other, one sentence each."""
    names = {
        "kind": "it is a run of another command",
        "code": "the target's code has changed",
        "data": "the data set has changed",
        "seed": f"the seed was {before.seed} and is {now.seed}",
        "comparison": "the scenario has changed",
        "procedure": "the scenario's sweep has changed",
        "redact": "what it has written so far was without --redact",
        "devices": "it was begun on this machine alone, without --on",
    }
    different = [name for name in _different(before, now) if name not in _MAY_DIFFER]
    if "hidden" in different and before.hidden is not None:
        different = ["hidden"]  # what else differs may be no more than that
        secret = ", ".join(before.hidden.names)
        names["hidden"] = f"{secret} needs the value that the run began with, which no file holds, so give it again"
    found = [names[name] for name in different if name in names]
    if "comparison" in different and before.comparison is not None and now.comparison is not None:
        fields = _different(before.comparison, now.comparison)
        found[found.index(names["comparison"])] += f" ({', '.join(fields)})"
    return found or [f"{name} differs" for name in different]


def _different(before: Record, now: Record) -> list[str]:
    return [name for name in type(now).model_fields if getattr(before, name) != getattr(now, name)]
