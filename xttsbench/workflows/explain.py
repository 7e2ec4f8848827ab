"""What there is by name, in words: verdicts, rules and fixes to explain; scenarios, grids and recipes to list."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

from xttsbench.diagnosis.verdict import MEANINGS
from xttsbench.errors import UsageError
from xttsbench.findings.registry import RULES
from xttsbench.fixes.registry import SPECS
from xttsbench.records.fix import Fix
from xttsbench.reporting.words import part
from xttsbench.shipped import Kind, available, shipped


@dataclass(frozen=True)
class Explanation:
    """One verdict, rule or fix in words.

    Attributes:
        name: as reports and the command line have it.
        kind: ``verdict``, ``rule`` or ``fix``.
        about: what it is about: a heading of the rules' page, or of the fixes'.
        summary: one sentence.
        parts: heading -> text.
    """

    name: str
    kind: str
    about: str
    summary: str
    parts: Mapping[str, str]


def explain(name: str) -> Explanation:
    """What a verdict, rule or fix means; of a rule and a fix of one name, the rule. A fix may have its number or op.

    Raises:
        UsageError: for a name that there is not; close ones are listed.
    """
    known: dict[str, Explanation] = {}
    for one in explanations():
        known.setdefault(one.name, one)
    verdicts = {part(one).replace(" ", "-"): one for one in MEANINGS}  # as the screen has them: launch-overhead
    spoken = name.lower().replace(" ", "-")
    found = known.get(verdicts.get(spoken) or Fix.parse(name).kind)
    if found is not None:
        return found
    close = get_close_matches(name, known, n=4, cutoff=0.5)
    near = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
    raise UsageError(f"no verdict, rule or fix is called {name!r}: {near}")


def explanations() -> Iterator[Explanation]:
    """Everything that has a name to explain: verdicts, then rules and fixes in the order of their pages."""
    for name, said in MEANINGS.items():
        yield Explanation(
            name,
            "verdict",
            "What limits the step",
            said.meaning,
            {"How it is recognised": said.evidence, "Remedy": said.remedy},
        )
    for about, rules in RULES.items():
        for rule in rules:
            parts = {
                "Evidence": rule.evidence,
                "Threshold": rule.threshold,
                "Remedy": rule.remedy,
                "Known false alarms": rule.false_alarms,
            }
            fixes = [f"{fix.usage} ({fix.words})" for fix in SPECS.values() if rule.id in fix.mends]
            if fixes:
                parts["Fixes"] = ", ".join(fixes)
            yield Explanation(rule.id, "rule", about, rule.symptom, parts)
    for fix in SPECS.values():
        parts = {"Written": fix.usage}
        if fix.mends:
            parts["Findings that it mends"] = ", ".join(fix.mends)
        if fix.asked_for:
            parts["To be asked for"] = fix.asked_for
        yield Explanation(fix.name, "fix", "Fixes", f"{fix.does[0].upper()}{fix.does[1:]}.", parts)


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
