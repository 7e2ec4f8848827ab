"""The verdict on a job's ranks, from files made by hand."""

from typing import Any

import pytest

from tests.unit.diagnosis.jobs import job, rank_run
from xttsbench.cluster import task_of
from xttsbench.diagnosis.ranks import Rank, judge
from xttsbench.records.ranks import Activity, CodeLine, RankPosition, RankRun
from xttsbench.records.watch import Stalls, WatchSummary

LINE = CodeLine(file="train.py", line=41, function="load")


def end(ended: str = "running", updated: str = "2026-11-27T10:00:00+00:00", **fields: Any) -> WatchSummary:
    nothing = dict.fromkeys(
        (
            "probability", "attribution_s", "step_time_s", "input_wait_fraction", "drift", "memory", "exit_code",
            "signal", "error", "garbage_collection_share", "period_steps",
        )
    )  # fmt: skip
    return WatchSummary.model_validate(
        nothing
        | {
            "script": "train.py", "pid": 1, "started_utc": updated, "updated_utc": updated, "duration_s": 9.0,
            "over": ended != "running", "ended": ended, "iterations": (), "steps": 100, "warm_up_steps": 2,
            "epochs": 1, "bottleneck": "inconclusive", "sentence": "", "quantiles_s": {}, "stalls": Stalls(),
            "traces": 0, "xla_compiles": 0, "next_command": "",
        }
        | fields
    )  # fmt: skip


def rank(run: RankRun, **how: Any) -> Rank:
    summary = end(**how)
    return Rank(run, summary, not summary.over)


def at(activity: Activity, idle_s: float = 30.0, line: CodeLine | None = None) -> RankPosition:
    return RankPosition(activity=activity, idle_s=idle_s, line=line)


def test_a_healthy_job_has_no_finding() -> None:
    runs = job()
    held = [
        run.model_copy(update={"epochs": rank_run(number, hashes=range(number, 2000, 2)).epochs})
        for number, run in enumerate(runs)
    ]
    found = judge([rank(one, ended="returned", exit_code=0) for one in held])
    assert not found.findings
    assert found.seen_once is True
    assert found.sentence.startswith("No rank is late")


def test_the_late_rank_is_named_with_its_line() -> None:
    fast, slow = job(late_s={1: 0.006})
    slow = slow.model_copy(update={"parts": rank_run(1, input=2.4).parts, "lines": {"input": LINE}})
    found = judge([rank(fast, ended="returned"), rank(slow, ended="returned")])
    first = found.findings[0]
    assert (first.fault, first.rank, first.cause, first.line) == ("straggler", 1, "input", LINE)
    assert "train.py:41 (load)" in found.sentence


def test_a_late_rank_whose_parts_are_like_the_others_has_no_cause() -> None:
    found = judge([rank(one, ended="returned") for one in job(late_s={1: 0.006}, input=1.0)])
    assert (found.findings[0].cause, found.findings[0].line) == ("", None)


def test_the_rank_outside_of_the_collective_hangs() -> None:
    found = judge([rank(rank_run(0, position=at("collective"))), rank(rank_run(1, position=at("input", line=LINE)))])
    first = found.findings[0]
    assert (first.fault, first.rank, first.line) == ("hang", 1, LINE)
    assert "rank 0 waits for it in a collective" in first.sentence


def test_a_wait_is_no_hang() -> None:
    runs = rank_run(0, position=at("collective", idle_s=3.0)), rank_run(1, position=at("input", idle_s=3.0))
    assert not judge([rank(one) for one in runs]).findings


def test_long_steps_are_no_hang() -> None:
    slow = [
        rank_run(number, position=at(what, idle_s=60.0)).model_copy(update={"wall_s": 1000.0})
        for number, what in enumerate(("collective", "step"))
    ]
    assert not judge([rank(one) for one in slow]).findings


def test_a_rank_whose_data_ended_is_told_from_one_that_waits() -> None:
    over = rank_run(1, hashes=range(200), ended=True, lines={"request": LINE}, position=at("python"))
    found = judge([rank(rank_run(0, position=at("collective"))), rank(over, ended="returned", exit_code=0)])
    assert found.findings[0].line == LINE
    assert "has no data left after 10 batches" in found.sentence


def test_ranks_in_different_collectives_are_told() -> None:
    behind = rank_run(1, position=at("collective"), begun=40)
    found = judge([rank(rank_run(0, position=at("collective"), begun=41)), rank(behind)])
    assert (found.findings[0].rank, "earlier collective" in found.sentence) == (1, True)


