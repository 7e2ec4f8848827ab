"""Every name that a report may hold can be explained, and a mistyped one is helped.

A target file to start from: what it imports and calls, and what it refuses. Runs of one are in tests/e2e.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import get_args

import pytest

from xttsbench.errors import TargetError, UsageError
from xttsbench.findings import RULES, rules
from xttsbench.fixes.registry import SPECS
from xttsbench.records.report import Bottleneck
from xttsbench.targets.source.scan import scan_text
from xttsbench.workflows.explain import Parts, explain, explanations, write_target


def test_every_verdict_rule_and_fix_has_words() -> None:
    found = {one.name: one for one in explanations() if one.kind != "symptom"}
    assert found.keys() == rules().keys() | set(get_args(Bottleneck)) | SPECS.keys()
    for one in explanations():
        assert one.summary.endswith(".")
        assert all(text for text in one.parts.values())


SYMPTOMS = [one for one in explanations() if one.kind == "symptom"]


@pytest.mark.parametrize("one", SYMPTOMS, ids=lambda one: one.name)
def test_a_symptom_leads_to_names_that_there_are_and_its_words_to_it_alone(one) -> None:
    assert all(explain(name).kind != "symptom" for name in one.parts["What may be behind it"])
    assert [explain(said).name for said in (one.name, one.about, *one.aliases)] == [one.name] * (2 + len(one.aliases))


def test_every_name_that_an_explanation_prints_can_be_explained() -> None:
    for one in explanations():
        for heading in ("Written", "Fixes", "Findings that it mends", "What may be behind it"):
            for line in one.parts.get(heading, ()):
                assert explain(line.partition(" (")[0]), (one.name, line)


def test_words_that_no_symptom_has_list_those_that_share_some() -> None:
    with pytest.raises(UsageError, match=r"did you mean .*every-100th-step-stalls"):
        explain("my steps are wobbly")


@pytest.mark.parametrize("rule", rules())
def test_every_rule_has_a_bad_and_a_good_piece_of_code(rule: str) -> None:
    bad, good = (explain(rule).parts[side] for side in ("Bad", "Good"))
    assert bad != good
    for lines in (bad, good):
        assert lines[0].startswith("$") or ast.parse("\n".join(lines)).body


OPTIONS = {"deterministic": None, "threading": {"private_threadpool_size": None}}
"""Options of a TensorFlow, as far as the examples set them."""


@pytest.mark.parametrize("rule", rules())
def test_the_source_s_rules_find_what_is_bad_about_it_and_nothing_in_the_good_pieces(rule: str) -> None:
    kinds = {"late-runtime-config": "late-environment", "memory-growth-conflict": "growth-with-limit"}
    kinds["dead-option"] = "option-never-applied"
    of_source = [one.id for one in RULES["In the source"]]
    for side, found in (("Bad", [kinds.get(rule, rule)] if rule in of_source else []), ("Good", [])):
        code = "\n".join(explain(rule).parts[side])
        text = code if "import tensorflow" in code else f"import tensorflow as tf\n{code}"
        facts = scan_text("a.py", f"import os\n{text}\n", options=OPTIONS, is_main=True)
        assert [fact.kind for fact in facts if fact.kind != "pool-size"] == found, side


def test_undecided_is_what_the_record_calls_inconclusive() -> None:
    assert explain("undecided").name == "inconclusive"


@pytest.mark.parametrize(("typed", "meant"), [("no-prefech", "no-prefetch"), ("dispach", "dispatch")])
def test_a_mistyped_name_lists_close_ones(typed: str, meant: str) -> None:
    with pytest.raises(UsageError, match=meant):
        explain(typed)


def test_a_name_like_nothing_lists_all() -> None:
    with pytest.raises(UsageError, match="there are input, dispatch"):
        explain("qqqqqqq")


def test_a_fix_is_explained_with_what_follows_its_name_or_without() -> None:
    found = explain("parallel-map:32")
    assert (found.name, found.kind, found.parts["Written"]) == ("parallel-map", "fix", ("parallel-map[:<n>]",))
    assert "sequential-map" in found.parts["Findings that it mends"]


def test_of_a_rule_and_a_fix_of_one_name_the_rule_is_told_and_names_the_fix() -> None:
    found = explain("thread-pool")
    assert found.kind == "rule"
    assert found.parts["Fixes"][0].startswith("thread-pool:<n> (")


USER = """
class Speech:
    @staticmethod
    def make(**settings):
        return ("dataset", settings)

