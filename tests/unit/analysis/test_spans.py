"""When a trial measured, and what a counter did meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

from xttsbench.analysis.spans import Span, measured_span, spans_of, turns_of
from xttsbench.records.readings import HostReadings
from xttsbench.records.trial import RoundMark

S = 1_000_000_000


def host(*cpu_s: float, start_s: float = 0.0, every_s: float = 1.0) -> HostReadings:
    return HostReadings(t_ns=tuple(int((start_s + every_s * i) * S) for i in range(len(cpu_s))), cpu_s=cpu_s)


def test_the_ends_between_two_samples_are_filled_in_evenly() -> None:
    readings = host(0, 10, 10, 30)  # 10 in the first second, none, 20 in the third
    assert Span(0, 3 * S).growth(readings, "cpu_s") == pytest.approx(30)
    assert Span(S // 2, 5 * S // 2).growth(readings, "cpu_s") == pytest.approx(5 + 0 + 10)
    assert Span(S // 4, S // 2).growth(readings, "cpu_s") == pytest.approx(2.5)


def test_what_lies_beyond_the_samples_goes_on_as_within_them() -> None:
    readings = host(0, 10, 20, start_s=1)
    assert Span(0, 3 * S).growth(readings, "cpu_s") == pytest.approx(30)
    assert Span(2 * S, 4 * S).growth(readings, "cpu_s") == pytest.approx(20)


@pytest.mark.parametrize(
    ("span", "readings"),
    [
        (Span(5 * S, 9 * S), host(0, 10, 20)),  # after the samples
        (Span(0, 9 * S), host(0, 10, 20)),  # they cover less than half
        (Span(0, S), host(1)),  # one sample
        (Span(0, S), HostReadings(t_ns=(0, S))),  # not read
        (Span(S, S), host(0, 10, 20)),
    ],
)
def test_what_was_not_read_is_not_zero(span: Span, readings: HostReadings) -> None:
    assert span.growth(readings, "cpu_s") is None


def test_counters_since_the_machine_s_start_lose_nothing_to_rounding() -> None:
    readings = HostReadings(t_ns=(10**17, 10**17 + S), cpu_s=(1e9, 1e9 + 0.25))
    assert Span(10**17, 10**17 + S // 2).growth(readings, "cpu_s") == pytest.approx(0.125)


def test_a_span_goes_from_the_first_measured_step_to_the_end_of_the_last(build) -> None:
    segment = build.segment(wait_s=0.02, step_s=[0.08] * 10, gap_s=0.02, warmup=4, epoch=np.repeat([0, 1], 5))
    span = measured_span(build.trial("ladder", segment))
    first = segment.columns["start_ns"][4]
    assert span == Span(first, first + S * 70 // 100, 6, 2)  # what comes after the last step is not part of it
    assert spans_of(segment) == (span,)
    assert measured_span(build.trial("ladder", build.segment(step_s=[0.1] * 3, warmup=3))) is None
    assert measured_span(build.trial("ladder")) is None


def test_rows_of_several_rounds_are_as_many_spans(build) -> None:
    segment = build.segment(step_s=[0.1] * 9, warmup=1, round=[0, 0, 0, 1, 1, 1, 4, 4, 4])
    assert [span.steps for span in spans_of(segment)] == [2, 3, 3]
    assert measured_span(build.trial("arm", segment)).steps == 8


def test_a_trial_measures_in_its_turns_else_as_it_is_else_in_all_that_it_has(build) -> None:
    as_is, alone = build.segment(step_s=[0.1] * 9), build.segment("step_only", step_s=[0.2] * 4)
    mark = RoundMark(round=2, start_ns=5, end_ns=9)
    assert turns_of(build.trial("arm", as_is, alone, rounds=(mark,))) == (Span(5, 9),)
    assert turns_of(build.trial("arm", as_is, alone)) == spans_of(as_is)
    assert turns_of(build.trial("graph", alone)) == spans_of(alone)
    assert turns_of(build.trial("pipeline")) == ()
