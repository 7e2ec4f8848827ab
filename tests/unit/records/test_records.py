"""All records, each with every field given, and with those alone that it must have."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import types
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from xttsbench import records
from xttsbench.records.base import SCHEMA_VERSION, Estimate, Record, Rewriting
from xttsbench.records.comparison_result import ComparisonReport
from xttsbench.records.fix import Optimized
from xttsbench.records.machine import Examination, Monitored
from xttsbench.records.missing import nulls
from xttsbench.records.plan import RunPlan
from xttsbench.records.ranks import RankRun, RanksReport
from xttsbench.records.report import AA, Best, Report, Variant, WarmUp
from xttsbench.records.rows import COLUMNS
from xttsbench.records.training import Manifest, Spoken, TrainSetup
from xttsbench.records.trial import Segment, TrialRecord, TrialSpec
from xttsbench.records.watch import LiveRun, WatchSummary

SPEC = TrialSpec(trial_id="000-ladder", kind="ladder", target="m:f", kwargs={"a": [1, {"b": None}]}, emulated_ms=(0.1,))
PLAIN = {str: "größe\n", int: 3, float: 1 / 3, bool: True, Any: [1, {"b": None}], object: "x"}


def records_of(package: types.ModuleType) -> list[type[Record]]:
    """Every record that a module of the package defines."""
    found: dict[str, type[Record]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        for member in vars(importlib.import_module(f"{package.__name__}.{module.name}")).values():
            if inspect.isclass(member) and issubclass(member, Record) and member.model_fields:
                found[f"{member.__module__}.{member.__name__}"] = member
    return list(found.values())


def example(kind: Any, within: tuple[Any, ...] = ()) -> Any:
    """A value of a type; what holds others holds one, but for a record within itself."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return inner[0]
    if origin is typing.Annotated:
        return example(inner[0], within)
    if origin in (typing.Union, types.UnionType):
        return example(next(one for one in inner if one is not types.NoneType), within)
    if origin is tuple:
        every = inner[:1] if inner[-1] is Ellipsis else inner
        return () if set(every) & set(within) else tuple(example(one, within) for one in every)
    if origin is not None:  # a mapping
        return {example(inner[0], within): example(inner[1], within)}
    return made(kind, within=within) if issubclass(kind, Record) else PLAIN[kind]


def made(kind: type[Record], *, whole: bool = True, within: tuple[Any, ...] = ()) -> Record:
    """A record with all of its fields, or with those alone that it must have."""
    fields = {name: field for name, field in kind.model_fields.items() if whole or field.is_required()}
    given = {name: example(field.annotation, (*within, kind)) for name, field in fields.items()}
    return kind(**{name: value for name, value in given.items() if name != "schema_version"})


RECORDS = records_of(records)
EXAMPLES = [made(kind, whole=whole) for kind in RECORDS for whole in (True, False)]
by_type = pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)


@by_type
def test_a_record_survives_json(record: Record) -> None:
    assert type(record).model_validate_json(record.model_dump_json()) == record


