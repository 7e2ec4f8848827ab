"""What simulated trials of a verification say of each fix: accepted, rejected with the reason, or not verified."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xttsbench.fixes.proposal import Proposal
from xttsbench.fixes.results import results
from xttsbench.fixes.rounds import ALONE, GUARD, ORIGINAL, PATCHED, ROUNDS, TOGETHER
from xttsbench.fixes.same_data import data_of
from xttsbench.fixes.verified import Verified, verified
from xttsbench.records.base import Location
from xttsbench.records.code import ScriptAgain
from xttsbench.records.fix import FixResult, Patch
from xttsbench.records.pipeline import Contents, Element, Elements, Epoch, GraphIdentity, Row
from xttsbench.records.plan import Accelerator
from xttsbench.records.trial import TrialError, TrialRecord

DEVICE = Accelerator()
AGAIN = f"{ORIGINAL}:again"
SLOW_S = 0.02


def elements(values: Any = range(12), **fields: Any) -> Elements:
    """Two epochs of batches of four numbers."""
    rows = [Row(hashes=(f"{value:016x}",)) for value in values]
    batches = tuple(
        Element(shapes=(f"int64 ({len(rows[at : at + 4])},)",), rows=tuple(rows[at : at + 4]))
        for at in range(0, len(rows), 4)
    )
    given = {"spec": "TensorSpec(shape=(None,), dtype=tf.int64, name=None)", "components": ("element",)} | fields
    return Elements(epochs=(Epoch(elements=batches, ended=True),) * 2, **given)


def proposal(name: str, speedup: float | None = 2.0, **fields: Any) -> Proposal:
    given = {"what": f"does {name}", "places": (), "worth": True} | fields
    return Proposal(name=name, fixes=tuple(name.split(" + ")), predicted_speedup=speedup, **given)


@pytest.fixture(scope="module")
def guard(build):
    """``guard(arm, elements, ...)``: a trial of the fingerprints of one arm, by default those of the original."""

    def make(arm: str, found: Elements | None = None, **fields: Any) -> TrialRecord:
        fix = None if arm in (ORIGINAL, PATCHED) else arm
        seen = elements() if found is None and "status" not in fields else found
        return build.trial("elements", arm=arm, group=GUARD, fix=fix, elements=seen, **fields)

    return make


@pytest.fixture(scope="module")
def originals(guard) -> list[TrialRecord]:
    return [guard(ORIGINAL) for _ in range(3)]


@pytest.fixture(scope="module")
def measure(build):
    """``measure(group, original=0.02, fix=0.01, blocks=2)``: the trials of a round, from the mean step of each arm."""

    def make(group: str, walls: dict[str, float], *, blocks: int = 2, first: int = 1) -> list[TrialRecord]:
        return [
            build.arm_trial(
                arm,
                wall,
                block=first + block,
                group=group,
                process_sd=0.004,
                **({} if arm.startswith((ORIGINAL, PATCHED)) else {"fix": arm}),
            )
            for block in range(blocks)
            for arm, wall in walls.items()
        ]

    return make


@pytest.fixture(scope="module")
def shown(guard, originals, measure):
    """``shown({fix: 0.01}, ...)``: what trials say of fixes with the original's data, from the mean step of each."""

    def make(walls: dict[str, float], group: str = ALONE, **fields: Any) -> Verified:
        trials = measure(group, {ORIGINAL: SLOW_S} | walls, **fields)
        return verified([*originals, *map(guard, walls), *trials], DEVICE)

    return make


def of(name: str, found: Verified, *proposals: Proposal, patch: Patch | None = None, **options: Any) -> FixResult:
    """The result of one fix."""
    rows = results(proposals or (proposal(name),), found, patch, **options)
    return next(row for row in rows if row.name == name)


def test_accepted_is_what_is_faster_beyond_doubt_with_the_same_data(shown) -> None:
    found = shown({"prefetch": 0.01})
    row = of("prefetch", found)
    assert (row.outcome, row.chosen, row.decision) == ("accepted", True, "clearly_faster")
    assert (row.blocks, row.rounds) == (2, 2)
    assert row.verified_speedup.low < row.verified_speedup.estimate < row.verified_speedup.high
    assert row.verified_speedup.estimate == pytest.approx(2.0, rel=0.03)
    assert row.evidence > 1000
    assert row.step_time_s.estimate == pytest.approx(0.01, rel=0.05)
    assert row.semantics.equivalent is True
    assert re.fullmatch(r"(1\.9\d|2\.0\d) times as fast \(.* to .*, 2 rounds\)", row.why)
    assert (row.what, row.predicted_speedup) == ("does prefetch", 2.0)
    assert (found.chosen, found.best_first) == ("prefetch", ["prefetch"])


