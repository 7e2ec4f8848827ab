"""What others made of the machine, which rounds that spoils, and what is said of it: hand-built counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from xttsbench.analysis.disturbance import ABOVE_QUIET, disturbance_of, gate, shares
from xttsbench.analysis.readings import Span
from xttsbench.records.readings import HostReadings, Readings
from xttsbench.records.trial import RoundMark, TrialRecord

S = 1_000_000_000


def host(
    seconds: int = 60,
    *,
    own: Callable[[int], float] | float = 1.0,
    foreign: Callable[[int], float] | float = 0.0,
    steal: Callable[[int], float] | float = 0.0,
    parent: float = 0.0,
    cpus: int = 2,
    **fields: object,
) -> HostReadings:
    """A reading every second of ``cpus`` processors; the kinds of time are processors in use, by second."""

    def column(used: Callable[[int], float] | float) -> np.ndarray:
        each = [used(second) if callable(used) else used for second in range(seconds)]
        return np.concatenate([[0.0], np.cumsum(each)])

    def told(values: np.ndarray) -> tuple[float, ...]:
        return tuple(float(value) for value in values)

    mine, theirs, stolen = column(own), column(foreign), column(steal)
    elapsed = np.arange(seconds + 1.0)
    busy = mine + theirs + parent * elapsed
    return HostReadings(
        **{
            "t_ns": tuple(second * S for second in range(seconds + 1)),
            "allowed_cpus": float(cpus),
            "cpu_s": told(mine),
            "machine_busy_s": told(busy),
            "machine_steal_s": told(stolen),
            "machine_idle_s": told(cpus * elapsed - busy - stolen),
            "parent_cpu_s": told(parent * elapsed),
        }
        | fields
    )


@pytest.fixture
def turns(build) -> Callable[..., TrialRecord]:
    """A trial that takes a turn of a second in every other second."""

    def made(
        readings: HostReadings, count: int, *, canary: Sequence[int] = (), after: Sequence[int] = (), block: int = 0
    ) -> TrialRecord:
        marks = [
            RoundMark(
                round=number,
                start_ns=2 * number * S,
                end_ns=(2 * number + 1) * S,
                canary_before_ns=canary[number] if canary else None,
                canary_after_ns=after[number] if after else canary[number] if canary else None,
            )
            for number in range(count)
        ]
        trial = build.trial("arm", block=block, group="g", arm="a")
        return trial.model_copy(
            update={"rounds": tuple(marks), "readings": trial.readings.model_copy(update={"host": readings})}
        )

    return made


def test_shares_are_of_the_capacity_and_tell_own_stolen_and_foreign_time_apart() -> None:
    found = shares(host(own=0.8, foreign=0.5, steal=0.3, parent=0.1), [Span(0, 10 * S)])
    assert (found.own, found.steal, found.foreign) == pytest.approx((0.4, 0.15, 0.25))
    assert found.taken == pytest.approx(0.4)
    assert found.left == pytest.approx(0.6)


def test_several_stretches_count_by_their_length_and_only_they_do() -> None:
    readings = host(foreign=lambda second: 2.0 if 10 <= second < 20 else 0.0, own=0.0)
    assert shares(readings, [Span(0, 10 * S), Span(20 * S, 30 * S)]).foreign == pytest.approx(0.0)
    assert shares(readings, [Span(0, 5 * S), Span(5 * S, 20 * S)]).foreign == pytest.approx(0.5)


def test_processors_beyond_the_quota_are_no_capacity_and_neighbours_there_take_nothing() -> None:
    span = [Span(0, 10 * S)]
    beside = {"own": 1.0, "cpus": 64, "allowed_cpus": 2.0}
    assert shares(host(foreign=30.0, **beside), span).foreign == pytest.approx(0.0)
    assert shares(host(foreign=63.0, **beside), span).foreign == pytest.approx(0.5)
    # Half of the time of every busy processor is stolen: of the two that it can use, half of what it wanted.
    stolen = shares(host(own=1.0, foreign=9.0, steal=10.0, cpus=64, allowed_cpus=2.0), span)
    assert stolen.steal == pytest.approx(0.5)


def test_without_an_allowance_the_capacity_is_what_the_counters_count() -> None:
    found = shares(host(own=1.0, foreign=1.0, cpus=4, allowed_cpus=None), [Span(0, 10 * S)])
    assert (found.own, found.foreign) == pytest.approx((0.25, 0.25))


def test_waiting_and_stops_are_shares_too() -> None:
    times = tuple(0.2 * second for second in range(61))
    found = shares(host(throttled_s=times, run_delay_s=tuple(20 * value for value in times)), [Span(0, 10 * S)])
    assert (found.throttled, found.run_delay) == pytest.approx((0.1, 2.0))


@pytest.mark.parametrize(
    "readings", [None, HostReadings(), host(machine_busy_s=(), machine_idle_s=(), machine_steal_s=())]
)
def test_what_was_not_read_is_none_and_all_is_left(readings: HostReadings | None) -> None:
    found = shares(readings, [Span(0, 10 * S)])
    assert (found.steal, found.foreign, found.taken, found.left) == (None, None, None, 1.0)


def test_a_round_beyond_the_quiet_level_by_five_percent_is_invalid(turns) -> None:
    burst = turns(host(foreign=lambda second: 0.6 + (0.12 if second == 8 else 0.08 if second == 4 else 0.0)), 10)
    found = gate([burst])
    assert found.rounds == {(0, number) for number in range(10)}
    assert found.disturbed == found.invalid == {(0, 4)}
    assert not found.widened


@pytest.mark.parametrize("own", [0.2, 1.0, 1.8])
def test_the_noise_of_ticks_disturbs_no_round(turns, own: float) -> None:
    """The kernel counts use by whole ticks, 100 a second at worst, and idle time by the clock, to 10 ms."""
    rng = np.random.default_rng(5)
    seconds = 200
    ticks = np.concatenate([[0.0], np.cumsum(rng.binomial(2 * 100, own / 2, seconds) / 100)])
    idle = np.concatenate([[0.0], np.cumsum(np.full(seconds, 2 - own))]).round(2)
    readings = host(seconds, own=own, machine_busy_s=tuple(ticks), machine_idle_s=tuple(idle))
    assert len(gate([turns(readings, 100)]).disturbed) == 0


def test_steady_steal_disturbs_no_round(turns) -> None:
    assert gate([turns(host(own=1.0, steal=0.8), 12)]).invalid == frozenset()


def test_what_is_taken_from_one_side_counts_for_the_round_of_both(turns) -> None:
    burst = host(steal=lambda second: 0.25 if second == 6 else 0.1 if second == 8 else 0.0)
    assert gate([turns(host(), 8), turns(burst, 8)]).invalid == {(0, 3)}
    assert gate([turns(host(), 8), turns(burst, 8, block=1)]).invalid == {(1, 3)}


def test_a_slow_canary_makes_a_round_invalid_where_the_counters_show_nothing(turns) -> None:
    assert gate([turns(host(), 6, canary=[400, 400, 439, 441, 400, 400])]).invalid == {(0, 3)}
    assert gate([turns(HostReadings(), 6, canary=[400, 400, 400, 400, 900, 400])]).invalid == {(0, 4)}


def test_a_canary_that_was_slow_at_one_end_of_a_turn_only_tells_of_a_moment(turns) -> None:
    slow_before, slow_after = [400, 900, 400, 480, 400, 400], [400, 400, 900, 480, 400, 400]
    assert gate([turns(HostReadings(), 6, canary=slow_before, after=slow_after)]).invalid == {(0, 3)}


def test_what_is_stolen_at_random_and_steadily_leaves_most_rounds_valid(turns) -> None:
    """Both processors lose 15 % in stretches of 0 to 200 ms; five arms, a turn of a second each, 40 rounds."""
    rng, arms, rounds = np.random.default_rng(1), 5, 40

    def stolen() -> list[float]:
        ends = np.cumsum(rng.uniform(0, [0.2, 0.2 * 0.85 / 0.15], [1000, 2]))  # taken, left, taken, left, ...
        grown = np.cumsum(np.where(np.arange(2000) % 2 == 0, np.diff(ends, prepend=0.0), 0.0))
        return np.diff(np.interp(np.arange(2 * rounds + 1), ends, grown)).tolist()

    trials = []
    for _ in range(arms):  # each arm's seconds are others than its neighbours', so each draws its own
        one, other = stolen(), stolen()
        trials.append(
            turns(host(2 * rounds, steal=[a + b for a, b in zip(one, other, strict=True)].__getitem__), rounds)
        )
    found = gate(trials)
    assert disturbance_of(trials).steal_share == pytest.approx(0.15, abs=0.02)
    assert len(found.disturbed) <= 0.3 * rounds
    assert not found.widened


def test_where_more_than_half_are_disturbed_all_are_kept_and_the_noise_is_widened(turns) -> None:
    def bursts(quiet: int) -> TrialRecord:
        return turns(host(foreign=lambda second: 0.0 if second < 2 * quiet else 1.0), 8)

    half, most = gate([bursts(4)]), gate([bursts(3)])
    assert (len(half.invalid), half.widened) == (4, False)
    assert (len(most.disturbed), most.invalid, most.widened) == (5, frozenset(), True)


def test_the_gate_never_looks_at_the_times_of_the_target(turns, build) -> None:
    """Rows that take ten times as long in some rounds change nothing; a shift of them cannot, either."""
    quiet = turns(host(), 8)
    rows = build.segment(step_s=[0.1] * 4 + [1.0] * 4, round=[0, 1, 2, 3, 4, 5, 6, 7])
    assert gate([quiet.model_copy(update={"segments": (rows,)})]) == gate([quiet])


def test_a_trial_without_turns_is_the_first_round_of_its_block(build) -> None:
    def block(number: int, foreign: float) -> TrialRecord:
        trial = build.trial("arm", build.segment(step_s=[0.1] * 100), block=number)
        return trial.model_copy(update={"readings": trial.readings.model_copy(update={"host": host(foreign=foreign)})})

    trials = [block(0, 0.0), block(1, 0.02), block(2, 0.4), block(3, 0.09)]
    assert gate(trials).invalid == {(2, 0)}
    assert ABOVE_QUIET == 0.05


def said(*trials: TrialRecord) -> str:
    found = disturbance_of(trials)
    assert found is not None
    return found.sentence


def as_it_is(build, readings: HostReadings) -> TrialRecord:
    trial = build.trial("ladder", build.segment(step_s=[0.1] * 590))
    return trial.model_copy(update={"readings": trial.readings.model_copy(update={"host": readings})})


def test_the_sentence_names_what_was_taken_and_when(build) -> None:
    assert said(as_it_is(build, host())) == "quiet, others used less than 2 % of the processor"
    assert said(as_it_is(build, host(foreign=0.1))) == "others used 5 % of the processor"
    assert said(as_it_is(build, host(foreign=0.76))) == "others used 38 % of the processor throughout"
    burst = host(foreign=lambda second: 0.76 if 12 <= second < 41 else 0.0)
    assert said(as_it_is(build, burst)) == "others used 38 % of the processor between 12 s and 41 s"
    twice = host(steal=lambda second: 0.6 if second % 30 < 5 else 0.0)
    words = said(as_it_is(build, twice))
    assert words.startswith(
        "30 % of the processor was stolen by other virtual machines in 2 stretches, 9 s of the 59 s"
    )
    both = said(as_it_is(build, host(own=0.5, foreign=0.5, steal=0.4)))
    assert both == "others used 25 % of the processor and 20 % of it was stolen by other virtual machines throughout"


def test_the_sentence_names_the_quota_and_the_rounds_where_they_are_many(turns) -> None:
    stopped = tuple(0.24 * second for second in range(61))
    burst = turns(host(foreign=lambda second: 1.0 if second == 6 else 0.0, throttled_s=stopped), 8)
    found = disturbance_of([burst])
    assert found.sentence == (
        "others used 50 % of the processor between 6 s and 7 s; the processor quota stopped its threads for 12 % of "
        "the time"
    )
    assert (found.foreign_share, found.steal_share, found.throttled_share) == pytest.approx((1 / 16, 0.0, 0.12))
    assert (found.rounds, found.invalid_rounds, found.widened) == (8, 1, False)
    third = disturbance_of([turns(host(foreign=lambda second: 1.0 if second == 6 else 0.0), 3)])
    assert third.sentence.endswith("1 of 3 rounds was disturbed and does not count") is bool(third.invalid_rounds)
    most = disturbance_of([turns(host(foreign=lambda second: 0.0 if second < 6 else 1.0), 8)])
    assert most.widened
    assert most.sentence.endswith("5 of 8 rounds were disturbed, all are kept, and intervals are wider")


def test_rounds_that_the_canary_alone_shows_are_told_as_a_slower_processor(turns) -> None:
    """A busy sibling beneath the virtual machine, or a lower clock, is in no counter that the target can read."""
    found = disturbance_of([turns(host(), 8, canary=[500, 900] * 4)])
    assert found.sentence == (
        "others used less than 2 % of the processor; 4 of 8 rounds were disturbed (4 by a slower processor: its clock, "
        "or another machine on its cores) and do not count"
    )


def test_the_rounds_of_comparisons_are_counted_apart(turns) -> None:
    first = turns(host(foreign=lambda second: 1.0 if second == 6 else 0.0), 8)
    other = first.model_copy(update={"spec": first.spec.model_copy(update={"group": "h"})})
    found = disturbance_of([first, other])
    assert (found.rounds, found.invalid_rounds) == (16, 2)


def test_nothing_is_said_where_nothing_was_read(build) -> None:
    assert disturbance_of([]) is None
    assert disturbance_of([build.ladder(), build.trial("pipeline")]) is None


def test_the_only_round_that_has_the_step_alone_is_kept_beside_a_long_quiet_stretch(build) -> None:
    """Without it nothing would be known of what the step takes alone, and contention would look like computing."""
    readings = host(foreign=lambda second: 1.0 if second < 4 else 0.0)

    def marked(*idle: bool | None) -> TrialRecord:
        ends = ((0, 4), (5, 30))
        marks = [
            RoundMark(round=number, start_ns=begin * S, end_ns=end * S, input_idle=seen)
            for number, ((begin, end), seen) in enumerate(zip(ends, idle, strict=True))
        ]
        record = build.trial("ladder", build.segment("as_is", step_s=[0.1] * 300))
        return record.model_copy(update={"rounds": tuple(marks), "readings": Readings(host=readings)})

    assert gate([marked(True, None)]).disturbed == {(0, 0)}
    assert gate([marked(True, None)]).invalid == frozenset()
    assert gate([marked(True, True)]).invalid == {(0, 0)}


def test_a_round_is_judged_by_the_quiet_ones_of_its_own_machine(turns, build) -> None:
    """A slower machine of a cluster is not a disturbed one."""
    fast, slow = turns(HostReadings(), 6, canary=[400] * 6), turns(HostReadings(), 6, canary=[800] * 5 + [900], block=1)
    assert gate([fast, slow]).disturbed == {(1, number) for number in range(6)}
    assert gate([build.on(fast, "a"), build.on(slow, "b")]).disturbed == {(1, 5)}


def test_of_several_machines_no_times_are_told(turns, build) -> None:
    """Each has a clock of its own."""
    loud = host(20, foreign=lambda second: 1.0 if 4 <= second < 10 else 0.0)
    at_home = [turns(loud, 10), turns(host(20), 10, block=1)]
    assert "in 3 stretches" in disturbance_of(at_home).sentence
    beside = [build.on(trial, node) for trial, node in zip(at_home, "ab", strict=True)]
    assert disturbance_of(beside).sentence.startswith("others used 8 % of the processor")
    assert "stretches" not in disturbance_of(beside).sentence
