"""The words of every output: no riddle of the project's own in a report, a command's help, an explanation or a message.

What is code stays as it is: what stands in backticks, quotes or ``<code>``, ids with a hyphen, paths, and options.
"""

from __future__ import annotations

import ast
import html as entities
import re
import unicodedata
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import xttsbench
from tests.unit.cli.made import COMMAND, invoke
from tests.unit.reporting.conftest import Run
from tests.unit.reporting.sections.test_compare import made as made_comparison
from tests.unit.reporting.sections.test_summary import STORED, optimized, stored, undecided
from xttsbench.cli.read import Kind
from xttsbench.reporting import console, markdown
from xttsbench.reporting.document import Document, View
from xttsbench.reporting.page import page_document, render_page
from xttsbench.reporting.scene import stage
from xttsbench.reporting.sections.compare import comparison_document
from xttsbench.reporting.sections.report import report_document
from xttsbench.reporting.words import label, missed, plain, plain_lines
from xttsbench.workflows.explain import explain, explanations

RIDDLES: Final = {
    r"arms?": "configuration",
    r"as[- ](?:given|is)": "original",
    r"blocks?(?! device| align)": "repeat, round",
    r"(?<!CPU )contention": "CPU contention",
    r"decisions?|inconclusive": "result; undecided",
    r"dispatch": "launch overhead",
    r"gone on with|listened to|told": "resumed, heard, reported",
    r"host(?! work|:port|'s memory|'s, so|>\d)": "host work between steps; processor",
    r"rungs?|ladders?|bouts?": "experiment",
    r"limiting": "the bottleneck",
    r"(?:a|one|each|every|another) looks?": "screening",
    r"(?:un)?verified|predicted": "measured, estimated",
    r"resamples?": "probability",
    r"residual": "unattributed",
    r"settle[sd]?|settling": "steady",
    r"A/A": "noise check",
}
"""What people must not meet as a word, to what they read instead."""
_RIDDLE: Final = re.compile(rf"(?<![\w/.`'\"-])(?:{'|'.join(RIDDLES)})(?![\w/`'\"-])", re.IGNORECASE)
_CODE: Final = re.compile(r"`[^`]*`")
_QUOTED: Final = {"not verified", "paired blocks", "host reads removed", "host reads removed: "}
"""Values of a record, which programs read."""
_PACKAGE: Final = Path(xttsbench.__file__).parent


def riddles(text: str) -> list[str]:
    """Each with what stands around it."""
    text = _CODE.sub("", text)
    return [text[max(0, found.start() - 40) : found.end() + 40] for found in _RIDDLE.finditer(text)]


def prose(page: str) -> str:
    """The text of a page, without its code."""
    bare = re.sub(r"<(style|script|code|pre)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return entities.unescape(re.sub(r"<[^>]*>", " ", bare))


def shown(document: Document) -> Iterator[tuple[str, str]]:
    for view in View:
        yield f"console, {view.name}", console.render(document, width=400, color=False, view=view)
    text = re.sub(r"^(`{3,}).*?^\1$", "", markdown.render(document), flags=re.DOTALL | re.MULTILINE)
    yield "report.md", text.replace("\\", "")


def test_no_report_speaks_in_riddles(every_run: dict[str, Run]) -> None:
    kinds = ("starving", "eager", "empty", "comparing")
    reports = {name: every_run[name] for name in kinds}
    made = {"optimized": optimized(), "undecided": undecided()} | {str(path): stored(path) for path in STORED}
    reports |= {name: Run(report, ()) for name, report in made.items()}
    for name, run in reports.items():
        page = render_page(page_document(run.report, stage(*run)), {})
        for where, text in (*shown(report_document(run.report, "reports/one")), ("report.html", prose(page))):
            assert riddles(text) == [], (name, where)


def test_no_comparison_speaks_in_riddles() -> None:
    for where, text in shown(comparison_document(made_comparison("one", outcomes=("passed", "failed", "undecided")))):
        assert riddles(text) == [], where


def commands(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *path, name)


def test_no_help_speaks_in_riddles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    every = list(commands(COMMAND))
    assert ("data", "make") in every
    for path in every:
        said = invoke(*path, "--help")
        assert said.exit_code == 0, path
        assert riddles(said.stdout) == [], path


def test_no_explanation_and_no_list_speaks_in_riddles() -> None:
    for name in [one.name for one in explanations()]:
        found = explain(name)
        for text in (found.about, found.summary, *found.parts, *map(str, found.parts.values())):
            assert riddles(text) == [], name
    for kind in Kind:
        said = invoke("list", kind.value)
        assert said.exit_code == 0
        assert riddles(said.stdout) == [], kind


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Strings of a module with a space in them that are no docstrings: messages, progress, titles, reasons."""
    left = deque([ast.parse(path.read_text(encoding="utf-8"))])
    while left:
        node = left.popleft()
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and " " in node.value and node.value not in _QUOTED:
                yield node.lineno, node.value
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            left.extend(ast.iter_child_nodes(node))


def test_no_message_of_the_package_speaks_in_riddles() -> None:
    every = {path: list(sentences(path)) for path in sorted(_PACKAGE.rglob("*.py"))}
    assert sum(map(len, every.values())) > 1_000
    found = [f"{path}:{line}: {one}" for path, said in every.items() for line, text in said for one in riddles(text)]
    assert found == []


def test_no_page_of_the_documentation_speaks_in_riddles() -> None:
    pages = (_PACKAGE.parent / "README.md", *sorted((_PACKAGE.parent / "docs").glob("*.md")))
    assert len(pages) > 15
    for page in pages:
        if page.name in ("report-json.md", "summary-json.md"):
            continue  # of the names that the record has
        text = re.sub(r"^(`{3,}).*?^\1$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        assert riddles(text) == [], page


def test_names_of_fields_are_in_the_words_of_the_field() -> None:
    assert label("contention per step") == "CPU contention per step"
    assert label("host per step") == "host work per step"
    assert label("predicted with") == "estimated with"
    assert label("pace share up to it").startswith("share of the time of all ops up to it")  # no figure of one op
    assert label("call time").startswith("time of one call")
    assert label("op cost per batch").endswith("all calls added up")
    assert label("machine busy") == "share of all processors in use meanwhile, by anybody"
    assert "from its first measured step to the last" in label("cpus used")
    assert missed("trials.ladder (repeat 1)") == "the isolation experiments in another process"
    assert missed("trials.graph") == "the step as one graph"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\r\nb\tc", "a b c"),
        ("a\x00\x07\x7fb", "ab"),
        ("a\u202eb\u2066c", "abc"),
        ("caf\udce9", "caf\N{REPLACEMENT CHARACTER}"),
        ("größe=µ 中", "größe=µ 中"),
    ],
)
def test_what_moves_the_cursor_goes_and_what_can_be_read_stays(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.text(st.characters(codec=None)))
def test_plain_text_is_one_line_that_encodes_and_holds_no_control_character(text: str) -> None:
    shown = plain(text)
    shown.encode()
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert plain(shown) == shown


def test_lines_keep_their_indentation() -> None:
    assert plain_lines("\nfirst:\n\tx = 1\x1b[0m  \r\n    y\n") == ("first:", "    x = 1", "    y")