def test_the_same_trials_say_the_same_again(shown) -> None:
    assert shown({"prefetch": 0.01}, blocks=3) == shown({"prefetch": 0.01}, blocks=3)


def test_other_data_reject_however_fast_it_is(guard, originals, measure) -> None:
    changed = guard("prefetch", elements(range(1, 13)))
    found = verified([*originals, changed, *measure(ALONE, {ORIGINAL: SLOW_S, "prefetch": 0.002})], DEVICE)
    row = of("prefetch", found)
    assert (row.outcome, row.chosen, found.chosen) == ("rejected", False, None)
    assert row.why.startswith("it changes the data: ")
    assert row.semantics.equivalent is False


def test_an_objection_of_the_code_rejects_what_looked_the_same(guard, originals) -> None:
    objected = guard("parallel-map", elements(objections=("load() at data.py:3 counts its calls",)))
    row = of("parallel-map", verified([*originals, objected], DEVICE))
    assert row.outcome == "rejected"
    assert "counts its calls" in row.why


@pytest.mark.parametrize(
    ("wall_s", "decision", "why"),
    [(0.04, "clearly_slower", "clearly slower: 0."), (0.02, "no_difference", "no faster by 2%: ")],
)
def test_what_is_no_faster_is_rejected(shown, wall_s, decision, why) -> None:
    row = of("prefetch", shown({"prefetch": wall_s}, blocks=14))
    assert (row.outcome, row.decision) == ("rejected", decision)
    assert row.why.startswith(why)
    assert row.semantics.equivalent is True


def test_less_than_the_margin_is_not_accepted_however_sure_it_is(shown) -> None:
    found = shown({"prefetch": SLOW_S / 1.012}, blocks=40)
    assert found.measured["prefetch"].evidence.value > 20
    assert of("prefetch", found).outcome == "rejected"
    assert found.chosen is None


def test_what_the_original_differs_from_itself_by_is_no_gain(guard, originals, measure) -> None:
    walls = {ORIGINAL: SLOW_S, "prefetch": SLOW_S / 1.2}
    trials = [*originals, guard("prefetch"), *measure(TOGETHER, walls, blocks=6)]
    assert verified(trials, DEVICE).chosen == "prefetch"
    found = verified([*trials, *measure(TOGETHER, {AGAIN: SLOW_S / 1.5}, blocks=6)], DEVICE)
    row = of("prefetch", found)
    assert (row.outcome, row.decision, found.chosen) == ("not verified", "undecided", None)
    assert "more rounds like these would" in row.why


def test_one_process_is_enough_only_for_what_is_clear(shown) -> None:
    found = shown({"prefetch": 0.005}, blocks=1)
    row = of("prefetch", found)
    assert (row.outcome, row.decision, row.blocks, found.chosen) == ("not verified", "faster", 1, None)
    assert row.why.endswith("1 process, and it takes 2")


def test_what_was_measured_in_any_group_counts(guard, originals, measure) -> None:
    walls = {ORIGINAL: SLOW_S, "prefetch": 0.005}
    trials = [*measure(ROUNDS[0], walls, blocks=1, first=0), *measure(ALONE, walls, blocks=1)]
    row = of("prefetch", verified([*originals, guard("prefetch"), *trials], DEVICE))
    assert (row.outcome, row.rounds) == ("accepted", 2)


def test_promising_is_what_looks_faster_and_is_undecided_with_the_same_data(guard, originals, measure) -> None:
    names = ("good", "other data", "unseen", "slow")
    guards = [guard("good"), guard("other data", elements(range(1, 13))), guard("slow")]
    walls = {ORIGINAL: SLOW_S, **dict.fromkeys(names[:3], SLOW_S / 1.1), "slow": 0.03}
    assert verified([*originals, *guards, *measure(ALONE, walls)], DEVICE).promising == ["good"]
    assert verified([*originals, *guards, *measure(ALONE, walls, blocks=12)], DEVICE).promising == []  # decided


def test_a_trial_that_dies_rejects_with_its_cause(build, guard, originals, measure) -> None:
    trials = measure(ALONE, {ORIGINAL: SLOW_S, "prefetch": 0.01}, blocks=2)
    trials.append(build.dead("prefetch", block=3, group=ALONE, fix="prefetch"))
    row = of("prefetch", verified([*originals, guard("prefetch"), *trials], DEVICE))
    assert (row.outcome, row.decision, row.verified_speedup) == ("rejected", "ended", None)
    assert row.why == "its trial ended: killed: killed by SIGKILL in phase 'as_is'"


