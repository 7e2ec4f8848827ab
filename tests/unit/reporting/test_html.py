from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

from tests.unit.reporting.conftest import Run, one
from xttsbench.records.report import Report
from xttsbench.reporting.document import Facts
from xttsbench.reporting.html import render
from xttsbench.reporting.page import page_document
from xttsbench.reporting.scene import stage
from xttsbench.reporting.sections import unmeasured
from xttsbench.reporting.words import plain

_VOID = {"meta"}


def serialize(report: Report, plots: dict[str, bytes]) -> str:
    return render(page_document(report), plots)


def with_steps(run: Run) -> str:
    return render(page_document(run.report, stage(*run)), {})


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
        text = render(page_document(run.report, stage(*run)), {"timeline": svg})
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
            assert f"{fact.label} {fact.value}" in words, name


def test_the_verdict_comes_first_and_the_residual_is_listed(starving) -> None:
    words = _Page(serialize(starving.report, {})).words
    body = words[words.index("input : The step waits") :]
    assert body.index("Probability over 99 %") < body.index("step time, mean 34.2 ms (33.2 to 35.2)")
    assert "unattributed 390 µs 1.1 %" in body


def test_the_bar_has_the_shares_of_the_parts(starving) -> None:
    elements = _Page(serialize(starving.report, {})).elements
    shares = [
        float(re.fullmatch(r"width: ([\d.]+)%", attributes["style"])[1])
        for tag, attributes in elements
        if tag == "div" and "style" in attributes
    ]
    assert abs(sum(shares) - 100) < 0.01
    assert abs(shares[0] - 52.3) < 0.2


def test_a_null_is_not_measured(empty) -> None:
    words = _Page(serialize(empty.report, {})).words
    assert "step time, mean not measured: the target raised ValueError at step 0" in words


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
            "modes: REAL device configuration",
            "Not measured the time of a step",
        )
    ]
    assert places == sorted(places)
    plots = [attributes for tag, attributes in page.elements if tag == "svg" and attributes.get("class") == "plot"]
    assert [attributes["aria-label"] for attributes in plots] == [
        "Throughput of each configuration, modes: REAL device",
        "Utilization and step time, modes: REAL device",
    ]
    for absent in ("undecided :", "Probability", "Where the time", "Findings", "In time"):
        assert absent not in page.words


def test_the_rows_of_a_comparison_are_told_apart_and_dead_arms_have_no_bar(comparing) -> None:
    elements = _Page(serialize(comparing.report, {})).elements
    rows = [attributes["class"] for tag, attributes in elements if tag == "tr" and "class" in attributes]
    assert rows == ["baseline", "faster", "slower", "ended", "ended", "again", "baseline", "faster"]
    meters = [attributes["style"] for tag, attributes in elements if tag == "span" and "style" in attributes]
    assert meters[:2] == ["width: 16.5%", "width: 94.3%"]
    assert len(meters) == 6
