"""What there is to name on the command line: scenarios, grids, recipes, rules and fixes, each with a sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from xttsbench.shipped import Kind, available, shipped
from xttsbench.workflows.explain import explanations

What = Literal["scenarios", "grids", "recipes", "rules", "fixes"]

_COMMAND: Final = re.compile(r"^# {3}(xttsbench (\w+).*)$", re.MULTILINE)
"""A command in the comment that a shipped file opens with."""
_SWEEP: Final = "sweep"


@dataclass(frozen=True)
class Entry:
    """One thing that has a name.

    Attributes:
        name: as the command line takes it.
        summary: one sentence.
        command: one that uses it.
    """

    name: str
    summary: str
    command: str


def entries(what: What) -> list[Entry]:
    """What there is of a kind: what is shipped by name, rules and fixes in the order of their pages.

    A grid is a scenario that says itself how it is swept.
    """
    match what:
        case "scenarios":
            return [_shipped("scenarios", name) for name in available("scenarios")]
        case "grids":
            swept = (_shipped("scenarios", name, _SWEEP) for name in available("scenarios"))
            return [one for one in swept if one.command]
        case "recipes":
            return [_shipped("training", name) for name in available("training")]
    kind = what.removesuffix("es" if what == "fixes" else "s")
    return [Entry(one.name, one.summary, f"xttsbench explain {one.name}") for one in explanations() if one.kind == kind]


def _shipped(kind: Kind, name: str, verb: str = "") -> Entry:
    """A shipped file; its command is the last that its opening comment has (of ``verb``, where one is given)."""
    import yaml  # not at the top: the command line starts without it

    text = shipped(kind, name).read_text(encoding="utf-8")
    commands = [found[1] for found in _COMMAND.finditer(text) if verb in ("", found[2])]
    return Entry(name, str(yaml.safe_load(text)["description"]), commands[-1] if commands else "")
