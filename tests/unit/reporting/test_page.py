"""A plot inside the page: nothing of its file, no identifier that another plot has, colours that follow the theme."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.unit.reporting.conftest import Run, changed, estimate, one, sections
from xttsbench.findings import rules
from xttsbench.records.fix import FixResult
from xttsbench.records.report import Report
from xttsbench.reporting import markdown, page, plots
from xttsbench.reporting.document import Code, Fact, Facts, Finding, Fold, Section, Table
from xttsbench.reporting.page import Tiles, inline, page_document, render_page
from xttsbench.reporting.plots import target
from xttsbench.reporting.scene import stage
from xttsbench.reporting.sections import CAPTIONS, unmeasured
from xttsbench.reporting.sections.naming import speaker
from xttsbench.reporting.sections.report import report_document
from xttsbench.reporting.words import INK, plain


def figures(report: Report) -> dict[str, str]:
    tiles = [block for block in page_document(report).blocks if isinstance(block, Tiles) and block.kind == "figures"]
    return {fact.label: fact.value for one in tiles for fact in one.facts}


def fixed(report: Report, **given: object) -> Report:
    found = {"name": "a", "fixes": ("a",), "what": "does a", "outcome": "accepted", "why": "", **given}
    return changed(report, fixes=(FixResult.model_validate(found),))


def test_the_answer_comes_before_what_it_rests_on(starving) -> None:
    titles = [block.title for block in page_document(starving.report).blocks if isinstance(block, Section)]
    order = ["Where a step's time goes", "The input pipeline", "Findings", "In time"]
    assert [title for title in titles if title in order] == order
    assert titles[-1] == "Methods, distributions and raw data"


def test_the_saving_is_the_step_over_the_gain(starving) -> None:
    measured = figures(fixed(starving.report, verified_speedup=estimate(2.0), chosen=True))
    assert measured == {
        "a step now": "34.2 ms (95 % interval: 33.2 to 35.2)",
        "after the fix, now / gain": "17.1 ms (16.4 to 17.8)",
        "gain, measured": "2.00x (1.94 to 2.06)",
        "the fix": "does a",
    }
    hoped = figures(fixed(starving.report, outcome="not verified", predicted_speedup=3.0))
    assert hoped["gain, estimated only"] == "3.00x"
    assert "after the fix, now / gain" not in hoped
    assert figures(starving.report)["gain, at best"] == "2.02x (1.96 to 2.08)"  # of the cause removed
    bare = changed(starving.report, findings=())
    assert "at best" in figures(bare)


def test_cause_line_and_next_command_stand_at_the_top(starving) -> None:
    blocks = page_document(starving.report).blocks
    first = blocks[: next(place for place, block in enumerate(blocks) if isinstance(block, Section))]
    (facts,) = [block for block in first if isinstance(block, Facts)]
    told = {fact.label: fact.value for fact in facts.facts}
    assert told["cause"] == "load_wav reads files under the interpreter lock and holds up every batch"
    assert told["your line"].startswith("my_project/data.py:42")
    (command,) = [block for block in first if isinstance(block, Code)]
    assert command.lines[0].startswith("xttsbench ")


def test_a_step_that_was_not_measured_says_why(empty) -> None:
    assert figures(empty.report)["a step now"].startswith("not measured: the target raised")


def test_the_machine_is_one_strip_and_what_is_emulated_says_so(starving) -> None:
    facts = next(
        one for one in page_document(starving.report).blocks if isinstance(one, Tiles) and one.kind == "strip"
    ).facts
    assert Fact("processors", "2") in facts
    assert Fact("accelerator", "EMULATED, 15 ms per step") in facts
    assert Fact("GPU", "none") in facts


def test_findings_without_a_loss_and_checks_that_found_nothing_are_folded(starving) -> None:
    document = page_document(starving.report)
    parts = {part.title: part for part in sections(document.blocks)}
    assert [block.rule for block in parts["Findings"].blocks if isinstance(block, Finding)] == [
        "python-function",
        "oscillation",
    ]
    assert isinstance(parts["One finding for information"], Fold)
    fired = {finding.rule for finding in starving.report.findings}
    (table,) = parts[f"{len(set(rules()) - fired)} checks that found nothing"].blocks
    assert isinstance(table, Table)
    assert {row.cells[0].value for row in table.rows} == set(rules()) - fired


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def written(starving, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("written")
    assert page.write_run(directory, *starving) == ()
    return files(directory)


DRAWN = (
    b'<?xml version="1.0"?>\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN"\n "http://www.w3.org/x.dtd">\n'
    b'<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="648pt" viewBox="0 0 648 72" version="1.1">\n'
    b"<metadata><rdf:RDF>x</rdf:RDF></metadata><!-- evil --><style>*{}</style>\n"
    b'<path id="m1" clip-path="url(#p1)" style="fill: #1b1f24; stroke: #cc79a7"/><use xlink:href="#m1"/>\n</svg>\n'
)


def test_what_only_a_file_needs_is_gone_and_identifiers_are_its_own() -> None:
    found = inline("arms-x", DRAWN, 'A "caption" & <b>')
    assert found == (
        '<svg class="plot" role="img" aria-label="A &#34;caption&#34; &amp; &lt;b&gt;" viewBox="0 0 648 72">'
        '<path id="arms-x-m1" clip-path="url(#arms-x-p1)" style="fill: var(--ink); stroke: #cc79a7"/>'
        '<use href="#arms-x-m1"/></svg>'
    )


def test_a_real_plot_has_every_identifier_that_it_names_and_no_ink_of_one_theme(written) -> None:
    drawn = inline("distribution", written["plots/distribution.svg"], "Distribution")
    identifiers = set(re.findall(r'id="([^"]+)"', drawn))
    named = set(re.findall(r'(?:href="#|url\(#)([^")]+)', drawn))
    assert named
    assert named <= identifiers
    assert all(name.startswith("distribution-") for name in identifiers)
    assert INK not in drawn
    assert "var(--ink)" in drawn
    assert not re.search(r"xmlns|xlink|<!|<\?|http", drawn)


_VOID = {"meta"}


def serialize(report: Report, plots: dict[str, bytes]) -> str:
    return render_page(page_document(report), plots)


def with_steps(run: Run) -> str:
    return render_page(page_document(run.report, stage(*run)), {})


class _Page(HTMLParser):
    """Collects text and elements, and checks that the elements nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.words = " ".join(" ".join(self.text).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            if "type" not in self.elements[-1][1]:
                self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.text.append(data)


def test_the_page_is_self_contained_and_runs_no_script_but_its_own(every_run) -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"/>'
    for name, run in every_run.items():
        text = render_page(page_document(run.report, stage(*run)), {"timeline": svg})
        page = _Page(text)
        assert page.open == [], name
        assert not re.search(r"https?://|url\((?!#)|@import", re.sub(r"(?s)<script>.*?</script>", "", text)), name
        (policy,) = [attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes]
        assert policy is not None
        assert policy.startswith("default-src 'none'; "), name
        assert b"Permission is hereby granted" in text.encode() or "uPlot" not in text, name
        allowed = re.findall(r"'sha256-([^']+)'", policy)
        assert allowed == [b64encode(sha256(script.encode()).digest()).decode() for script in page.scripts], name
        identifiers = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
        for tag, attributes in page.elements:
            assert tag not in {"link", "iframe", "object", "form"}, name
            assert not [key for key in attributes if key.startswith("on")], name
            assert (attributes.get("src") or "data:").startswith("data:"), name
            assert (attributes.get("href") or "#finding-1")[1:] in {*identifiers, "finding-1"}, name


def test_what_a_page_says_of_hostile_names_runs_nothing(hostile, starving) -> None:
    assert _Page(with_steps(hostile)).scripts == _Page(with_steps(starving)).scripts


def test_every_finding_and_every_reason_is_in_it(every_run) -> None:
    for name, (report, _) in every_run.items():
        words = _Page(serialize(report, {})).words
        for finding in report.findings:
            assert plain(finding.title) in words, name
            assert finding.rule in words, name
        for fact in (fact for found in unmeasured(report) for fact in one(found, Facts).facts):
            assert speaker(report)(f"{fact.label} {fact.value}") in words, name


def test_a_comparison_comes_first_with_its_plots_by_its_table(comparing) -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"/>'
    drawn = dict.fromkeys(("arms-modes-real-device", "traces-modes-real-device", "timeline"), svg)
    page = _Page(serialize(comparing.report, drawn))
    places = [
        page.words.index(word)
        for word in (
            "run loaders Emulated accelerator, 10 ms a step: packed is 5.71x",
            "REFUSED: tf_fast",
            "loaders: EMULATED accelerator, 10 ms a step configuration utilization",
            "packed 94.3 % 93.4 to 95.3 10.6 ms 10.3 to 10.9",
            "modes: THIS CPU configuration",
            "Not measured the time of a step",
        )
    ]
    assert places == sorted(places)
    plots = [attributes for tag, attributes in page.elements if tag == "svg" and attributes.get("class") == "plot"]
    assert [attributes["aria-label"] for attributes in plots] == [
        "Throughput of each configuration, modes: THIS CPU",
        "Utilization and step time, modes: THIS CPU",
    ]
    for absent in ("undecided :", "Probability", "Where the time", "Findings", "In time"):
        assert absent not in page.words


def test_everything_is_written(written: dict[str, bytes]) -> None:
    expected = {f"plots/{name}.{suffix}" for name in CAPTIONS for suffix in ("png", "svg")}
    assert set(written) == expected | {"report.json", "report.md", "report.html"}
    for name in CAPTIONS:
        assert written[f"plots/{name}.png"].startswith(b"\x89PNG")
        assert b"</svg>" in written[f"plots/{name}.svg"]


def test_a_comparison_writes_its_plots_and_the_same_bytes_again(tmp_path: Path, comparing) -> None:
    assert page.write_run(tmp_path / "a", *comparing) == ()
    first = files(tmp_path / "a")
    groups = ("loaders-emulated-accelerator-10-ms-a-step", "modes-real-device")
    assert set(first) == {"report.json", "report.md", "report.html"} | {
        f"plots/{kind}-{group}.{suffix}" for kind in ("arms", "traces") for group in groups for suffix in ("png", "svg")
    }
    again = plots.draw_one(f"arms-{groups[0]}", stage(*comparing))
    assert (first[f"plots/arms-{groups[0]}.png"], first[f"plots/arms-{groups[0]}.svg"]) == (again.png, again.svg)


def test_a_plot_that_shows_nothing_is_on_no_page(tmp_path: Path, empty) -> None:
    assert page.write_run(tmp_path, *empty) == ()
    written = files(tmp_path)
    assert "plots/distribution.png" in written
    assert b"plots/" not in written["report.md"]
    assert b"<img" not in written["report.html"]


def test_hostile_arms_write_nothing_outside_the_directory(tmp_path: Path, hostile_arms) -> None:
    assert page.write_run(tmp_path / "deep" / "run", *hostile_arms) == ()
    written = {name for name in files(tmp_path) if not name.startswith("deep/run/")}
    assert written == set()
    plots = list((tmp_path / "deep" / "run" / "plots").iterdir())
    assert len(plots) == 8
    assert not [path for path in plots if path.suffix == ".svg" and b"<script" in path.read_bytes()]


def test_the_json_is_the_record_again(tmp_path: Path, hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_write_plots", lambda *_: {})
    page.write_run(tmp_path, *hostile)
    text = (tmp_path / "report.json").read_text(encoding="utf-8")
    assert text.endswith("}\n")
    assert list(Report.model_validate_json(text).model_dump()) == list(Report.model_fields)
    assert Report.model_validate_json(text).verdict == hostile.report.verdict


def test_a_plot_that_fails_costs_a_warning_and_the_other_files_are_the_same_again(
    tmp_path: Path, starving, written: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(scene: object) -> None:
        raise RuntimeError("no font")

    monkeypatch.setitem(target.DRAWERS, "timeline", fail)
    warnings = page.write_run(tmp_path, *starving)
    assert warnings == ("plots/timeline was not drawn: RuntimeError: no font",)
    found = files(tmp_path)
    assert written.keys() - found.keys() == {"plots/timeline.png", "plots/timeline.svg"}
    assert {name for name in found if found[name] != written[name]} == {"report.md"}
    assert b"timeline.png" not in found["report.md"]


def test_what_the_failing_plot_left_out_is_the_same_again(starving, written: dict[str, bytes]) -> None:
    again = plots.draw_one("timeline", stage(*starving))
    assert (written["plots/timeline.png"], written["plots/timeline.svg"]) == (again.png, again.svg)
    text = markdown.render(report_document(starving.report), plots=tuple(CAPTIONS))
    assert text.encode() == written["report.md"]


def test_a_page_that_fails_costs_a_warning_only(tmp_path: Path, empty, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise KeyError("template")

    monkeypatch.setattr(page, "render_page", fail)
    (warning,) = page.write_run(tmp_path, *empty)
    assert warning.startswith("report.html was not written: KeyError")
    assert {"report.json", "report.md"} <= set(files(tmp_path))
