"""What a rule is, and that each has its words and yields nothing but its own id."""

from __future__ import annotations

import pytest

from xttsbench.findings.registry import RULES, rules
from xttsbench.findings.rule import rule
from xttsbench.records.base import Location


@rule("made-up", evidence="a number", threshold="always", remedy="Mend it.", false_alarms="none known")
def made_up(evidence):
    """Something that
    is wrong.
    """
    yield made_up.finding("a title", {"number": 1})
    yield made_up.finding("another", {}, "Mend that.", severity="critical", limiting=True, location=Location(line=3))


def test_a_rule_is_its_words_and_its_function(evidence) -> None:
    assert (made_up.id, made_up.symptom, made_up.remedy) == ("made-up", "Something that is wrong.", "Mend it.")
    plain, other = made_up(evidence())
    assert (plain.rule, plain.severity, plain.limiting, plain.remedy) == ("made-up", "info", False, "Mend it.")
    assert (other.severity, other.limiting, other.remedy, other.location.line) == ("critical", True, "Mend that.", 3)


def test_the_table_holds_every_rule_once() -> None:
    found = [one.id for about in RULES.values() for one in about]
    assert len(found) == len(set(found)) == len(rules()) > 40


@pytest.mark.parametrize("one", rules().values(), ids=lambda one: one.id)
def test_every_rule_is_explained(one) -> None:
    assert all((one.symptom, one.evidence, one.threshold, one.remedy, one.false_alarms))
    assert one.symptom.endswith(".")
