"""Which trials of a comparison are run, in which order, and when it ends: with a session that measures nothing.

Its arms do not fit together, so that they are measured in blocks of fresh processes; for turns see ``test_turns.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from xttsbench.comparison.arms import compare
from xttsbench.records.plan import Accelerator
from xttsbench.records.trial import Parity
from xttsbench.workflows.measure.arms import compare_arms
from xttsbench.workflows.scenario import measure


class Fake:
    """A session whose clock moves by what each trial is said to take."""

    def __init__(
        self,
        build,
        seconds: float = 2.0,
        *,
        endings: dict[Any, dict[str, Any]] | None = None,
        block=None,
        side_by_side: Any = "they do not fit",
    ):
        self.trials = []
        self.earlier = {}
        self.spent_s = 0.0
        self.block = block
        self.side_by_side = side_by_side
        self.notes = set()
        self.labels = []
        self.limits = []
        self._build = build
        self._seconds = seconds
        self._endings = endings or {}

    def run(self, spec, limits, label=None, *, note=None):
        self.notes.add(note)
        self.labels.append(label)
        self.limits.append(limits)
        self.spent_s += self._seconds
        key = (spec.arm, spec.block) if spec.kind == "arm" else tuple(spec.others)
        fields = dict(self._endings.get(key) or self._endings.get(spec.arm if spec.kind == "arm" else "parity") or {})
        if spec.kind == "parity":
            found = fields.pop("found", Parity(batches=8, tolerance=1e-4, same=tuple(spec.others)))
            record = self._build.trial("parity", parity=found, **fields)
        elif fields:
            record = self._build.trial("arm", **fields)
        else:
            record = self._build.arm_trial(spec.arm, 0.02, block=spec.block, emulated_ms=spec.emulated_ms)
        record = record.model_copy(update={"spec": spec})
        self.trials.append(record)
        return record


def names(trials) -> list[str]:
    return [f"{trial.spec.block}:{trial.spec.arm}" for trial in trials if trial.spec.kind == "arm"]


def run(build, *arms: str, budget_s: float = 1e6, endings=None, seconds: float = 2.0, **options: Any):
    wanted = {
        name: options.pop(name)
        for name in ("first_block", "seed", "rounds", "window_s", "parity", "after_round", "enough")
        if name in options
    }
    blocks = options.pop("planned", 3)
    comparison = build.comparison(*arms, blocks=blocks, **options)
    session = Fake(build, seconds, endings=endings)
    trials = compare_arms(comparison, session, budget_s=budget_s, **wanted)
    return comparison, session, trials


KILLED = {"status": "killed", "cause": "killed by SIGKILL"}
INTERRUPTED = {"status": "interrupted", "cause": "interrupted in phase 'as_is'"}


def test_data_first_then_whole_blocks(build) -> None:
    comparison, session, trials = run(build, "a", "b", "c", accelerators=(Accelerator(), build.emulated()))
    assert trials == session.trials
    assert trials[0].spec.kind == "parity"
    assert list(trials[0].spec.others) == ["b", "c"]
    assert len(trials) == 1 + 3 * 2 * 4
    for block in range(3):
        own = [(t.spec.arm, t.spec.emulated_ms) for t in trials[1:] if t.spec.block == block]
        assert len(own) == len(set(own)) == 8
    assert [t.spec.block for t in trials[1:]] == sorted(t.spec.block for t in trials[1:])
    assert len({t.spec.trial_id for t in trials}) == len(trials)
    assert session.limits[1].time_s == comparison.trial_s
    assert session.limits[1].stall_s == comparison.stall_s
    assert session.labels[1].startswith("round 1 of 3: ")


def test_the_order_is_the_seed_s(build) -> None:
    first, again, other = (names(run(build, "a", "b", "c", seed=seed)[2]) for seed in (1, 1, 2))
    assert first == again
    assert sorted(first) == sorted(other)
    assert first != other


def test_an_arm_that_dies_is_not_run_again_and_the_run_goes_on(build) -> None:
    comparison, _, trials = run(build, "a", "b", "c", endings={("b", 1): KILLED})
    assert [name for name in names(trials) if name.endswith(":b")] == ["0:b", "1:b"]
    assert len([name for name in names(trials) if name.startswith("2:")]) == 3
    assert {arm.id: arm.decision for arm in compare(comparison, trials).arms}["b"] == "ended"


@pytest.mark.parametrize("name", ["a", "a:again"])
def test_a_baseline_that_dies_ends_its_group(build, name) -> None:
    devices = (Accelerator(), build.emulated())
    comparison = build.comparison("a", "b", blocks=3, accelerators=devices)
    session = Fake(build)
    run_one = session.run

    def dies_when_real(spec, limits, label=None, *, note=None):
        if spec.arm == name and spec.block == 1 and not spec.emulated_ms:
            session._endings = {(name, 1): KILLED}
        record = run_one(spec, limits, label)
        session._endings = {}
        return record

    session.run = dies_when_real
    trials = compare_arms(comparison, session, budget_s=1e6)
    died = next(i for i, t in enumerate(trials) if t.status == "killed")
    after = [t for t in trials[died + 1 :] if t.spec.kind == "arm"]
    assert after
    assert all(t.spec.emulated_ms for t in after)  # the other group goes on
    assert len([t for t in trials if t.spec.emulated_ms]) == 9


def test_when_all_candidates_are_gone_the_baseline_is_not_measured_for_nothing(build) -> None:
    _, _, trials = run(build, "a", "b", endings={"b": KILLED})
    assert {t.spec.block for t in trials} == {0}


def test_without_candidates_the_baseline_is_measured(build) -> None:
    _, _, trials = run(build, "a")
    assert len(trials) == 6
    assert all(t.spec.kind == "arm" for t in trials)  # there are no data to compare


def test_an_arm_with_other_data_is_not_measured(build) -> None:
    found = Parity(batches=8, tolerance=1e-4, same=("c",), differences={"b": "batch 0"})
    _, _, trials = run(build, "a", "b", "c", endings={"parity": {"found": found}})
    assert {t.spec.arm for t in trials if t.spec.kind == "arm"} == {"a", "c", "a:again"}


def test_where_all_differ_nothing_is_measured(build) -> None:
    found = Parity(batches=8, tolerance=1e-4, differences={"b": "batch 0"})
    _, _, trials = run(build, "a", "b", endings={"parity": {"found": found}})
    assert [t.spec.kind for t in trials] == ["parity"]


def test_a_baseline_that_cannot_be_read_is_not_measured(build) -> None:
    _, _, trials = run(build, "a", "b", endings={"parity": {"found": None, "status": "raised", "cause": "no file"}})
    assert [t.spec.kind for t in trials] == ["parity"]


def test_an_arm_that_takes_the_trial_of_parity_with_it_costs_only_itself(build) -> None:
    found = Parity(batches=8, tolerance=1e-4, same=("b",))
    endings = {("b", "c", "d", "e"): {"found": found} | KILLED}
    _, _, trials = run(build, "a", "b", "c", "d", "e", endings=endings)
    assert [list(t.spec.others) for t in trials if t.spec.kind == "parity"] == [["b", "c", "d", "e"], ["d", "e"]]
    assert "c" in {t.spec.arm for t in trials if t.spec.kind == "arm"}  # measured, though it can be no winner


def test_arms_that_differ_only_in_the_step_have_their_losses_compared(build) -> None:
    _, _, trials = run(build, "a", "b", configs={"b": {"mode": "xla"}}, bundled=True)
    (parity,) = (t.spec for t in trials if t.spec.kind == "parity")
    assert parity.loss_steps > 0


def test_comparing_many_arms_may_take_longer_than_a_trial(build) -> None:
    comparison, session, _ = run(build, *"abcd")
    assert [limit.time_s for limit in session.limits[:2]] == [4 * comparison.trial_s, comparison.trial_s]


@pytest.mark.parametrize("arm", ["a", "b", "a:again"])
def test_an_interruption_is_the_last_trial(build, arm) -> None:
    _, _, trials = run(build, "a", "b", endings={(arm, 1): INTERRUPTED})
    assert trials[-1].status == "interrupted"
    assert (trials[-1].spec.arm, trials[-1].spec.block) == (arm, 1)


def test_an_interruption_while_the_data_are_compared(build) -> None:
    _, _, trials = run(build, "a", "b", endings={"parity": {"found": None} | INTERRUPTED})
    assert [t.status for t in trials] == ["interrupted"]


@pytest.mark.parametrize(("budget_s", "blocks"), [(62.0, 1), (63.1, 2), (92.0, 2), (93.1, 3), (1000.0, 3)])
def test_no_block_begins_that_is_not_expected_to_end(build, budget_s, blocks) -> None:
    # Parity takes 3 s and a block 30, ten trials of 3 s; windows are shortened by themselves.
    _, session, trials = run(build, *"abcdefghi", budget_s=budget_s, seconds=3.0)
    assert len({t.spec.block for t in trials if t.spec.kind == "arm"}) == blocks
    assert session.spent_s <= budget_s


def test_a_budget_for_not_even_one_block_measures_nothing(build) -> None:
    _, _, trials = run(build, "a", "b", budget_s=11.0, seconds=0.5)
    assert {t.spec.kind for t in trials} == {"parity"}


def test_a_slow_target_shortens_its_windows(build) -> None:
    _, _, quick = run(build, "a", "b", budget_s=60.0)
    _, _, slow = run(build, "a", "b", budget_s=60.0, endings={"parity": {"setup_s": 8.0}})
    assert slow[1].spec.window_s < quick[1].spec.window_s


def test_a_diagnosis_may_append_a_comparison_of_two_blocks(build) -> None:
    """As another workflow uses it: its own trials before, its own block's helper, fewer blocks, a small budget."""
    comparison = build.comparison(*"abcde", blocks=8, accelerators=(Accelerator(), build.emulated()))
    session = Fake(build, block=1)
    session.trials = [build.ladder(), build.ladder(block=1, number=1)]
    trials = compare_arms(comparison, session, first_block=1, rounds=2, budget_s=70.0)
    assert {t.spec.block for t in trials} == {1, 2}
    assert session.trials[2:] == trials
    assert trials[0].spec.trial_id.startswith("002-")
    assert trials[1].spec.window_s < 2.1
    assert session.labels[1].startswith("round 1 of 2: ")


