"""The benchmark of other people's code: what is taken of a file is as it was; the tables say what was measured."""

import json
import shutil
import subprocess
from pathlib import Path

import outcomes
import pytest
from listed import PIPELINES, REPOSITORIES
from published import PublishedError, commit, taken, target

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "reports/reference/benchmarks/others.json"

CELLS = {
    "imports": "import numpy as np\nimport os",
    "magic": "%%writefile missing.csv\n1,2",
    "work": "limit = 3\n\n\n@twice\n# why\ndef double(x):\n  return x * 2  # é\n\nclass Kept:\n  a = 'é'",
    "call": "benchmark(\n    data('é')\n    .map(  # one at a time\n        double\n    ),\n    5\n)",
}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    cells = [{"cell_type": "markdown", "source": ["# no id"], "metadata": {}}]
    cells += [{"source": text.splitlines(keepends=True), "metadata": {"id": name}} for name, text in CELLS.items()]
    folder = tmp_path / "code" / "guide"
    folder.mkdir(parents=True)
    (folder / "data.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    (folder / "module.py").write_text("from a import b as c\n\n\ndef one():\n    return c\n\n", encoding="utf-8")
    return folder.parent


@pytest.mark.parametrize(
    ("path", "words", "text"),
    [
        ("guide/data.ipynb", "magic", CELLS["magic"]),
        ("guide/data.ipynb", "work limit", "limit = 3"),
        ("guide/data.ipynb", "work double", "@twice\n# why\ndef double(x):\n  return x * 2  # é"),
        ("guide/data.ipynb", "work Kept", "class Kept:\n  a = 'é'"),
        ("guide/data.ipynb", "imports np", "import numpy as np"),
        ("guide/data.ipynb", "call benchmark()", "data('é')\n.map(  # one at a time\n    double\n)"),
        ("guide/module.py", "", "from a import b as c\n\n\ndef one():\n    return c"),
        ("guide/module.py", "one", "def one():\n    return c"),
        ("guide/module.py", "c", "from a import b as c"),
    ],
)
def test_what_is_taken_is_as_it_was(code: Path, path: str, words: str, text: str) -> None:
    assert taken(code, path, words) == text


@pytest.mark.parametrize(
    ("path", "words", "why"),
    [
        ("guide/none.py", "", "guide/none.py: not in .*README.md says what to clone"),
        ("guide/data.ipynb", "", r"no cell '\(none named\)'"),
        ("guide/data.ipynb", "gone", "no cell 'gone'; another commit"),
        ("guide/data.ipynb", "work triple", "nothing called triple in 'work triple'"),
        ("guide/data.ipynb", "call other()", r"nothing called other\(\)"),
    ],
)
def test_what_is_not_there_is_named(code: Path, path: str, words: str, why: str) -> None:
    with pytest.raises(PublishedError, match=why):
        taken(code, path, words)


def test_a_target_is_the_template_with_the_code_in_its_place(code: Path) -> None:
    template = (
        "@take guide/data.ipynb work limit\n\ndef f(root=@data flowers):\n    @take guide/data.ipynb work double\n"
    )
    text = target(template, code, Path("/made"))
    assert text.splitlines()[0] == "limit = 3"
    assert text.splitlines()[2:] == [
        "def f(root='/made/flowers'):",
        "    @twice",
        "    # why",
        "    def double(x):",
        "      return x * 2  # é",
    ]


def test_the_targets_take_each_file_from_a_repository_of_the_list() -> None:
    listed = (ROOT / "benchmarks/others/README.md").read_text(encoding="utf-8")
    for pipeline in PIPELINES:
        template = pipeline.template() + (pipeline.template(pipeline.advised) if pipeline.advised else "")
        folders = {line.split("@take ")[1].split("/")[0] for line in template.splitlines() if "@take " in line}
        folders |= {tree.split("/")[0] for tree in pipeline.trees}
        assert pipeline.clone in folders
        assert all(f"| {REPOSITORIES[folder]} | `{folder}` |" in listed for folder in folders)
        assert pipeline.script or f"def {pipeline.name}(" in template
        assert not pipeline.own or f"def {pipeline.own}(" in template


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_the_commit_of_a_clone(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(
        ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "a", "--allow-empty"],
        check=True,
    )
    assert len(commit(tmp_path)) == 40
    assert commit(tmp_path / "none") == "no clone"


def report(**more: object) -> dict:
    verdict = {
        "bottleneck": "input",
        "confidence": 1.0,
        "summary": "Most costly is MapDataset/_4 (/home/a/code/data.py:2).",
        "step_time_s": {"estimate": 0.04, "low": 0.03, "high": 0.05},
        "attribution_s": {"input": 0.03},
    }
    location = {"file": "/home/a/code/data.py", "line": 2, "op": "MapDataset/_4"}
    found = {"rule": "sequential-map", "limiting": True, "location": location, "remedy": "See /home/a/code/data.py:2."}
    passed = found | {"limiting": False, "location": location | {"line": 1}}
    return {"verdict": verdict, "findings": [passed, found], "fixes": None, "optimized": None} | more


def test_what_a_report_says_names_the_line_of_the_code_and_no_folder_of_the_machine() -> None:
    row = outcomes.said(report(), "data.py", "a\n  b.map(c)\n")
    assert (row["verdict"], row["share"], row["step_ms"]) == ("input", 0.75, 40.0)
    assert (row["rule"], row["line"], row["code"]) == ("sequential-map", 2, "b.map(c)")
    assert row["summary"] == "Most costly is MapDataset/_4 (data.py:2)."
    assert row["remedy"] == "See data.py:2."
    assert (row["fixes"], row["what"], row["same"], row["not_accepted"]) == ([], None, None, {})
    accepted = {
        "name": "a",
        "outcome": "accepted",
        "why": "3",
        "chosen": True,
        "what": "a cache after ParallelMapDatasetV2/_6",
    }
    fixes = [accepted, {"name": "b", "outcome": "rejected", "why": "random"}]
    applied = {"fixes": ["a"], "equivalent": True, "data": "44 elements", "speedup": {"estimate": 3.0}}
    row = outcomes.said(report(fixes=fixes, optimized=applied), "other.py", "a\nb")
    assert (row["fixes"], row["what"], row["same"], row["not_accepted"]) == (
        ["a"],
        "a cache after map",
        True,
        {"b": "random"},
    )
    assert row["code"] is None


def ratio(low: float, estimate: float, high: float) -> dict:
    return {"low": low, "estimate": estimate, "high": high}


INPUT = {
    "verdict": "input",
    "known": ["input"],
    "ratio": ratio(2, 2.2, 2.4),
    "same": True,
    "fixes": ["cache"],
    "what": "a cache",
}
NOT_FASTER = ratio(0.9, 0.97, 1.04) | {"same": True}
FASTER = ratio(1.5, 2.0, 2.5)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (INPUT, "right"),
        (INPUT | {"own_ratio": ratio(2.1, 2.3, 2.5)}, "right"),
        (INPUT | {"own_ratio": ratio(4, 5, 6)}, "right in part: its authors' own form is 5 times as fast"),
        (INPUT | {"ratio": ratio(0.9, 1.1, 1.3)}, "undecided"),
        (INPUT | {"ratio": ratio(0.7, 0.8, 0.9)}, "wrong: slower"),
        (INPUT | {"same_in_loop": False}, "wrong: other data"),
        (INPUT | {"verdict": "compute"}, "wrong: input is right"),
        (INPUT | {"verdict": "inconclusive"}, "undecided"),
        (INPUT | {"ratio": None, "fixes": []}, "silent: no fix"),
        (
            INPUT | {"ratio": None, "fixes": [], "not_accepted": {"prefetch": "undecided: 1.5", "pool": "slower"}},
            "undecided: prefetch",
        ),
        (
            INPUT | {"ratio": None, "fixes": [], "own_ratio": ratio(4, 5, 6)},
            "silent: its authors' own form is 5 times as fast",
        ),
        (INPUT | {"ratio": None, "tried": {"a": NOT_FASTER}}, "right: nothing to change, as tried by hand"),
        (
            INPUT | {"ratio": None, "tried": {"a": NOT_FASTER, "b": FASTER | {"same": None}}},
            "silent: b by hand is faster",
        ),
        (INPUT | {"ratio": None, "tried": {"a": NOT_FASTER, "b": ratio(0.9, 1.05, 1.2)}}, "silent: no fix"),
        (
            INPUT | {"ratio": None, "tried": {"a": NOT_FASTER, "b": FASTER | {"same": False}}},
            "right: nothing to change, as tried by hand",
        ),
        (INPUT | {"ratio": None, "tried": {"b": FASTER | {"same": False}}}, "silent: no fix"),
        (INPUT | {"ratio": None, "tried": {"a": NOT_FASTER}, "own_ratio": ratio(0.9, 1.05, 1.2)}, "silent: no fix"),
        ({"verdict": "compute", "known": ["compute"]}, "right: nothing to change"),
        ({"verdict": "compute", "known": ["compute"], "tried": {"a": NOT_FASTER}}, "right: nothing to change"),
        ({"verdict": "compute", "known": ["compute"], "tried": {"a": FASTER}}, "silent: a by hand is faster"),
        ({"failed": "no report"}, "wrong: no report"),
    ],
)
def test_an_outcome_is_of_the_verdict_and_of_the_loop(row: dict, said: str) -> None:
    assert outcomes.outcome(row) == said


