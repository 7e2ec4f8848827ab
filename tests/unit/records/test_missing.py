"""The reasons of a record's nulls: every null has one, what is known has none."""

from __future__ import annotations

from xttsbench.records.base import nulls
from xttsbench.records.report import AA, WarmUp


def test_every_null_has_a_reason_and_what_is_known_has_none() -> None:
    record = AA(noisy=False)
    assert dict(nulls("aa", record, "why")) == {"aa.effect": "why", "aa.smallest_visible_effect": "why"}


def test_a_field_may_have_a_reason_of_its_own_or_none_at_all() -> None:
    found = dict(nulls("warm_up", WarmUp(), {"trace_s": "no step"}, but=("reason",), default="not read"))
    assert (found["warm_up.trace_s"], found["warm_up.traces"]) == ("no step", "not read")
    assert "warm_up.reason" not in found


def test_only_the_named_fields_count() -> None:
    assert dict(nulls("aa", AA(), "why", only=("effect",))) == {"aa.effect": "why"}