@pytest.mark.parametrize("status", ["raised", "stalled", "killed", "time_limit"])
def test_data_that_cannot_be_read_with_it_reject_with_the_cause(guard, originals, status) -> None:
    died = guard("parallel-map", status=status, cause="said nothing for 15 s")
    row = of("parallel-map", verified([*originals, died], DEVICE))
    assert (row.outcome, row.semantics.equivalent, row.semantics.how) == ("rejected", None, "unknown")
    assert "said nothing for 15 s" in row.why


def test_what_cannot_be_told_is_no_yes(guard, originals, measure) -> None:
    other = guard("prefetch", elements(source_limit=7))
    found = verified([*originals, other, *measure(ALONE, {ORIGINAL: SLOW_S, "prefetch": 0.01})], DEVICE)
    row = of("prefetch", found)
    assert (row.outcome, found.chosen) == ("rejected", None)
    assert row.why.startswith("not proved to leave the data as they are: ")


def test_without_the_original_nothing_is_told(guard) -> None:
    trials = [guard(ORIGINAL), guard(ORIGINAL, status="stalled", cause="said nothing for 15 s")]
    found = verified([*trials, guard("prefetch")], DEVICE)
    assert "said nothing for 15 s" in found.unreadable
    assert found.semantics["prefetch"].equivalent is None
    row = of("cache@Map/_1", found)
    assert (row.outcome, row.why) == ("not verified", found.unreadable)


def test_what_was_not_run_says_why(originals) -> None:
    found = verified(originals, DEVICE)
    late = of("prefetch", found)
    assert (late.outcome, late.why) == ("not verified", "there was no time for it within the budget")
    assert (late.verified_speedup, late.semantics, late.decision, late.blocks) == (None, None, None, 0)
    useless = proposal("buffer:8", 1.0, worth=False, why_not="estimated 1.00 times as fast: less than 5 %")
    assert of("buffer:8", found, useless).why == "estimated 1.00 times as fast: less than 5 %"
    assert of("prefetch", found, why_stopped="no verification was asked for").why == "no verification was asked for"
    assert of("prefetch", Verified()).outcome == "not verified"


def test_of_two_that_are_alike_the_one_with_fewer_parts_is_chosen(shown, measure) -> None:
    both = "parallel-map + thread-pool:32"
    assert shown({both: SLOW_S / 2.02, "parallel-map": SLOW_S / 2.0}).best_first == ["parallel-map", both]
    assert shown({both: SLOW_S / 3, "parallel-map": SLOW_S / 2.0}).best_first == [both, "parallel-map"]


@pytest.fixture
def on_part(measure):
    """``on_part(walls, ...)``: rounds of arms that read a part of the data."""

    def make(walls: dict[str, float], **fields: Any) -> list[TrialRecord]:
        found = measure(ALONE, walls, **fields)
        return [one.model_copy(update={"spec": one.spec.model_copy(update={"source_limit": 100})}) for one in found]

    return make


@pytest.mark.parametrize(("wall_s", "chosen"), [(0.0102, "batch-first"), (0.018, "cache@MapDataset/_2")])
def test_a_cache_that_takes_long_to_fill_gives_way_to_what_may_be_as_fast(
    wall_s, chosen, guard, originals, measure, on_part
) -> None:
    cache = "cache@MapDataset/_2"
    of_part = on_part({ORIGINAL: SLOW_S, cache: 0.01})
    whole = measure(ALONE, {ORIGINAL: SLOW_S, "batch-first": wall_s}, first=3)
    guards = [*originals, guard(cache), guard("batch-first")]
    assert verified([*guards, *of_part, *whole], DEVICE).chosen == chosen
    filled = measure(ALONE, {ORIGINAL: SLOW_S, cache: 0.008})
    assert verified([*guards, *filled, *whole], DEVICE).chosen == cache


@pytest.mark.parametrize(("wall_s", "contenders"), [(0.002, ["b", "a"]), (0.008, ["a"])])
def test_what_looks_better_than_the_best_and_is_undecided_gets_a_second_chance(
    wall_s, contenders, guard, originals, measure
) -> None:
    """One round is no decision, whatever it shows."""
    guards = [*originals, guard("a"), guard("b")]
    rounds = [
        *measure(ALONE, {ORIGINAL: SLOW_S, "a": 0.005}),
        *measure(ALONE, {ORIGINAL: SLOW_S, "b": wall_s}, blocks=1, first=9),
    ]
    found = verified([*guards, *rounds], DEVICE)
    assert found.best_first == ["a"]
    assert found.contenders == contenders