def test_the_tables_have_each_row_and_keep_hostile_text_in_its_cell() -> None:
    row = INPUT | {
        "case": "a",
        "title": "A | <b>",
        "repository": "docs",
        "commit": "0" * 40,
        "command": "xttsbench optimize a.py:a",
        "code": "x.map(`|`)",
        "before_ms": 123.4,
        "after_ms": 5.678,
        "patch": True,
        "seconds": 91.2,
        "machine": "others used 7 %",
        "not_accepted": {"pool": "slower\n| by far"},
        "outcome": "right",
    }
    page = outcomes.markdown({"machine": "2 processors", "rows": [row]})
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert len(lines) == 3
    assert len({line.count("|") for line in lines}) == 1
    assert "| A / &lt;b> |" in lines[2]
    assert "| 123 | 5.68 | 2.2 (2 to 2.4) |" in lines[2]
    assert "- a: pool (slower / by far)" in page
    assert "- a: others used 7 %" in page
    silent = row | {"ratio": None, "outcome": "silent: no fix", "case": "b", "tried": {"cache": NOT_FASTER}}
    short = outcomes.readme([silent, row, row | {"case": "c"}, row | {"repository": "d", "outcome": "wrong"}])
    assert short[0].startswith("Of 4 public pipelines, as published, 2 became faster: 2 by what `xttsbench ")
    assert short[4:] == ["| A / &lt;b> | a cache | 123 | 5.68 |", "| A / &lt;b> | **wrong** | 123 | 5.68 |"]
    failed = {"case": "a", "title": "a", "command": "xttsbench diagnose a --budget 75", "failed": "no"}
    assert outcomes.readme([failed])[4:] == []
    pages = outcomes.cases([row, silent, failed | {"outcome": "wrong: no"}])
    assert pages[2].startswith(
        "| A / &lt;b> | `a` | `xttsbench optimize a.py:a` | input | cache (patch) | 123 | 5.68 |"
    )
    assert pages[3] == ""
    assert pages[6].endswith(
        "| 123 | silent: no fix | pool (slower / by far) | cache 0.97 (0.9 to 1.04), the same data |"
    )
    assert pages[7] == "| a | `a` | `xttsbench diagnose a --budget 75` | nothing |  | wrong: no |  |  |"
    start, end = outcomes.MARKS
    assert outcomes.with_table(f"before\n{start}\nold\n{end}\nafter", ["new"]) == f"before\n{start}\nnew\n{end}\nafter"
    with pytest.raises(ValueError, match="to put the table between"):
        outcomes.with_table("no marks", [])


def test_the_tables_of_the_pages_are_those_of_the_results() -> None:
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    assert len(rows) >= 5
    assert len({row["repository"] for row in rows}) >= 3
    assert [row["outcome"] for row in rows] == [outcomes.outcome(row) for row in rows]
    for page, table in (("README.md", outcomes.readme), ("docs/case-studies.md", outcomes.cases)):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert outcomes.with_table(text, table(rows)) == text, "python benchmarks/others --readme writes it again"
    assert RESULTS.with_suffix(".md").read_text(encoding="utf-8") == outcomes.markdown(
        json.loads(RESULTS.read_text(encoding="utf-8"))
    )
