"""What the documentation lists is what there is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from xttsbench.findings.page import page

_PAGE = Path(__file__).parents[2] / "docs" / "findings.md"


def test_the_page_of_the_rules_is_what_the_registry_gives() -> None:
    assert _PAGE.read_text(encoding="utf-8") == page(), "make docs writes it again"


def _links() -> ModuleType:
    spec = importlib.util.spec_from_file_location("links", _PAGE.parent / "links.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_link_leads_somewhere() -> None:
    links = _links()
    assert list(links.broken(links.ROOT)) == []


def test_a_link_that_leads_nowhere_is_named(tmp_path) -> None:
    links = _links()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# One `two`, three\n\n## Same\n\n## Same\n")
    text = (
        "[1](docs/a.md#one-two-three) [2](docs/a.md#same-1) [3](https://example.org/x) [4](#here)\n\n# Here\n\n"
        "`[5](code.md)`\n\n```\n[6](fenced.md)\n```\n\n[7](docs/b.md) [8](docs/a.md#same-2)\n"
    )
    (tmp_path / "README.md").write_text(text)
    assert list(links.broken(tmp_path)) == [
        "README.md: docs/b.md: there is no such file",
        "README.md: docs/a.md#same-2: there is no such heading",
    ]


def test_the_readme_is_short() -> None:
    words = [
        word for word in (_PAGE.parents[1] / "README.md").read_text(encoding="utf-8").split() if word.strip("|-#`")
    ]
    assert len(words) <= 600