def test_the_epoch_that_fills_a_cache_counts_over_a_training(guard, originals, on_part) -> None:
    cache, calls, both = "cache@MapDataset/_2", "parallel-map", "parallel-map + cache@MapDataset/_2"
    walls = {ORIGINAL: SLOW_S, cache: SLOW_S / 100, calls: SLOW_S / 12}
    guards = [*originals, *map(guard, (cache, calls, both))]
    found = verified([*guards, *on_part(walls)], DEVICE)
    assert found.best_first == [calls, cache]  # 10 epochs: 1 / (0.1 + 0.9 / 100) = 9.2
    assert calls not in found.behind
    rows = {one.name: one for one in results([proposal(cache), proposal(calls)], found, None)}
    assert rows[calls].chosen
    assert re.search(r"with the epoch that fills the cache, 9\.\d\d times over 10 epochs$", rows[cache].why)
    found = verified([*guards, *on_part(walls | {both: SLOW_S / 90})], DEVICE)
    assert found.chosen == both  # 1 / (0.1 / 12 + 0.9 / 90): its calls are parallel in the first epoch, too
    assert found.training_speedup(both) == pytest.approx(55, rel=0.1)


def test_what_was_measured_side_by_side_in_the_end_is_chosen_from(guard, originals, measure) -> None:
    alone = measure(ALONE, {ORIGINAL: SLOW_S, "a": 0.005, "b": 0.006})
    last = measure(TOGETHER, {ORIGINAL: SLOW_S, "b": 0.006, AGAIN: SLOW_S}, first=7)
    found = verified([*originals, guard("a"), guard("b"), *alone, *last], DEVICE)
    rows = results((proposal("a"), proposal("b")), found, None)
    assert [(row.name, row.chosen) for row in rows] == [("b", True), ("a", False)]
    assert rows[0].verified_speedup.estimate == pytest.approx(SLOW_S / 0.006, rel=0.03)


def test_later_rounds_that_say_no_outweigh_the_first(guard, originals, measure) -> None:
    alone = measure(ALONE, {ORIGINAL: SLOW_S, "a": 0.01})
    again = measure(TOGETHER, {ORIGINAL: SLOW_S, "a": SLOW_S, AGAIN: SLOW_S}, first=7, blocks=6)
    found = verified([*originals, guard("a"), *alone, *again], DEVICE)
    assert found.chosen is None
    assert of("a", found).outcome == "not verified"


def test_what_was_put_together_has_a_row_of_its_own_and_the_patched_source_has_none(guard, originals, measure) -> None:
    both, place = "parallel-map + prefetch", Location(file="data.py", line=3)
    walls = {ORIGINAL: SLOW_S, both: 0.005, PATCHED: 0.005, AGAIN: SLOW_S}
    found = verified([*originals, guard(both), guard(PATCHED), *measure(TOGETHER, walls)], DEVICE)
    rows = results((proposal("parallel-map", places=(place,)), proposal("prefetch")), found, None)
    assert [row.name for row in rows] == [both, "parallel-map", "prefetch"]
    assert (rows[0].what, rows[0].places) == ("does parallel-map; does prefetch", (place,))
    assert (rows[0].predicted_speedup, rows[0].chosen) == (None, True)
    assert found.measured[PATCHED].evidence.ratio.estimate == pytest.approx(4.0, rel=0.03)


@pytest.mark.parametrize(
    ("beside", "other", "processes"),
    [({}, False, 3), ({"cache@a": 0.005}, False, 3), ({}, True, 2)],
    ids=["alone", "beside the fix", "other data"],
)
def test_a_process_of_the_patched_source_counts_for_the_fix(
    guard, originals, measure, beside, other, processes
) -> None:
    alone = measure(ALONE, {ORIGINAL: SLOW_S, "cache@a": 0.005})
    last = measure(TOGETHER, {ORIGINAL: SLOW_S, PATCHED: 0.004, **beside}, first=7, blocks=1)
    read = guard(PATCHED, elements(range(1, 13)) if other else None)
    found = verified([*originals, guard("cache@a"), *alone, read, *last], DEVICE)
    assert found.measured["cache@a"].evidence.processes == processes
    assert (found.ratio("cache@a") > 4.1) is (not beside and not other), "the patched source is faster here"
    assert found.measured[PATCHED].evidence.processes == 1
    assert (found.chosen, found.best_first) == ("cache@a", ["cache@a"])


