"""``report.html`` in a headless Chromium: no errors, all of it works, reads well to a screen reader, wide and narrow.

Continuous integration has no browser.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest

from tests.unit.conftest import segment, trial
from tests.unit.reporting import conftest as runs
from tests.unit.reporting.conftest import changed
from xttsbench.records.fix import FixResult, Patch
from xttsbench.records.report import Bottleneck
from xttsbench.reporting.page import page_document, render_page, write_run
from xttsbench.reporting.scene import stage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SIZES = {"wide": (1280, 900), "narrow": (390, 844)}
DIFF = "--- a/data.py\n+++ b/data.py\n@@ -1 +1 @@\n-ds.map(load)\n+ds.map(load, num_parallel_calls=8)"
CONTRAST = "(c) => { const x = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; return new Set(x).size }"


def fixed(run: runs.Run) -> runs.Run:
    """The run with one fix proposed and one estimated."""
    proposed = FixResult(
        name="parallel-map:8",
        fixes=("parallel-map:8",),
        what="maps in parallel (8 calls)",
        outcome="accepted",
        why="faster, and the same data",
        verified_speedup=runs.estimate(1.94),
        decision="clearly_faster",
        patch=Patch(diff=DIFF),
        chosen=True,
    )
    hoped = FixResult(
        name="cache", fixes=("cache",), what="a cache", outcome="not verified", why="no time", predicted_speedup=1.4
    )
    return runs.Run(changed(run.report, fixes=(hoped, proposed)), run.trials)


def judged(bottleneck: Bottleneck) -> runs.Run:
    """The starving run with another verdict, and a good part of its time in it."""
    run = runs.starving_run()
    parts = run.report.verdict.attribution_s
    assert parts is not None
    spread = parts.model_copy(update=dict.fromkeys(type(parts).model_fields, 0.01))
    verdict = changed(run.report.verdict, bottleneck=bottleneck, attribution_s=spread)
    return runs.Run(changed(run.report, verdict=verdict), run.trials)


def large() -> runs.Run:
    """100,000 steps."""
    rng = np.random.default_rng(5)
    made = segment(wait_s=0.001 + 0.002 * rng.random(100_000), step_s=0.01)
    return runs.Run(runs.starving_run().report, (trial("ladder", made),))


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return written(tmp_path_factory.mktemp("pages"))


def written(out: Path) -> dict[str, Path]:
    """Each page as a file; that of the starving run with its plots."""
    write_run(out / "starving", *fixed(runs.starving_run()))
    found = {"starving": out / "starving" / "report.html"}
    made = {
        "hostile": fixed(runs.hostile_run()),
        "comparing": runs.comparing_run(),
        "hostile comparison": runs.hostile_comparison(),
        "empty": runs.empty_run(),
        "large": large(),
        **{name: judged(name) for name in get_args(Bottleneck) if name != "inconclusive"},
    }
    for name, run in made.items():
        found[name] = out / f"{name.replace(' ', '-')}.html"
        found[name].write_text(render_page(page_document(run.report, stage(*run)), {}), encoding="utf-8")
    return found


@pytest.fixture
def opened(browser: Browser, pages: dict[str, Path]) -> Iterator[Any]:
    """Opens a page; in the end nothing may have gone wrong in it, and it may not have asked for anything."""
    wrong: list[str] = []
    contexts = []

    def to_open(name: str, *, size: str = "wide", theme: str = "light") -> Page:
        width, height = SIZES[size]
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme))
        page: Page = contexts[-1].new_page()
        page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
        page.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else wrong.append(asked.url))
        page.goto(pages[name].as_uri())
        return page

    yield to_open
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["starving", "hostile", "comparing", "hostile comparison", "empty"])
def test_a_page_is_whole_and_reads_well(opened: Any, name: str, size: str, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = opened(name, size=size, theme=theme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    bad = [
        (found["id"], found["impact"], [node["html"][:200] for node in found["nodes"][:3]])
        for found in axe.run(page).response["violations"]
        if found["impact"] in {"serious", "critical"}
    ]
    assert bad == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("bottleneck", ["input", "dispatch", "compute", "compile", "host", "transfer", "contention"])
def test_every_verdict_can_be_read(opened: Any, bottleneck: str, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = opened(bottleneck, theme=theme)
    found = axe.run(page, options={"runOnly": ["color-contrast"]}).response
    assert [node["html"] for one in found["violations"] for node in one["nodes"]] == []
    assert found["passes"]


def test_the_theme_is_switched(opened: Any) -> None:
    page = opened("starving")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    plot = "getComputedStyle(document.querySelector('svg.plot path[style*=\"--page\"]')).fill"
    assert page.evaluate(plot) == "rgb(255, 255, 255)"
    page.get_by_role("button", name="Dark theme").click()
    assert page.evaluate(ground) == page.evaluate(plot) == "rgb(20, 23, 27)"
    page.get_by_role("button", name="Light theme").click()
    assert page.evaluate(ground) == "rgb(255, 255, 255)"


def test_an_op_leads_by_keys_to_its_line_and_its_finding(opened: Any) -> None:
    page = opened("starving")
    folded = page.locator("details", has_text="The pipeline as a table")
    assert folded.get_attribute("open") is None
    page.locator("a.node").nth(1).focus()
    page.keyboard.press("Enter")
    row = page.locator("#op-2")
    row.wait_for(state="visible")
    assert "my_project/data.py:42" in row.inner_text()
    page.locator("a.node").nth(2).click()
    assert page.evaluate("document.querySelector('tr:target').id") == "op-3"


def test_a_patch_is_copied(opened: Any) -> None:
    page = opened("starving")
    card = page.locator(".fix.proposed")
    assert "1.940x" in card.inner_text()
    page.evaluate("document.addEventListener('copy', () => { window.copied = String(getSelection()) })")
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    card.get_by_role("button", name="Copy").click()
    card.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("window.copied") == f"{DIFF}\n"


def test_the_time_line_zooms_and_tells_of_a_step(opened: Any) -> None:
    page = opened("starving")
    told = page.locator("#timeline .range")
    upper = page.locator("#timeline canvas").first
    assert upper.evaluate(CONTRAST) > 20
    page.get_by_role("button", name="All steps").click()
    assert told.inner_text().startswith("Steps 1 to 400 of 400: mean ")
    assert "waiting for input" in told.inner_text()
    page.get_by_role("button", name="Zoom in").click()
    assert not told.inner_text().startswith("Steps 1 to")
    page.get_by_role("button", name="All steps").click()
    box = page.locator("#timeline .u-over").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, middle, steps=5)
    page.mouse.up()
    dragged = told.inner_text()
    assert not dragged.startswith("Steps 1 to")
    page.locator("#timeline .stage").focus()
    page.keyboard.press("ArrowRight")
    first = page.locator("#timeline .hover").inner_text()
    page.keyboard.press("ArrowRight")
    second = page.locator("#timeline .hover").inner_text()
    assert first.startswith("Step ")
    assert int(second.split()[1]) == int(first.split()[1]) + 1
    page.keyboard.press("0")
    assert told.inner_text().startswith("Steps 1 to 400")
    page.get_by_role("button", name="Dark theme").click()
    assert upper.evaluate(CONTRAST) > 20


@pytest.mark.measured
def test_100_000_steps_are_drawn_within_a_second(opened: Any, pages: dict[str, Path]) -> None:
    assert pages["large"].stat().st_size < 2_000_000
    page = opened("large")
    assert page.locator("#timeline").get_attribute("data-ready") == "yes"
    taken_ms = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert taken_ms < 1_000
    page.get_by_role("button", name="All steps").click()
    assert page.locator("#timeline .range").inner_text().startswith("Steps 1 to 100000 of 100000")
