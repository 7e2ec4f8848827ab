"""What the documentation lists is what there is."""

from __future__ import annotations

from pathlib import Path

from xttsbench.findings.page import page

_PAGE = Path(__file__).parents[2] / "docs" / "findings.md"


def test_the_page_of_the_rules_is_what_the_registry_gives() -> None:
    assert _PAGE.read_text(encoding="utf-8") == page(), "make docs writes it again"