def test_data_that_have_been_compared_are_not_compared_again(build) -> None:
    _, _, trials = run(build, "a", "b", parity=False)
    assert {trial.spec.kind for trial in trials} == {"arm"}


def test_a_given_window_is_every_trial_s(build) -> None:
    _, _, trials = run(build, "a", "b", window_s=0.7)
    assert {trial.spec.window_s for trial in trials if trial.spec.kind == "arm"} == {0.7}


def test_how_it_stands_is_told_after_each_block(build) -> None:
    told = []
    run(build, "a", "b", planned=3, after_round=lambda done, rounds, trials: told.append((done, rounds, len(trials))))
    assert told == [(1, 3, 4), (2, 3, 7), (3, 3, 10)]


def test_a_run_that_goes_on_keeps_the_window_of_its_journal(build) -> None:
    comparison, _, trials = run(build, *"abc", budget_s=60.0, seconds=2.0)
    assert len({trial.spec.window_s for trial in trials if trial.spec.kind == "arm"}) == 1
    session = Fake(build)
    session.earlier = {trial.spec.trial_id: trial for trial in trials[:3]}
    later = compare_arms(comparison, session, budget_s=1e6)
    assert [trial.spec for trial in later[:3]] == [trial.spec for trial in trials[:3]]


def test_that_they_are_measured_alone_is_in_their_notes(build) -> None:
    _, session, _ = run(build, "a", "b")
    assert session.notes == {None, "measured in fresh processes, one after another: they do not fit"}


