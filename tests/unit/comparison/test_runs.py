"""What trials of parity come to together, data and losses."""

from __future__ import annotations

from xttsbench.comparison.arms import compare
from xttsbench.comparison.runs import parity_found
from xttsbench.records.trial import Parity, TrialRecord


def test_an_arm_with_other_losses_is_refused_for_its_losses(build) -> None:
    comparison = build.comparison("a", "slow", "b", "data")
    where = "step 1: the loss is 2.2, and the baseline's 2"
    told = Parity(
        batches=4,
        tolerance=1e-4,
        same=("b",),
        differences={"slow": where, "data": "batch 0, mel: row 1"},
        loss_steps=3,
        losses={"slow": 0.09, "b": 1e-6},
        other_losses=("slow",),
    )
    trial = build.parity("slow", "b", "data", found=told)
    found = parity_found(comparison, [trial])
    assert found.same == ("b",)
    assert found.why_refused("slow") == f"its losses are not the baseline's: {where}"
    assert found.why_refused("data") == "its data are not the baseline's: batch 0, mel: row 1"
    assert found.why_refused("b") is None
    assert found.losses == {"slow": 0.09, "b": 1e-6}
    compared = compare(comparison, [trial])
    assert {arm.id: arm.decision for arm in compared.arms}["slow"] == "ended"
    assert compared.parity is not None
    assert compared.parity["losses"] == {"slow": 0.09, "b": 1e-6}
    assert dict(compared.refused) == dict(told.differences)


def test_trials_after_one_that_died_add_up(build) -> None:
    comparison = build.comparison("a", "b", "dies", "c")
    first = Parity(batches=4, tolerance=1e-4, same=("b",), losses={"b": 0.0}, loss_steps=3)
    second = Parity(batches=4, tolerance=1e-4, same=("c",), losses_unknown={"c": "no loss"})
    found = parity_found(
        comparison,
        [
            build.parity("b", "dies", "c", found=first, status="killed", cause="SIGSEGV"),
            build.parity("c", found=second, number=1),
        ],
    )
    assert (found.same, found.losses, found.losses_unknown) == (("b", "c"), {"b": 0.0}, {"c": "no loss"})
    assert found.unknown == {"dies": "reading its data ended as killed: SIGSEGV"}


def test_a_line_of_an_older_journal_is_read(build) -> None:
    line = build.parity("b", found=Parity(batches=4, tolerance=1e-4, same=("b",))).model_dump(mode="json")
    for key in ("loss_steps", "losses", "losses_unknown", "other_losses"):
        del line["parity"][key]
    for key in ("loss_steps", "loss_tolerance", "same_data"):
        del line["spec"][key]
    read = TrialRecord.model_validate(line)
    assert read.parity is not None
    assert (read.parity.same, read.parity.losses, read.spec.loss_steps) == (("b",), {}, 0)
