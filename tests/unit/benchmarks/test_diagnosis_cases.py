"""The corpus of the benchmark of diagnosis: its table is whole, and what it says can be true."""

import ast

import cases
import judging
import known
import pytest

from xttsbench.records.report import Bottleneck

FAULTY = [case for case in known.CASES if not case.healthy]
HEALTHY = [case for case in known.CASES if case.healthy]
TIME_AND_MACHINE = {"core-contention", "drift", "oscillation", "padding-waste", "stragglers"}
FIXES = {"parallel-map", "parallel-interleave", "prefetch", "batch-first"}


def functions(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def test_the_table_holds_every_function_of_the_corpus_that_can_be_tuned():
    written = {
        (path.stem, node.name)
        for path in cases.CORPUS.glob("*.py")
        for node in functions(path)
        if "tuned" in [argument.arg for argument in node.args.args]
    }
    assert written == {(case.family, case.name) for case in known.CASES}


@pytest.mark.parametrize("case", known.CASES, ids=lambda case: case.name)
def test_what_is_expected_of_a_case_can_be_said(case):
    assert set(case.bottlenecks) <= set(Bottleneck.__args__) - {"inconclusive"}
    rules = judging.PIPELINE_RULES | judging.STEP_RULES | TIME_AND_MACHINE
    asked = {rule for entry in (*case.limiting, *case.seen) for rule in entry.split("|")}
    assert asked | set(case.not_limiting) <= rules
    assert not any(set(entry.split("|")) <= set(case.not_limiting) for entry in case.limiting), "asked and forbidden"
    for fix in case.fixes:
        kind = fix.partition(":")[0].partition("@")[0]
        assert kind in FIXES | {"thread-pool", "cache"}
        assert (":" in fix) == (kind == "thread-pool")


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.name)
def test_a_faulty_case_marks_its_lines_and_asks_for_a_finding(case):
    own = next(node for node in functions(case.file) if node.name == case.name)
    marked = [place.lines for place in cases.fault_places(case) if place.file == case.file.name]
    assert marked
    assert any(own.lineno < lines.start and lines.stop - 1 <= own.end_lineno for lines in marked)
    assert not any(own.lineno in lines for lines in marked), "the whole case is no line"
    assert case.limiting or case.seen


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_a_healthy_case_has_no_fault(case):
    assert cases.fault_places(case) == []
    assert (case.limiting, case.seen, case.fixes) == ((), (), ())
