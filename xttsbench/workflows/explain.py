"""What there is to explain by name, in words: the rules and the verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from xttsbench.diagnosis.verdict import MEANINGS
from xttsbench.errors import UsageError
from xttsbench.findings.registry import MODULES, rules_about


@dataclass(frozen=True)
class Explanation:
    """One rule or verdict in words.

    Attributes:
        name: as reports and the command line have it.
        kind: ``rule`` or ``verdict``.
        about: what it is about: a heading of the rules' page.
        summary: one sentence.
        parts: heading -> text.
    """

    name: str
    kind: str
    about: str
    summary: str
    parts: Mapping[str, str]


def explain(name: str) -> Explanation:
    """What a rule or verdict means.

    Raises:
        UsageError: for a name that there is not; close ones are listed.
    """
    known = {one.name: one for one in explanations()}
    found = known.get("inconclusive" if name == "undecided" else name)
    if found is not None:
        return found
    close = get_close_matches(name, known, n=4, cutoff=0.5)
    near = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
    raise UsageError(f"no rule or verdict is called {name!r}: {near}")


def explanations() -> Iterator[Explanation]:
    """Everything that has a name to explain: verdicts, then rules in the order of their page."""
    for name, said in MEANINGS.items():
        yield Explanation(
            name,
            "verdict",
            "What limits the step",
            said.meaning,
            {"How it is told": said.evidence, "Remedy": said.remedy},
        )
    for about in MODULES:
        for rule in rules_about(about):
            parts = {
                "Evidence": rule.evidence,
                "Threshold": rule.threshold,
                "Remedy": rule.remedy,
                "Known false alarms": rule.false_alarms,
            }
            yield Explanation(rule.id, "rule", about, rule.symptom, parts)