@settings(deadline=None)
@given(st.text(st.characters(categories=["Cs", "L"]), min_size=1, max_size=6), st.data())
def test_text_that_is_not_utf_8_is_replaced_in_every_field_of_every_record(text: str, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(RECORDS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PLAIN, str, text)
        patch.setitem(PLAIN, Any, [text, {text: text}])
        record = made(kind)
    kept = record.model_dump_json()
    again = kind.model_validate_json(kept)
    assert again == Rewriting().kept(record)
    assert again.model_dump_json() == kept
    if not any("\ud800" <= one <= "\udbff" for one in text):  # bytes that are not UTF-8 are none of these
        assert kind.from_line(record.to_line()) == record  # another process opens what is named, not its replacement


def test_a_key_that_is_not_utf_8_has_one_mark_where_its_values_are_words_and_numbers() -> None:
    record = Spoken(step=3, metrics={"\ud800": 1 / 3})
    assert json.loads(record.model_dump_json())["metrics"] == {"\N{REPLACEMENT CHARACTER}": 1 / 3}


@by_type
def test_a_record_refuses_fields_it_does_not_know(record: Record) -> None:
    with pytest.raises(ValidationError, match="surprise"):
        type(record)(**dict(record), surprise=1)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_no_number_is_nan_or_infinite(number: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        Estimate(estimate=number, low=0, high=1)
    with pytest.raises(ValidationError, match="finite"):
        TrialSpec(trial_id="0", kind="ladder", target="m:f", emulated_ms=(number,))


@given(st.dictionaries(st.sampled_from(sorted(COLUMNS)), st.integers(0, 4), min_size=2, max_size=5))
def test_columns_of_unequal_length_are_refused(lengths: dict[str, int]) -> None:
    columns = {name: (0,) * length for name, length in lengths.items()}
    if len(set(lengths.values())) == 1:
        assert Segment(name="as_is", columns=columns).steps == next(iter(lengths.values()))
        return
    with pytest.raises(ValidationError, match=r"segment 'as_is': columns of unequal length"):
        Segment(name="as_is", columns=columns)


@pytest.mark.parametrize("changes", [{"steps": 0}, {"window_s": 0}, {"min_steps": 0}, {"kind": "other"}])
def test_a_specification_is_checked(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(changes))):
        TrialSpec(**({"trial_id": "0", "kind": "ladder", "target": "m:f"} | changes))


def test_a_trial_finds_its_segments_by_name() -> None:
    parts = (Segment(name="as_is", columns={"wall_ns": (1,)}), Segment(name="step_only"))
    record = TrialRecord(spec=SPEC, status="ok", started_utc="t", duration_s=1, segments=parts)
    assert record.segment("as_is") is record.segments[0]
    assert record.segment("step_only").steps == 0  # type: ignore[union-attr]
    assert record.segment("graph") is None


def test_every_file_carries_the_version() -> None:
    assert {kind for kind in RECORDS if "schema_version" in kind.model_fields} == {
        *(Report, ComparisonReport, TrialRecord, RunPlan, Best, Manifest, TrainSetup, Optimized),
        *(LiveRun, WatchSummary, Monitored, Examination, RankRun, RanksReport),
    }
    assert SCHEMA_VERSION == 3
    assert all(
        record.schema_version == SCHEMA_VERSION for record in EXAMPLES if "schema_version" in type(record).model_fields
    )


def test_files_from_before_there_were_arms_are_read() -> None:
    """What was added has a default, so that a report can be built again from an older run's files."""
    added: tuple[tuple[type[Record], tuple[str, ...]], ...] = (
        (RunPlan, ("comparison",)),
        (TrialRecord, ("parity",)),
        (Report, ("parity", "comparison")),
    )
    for kind, names in added:
        record = made(kind, whole=False)
        old = json.loads(record.model_dump_json())
        for name in names:
            del old[name]
        assert kind.model_validate(old) == record
    spec = json.loads(SPEC.model_dump_json())
    assert TrialSpec.model_validate({key: spec[key] for key in spec if key not in ("arm", "group", "others")}) == SPEC


def test_every_null_has_a_reason_and_what_is_known_has_none() -> None:
    record = AA(noisy=False)
    assert dict(nulls("aa", record, "why")) == {"aa.effect": "why", "aa.smallest_visible_effect": "why"}


def test_a_field_may_have_a_reason_of_its_own_or_none_at_all() -> None:
    found = dict(nulls("warm_up", WarmUp(), {"trace_s": "no step"}, but=("reason",), default="not read"))
    assert (found["warm_up.trace_s"], found["warm_up.traces"]) == ("no step", "not read")
    assert "warm_up.reason" not in found


def test_a_reason_stands_in_its_place_in_the_file_and_is_read_from_there() -> None:
    reasons = {"aa.effect": "nothing was measured twice", "arms.0.step_time_s": "killed", "best": "no time"}
    nowhere = {"trials.graph": "no budget", "arms.7.effect": "no such place", "kind": "not null"}
    arm = Variant(id="a", role="candidate", blocks=1, status="killed")
    report = made(Report, whole=False).model_copy(update={"arms": (arm,), "unmeasured": reasons | nowhere})
    content = json.loads(report.model_dump_json())
    assert content["aa"]["effect"] == {"missing": "nothing was measured twice"}
    assert content["arms"][0]["step_time_s"] == {"missing": "killed"}
    assert content["best"] == {"missing": "no time"}
    assert (content["unmeasured"], content["kind"]) == (nowhere, report.kind)
    assert Report.model_validate(content) == report == Report.model_validate_json(report.model_dump_json())


def test_a_file_that_is_nested_without_end_is_refused_like_any_other() -> None:
    nested: Any = {"missing": "x"}
    for _ in range(400):
        nested = {"a": [nested]}
    with pytest.raises(ValidationError):
        Report.model_validate({"kind": nested})
