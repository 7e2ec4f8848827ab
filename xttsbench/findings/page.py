"""The reference page of the rules (``docs/findings.md``), as the registry gives it; ``make docs`` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from xttsbench.findings.registry import MODULES, rules_about
from xttsbench.findings.rule import Rule

_HEAD: Final = """\
# Findings

<!-- Written by `make docs` from the rules in xttsbench/findings: change them, not this page. -->

Every rule looks at what was measured and says what it saw, where, with which numbers, and what to do. A finding is
called a *bottleneck* only where the step was measured to lose time to it: a fault of the input pipeline while the
step waits for data and a fix of that fault helps (in a trial that ran it or, where none did, in the model of the
pipeline), a fault of the step while the step's own time goes there. Everything else is reported and left alone.
`xttsbench explain RULE` prints one of them.
"""
_FOOT: Final = "What a data set has wrong with it is found by `xttsbench data verify`.\n"


def page() -> str:
    """The page as the file has it: a table of the rules by what they are about, then each of them in words."""
    return "\n".join((_HEAD, *(part for about in MODULES for part in _section(about)), _FOOT))


def _section(about: str) -> Iterator[str]:
    rules = tuple(rules_about(about))
    rows = "".join(f"| [`{rule.id}`](#{rule.id}) | {rule.symptom} |\n" for rule in rules)
    yield f"## {about}\n\n| rule | what it sees |\n|---|---|\n{rows}"
    yield from (_rule(rule) for rule in rules)


def _rule(rule: Rule) -> str:
    said = (("Evidence", rule.evidence), ("Threshold", rule.threshold), ("Known false alarms", rule.false_alarms))
    lines = "".join(f"- **{name}:** {_sentence(text)}\n" for name, text in said)
    return f"### {rule.id}\n\n{rule.symptom}\n\n{lines}- **Remedy:** {rule.remedy}\n"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
