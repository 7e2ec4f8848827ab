"""Looks while a trial goes on: what makes a verdict final, and what is still to come that could turn it."""

from __future__ import annotations

import pytest

from xttsbench.diagnosis.look import look
from xttsbench.records.trial import Look

WAITING = {"wait": 0.03, "step": 0.03}
NOT_FINAL = Look(after_s=1.0, bottleneck="input", probability=0.9, final=False)


def under_way(build, **fields):
    """A trial whose step's anatomy has not been read yet."""
    return build.ladder(**fields).model_copy(update={"anatomy": None, "duration_s": 9.0})


def test_a_wait_that_no_anatomy_could_turn_into_something_else_is_final_at_once(build):
    found, seen = look([under_way(build, **WAITING)], {})
    assert (seen.bottleneck, seen.final, seen.after_s) == ("input", True, 9.0)
    assert found.bottleneck == "input"


def test_time_outside_of_compiled_functions_is_not_final_before_the_anatomy_is_read(build):
    in_python = {"step_columns": {"calls_s": [0.01] * 120}}
    _, seen = look([under_way(build, **WAITING, **in_python)], {})
    assert (seen.bottleneck, seen.final) == ("input", False)
    _, with_anatomy = look([build.ladder(**WAITING, **in_python)], {})
    assert with_anatomy.final


def test_computing_is_not_final_where_the_lock_of_an_unread_pipeline_could_be_what_slows_the_step(build):
    alike, slowed = under_way(build, step=0.03), under_way(build, step=0.03, alone=0.02)
    assert look([alike], {})[1] == Look(after_s=9.0, bottleneck="compute", probability=1.0, final=True)
    _, seen = look([slowed], {})
    assert (seen.bottleneck, seen.final) == ("compute", False)


@pytest.mark.parametrize(("before", "final"), [((), False), ((NOT_FINAL,), True)])
def test_the_first_look_asks_for_more_than_the_later_ones(build, monkeypatch, before, final):
    real = look.__globals__["build_diagnosis"]

    def at_97_per_cent(*args, **kwargs):
        return real(*args, **kwargs).__class__(**vars(real(*args, **kwargs)) | {"probability": 0.97})

    monkeypatch.setitem(look.__globals__, "build_diagnosis", at_97_per_cent)
    record = under_way(build, **WAITING).model_copy(update={"looks": before})
    assert look([record], {})[1].final is final


def test_without_a_step_that_ended_no_verdict_is_final(build):
    assert look([build.trial("ladder")], {})[1].final is False


def test_few_steps_are_looked_at_once_more(build):
    few = under_way(build, **WAITING, steps=8)
    assert look([few], {})[1].final is False
    assert look([few.model_copy(update={"looks": (NOT_FINAL,)})], {})[1].final


@pytest.mark.parametrize(
    ("before", "now", "final"),
    [
        (None, 0.999, False),
        (("input", 0.995), 0.999, True),
        (("input", 0.97), 0.999, False),
        (("input", 0.995), 0.97, False),
        (("contention", 0.995), 0.999, False),
    ],
)
def test_beside_neighbours_two_looks_in_a_row_have_to_be_as_sure_as_the_first(build, monkeypatch, before, now, final):
    real = look.__globals__["build_diagnosis"]

    def disturbed(*args, **kwargs):
        found = real(*args, **kwargs)
        return found.__class__(**vars(found) | {"probability": now, "disturbed": True})

    monkeypatch.setitem(look.__globals__, "build_diagnosis", disturbed)
    last = (
        ()
        if before is None
        else (NOT_FINAL.model_copy(update=dict(zip(("bottleneck", "probability"), before, strict=True))),)
    )
    record = under_way(build, **WAITING).model_copy(update={"looks": last})
    assert look([record], {})[1].final is final


@pytest.mark.parametrize(("budget_s", "final"), [(20, True), (60, False)])
def test_beside_neighbours_a_sure_wait_for_slow_batches_leaves_time_for_the_pipeline(
    build, monkeypatch, budget_s, final
):
    real = look.__globals__["build_diagnosis"]

    def disturbed(*args, **kwargs):
        found = real(*args, **kwargs)
        return found.__class__(**vars(found) | {"probability": 0.97, "disturbed": True})

    monkeypatch.setitem(look.__globals__, "build_diagnosis", disturbed)
    _, seen = look([under_way(build, **WAITING)], {}, budget_s=budget_s)  # after 9 s
    assert (seen.bottleneck, seen.final) == ("input", final)
