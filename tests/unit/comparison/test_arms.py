"""Arms from hand-built and simulated trials whose answers are known."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from xttsbench.analysis.steps import measured, steady
from xttsbench.comparison.arms import ComparedVariants, compare
from xttsbench.comparison.runs import settled
from xttsbench.comparison.sweep import seen_in
from xttsbench.records.base import FASTER, SLOWER
from xttsbench.records.readings import GpuReadings, HostReadings, Readings
from xttsbench.records.report import Variant
from xttsbench.records.trial import Devices, Parity, RoundMark


@pytest.fixture
def session(build):
    """``session(walls, blocks=6, ...)``: trials of arms with those mean steps, the baseline (the first) twice."""

    def simulate(walls: dict[str, float], *, blocks: int = 6, accelerators: Any = None, **options: Any):
        comparison = build.comparison(
            *walls, blocks=blocks, accelerators=accelerators or (build.comparison("x").accelerators)
        )
        told = {"drift": 0.1} | options
        trials = [
            build.arm_trial(arm.id, walls[arm.id.removesuffix(":again")], block=block, emulated_ms=times, **told)
            for times in (accelerator.step_times_ms for accelerator in comparison.accelerators)
            for block in range(blocks)
            for arm in comparison.arms
        ]
        return comparison, trials

    return simulate


def by_id(found: ComparedVariants) -> dict[str, Variant]:
    return {arm.id: arm for arm in found.arms}


def test_known_ratios_are_found_and_decided(session) -> None:
    comparison, trials = session({"a": 0.04, "fast": 0.02, "slow": 0.05, "same": 0.04}, blocks=14)
    arms = by_id(compare(comparison, trials))
    assert {name: arm.decision for name, arm in arms.items()} == {
        "a": None,
        "fast": "clearly_faster",
        "slow": "clearly_slower",
        "same": "no_difference",
        "a:again": None,
    }
    assert arms["fast"].effect.low < 2 < arms["fast"].effect.high
    assert arms["slow"].effect.estimate == pytest.approx(0.8, rel=0.01)
    assert arms["fast"].evidence > 1e6
    assert (arms["fast"].processes, arms["fast"].rounds, arms["a:again"].rounds) == (14, 14, 14)
    assert (arms["a"].effect, arms["a"].evidence) == (None, None)
    # Eight samples in 20 ms; the drift of the blocks is 10 %, shared by all arms of a block
    assert arms["fast"].throughput_per_s.estimate == pytest.approx(400, rel=0.15)
    steps = sum(59 - steady(measured(t, "as_is"))[1].cut for t in trials if t.spec.arm == "fast")
    assert (arms["fast"].blocks, arms["fast"].steps) == (14, steps)
    assert arms["fast"].cv == pytest.approx(0.01, rel=0.3)
    assert arms["fast"].std_over_mean == pytest.approx(0.01, rel=0.3)


def test_figures_and_ratios_agree(session) -> None:
    """The drift of the blocks is in both sides of a ratio, and an arm that ran in quick blocks alone is not quicker."""
    comparison, trials = session({"a": 0.04, "b": 0.02, "late": 0.03}, blocks=8, drift=0.3)
    found = compare(comparison, [t for t in trials if t.spec.arm != "late" or t.spec.block > 5])
    arms = by_id(found)
    for name in ("b", "late", "a:again"):
        arm = arms[name]
        slower = arms["a"].step_time_s.estimate / arm.step_time_s.estimate
        assert arm.effect.estimate == pytest.approx(slower)
        assert arm.effect.estimate == pytest.approx(arm.throughput_per_s.estimate / arms["a"].throughput_per_s.estimate)
        assert arm.step_time_s.low < arm.step_time_s.estimate < arm.step_time_s.high


def test_arms_are_compared_on_the_batches_that_both_had(build) -> None:
    """Later batches are five times as long. The faster arm gets to more of them in the same time."""
    comparison = build.comparison("a", "b", blocks=3, again=False)
    lengths = np.where(np.arange(40) < 10, 1.0, 5.0)

    def trial(arm: str, block: int, steps: int, speed: float):
        walls = 0.01 * lengths[:steps] / speed
        rows = {"batch": np.arange(steps), "wall_s": walls, "step_s": walls}
        as_is = build.segment("as_is", **rows)
        return taking_turns(build.trial("arm", as_is, arm=arm, group="loaders", block=block, number=block))

    def found(**rows: Any) -> Variant:
        trials = [
            trial(arm, n, steps, speed) for n in range(3) for arm, steps, speed in (("a", 20, 1.0), ("b", 40, 2.0))
        ]
        return by_id(compare(comparison, [with_columns(one, **rows) for one in trials]))["b"]

    assert found().effect.estimate == pytest.approx(2.0, rel=1e-3)
    # Where the batches are not known, or are others, all rows are what there is.
    assert found(batch=-1).effect.estimate < 1.7


def taking_turns(trial):
    """The trial of a process that lives from turn to turn."""
    return trial.model_copy(update={"spec": trial.spec.model_copy(update={"turns": True})})


def living(
    build, arm: str, wall_s: float, *, foreign: list[float], block: int = 0, slow: tuple[int, float] = (-1, 1.0)
):
    """A process that lives from turn to turn, ten steps and a second each, of which others took those shares.

    In the turn that ``slow`` names a step takes so many times as long.
    """
    count = len(foreign)
    rounds = np.repeat(np.arange(count), 10)
    walls = wall_s * np.where(rounds == slow[0], slow[1], 1.0)
    marks = tuple(RoundMark(round=n, start_ns=n * 10**9, end_ns=(n + 1) * 10**9) for n in range(count))
    as_is = build.segment("as_is", wall_s=walls, step_s=walls, round=rounds)
    told = {"arm": arm, "group": "loaders", "block": block, "rounds": marks}
    return taking_turns(build.trial("arm", as_is, readings=Readings(host=_host(foreign)), **told))


def _host(foreign: list[float]) -> HostReadings:
    """Readings at each second of a machine with two processors, of which the target uses one."""
    taken = np.concatenate([[0.0], np.cumsum(foreign)]) * 2
    seconds = np.arange(len(foreign) + 1.0)
    given = {
        "t_ns": tuple(int(s * 1e9) for s in seconds),
        "cpu_s": tuple(seconds),
        "machine_busy_s": tuple(seconds + taken),
        "machine_steal_s": (0.0,) * len(seconds),
        "machine_idle_s": tuple(seconds * 2 - seconds - taken),
    }
    return HostReadings(**given, allowed_cpus=2.0)


def test_rounds_of_live_processes_are_paired_and_their_processes_pooled(build) -> None:
    """Two processes of each arm, with four turns; what slows a round slows both sides of it."""
    trials = [
        living(build, arm, wall, foreign=[0.0] * 4, block=block, slow=(block + 1, 3.0))
        for block in (0, 1)
        for arm, wall in (("a", 0.04), ("b", 0.02))
    ]
    arm = by_id(compare(build.comparison("a", "b", again=False), trials))["b"]
    assert (arm.processes, arm.rounds, arm.blocks, arm.steps) == (2, 8, 2, 80)
    assert arm.effect.estimate == pytest.approx(2.0)
    assert arm.decision == "clearly_faster"


def test_disturbed_rounds_are_left_out(build) -> None:
    """Others took half of the machine in one turn of the candidate. Its figures are those of the other rounds."""
    baseline = living(build, "a", 0.04, foreign=[0.0] * 6)
    candidate = living(build, "b", 0.02, foreign=[0.0, 0.0, 0.0, 0.5, 0.0, 0.0], slow=(3, 2.0))
    arm = by_id(compare(build.comparison("a", "b", again=False), [baseline, candidate]))["b"]
    assert (arm.rounds, arm.steps) == (5, 50)
    assert arm.effect.estimate == pytest.approx(2.0)
    assert arm.step_time_s.estimate == pytest.approx(0.02)


def test_disturbed_rounds_are_kept_of_a_configuration_that_has_no_others(build) -> None:
    """What two rounds showed is not forgotten since others, of other configurations, were quieter."""
    comparison = build.comparison("a", "b", "c", again=False)

    def trials(foreign: float):
        first = [living(build, arm, wall, foreign=[foreign] * 2) for arm, wall in (("a", 0.04), ("b", 0.02))]
        return first + [
            living(build, arm, wall, foreign=[0.0] * 4, block=1) for arm, wall in (("a", 0.04), ("c", 0.01))
        ]

    disturbed, quiet = (by_id(compare(comparison, trials(foreign))) for foreign in (0.5, 0.0))
    assert seen_in(comparison, trials(0.5)).versus("b", "a").rounds == 2, "a sweep chooses by what its report shows"
    assert (disturbed["b"].rounds, disturbed["c"].rounds) == (2, 4)
    assert disturbed["b"].effect.estimate == pytest.approx(2.0)
    assert disturbed["c"].effect.estimate == pytest.approx(4.0)
    assert disturbed["b"].effect.high > quiet["b"].effect.high
    assert disturbed["b"].decision == "faster"  # clearly so takes a round that was left alone
    assert quiet["b"].decision == "clearly_faster"


def test_the_drift_of_the_blocks_does_not_widen_the_effect(session) -> None:
    """Blocks of the same machine state are compared with one another: 30 % of drift is in both sides of each ratio."""
    comparison, calm = session({"a": 0.04, "b": 0.02}, drift=0.0)
    _, drifting = session({"a": 0.04, "b": 0.02}, drift=0.3)
    one, other = (by_id(compare(comparison, trials))["b"].effect for trials in (calm, drifting))
    assert other.high / other.low == pytest.approx(one.high / one.low, rel=0.01)


def test_the_effect_is_on_samples_and_not_on_steps(build, session) -> None:
    comparison, trials = session({"a": 0.02, "b": 0.02})
    doubled = [t if t.spec.arm != "b" else with_columns(t, batch_size=16) for t in trials]
    arm = by_id(compare(comparison, doubled))["b"]
    assert arm.effect.estimate == pytest.approx(2, rel=0.01)
    assert arm.decision == "clearly_faster"


def with_columns(trial, **values: int):
    """The trial with the same value in all rows of a column."""
    segments = (
        segment.model_copy(
            update={"columns": segment.columns | {name: (value,) * segment.steps for name, value in values.items()}}
        )
        for segment in trial.segments
    )
    return trial.model_copy(update={"segments": tuple(segments)})


def test_one_round_decides_what_is_large_and_says_what_would_decide_the_rest(session) -> None:
    comparison, trials = session({"a": 0.04, "b": 0.02, "c": 0.036}, blocks=1, drift=0)
    found = compare(comparison, trials)
    arms = by_id(found)
    assert (arms["b"].decision, arms["b"].rounds) == ("faster", 1)
    assert arms["b"].effect.low < 2.0 < arms["b"].effect.high
    assert arms["c"].decision == "undecided"
    why = found.unmeasured["arms.2.decision"]
    said = r"evidence of a difference is \d\.\d+, and 40 decides; about [3-9] more rounds like these would \(\d+ s\)"
    assert re.fullmatch(said, why)
    assert found.sentences[0].startswith("b is faster than a: 2.0")
    assert "in 1 round of 1 process; utilization 50 %" in found.sentences[0]


def test_two_rounds_are_clear_about_what_is_large(session) -> None:
    comparison, trials = session({"a": 0.04, "b": 0.02}, blocks=2)
    assert by_id(compare(comparison, trials))["b"].decision == "clearly_faster"


def test_the_interval_of_few_blocks_is_as_wide_as_their_processes_differ(session) -> None:
    comparison, calm = session({"a": 0.04, "b": 0.02}, blocks=3)
    _, restless = session({"a": 0.04, "b": 0.02}, blocks=3, process_sd=0.1)
    narrow, wide = (by_id(compare(comparison, trials))["b"].effect for trials in (calm, restless))
    assert math.log(wide.high / wide.low) > 2 * math.log(narrow.high / narrow.low)


def test_a_quiet_session_shows_the_smallest_effect_it_could_have_seen(session) -> None:
    comparison, trials = session({"a": 0.04, "b": 0.02}, process_sd=0.005)
    aa = compare(comparison, trials).aa
    assert aa.noisy is False
    assert aa.effect.low < 1 < aa.effect.high or abs(aa.effect.estimate - 1) < 0.01
    assert 0.002 < aa.smallest_visible_effect < 0.05


def test_a_noisy_session_takes_more_rounds_and_vetoes_nothing(session) -> None:
    comparison, trials = session({"a": 0.04, "b": 0.02, "c": 0.036}, process_sd=0.15)
    found = compare(comparison, trials)
    assert found.aa.noisy is True
    assert by_id(found)["b"].decision in ("faster", "clearly_faster")
    assert by_id(found)["b"].effect.estimate == pytest.approx(2, rel=0.3)
    assert by_id(found)["c"].decision == "undecided"
    assert re.fullmatch(r"processes of equal configurations differ by \d\d % in this session; .*", found.remarks[0])


def test_a_second_baseline_of_another_speed_sets_the_noise(build, session) -> None:
    comparison, trials = session({"a": 0.04, "b": 0.04 / 1.2}, drift=0)
    assert by_id(compare(comparison, trials))["b"].decision == "clearly_faster"
    shifted = [
        build.arm_trial("a:again", 0.04 * 1.3, block=t.spec.block) if t.spec.arm == "a:again" else t for t in trials
    ]
    found = compare(comparison, shifted)
    assert found.aa.effect.estimate == pytest.approx(1 / 1.3, rel=0.01)
    assert found.aa.noisy is True
    assert by_id(found)["b"].decision == "undecided"


def test_one_block_has_no_second_baseline(build) -> None:
    comparison = build.comparison("a", "b", blocks=1, again=False)
    found = compare(comparison, [build.arm_trial("a", 0.04), build.arm_trial("b", 0.02)])
    assert (found.aa.effect, found.aa.noisy) == (None, None)
    assert found.unmeasured["aa.effect"] == "the baseline was measured once a round"


def test_equal_arms_are_seldom_called_different(session) -> None:
    wrong = 0
    for seed in range(12):
        comparison, trials = session(dict.fromkeys("abcde", 0.04), process_sd=0.02, seed=seed, steps=30)
        wrong += any(arm.decision in (*FASTER, *SLOWER) for arm in compare(comparison, trials).arms)
    assert wrong <= 1  # 0.6 are allowed, and far fewer expected


def test_nothing_is_faster_than_its_emulated_device_not_even_at_the_end_of_an_interval(build) -> None:
    comparison = build.comparison("a", "b", again=False, accelerators=(build.emulated(10),))
    trials = [build.arm_trial(name, wall_s, emulated_ms=(10.0,)) for name, wall_s in (("a", 0.04), ("b", 0.0102))]
    arm = by_id(compare(comparison, trials))["b"]
    assert 0.01 <= arm.step_time_s.low < arm.step_time_s.estimate
    assert arm.effect.estimate < arm.effect.high < 4.05


def test_utilization_is_of_the_emulated_accelerator_where_there_is_one(build, session) -> None:
    device = build.emulated(10)
    comparison, trials = session({"a": 0.1, "b": 0.0102}, accelerators=(device,), drift=0)
    found = compare(comparison, trials)
    arms = by_id(found)
    assert arms["a"].utilization.estimate == pytest.approx(0.1, rel=0.02)
    assert arms["b"].utilization.estimate == pytest.approx(10 / 10.2, rel=0.02)
    assert arms["b"].utilization_of == "emulated accelerator"
    assert arms["b"].accelerator == "emulated accelerator, 10 ms a step"
    assert arms["a"].input_wait_fraction.estimate == pytest.approx(0.9, rel=0.02)
    effect = arms["b"].effect
    assert found.sentences == (
        f"b is clearly faster than a: {effect.estimate:.2f}x ({effect.low:.2f} to {effect.high:.1f}) in 6 rounds of 6 "
        "processes; utilization 98 %.",
    )


def test_without_an_accelerator_utilization_is_the_share_inside_the_step(session) -> None:
    arm = by_id(compare(*session({"a": 0.04, "b": 0.02})))["a"]
    assert arm.utilization.estimate == pytest.approx(0.5, rel=0.01)
    assert arm.utilization_of == "processor: share of the wall time inside the step"


def test_a_dataset_alone_keeps_nothing_busy(session) -> None:
    found = compare(*session({"a": 0.04, "b": 0.02}, has_step=False))
    assert by_id(found)["a"].utilization is None
    assert found.unmeasured["arms.0.utilization"] == "there is no step, so nothing that could be busy"


def test_a_gpu_s_utilization_is_the_driver_s(session) -> None:
    def beside(trial, busy: float | None):
        starts = trial.segment("as_is").columns["start_ns"]
        times = tuple(int(t) for t in np.linspace(starts[1], starts[-1], 12)) if busy is not None else ()
        gpu = GpuReadings(
            index=0, name="GPU", uuid="u", utilization_t_ns=times, utilization=(busy or 0.0,) * len(times)
        )
        return trial.model_copy(update={"devices": Devices(gpus=("GPU:0",)), "readings": Readings(gpus=(gpu,))})

    comparison, trials = session({"a": 0.04, "b": 0.02})
    arm = by_id(compare(comparison, [beside(trial, 0.3) for trial in trials]))["b"]
    assert arm.utilization.estimate == pytest.approx(0.3)
    assert arm.utilization_of == "GPU (driver)"
    found = compare(comparison, [beside(trial, None) for trial in trials])
    assert by_id(found)["b"].utilization is None
    assert "driver gave no utilization samples" in found.unmeasured["arms.1.utilization"]


def test_frames_and_padding(session) -> None:
    columns = {"frames": 1000.0, "valid_frames": 750.0}
    found = compare(*session({"a": 0.04, "b": 0.02}, columns=columns, drift=0))
    arm = by_id(found)["b"]
    assert arm.padding_efficiency == 0.75
    assert arm.valid_frames_per_s.estimate == pytest.approx(750 / 0.02, rel=0.02)
    silent = compare(*session({"a": 0.04, "b": 0.02}))
    assert by_id(silent)["b"].padding_efficiency is None
    assert "Workload.frames" in silent.unmeasured["arms.1.valid_frames_per_s"]


def test_a_dead_candidate_ends_and_the_others_are_decided(build, session) -> None:
    comparison, trials = session({"a": 0.04, "dies": 0.02, "b": 0.02})
    kept = [t for t in trials if t.spec.arm != "dies" or t.spec.block < 2] + [build.dead("dies", block=2)]
    found = compare(comparison, kept)
    arms = by_id(found)
    assert (arms["dies"].decision, arms["dies"].blocks) == ("ended", 2)
    assert arms["dies"].status == "killed: killed by SIGKILL in phase 'as_is'"
    assert arms["dies"].step_time_s is not None  # what was measured before stays
    assert arms["dies"].effect is None
    assert found.unmeasured["arms.1.effect"] == arms["dies"].status
    assert arms["b"].decision == "clearly_faster"


@pytest.mark.parametrize("name", ["a", "a:again"])
def test_a_dead_baseline_ends_its_group_and_only_that(build, session, name) -> None:
    devices = (*build.comparison("x").accelerators, build.emulated())
    comparison, trials = session({"a": 0.04, "b": 0.02}, accelerators=devices)
    kept = [t for t in trials if t.spec.emulated_ms or t.spec.arm != name]
    found = compare(comparison, [*kept, build.dead(name, block=0)])
    assert found.sentences[0].startswith("Real device: nothing can be compared, since the baseline a ended: killed")
    assert "faster than a" in found.sentences[1]
    first, second = (arm for arm in found.arms if arm.id == "b")
    assert first.decision == "undecided"
    assert second.decision == "clearly_faster"


def test_an_interrupted_trial_ends_nothing(build, session) -> None:
    comparison, trials = session({"a": 0.04, "b": 0.02}, blocks=7)
    found = compare(comparison, [*trials[:-1], build.dead("b", "interrupted", block=7)])
    assert by_id(found)["b"].decision == "clearly_faster"
    assert by_id(found)["b"].status == "ok"


def test_whole_turns_of_an_interrupted_trial_count_and_the_last_one_does_not(build) -> None:
    rounds = [0] * 5 + [1] * 5 + [2] * 2
    marks = tuple(RoundMark(round=number, start_ns=0, end_ns=1) for number in range(2))
    trial = build.arm_trial("a", 0.02, steps=len(rounds) + 1)
    as_is = trial.segment("as_is")
    columns = {name: values[-len(rounds) :] for name, values in as_is.columns.items()} | {"round": tuple(rounds)}
    turns = trial.model_copy(
        update={
            "spec": trial.spec.model_copy(update={"turns": True}),
            "segments": (as_is.model_copy(update={"columns": columns, "warmup_steps": 0}),),
            "rounds": marks,
        }
    )
    interrupted = turns.model_copy(update={"status": "interrupted"})
    assert len(settled(turns)) == 12
    assert list(settled(interrupted).round) == [0] * 5 + [1] * 5
    assert settled(interrupted.model_copy(update={"rounds": ()})) is None


def test_an_arm_with_other_data_is_refused(build, session) -> None:
    comparison, trials = session({"a": 0.04, "other": 0.02, "b": 0.02})
    told = Parity(batches=8, tolerance=1e-4, same=("b",), differences={"other": "batch 0, mel: row 1 (clip 7)"})
    kept = [t for t in trials if t.spec.arm != "other"]
    found = compare(comparison, [build.parity("other", "b", found=told), *kept])
    arm = by_id(found)["other"]
    assert (arm.decision, arm.blocks, arm.effect) == ("ended", 0, None)
    assert arm.status == "refused: its data are not the baseline's: batch 0, mel: row 1 (clip 7)"
    assert by_id(found)["b"].decision == "clearly_faster"
    assert found.parity == {
        "same": False,
        "tolerance": 1e-4,
        "batches": 8,
        "baseline": "a",
        "arms": ["b", "other"],
        "difference": "other: batch 0, mel: row 1 (clip 7)",
        "differences": {"other": "batch 0, mel: row 1 (clip 7)"},
        "failed": {},
        "skipped": {},
    }
    assert found.unmeasured["arms.1.effect"] == "refused, so not measured"


def test_equal_data_are_said_to_be(build, session) -> None:
    comparison, trials = session({"a": 0.04, "b": 0.02})
    found = compare(comparison, [build.parity("b"), *trials])
    assert found.parity["same"] is True
    assert found.parity["arms"] == ["b"]
    assert found.parity["difference"] is None


def test_data_that_cannot_be_compared_make_no_winner(build, session) -> None:
    comparison, trials = session({"a": 0.04, "b": 0.02})
    told = Parity(batches=8, tolerance=1e-4, reproducible=False, why_not="batch 0, x: row 0: 1 against 2")
    found = compare(comparison, [build.parity("b", found=told), *trials])
    assert found.parity is None
    assert "differ from one pass to the next (batch 0, x: row 0: 1 against 2)" in found.unmeasured["parity"]
    assert by_id(found)["b"].decision == "undecided"
    assert "not known" in found.unmeasured["arms.1.decision"]


def test_a_trial_of_parity_that_dies_costs_the_arm_that_it_read(build, session) -> None:
    comparison, trials = session({"a": 0.04, "b": 0.02, "dies": 0.02, "c": 0.02})
    read = Parity(batches=8, tolerance=1e-4, same=("b",))
    first = build.parity("b", "dies", "c", status="killed", cause="killed by SIGSEGV", found=read)
    found = compare(comparison, [first, build.parity("c", number=1), *trials])
    assert found.parity["arms"] == ["b", "c"]
    assert found.parity["failed"] == {"dies": "reading its data ended as killed: killed by SIGSEGV"}
    assert {arm.id: arm.decision for arm in found.arms if arm.role == "candidate"} == {
        "b": "clearly_faster",
        "dies": "undecided",
        "c": "clearly_faster",
    }


def test_a_baseline_whose_data_cannot_be_read_ends_everything(build) -> None:
    comparison = build.comparison("a", "b")
    trial = build.parity("b", status="raised", cause="ValueError: no file").model_copy(update={"parity": None})
    found = compare(comparison, [trial])
    assert found.failed == "raised: ValueError: no file"
    assert by_id(found)["b"].status == "not run: the baseline ended (raised: ValueError: no file)"
    assert by_id(found)["b"].decision == "undecided"


def test_paths_begin_where_the_arms_of_the_report_do(session) -> None:
    found = compare(*session({"a": 0.04, "b": 0.039}, blocks=2), first_arm=3)
    assert "arms.4.decision" in found.unmeasured
    assert not any(path.startswith(("arms.0", "arms.1", "arms.2")) for path in found.unmeasured)


def test_the_trials_of_a_diagnosis_are_left_alone(build, session) -> None:
    comparison, trials = session({"a": 0.04, "b": 0.02})
    other = build.arm_trial("b", 9.0, group="another")
    assert compare(comparison, [build.ladder(), *trials, other]).arms == compare(comparison, trials).arms


def test_nothing_at_all_is_told_for_every_arm(build) -> None:
    found = compare(build.comparison("a", "b"), [])
    assert [arm.status for arm in found.arms] == ["not run: the run ended before its turn"] * 3
    assert found.parity is None


def test_the_same_trials_give_the_same_arms(session) -> None:
    comparison, trials = session({"a": 0.04, "b": 0.02}, blocks=2)
    first, again = (compare(comparison, trials) for _ in range(2))
    assert (first.arms, first.aa, first.sentences) == (again.arms, again.aa, again.sentences)