def make(**settings):
    return ("made", settings)

def step(batch):
    return batch

def model():
    return "model"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a module in a folder, and one elsewhere."""
    here = tmp_path / "here"
    for folder in (here / "mine", tmp_path / "it's else where"):
        folder.mkdir(parents=True)
        (folder / f"data_{folder.name[:2]}.py").write_text(USER)
    monkeypatch.chdir(here)
    return here


def made(monkeypatch: pytest.MonkeyPatch, parts: Parts, **settings: object) -> object:
    """What the file's own ``make`` returns, with the file's folder on the import path as in a trial."""
    write_target(Path("target.py"), parts)
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
    for name in [name for name in sys.modules if name.startswith(("mine", "data_"))]:
        monkeypatch.delitem(sys.modules, name)
    names: dict[str, object] = {}
    exec(compile(Path("target.py").read_text(), "target.py", "exec"), names)
    returned = names["make"](**settings)
    Path("target.py").unlink()
    return returned


def test_a_dataset_gets_the_settings(home, monkeypatch) -> None:
    assert made(monkeypatch, Parts("mine/data_mi.py:make"), n=3) == ("made", {"n": 3})
    assert made(monkeypatch, Parts("mine.data_mi:Speech.make"), n=3) == ("dataset", {"n": 3})


def test_a_step_is_handed_on_and_a_model_is_made(home, monkeypatch) -> None:
    dataset, step = made(monkeypatch, Parts("mine.data_mi:make", step="mine/data_mi.py:step"))
    assert (dataset, step("batch")) == (("made", {}), "batch")
    assert made(monkeypatch, Parts("mine.data_mi:make", model="mine.data_mi:model"))[1] == "model"


def test_a_file_elsewhere_is_found_whatever_its_folder_is_called(home, monkeypatch) -> None:
    assert made(monkeypatch, Parts("../it's else where/data_it.py:make"), n=1) == ("made", {"n": 1})


def test_the_file_says_how_it_is_run(home) -> None:
    write_target(Path("a.py"), Parts("mine.data_mi:make"))
    write_target(Path("b.py"), Parts())
    alone, example = (ast.get_docstring(ast.parse(Path(name).read_text())) for name in ("a.py", "b.py"))
    assert "xttsbench diagnose a.py:make --accelerator emulated:20" in alone
    assert "xttsbench diagnose b.py:make\n" in example


def test_what_stands_there_is_left_alone(home) -> None:
    Path("target.py").write_text("mine = 1\n")
    with pytest.raises(UsageError, match=r"target.py is there already, and is left as it is"):
        write_target(Path("target.py"), Parts())
    assert Path("target.py").read_text() == "mine = 1\n"


@pytest.mark.parametrize(
    ("file", "parts", "error", "said"),
    [
        ("my-target.py", Parts(), UsageError, "Python name"),
        ("target", Parts(), UsageError, "Python name"),
        ("missing/target.py", Parts(), UsageError, "cannot be written"),
        ("target.py", Parts("a:b", "a:c", "a:d"), UsageError, "leave one out"),
        ("target.py", Parts(step="a:c"), UsageError, "need --dataset"),
        ("target.py", Parts("missing.py:make"), TargetError, "does not exist"),
        ("target.py", Parts("mine.data_mi"), TargetError, "names no callable"),
        ("target.py", Parts("a:b;import os"), TargetError, "not a Python name"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(home, file, parts, error, said) -> None:
    with pytest.raises(error, match=said):
        write_target(Path(file), parts)
    assert not Path(file).exists()
