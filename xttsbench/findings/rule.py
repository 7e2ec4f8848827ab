"""What a rule is: the words that explain it, as data, and the function that looks for its fault in the evidence."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from xttsbench.evidence.evidence import Evidence
from xttsbench.records.base import Estimate, Location
from xttsbench.records.report import Finding, Severity

Numbers = Mapping[str, float | int | str | bool | None]
Findings = Iterator[Finding]
_Find = Callable[[Evidence], Findings]


@dataclass(frozen=True)
class Rule:
    """One thing that may be wrong with a target; called with the evidence, it yields what it finds.

    Attributes:
        id: its name in reports, part of the contract.
        symptom: what it sees.
        evidence: what the numbers of its findings are.
        threshold: from where on it fires, and when what it finds is limiting.
        remedy: what to do; a finding may say it in the terms of the user's own call.
        false_alarms: when what it finds is harmless or mistaken.
        find: the function that looks.
    """

    id: str
    symptom: str
    evidence: str
    threshold: str
    remedy: str
    false_alarms: str
    find: _Find

    def __call__(self, evidence: Evidence) -> Findings:
        """What the rule finds in the evidence."""
        return self.find(evidence)

    def finding(
        self,
        title: str,
        numbers: Numbers,
        remedy: str | None = None,
        *,
        severity: Severity = "info",
        limiting: bool = False,
        location: Location | None = None,
        predicted_speedup: Estimate | None = None,
    ) -> Finding:
        """A finding of this rule.

        Args:
            title: one line for a person.
            numbers: the evidence; ``None`` is what was not measured.
            remedy: in place of the rule's own.
            severity: how bad it is.
            limiting: whether it is (part of) what limits the step now.
            location: in the user's source; nowhere without it.
            predicted_speedup: of the step without the fault; ``None`` where that is not known.
        """
        return Finding(
            rule=self.id,
            severity=severity,
            limiting=limiting,
            title=title,
            location=location or Location(),
            evidence=dict(numbers),
            remedy=self.remedy if remedy is None else remedy,
            predicted_speedup=predicted_speedup,
        )


def rule(name: str, *, evidence: str, threshold: str, remedy: str, false_alarms: str) -> Callable[[_Find], Rule]:
    """Make a rule of a function, whose docstring is the symptom."""

    def made(find: _Find) -> Rule:
        symptom = " ".join(inspect.cleandoc(find.__doc__ or "").split())
        return Rule(name, symptom, evidence, threshold, remedy, false_alarms, find)

    return made