def test_the_first_to_die_is_named() -> None:
    first = rank(rank_run(1), ended="killed", signal="SIGKILL", updated="2026-11-27T10:00:00+00:00")
    second = rank(rank_run(0), ended="raised", exit_code=1, updated="2026-11-27T10:00:40+00:00")
    found = judge([second, first])
    assert (found.findings[0].fault, found.findings[0].rank) == ("died", 1)
    assert "was killed by SIGKILL" in found.sentence


def test_a_rank_that_ends_with_collectives_left_for_others_is_named_before_the_one_that_fails_for_it() -> None:
    over = rank_run(1, hashes=range(200), ended=True, lines={"request": LINE}, position=at("python"), begun=50)
    left = rank(over, ended="returned", exit_code=0, updated="2026-11-27T10:00:00+00:00")
    failed = {"ended": "raised", "exit_code": 1, "updated": "2026-11-27T10:00:02+00:00"}
    found = judge([rank(rank_run(0, begun=51), **failed), left])
    assert (found.findings[0].fault, found.findings[0].rank, found.findings[0].line) == ("hang", 1, LINE)
    assert found.sentence == (
        f"Rank 1 has no data left after 10 batches at {LINE} and has ended; rank 0 waited for it in a collective, and "
        "raised an error with code 1."
    )
    # With as many collectives it left nobody waiting: what failed afterwards did so by itself.
    found = judge([rank(rank_run(0, begun=50), **failed), left])
    assert (found.findings[0].fault, found.findings[0].rank) == ("died", 0)


def test_a_rank_that_waits_for_a_lock_in_its_next_pass_is_not_said_to_have_no_data_left() -> None:
    waits = rank_run(0, hashes=range(200), ended=True, position=at("input", line=LINE))
    found = judge([rank(waits), rank(rank_run(1, position=at("collective")))])
    assert found.sentence == f"Rank 0 waits for its own data at {LINE}, and rank 1 waits for it in a collective."


def test_a_missing_rank_is_noted() -> None:
    assert any("rank 2" in note for note in judge([rank(rank_run(number, ranks=3)) for number in (0, 1)]).notes)


def test_of_one_rank_alone_nothing_is_said_about_the_others() -> None:
    alone = job()[0].model_copy(update={"epochs": rank_run(0, hashes=range(200)).epochs})
    found = judge([rank(alone)])
    assert found.sentence == "Only rank 0 of 2 is here: who is late, and whose samples are whose, takes all of them."
    assert (found.collective_s, found.lost_s, found.seen_once) == (None, None, None)
    died = judge([rank(alone, ended="killed", signal="SIGKILL")])
    assert died.sentence == "Rank 0 was killed by SIGKILL after 100 steps."


def test_a_rank_that_ended_is_not_said_to_lack_data() -> None:
    over = rank(rank_run(1, position=at("python")), ended="returned", exit_code=0)
    found = judge([rank(rank_run(0, position=at("collective"))), over])
    assert found.sentence == "Rank 1 has ended, and rank 0 waits for it in a collective."


def test_duplicated_data_come_before_a_starved_shard() -> None:
    runs = rank_run(0, hashes=range(1000)), rank_run(1, hashes=range(500))
    found = judge([rank(one, ended="returned") for one in runs])
    assert [one.fault for one in found.findings] == ["duplicated", "starved"]


TASK = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, None),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a", "b"]}, "task": {"type": "worker", "index": 1}}'}, (1, 2)),
        (
            {"TF_CONFIG": '{"cluster": {"chief": ["c"], "worker": ["a"]}, "task": {"type": "worker", "index": 0}}'},
            (1, 2),
        ),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a", "b"]}, "task": {"type": "ps", "index": 0}}'}, None),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}}'}, None),
        ({"TF_CONFIG": "nonsense"}, None),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a", "b"]}, "task": {"type": "ps", "index": 0}}', **TASK}, None),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a", "b"]}, "task": {"type": "worker", "index": 2}}'}, None),
        ({"TF_CONFIG": "{}", **TASK}, (3, 4)),
        (TASK, (3, 4)),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "4"}, None),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),  # the batch script itself
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        ({"RANK": "5", "WORLD_SIZE": "2"}, None),
    ],
)
def test_the_place_in_the_job_is_in_the_environment(environ: dict[str, str], place: tuple[int, int] | None) -> None:
    task = task_of(environ)
    assert (None if task is None else (task.rank, task.ranks)) == place