@pytest.mark.parametrize("again", [False, True])
def test_a_target_by_itself_needs_no_reason_for_that(build, again: bool) -> None:
    _, session, _ = run(build, "a", planned=1, again=again)
    assert session.notes == {None}


def test_a_run_of_one_configuration_has_all_the_processes_that_it_asks_for(build) -> None:
    session = Fake(build)
    measure(build.comparison("a", blocks=8), session, until_s=1e6, seed=0)
    assert sorted(names(session.trials)) == sorted(f"{at}:{arm}" for at in range(8) for arm in ("a", "a:again"))


def test_arms_that_are_decided_get_no_more_rounds(build) -> None:
    asked = []

    def enough(trials):
        asked.append(len(trials))
        return {"b"} if len(asked) == 1 else {"b", "c"}

    _, _, trials = run(build, "a", "b", "c", planned=5, enough=enough)
    assert sorted(name for name in names(trials) if name.startswith("1:")) == ["1:a", "1:a:again", "1:c"]
    assert {trial.spec.block for trial in trials} == {0, 1}
    assert asked == [5, 8]


@pytest.mark.parametrize("half", [["n0", "n0", None], ["n0", "n1", "n1"]])
def test_a_block_of_a_cluster_that_is_not_whole_of_one_machine_is_measured_again(build, half) -> None:
    """Else one machine's configuration would be compared with another's baseline."""
    comparison, _, trials = run(build, "a", "b", rounds=2, parity=False)
    at = [*["n0"] * 3, *half]
    journal = [build.on(trial, node) for trial, node in zip(trials, at, strict=True) if node]
    session = Fake(build)
    session.earlier = {one.spec.trial_id: one for one in journal}
    compare_arms(comparison, session, budget_s=1e6, rounds=2, parity=False)
    assert [*session.earlier] == [one.spec.trial_id for one in journal[:3]]
    session.earlier = {one.spec.trial_id: one.model_copy(update={"machine": None}) for one in journal}
    compare_arms(comparison, session, first_block=0, budget_s=1e6, rounds=2, parity=False)
    assert len(session.earlier) == len(journal), "at home each trial counts by itself"
