"""The pages that ``make browser`` opens can be made, where there is no browser as well."""

from __future__ import annotations

from pathlib import Path

from tests.browser.test_page import written


def test_the_pages_of_the_browser_s_tests_are_made(tmp_path: Path) -> None:
    pages = written(tmp_path)
    assert {"starving", "large", "empty", "hostile"} <= pages.keys()
    assert all(page.stat().st_size > 10_000 for page in pages.values())