def test_what_is_expected_of_what_was_put_together_is_told(shown) -> None:
    both = "parallel-map + prefetch"
    found = shown({both: 0.005}, TOGETHER)
    rows = results((proposal("prefetch"),), found, None, predicted=lambda fixes: 3.0 + len(fixes))
    assert {row.name: row.predicted_speedup for row in rows} == {both: 5.0, "prefetch": 2.0}
    assert rows[0].what == "maps in parallel; does prefetch"  # nobody proposed the first part alone


@pytest.mark.parametrize(("together_s", "chosen"), [(0.005, "cache@a"), (0.0045, "cache@a + prefetch")])
def test_a_part_that_is_as_fast_by_itself_is_chosen(guard, originals, measure, together_s, chosen) -> None:
    both = "cache@a + prefetch"
    alone = measure(ALONE, {ORIGINAL: SLOW_S, "cache@a": 0.005, "prefetch": 0.01})
    again = measure(TOGETHER, {ORIGINAL: SLOW_S, both: together_s, AGAIN: SLOW_S}, first=7)
    guards = [guard(name) for name in ("cache@a", "prefetch", both)]
    assert verified([*originals, *guards, *alone, *again], DEVICE).chosen == chosen


def test_the_patch_is_the_chosen_one_s(shown) -> None:
    patch = Patch(diff="--- a\n+++ b\n")
    rows = results((proposal("a"), proposal("b")), shown({"a": 0.01, "b": 0.005}), patch)
    assert [(row.name, row.patch) for row in rows] == [("b", patch), ("a", None)]


def test_the_chosen_comes_first_then_accepted_rejected_and_the_rest(shown) -> None:
    names = ("late", "slow", "good", "best")
    found = shown({"slow": 0.03, "good": 0.01, "best": 0.005})
    rows = results([proposal(name) for name in names], found, None)
    assert [row.name for row in rows] == ["best", "good", "slow", "late"]


def test_a_fix_of_the_step_has_to_train_the_same(guard, measure) -> None:
    before = [guard(ORIGINAL, elements(losses=(1.0, 0.5, 0.25), state=((1.0, 2.0),), seed=seed)) for seed in (0, 0, 1)]
    speed = measure(ALONE, {ORIGINAL: SLOW_S, "step:graph": 0.01})
    same = guard("step:graph", elements(losses=(1.0, 0.50001, 0.25), state=((1.0, 2.0),)))
    row = of("step:graph", verified([*before, same, *speed], DEVICE))
    assert row.outcome == "accepted"
    assert "losses of 3 steps" in row.semantics.sentence
    assert row.semantics.epochs == 2
    other = guard("step:graph", elements(losses=(1.0, 0.6, 0.3), state=((1.0, 2.0),)))
    row = of("step:graph", verified([*before, other, *speed], DEVICE))
    assert (row.outcome, row.semantics.equivalent) == ("rejected", False)
    # Several steps of a call have one loss, that of the last.
    several = guard("step:several:16", elements(losses=(0.25,), state=((1.0, 2.0),)))
    row = verified([*before, several], DEVICE).semantics["step:several:16"]
    assert row.equivalent is True
    assert "the loss of the last step and 1 variable after it are the same" in row.sentence
    assert "; callbacks of batches come once for 16 of them." in row.sentence
    later = guard("step:several:16", elements(losses=(0.3,), state=((1.0, 2.0),)))
    assert verified([*before, later], DEVICE).semantics["step:several:16"].equivalent is False
    # A fix of the data is not held to the losses, which other threads may round otherwise.
    data = guard("prefetch", elements(losses=(1.0, 0.6, 0.3)))
    assert verified([*before, data], DEVICE).semantics["prefetch"].equivalent is True


def test_an_order_that_the_original_promises_is_not_given_up(guard, originals) -> None:
    moved = elements([4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11], ordered=False)
    found = verified([*originals, guard("prefetch", moved)], DEVICE)
    assert found.semantics["prefetch"].equivalent is False


def test_the_original_s_identity_is_kept(guard) -> None:
    identity = GraphIdentity(graph="g", data="d")
    assert verified([guard(ORIGINAL, elements(identity=identity))], DEVICE).identity == identity


