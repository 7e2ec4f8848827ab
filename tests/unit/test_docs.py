"""What the documentation lists is what there is."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_RULE = re.compile(r'rule="([a-z-]+)"|finding\w*\(\s*"([a-z-]+)"|^\s+"([a-z]+-[a-z-]+)",$', re.MULTILINE)
_NO_RULES = {"drop-prefetch"}
"""Fixes, which are written as rules are."""


def test_every_rule_has_its_row() -> None:
    found = set()
    for path in (_ROOT / "xttsbench" / "findings").rglob("*.py"):
        found |= {"".join(groups) for groups in _RULE.findall(path.read_text())}
    assert len(found) > 40
    listed = {name for cell in _cells() for name in re.findall("`([a-z-]+)`", cell)}
    assert found - _NO_RULES == listed


def _cells() -> list[str]:
    lines = (_ROOT / "docs" / "findings.md").read_text().splitlines()
    return [line.split("|")[1] for line in lines if line.startswith("| `")]
