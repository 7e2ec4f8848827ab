"""What the documentation lists is what there is."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import xttsbench
from tests.by_file import load
from xttsbench.pytest_plugin.fixture import TargetBenchmark
from xttsbench.records.report import Report
from xttsbench.scenario.load import load_scenario
from xttsbench.shipped import available, shipped
from xttsbench.xtts.recipe import load_recipe

_PAGE = Path(__file__).parents[2] / "docs" / "findings.md"
_PACKAGE = Path(xttsbench.__file__).parent

# "What came of it.": only who has read the callers knows of what. A docstring begins with a noun or a verb.
_RIDDLE = re.compile(
    r"(Whether )?(what|nothing|none of|of|it|its|that|they|their|them|those|these|this|such|some|which|how|where|who|"
    r"whom|whose|he|she|we|our|you|your)\b",
    re.IGNORECASE,
)


def _script(name: str) -> ModuleType:
    return load(_PAGE.parent / f"{name}.py", f"docs_{name}")


def test_pages_of_reference_and_schemas_are_what_rules_command_line_and_records_give() -> None:
    written: dict[Path, str] = {}
    for name in ("reference", "symptoms", "limits", "screens"):
        written |= _script(name).written()
    assert len(written) >= 12
    for path, made in written.items():
        assert path.read_text(encoding="utf-8") == made, f"{path.name}: make docs writes it again"


def test_the_page_of_the_python_api_has_every_public_name() -> None:
    shown = re.findall(r"^::: xttsbench\.(\w+)$", (_PAGE.parent / "python.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(shown) == sorted({*xttsbench.__all__} - {"__version__"})


def test_the_numbers_that_decide_are_those_of_the_code() -> None:
    text = (_PAGE.parent / "how-it-decides.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d,.]+)(?: to (\d+))?( %)? \| .* \| `([\w.]+)\.([A-Z_]+)` \|$", text, re.MULTILINE)
    assert len(rows) >= 17
    for least, most, per_cent, module, name in rows:
        said = tuple(float(one.replace(",", "")) / (100 if per_cent else 1) for one in (least, most) if one)
        held = getattr(importlib.import_module(f"xttsbench.{module}"), name)
        assert said == pytest.approx(held if isinstance(held, tuple) else (held,)), name
    assert set(re.findall(r"`_?([A-Z][A-Z_]{2,})`", text)) == set(), "names of constants stand in the table alone"


def _prose(page: Path) -> Iterator[str]:
    """Sentences of a page, those in cells of tables and items of lists too, without code."""
    text = re.sub(
        r"^( *)```.*?^\1```$|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    for line in re.sub(r"\n(?![\n|#*-])", " ", text).splitlines():
        for cell in line.split(" | ") if not line.startswith("#") else ():
            yield from (one.strip("|*-# ") for one in re.split(r"(?<=[.;]) +", cell))


_WRITTEN = ("commands", "report-json", "summary-json", "findings", "fixes", "licences")
_BY_HAND = [_PAGE.parents[1] / f"{name}.md" for name in ("README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING")]
_BY_HAND += [page for page in sorted(_PAGE.parent.glob("*.md")) if page.stem not in _WRITTEN]


@pytest.mark.parametrize("page", _BY_HAND, ids=lambda page: page.stem)
def test_a_sentence_begins_with_something_that_acts(page: Path) -> None:
    wrong = re.compile(r"(What|Whether|Who|Whose|Nothing else|Of (?!the|\d))\b")
    assert [one for one in _prose(page) if wrong.match(one) and not one.endswith("?")] == []


@pytest.mark.parametrize("page", [*_BY_HAND, *sorted(_PAGE.parent.rglob("*.md"))], ids=lambda page: page.stem)
def test_no_word_comes_twice(page: Path) -> None:
    twice = re.compile(r"\b([A-Za-z]+) \1\b")
    assert [found[0] for one in _prose(page) for found in twice.finditer(one)] == []


def test_the_figures_of_sweeps_are_those_of_the_benchmark() -> None:
    results = json.loads((_PAGE.parents[1] / "reports/reference/benchmarks/sweeps.json").read_text(encoding="utf-8"))
    plain = {one["question"]: one["value"] for one in results["figures"] if one["noise"] == "plain"}
    false = max(value for question, value in plain.items() if question.startswith("false winners"))
    text = (_PAGE.parent / "sweeps.md").read_text(encoding="utf-8")
    assert f"at most {false:.1%} name a winner".replace("%", " %") in text
    assert f"{plain['one of 8 arms 5% faster found']:.1%} find".replace("%", " %") in " ".join(text.split())


def test_the_figure_of_the_readme_is_that_of_the_runs_without_a_neighbour() -> None:
    results = json.loads((_PAGE.parents[1] / "reports/reference/benchmarks/noise.json").read_text(encoding="utf-8"))
    alone = results["value"]["none"]
    runs, most = alone["right"] + alone["undecided"] + alone["wrong"], alone["verdict_final_s_most"]
    where = f"[{runs} runs without a neighbour](reports/reference/benchmarks/noise.md)"
    said = f"In {where} the verdict stood after {most:.0f} s at most"
    assert said in " ".join((_PAGE.parents[1] / "README.md").read_text(encoding="utf-8").split())


def test_the_recipes_on_the_page_of_speech_are_those_that_are_shipped() -> None:
    text = (_PAGE.parent / "speech.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| `(\w+)` \| ([\d.]+) million \|", text, re.MULTILINE)
    assert [name for name, _ in names] == sorted(available("training"), key=["tiny", "small", "base"].index)
    for name, millions in names:
        path = shipped("training", name)
        said = re.search(r"^model: # ([0-9.]+) million parameters$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert said is not None
        assert said[1] == millions
        recipe = load_recipe(path)
        frames = recipe.batches.frame_edges[-1]
        seconds = frames * recipe.features.hop_samples / recipe.features.sample_rate_hz
        assert f"| {frames} frames, {seconds:.1f} s | {recipe.batches.text_edges[-1]} |" in text


def test_the_defaults_on_the_page_of_the_fixture_are_its_own() -> None:
    pytest.importorskip("pytest_benchmark")
    text = (_PAGE.parent / "pytest.md").read_text(encoding="utf-8")
    given = inspect.signature(TargetBenchmark.__call__).parameters
    said = {"steps": (240, 10), "blocks": (3,), "budget_s": (120,)}
    assert tuple(given[name].default for name in ("steps", "window_s")) == said["steps"]
    assert (given["blocks"].default, given["budget_s"].default) == (said["blocks"][0], said["budget_s"][0])
    assert all(f"({', '.join(map(str, values))})" in text for values in said.values())
    listed = {one for row in re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE) for one in re.findall(r"`(\w+)`", row)}
    assert listed == {*given} - {"self", "target"}


def test_the_sentence_below_the_table_of_limits_is_what_the_code_says() -> None:
    text = " ".join((_PAGE.parent / "gates.md").read_text(encoding="utf-8").split())
    assert "between two runs no number of processes passes a limit of 5 %, and 10 % takes five of each side" in text
    cell = _script("limits")._cell

    def least(processes: int, spread: float) -> float:
        return float(cell(processes, spread, two=True).partition("%")[0])

    assert least(1_000, 1e-6) > 5
    assert least(4, 0.03) > 10 >= least(5, 0.03)


def test_every_scenario_on_a_page_is_one(tmp_path: Path) -> None:
    found = 0
    for page in ("comparing", "scenarios"):
        text = (_PAGE.parent / f"{page}.md").read_text(encoding="utf-8")
        for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            if "jobs:" in block:
                continue
            whole = block if "name:" in block else f"name: short\ntarget: data.py:make\n{block}"
            (file := tmp_path / "one.yaml").write_text(whole, encoding="utf-8")
            scenario = load_scenario(file, target=lambda _: None, accelerator=lambda _: None)
            found += scenario.name in ("throughput", "batch", "short")
    assert found >= 5


def test_each_test_that_the_page_of_faults_names_is_there() -> None:
    tests, text = _PAGE.parents[1] / "tests", (_PAGE.parent / "robustness.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:unit|tf|e2e)/[\w/]+\.py)", text))
    assert len(named) >= 20
    assert {one for one in named if not (tests / one).is_file()} == set()


def test_every_link_leads_somewhere() -> None:
    links = _script("links")
    assert list(links.broken(links.ROOT)) == []


def test_the_readme_opens_with_what_sets_up_diagnoses_tests_and_installs() -> None:
    root = _PAGE.parents[1]
    text = (root / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    before_the_picture = text.partition("\n![")[0]
    checkout, elsewhere = re.findall(r"^```\n(.*?)^```$", before_the_picture, re.MULTILINE | re.DOTALL)
    typed = [line.partition("#")[0].strip() for line in checkout.splitlines()]
    assert typed == ["make diagnose", "make test"]
    assert elsewhere.startswith("pip install .\n")
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{one.removeprefix('make ')}: .*##", makefile, re.MULTILINE) for one in typed)
    (takes,) = re.findall(r"^test: .*## .*, (some .*)$", makefile, re.MULTILINE)
    assert all(takes in page for page in (checkout, (root / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    assert typed[1] in (root / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_the_tutorial_s_code_and_figures_are_those_of_its_runs() -> None:
    runs = _PAGE.parents[1] / "reports" / "reference" / "tutorial"
    text = (_PAGE.parent / "tutorial.md").read_text(encoding="utf-8")
    code = (runs / "data.py").read_text(encoding="utf-8").partition("import time")
    assert "".join(code[1:]) in text
    for name in ("before", "after"):
        report = Report.model_validate_json((runs / name / "report.json").read_bytes())
        step = report.verdict.step_time_s
        assert f"{step.estimate * 1e3:.3g} ms ({step.low * 1e3:.3g}"[:7] in text
        assert shlex.join(shlex.split(report.command)) in text
    for line in (runs / "faster" / "patch.diff").read_text(encoding="utf-8").splitlines()[2:]:
        if line[:1] in "+-":
            assert f"\n{line}\n" in text


def test_the_notebook_runs_and_its_outputs_are_those_of_its_runs(tmp_path) -> None:
    source, copy = _PAGE.parent / "runs-as-frames.ipynb", tmp_path / "copy.ipynb"
    command = [sys.executable, str(_PAGE.parent / "notebook.py"), str(source), str(copy)]
    environment = os.environ | {"IPYTHONDIR": str(tmp_path), "PYTHONPATH": str(_PACKAGE.parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    def outputs(path: Path) -> list[list[object]]:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found = [one for cell in cells for one in cell.get("outputs", ())]
        return [one.get("text") or [*one["data"]] for one in found]

    assert outputs(copy) == outputs(source)
    assert ["image/png"] in outputs(source)


def test_the_code_on_the_page_of_frames_runs(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "before").symlink_to(_PAGE.parents[1] / "reports" / "reference" / "tutorial" / "before")
    (code,) = re.findall(r"^```python\n(.*?)^```", (_PAGE.parent / "frames.md").read_text("utf-8"), re.M | re.S)
    exec(code, {})
    assert "ms of waiting for input in a step" in capsys.readouterr().out


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
    root = _PAGE.parents[1]
    for page in (root / "README.md", _PAGE.parent / "index.md", _PAGE.parent / "tutorial.md"):
        (alt,) = re.findall(r"^!\[(.*)\]\(.*verdict\.svg\)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        for time in re.findall(r"[\d.]+ ms", alt):
            assert f"{time.replace(' ', '&#160;')}&#160;(" in stored, f"{page.name}: {time}"


def test_the_site_has_every_page_once() -> None:
    listed = re.findall(r": ([\w./-]+\.md)$", (_PAGE.parents[1] / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    beside = {"ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "reports/reference/README.md"}
    assert sorted(listed) == sorted({path.name for path in _PAGE.parent.glob("*.md")} | beside)


def _docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, those under fields and constants too."""
    for node in ast.walk(ast.parse(source)):
        for one in node.body if isinstance(getattr(node, "body", None), list) else ():
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield one.lineno, one.value.value.strip()


def _riddles(source: str) -> list[tuple[int, str]]:
    return [(line, text.partition("\n")[0]) for line, text in _docstrings(source) if _RIDDLE.match(text)]


def test_every_docstring_begins_with_a_noun_or_a_verb() -> None:
    found = [
        f"{path.relative_to(_PACKAGE)}:{line}: {text}"
        for path in sorted(_PACKAGE.rglob("*.py"))
        for line, text in _riddles(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)