@settings(max_examples=20, deadline=None)
@given(
    speedups=st.lists(st.sampled_from([0.7, 1.0, 1.2, 2.0, 4.0]), min_size=1, max_size=3),
    data=st.data(),
)
def test_nothing_is_proposed_that_is_not_faster_with_the_same_data(guard, originals, measure, speedups, data) -> None:
    names = [f"buffer:{number}" for number in range(len(speedups))]
    same = {name: data.draw(st.booleans()) for name in names}
    blocks = data.draw(st.sampled_from([1, 2, 4, 7]))
    trials = [*originals, *(guard(name, elements() if same[name] else elements(range(12, 0, -1))) for name in names)]
    walls = {ORIGINAL: SLOW_S} | {name: SLOW_S / speedup for name, speedup in zip(names, speedups, strict=True)}
    found = verified([*trials, *measure(ALONE, walls, blocks=blocks)], DEVICE)
    rows = results([proposal(name) for name in names], found, None)
    faster = {name: speedup for name, speedup in zip(names, speedups, strict=True) if speedup > 1 and same[name]}
    accepted = {row.name for row in rows if row.outcome == "accepted"}
    assert accepted <= faster.keys()
    assert {name for name, speedup in faster.items() if speedup >= 2 and blocks >= 2} <= accepted
    assert accepted == faster.keys() or blocks < 7
    chosen = [row for row in rows if row.chosen]
    assert [row.name for row in chosen] == ([found.chosen] if accepted else [])
    if chosen:
        assert chosen[0].verified_speedup.low > 1
        assert walls[chosen[0].name] == min(walls[name] for name in accepted)


@pytest.mark.parametrize("wrong", [None, 5])
def test_what_the_timed_batches_held_counts_beside_what_the_guard_saw(guard, measure, wrong) -> None:
    walls = {ORIGINAL: SLOW_S, AGAIN: SLOW_S, "prefetch": 0.004, "slower": 0.01}

    def held(trial: TrialRecord) -> TrialRecord:
        digests = tuple(100 + (number == wrong and trial.spec.arm == "prefetch") for number in range(8))
        contents = Contents(epochs=(0,) * 8, batches=tuple(range(8)), digests=digests, seen=9)
        return trial.model_copy(update={"contents": contents})

    seen = elements(rows_of=6_000)
    guards = [*(guard(ORIGINAL, seen) for _ in range(3)), guard("prefetch", seen), guard("slower", seen)]
    found = verified([*guards, *map(held, measure(ALONE, walls))], DEVICE)
    row = of("prefetch", found)
    if wrong is None:
        assert (row.outcome, found.chosen, found.behind["slower"]) == ("accepted", "prefetch", "prefetch")
        assert (row.semantics.rows, row.semantics.rows_of) == (12, 6_000)
        assert (row.semantics.timed_batches, row.semantics.timed_of) == (16, 18)
        rows = "Checked 12 rows of the 6,000 that an epoch yields, over 2 epochs"
        said = f"{rows}, and 16 of the 18 batches of the timed runs."
        assert row.semantics.sentence.endswith(said)
    else:
        assert (row.outcome, found.chosen, found.behind) == ("rejected", "slower", {})
        assert "batch 6 of epoch 1, as it was timed, has other values" in row.why


def test_a_script_that_raises_with_a_fix_is_not_said_to_have_a_dataset_that_cannot_be_read(guard, originals) -> None:
    for kind, said in (("TypeError", "with it the script raised: "), ("InvalidInputError", "")):
        run = guard("step", status="raised", cause="no array", error=TrialError(type=kind, message="no array"))
        spec = run.spec.model_copy(update={"script": ScriptAgain(directory="/run")})
        found = data_of([*originals, run.model_copy(update={"spec": spec})], "step")
        assert (found.equivalent, found.sentence) == (None, f"{said}no array")


def test_of_an_original_that_shuffles_the_timed_batches_tell_nothing(guard, measure) -> None:
    seen = elements(random_ops=("ShuffleDatasetV3",))
    trials = measure(ALONE, {ORIGINAL: SLOW_S, "prefetch": 0.01})
    timed = [trial.model_copy(update={"contents": Contents(seen=4)}) for trial in trials]
    row = of(
        "prefetch", verified([*(guard(ORIGINAL, seen) for _ in range(3)), guard("prefetch", seen), *timed], DEVICE)
    )
    assert row.outcome == "accepted"
    assert row.semantics.timed_why_not == "their order or values vary"
    assert "Checked 12 rows of a dataset of unknown length" in row.semantics.sentence
