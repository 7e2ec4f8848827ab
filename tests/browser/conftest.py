"""A headless Chromium for the tests of pages; ``make browser`` installs it, and without one they are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def chromium() -> str:
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("XTTSBENCH_CHROMIUM") or next(filter(None, map(shutil.which, names)), "")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    driver = pytest.importorskip("playwright.sync_api", reason="no playwright; `make browser` installs it")
    if not chromium():
        pytest.skip("no Chromium on the path, and XTTSBENCH_CHROMIUM names none; `make browser` installs one")
    with driver.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        yield started
        started.close()
