"""What the documentation lists is what there is."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest
from typer.main import get_command

from xttsbench.cli.app import app
from xttsbench.cli.train import with_value_of_best
from xttsbench.findings.page import page
from xttsbench.records.report import Report

_PAGE = Path(__file__).parents[2] / "docs" / "findings.md"


def test_the_page_of_the_rules_is_what_the_registry_gives() -> None:
    assert _PAGE.read_text(encoding="utf-8") == page(), "make docs writes it again"


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, _PAGE.parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_link_leads_somewhere() -> None:
    links = _script("links")
    assert list(links.broken(links.ROOT)) == []


def test_a_link_that_leads_nowhere_is_named(tmp_path) -> None:
    links = _script("links")
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


_PAGES = (*_PAGE.parents[1].glob("*.md"), *_PAGE.parent.glob("*.md"))


def _commands() -> set[str]:
    """Every command of a block of the documentation, without what follows it in its line."""
    found = set()
    for one in _PAGES:
        fence = None
        for line in one.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            if line.startswith("```"):
                fence = None if fence is not None else line[3:]
            elif fence == "" and line.startswith("xttsbench ") and "[" not in line:
                found.add(re.split(r" +[#>|] ?|   +", re.sub(r"  +--", " --", line))[0].strip())
    return found


@pytest.mark.parametrize("command", sorted(_commands()))
def test_a_command_of_the_documentation_is_one(command) -> None:
    group = get_command(app)
    _, name, *words = shlex.split(command)
    found = group.commands[name]
    if name == "data":
        name, *words = words
        found = found.commands[name]
    found.make_context(name, with_value_of_best(["train", *words])[1:] if name == "train" else words)


def test_the_commands_of_the_tutorial_are_among_them() -> None:
    assert {"xttsbench explain thread-pool", "xttsbench optimize data.py:make --budget 60 --out reports/faster"} <= (
        _commands()
    )


def test_the_tutorial_s_code_and_figures_are_those_of_its_runs() -> None:
    runs = _PAGE.parents[1] / "reports" / "reference" / "tutorial"
    text = (_PAGE.parent / "tutorial.md").read_text(encoding="utf-8")
    code = (runs / "data.py").read_text(encoding="utf-8").partition("import time")
    assert "".join(code[1:]) in text
    for name in ("before", "after"):
        report = Report.model_validate_json((runs / name / "report.json").read_bytes())
        step = report.verdict.step_time_s
        assert step is not None
        assert f"{step.estimate * 1e3:.3g} ms ({step.low * 1e3:.3g}"[:7] in text
        assert shlex.join(shlex.split(report.command)) in text
    for line in (runs / "faster" / "patch.diff").read_text(encoding="utf-8").splitlines()[2:]:
        if line[:1] in "+-":
            assert f"\n{line}\n" in text


def test_the_picture_is_of_a_stored_run_and_asks_nothing_of_the_network() -> None:
    run = _PAGE.parents[1] / "reports" / "reference" / "tutorial" / "faster"
    made, stored = (
        _script("picture").picture(run),
        (_PAGE.parent / "images" / "verdict.svg").read_text(encoding="utf-8"),
    )
    for svg in (made, stored):
        assert "The&#160;step&#160;waits&#160;97%&#160;of&#160;its&#160;time&#160;for&#160;data" in svg
        assert not set(re.findall(r"https?://[^\"') ]+", svg)) - {
            "http://www.w3.org/2000/svg",
            "https://www.textualize.io",
        }


def test_the_site_has_every_page_once() -> None:
    listed = re.findall(
        r": ([a-z-]+\.md)$", (_PAGE.parents[1] / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(listed) == sorted(path.name for path in _PAGE.parent.glob("*.md"))
