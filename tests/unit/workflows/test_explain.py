"""Every name that a report may hold can be explained, and a mistyped one is helped."""

from __future__ import annotations

from typing import get_args

import pytest

from xttsbench.errors import UsageError
from xttsbench.findings.registry import rules
from xttsbench.fixes.registry import SPECS
from xttsbench.records.report import Bottleneck
from xttsbench.workflows.explain import explain, explanations


def test_every_verdict_rule_and_fix_has_words() -> None:
    found = {one.name: one for one in explanations()}
    assert found.keys() == rules().keys() | set(get_args(Bottleneck)) | SPECS.keys()
    for one in found.values():
        assert one.summary.endswith(".")
        assert all(text for text in one.parts.values())


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
    assert (found.name, found.kind, found.parts["Written"]) == ("parallel-map", "fix", "parallel-map[:<n>]")
    assert "sequential-map" in found.parts["Findings that it mends"]


def test_of_a_rule_and_a_fix_of_one_name_the_rule_is_told_and_names_the_fix() -> None:
    found = explain("thread-pool")
    assert found.kind == "rule"
    assert "thread-pool:<n>" in found.parts["Fixes"]
