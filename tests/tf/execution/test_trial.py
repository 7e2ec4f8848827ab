"""Real trials in real processes: a good one's record, and every way in which one can end badly."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

from xttsbench.execution.helper import Helper
from xttsbench.execution.limits import Limits
from xttsbench.execution.trial import LiveTrial, run_trial
from xttsbench.probes.monitor import Monitor
from xttsbench.records.rows import COLUMNS
from xttsbench.records.trial import TrialRecord, TrialSpec


def rows(record):
    return sum(segment.steps for segment in record.segments)


def stepped(record):
    """The rows of the segments in which the step runs."""
    return sum(segment.steps for segment in record.segments if segment.name not in ("between", "input_only"))


def assert_whole(record, steps):
    """Every step that ended has its row, and every row its numbers."""
    assert stepped(record) == steps
    for segment in record.segments:
        columns = {name: np.array(values) for name, values in segment.columns.items()}
        assert set(columns) == set(COLUMNS)
        assert (columns["start_ns"] > 0).all()
        assert (columns["wall_ns"] == columns["pause_ns"] + columns["wait_ns"] + columns["step_ns"]).all()
        assert (np.diff(columns["start_ns"]) > 0).all()
        assert (columns["batch_size"] > 0).all()


@pytest.fixture(scope="module")
def good(trial):
    """The record of a good target's trial, and its progress: phases with the steps so far."""
    seen = []
    record = trial(
        "good",
        monitor=lambda pid: Monitor(pid, gpus=(None, "no GPU in this test"), interval_s=0.05),
        progress=lambda phase, steps: seen.append((phase, steps)),
    )
    return record, seen


def test_a_good_trial_is_recorded_whole(good):
    record, _ = good
    assert (record.status, record.cause, record.error) == ("ok", None, None)
    assert record.target_kind == "dataset+step"
    assert {segment.name for segment in record.segments} == {"warm_up", "as_is", "between", "input_only", "step_only"}
    for segment in record.segments:
        assert set(segment.columns) == set(COLUMNS)
    as_is = record.segment("as_is")
    assert as_is.steps >= 20
    assert as_is.warmup_steps >= 2, "the first step waits for the pipeline, the others show whether the input keeps up"
    assert sum(record.segment("warm_up").columns["traces"]) >= 1
    assert record.setup_s < record.duration_s
    assert record.batches.cached == 8
    assert record.batches.shapes == ("[(8, 16)]",)
    assert record.devices.versions["tensorflow"]
    assert record.handoff_s > 0
    assert record.handoff_after_pause_s is None  # no accelerator is emulated
    assert record.anatomy.steps >= 2
    assert record.overhead.pairs > 0
    assert record.readings.unmeasured == {"gpus": "no GPU in this test"}
    host = record.readings.host
    assert len(host.t_ns) > 5
    # The readings are on the clock of the steps, and were taken while they ran.
    starts = as_is.columns["start_ns"]
    assert any(starts[0] < t < starts[-1] for t in host.t_ns)
    assert [mark.round for mark in record.rounds] == sorted(set(as_is.columns["round"]))
    assert TrialRecord.model_validate_json(record.model_dump_json()) == record


def test_a_batch_is_handed_over_after_a_pause_too_where_an_accelerator_is_emulated(trial):
    record = trial("good", emulated_ms=(5.0,))
    assert (record.status, record.cause) == ("ok", None)
    assert 0 < record.handoff_after_pause_s < 0.1


def test_the_step_alone_runs_on_the_batches_of_its_round(good):
    record, _ = good
    alone, warmup_steps = record.segment("step_only").columns, record.segment("as_is").warmup_steps
    as_is = {name: values[warmup_steps:] for name, values in record.segment("as_is").columns.items()}
    assert (
        set(as_is["round"])
        == set(alone["round"])
        == {mark.round for mark in record.rounds}
        == set(range(record.spec.rounds))
    )
    for number in range(3):
        of_round = [
            [batch for batch, turn in zip(columns["batch"], columns["round"], strict=True) if turn == number]
            for columns in (as_is, alone)
        ]
        assert of_round[1] == of_round[0][: len(of_round[1])]
    for mark in record.rounds:
        assert mark.input_idle
        assert mark.canary_before_ns > 0
        assert mark.start_ns < mark.end_ns
        inside = [start for start, turn in zip(as_is["start_ns"], as_is["round"], strict=True) if turn == mark.round]
        assert mark.start_ns <= inside[0] <= inside[-1] <= mark.end_ns


def test_a_dataset_alone_has_no_step_only(trial):
    record = trial("good_dataset")
    assert record.target_kind == "dataset"
    assert [segment.name for segment in record.segments] == ["between", "as_is"]
    assert record.anatomy is None


def test_what_a_target_prints_cannot_corrupt_the_result(trial):
    record = trial("prints", kind="arm")
    assert record.status == "ok"
    assert record.segment("as_is").steps >= 20


def test_progress_tells_phases_and_a_growing_count_of_steps(good):
    record, seen = good
    assert {"as_is", "step_only"} <= {phase for phase, _ in seen}
    assert [steps for _, steps in seen] == sorted(steps for _, steps in seen)
    assert seen[-1][1] == rows(record)


@pytest.mark.parametrize("mode", ["graph", "xla", "eager"])
def test_a_mode_is_measured_beside_the_step_as_given(trial, mode):
    record = trial("good", kind=mode)
    assert record.status == "ok", record.cause
    assert record.segment(mode).steps >= 4
    assert record.segment("step_only").steps >= 4
    if mode == "xla":
        assert sum(record.segment("warm_up").columns["xla_compiles"]) >= 1


def test_a_fix_that_does_not_apply_says_why(trial):
    record = trial("good", kind="arm", fix="parallel-interleave")
    assert record.status == "raised"
    assert "'parallel-interleave' does not apply" in record.cause


def test_the_pipeline_rung_reads_the_graph(trial):
    record = trial("good", kind="pipeline")
    assert record.status == "ok"
    assert [op.op for op in record.pipeline.ops][-1].startswith("Prefetch")


def test_a_step_that_hangs_is_stalled_and_what_came_before_is_kept(trial):
    record = trial(
        "hangs_in_the_step", window_s=5.0, steps=500, stall_s=4.0
    )  # longer than a busy machine takes to begin
    assert record.status == "stalled"
    assert "'as_is'" in record.cause or "'step_only'" in record.cause  # whichever had its turn
    assert "4 s" in record.cause
    assert stepped(record) == 59
    assert record.duration_s < 15


LONG = {"window_s": 5.0, "steps": 500}


@pytest.mark.parametrize(
    ("target", "changes", "status", "cause", "steps"),
    [
        ("hangs_while_built", {"stall_s": 4.0}, "stalled", "'setup'", 0),
        ("hangs_in_the_input", {"stall_s": 4.0}, "stalled", "4 s", 0),
        ("exits_hard", LONG, "exited", "exit code 3", 59),
        ("out_of_memory", LONG, "out_of_memory", "MemoryError", 19),
        ("tensorflow_out_of_memory", LONG, "out_of_memory", "OOM when allocating tensor", 19),
        ("out_of_memory_while_built", {}, "out_of_memory", "cannot allocate 1 TiB", 0),
        ("raises_deep", {}, "raised", "every record is broken", 0),
        ("empty", {}, "empty", "no element", 0),
        ("empty_with_a_step", {}, "empty", "no element", 0),
    ],
)
def test_however_a_target_ends_it_is_told_and_the_steps_before_are_kept(trial, target, changes, status, cause, steps):
    record = trial(target, **changes)
    assert record.status == status
    assert cause in record.cause
    assert_whole(record, steps)


@pytest.mark.parametrize(
    ("target", "error", "steps"), [("exits_politely", "SystemExit", 29), ("exits_while_built", "TargetError", 0)]
)
def test_sys_exit_is_an_error_of_the_target_at_its_line(trial, target, error, steps):
    record = trial(target, **LONG)
    assert record.status == "raised"
    assert "SystemExit" in record.cause
    assert record.error.type == error
    assert record.error.file.endswith("bad.py")
    assert_whole(record, steps)


def test_steps_are_a_sign_of_life_and_the_time_limit_ends_them(trial):
    record = trial("never_ends", window_s=100.0, steps=5000, time_s=9.0, stall_s=4.0)
    assert record.status == "time_limit"
    assert "9 s" in record.cause
    assert rows(record) > 5


def test_a_trial_killed_from_outside_keeps_its_samples(trial):
    pids = []

    def monitor(pid):
        pids.append(pid)
        return Monitor(pid, gpus=(None, "none"))

    def progress(phase, steps):
        if phase == "as_is" and steps > 40:
            os.kill(pids[0], signal.SIGKILL)

    record = trial("never_ends", window_s=100.0, steps=5000, monitor=monitor, progress=progress)
    assert record.status == "killed"
    assert "SIGKILL" in record.cause
    assert "memory" not in record.cause  # it held little of it
    assert_whole(record, stepped(record))
    assert rows(record) > 40
    assert record.readings.host.rss_bytes


def test_a_trial_that_kills_itself_is_killed_and_the_helper_serves_on(helper, trial):
    record = trial("kills_itself", window_s=5.0, steps=500)
    assert record.status == "killed"
    assert_whole(record, 59)
    assert trial("good_dataset", kind="pipeline").status == "ok"
    assert os.path.exists(f"/proc/{helper.pid}")


def test_a_fork_that_keeps_the_pipe_open_does_not_hide_the_end(trial):
    record = trial("kills_itself_leaving_a_fork", window_s=5.0, steps=500, stall_s=20.0)
    assert record.status == "killed"
    assert record.duration_s < 15


def test_an_exception_at_a_late_step_keeps_every_step_before_and_names_the_line(trial):
    record = trial("raises_later", steps=500, window_s=5.0)
    assert record.status == "raised"
    assert stepped(record) == 199
    warm_up = record.segment("warm_up").steps
    assert record.error.step == 199 - warm_up
    assert record.error.type == "ValueError"
    assert "label 17 is out of range" in record.cause
    assert record.error.file.endswith("bad.py")
    assert "_raise" in record.error.traceback
    assert "\n" not in record.cause


def test_an_exception_of_the_input_names_what_python_said(trial):
    record = trial("raises_in_the_input", steps=500, window_s=5.0)
    assert record.status == "raised"
    assert "next()" in record.cause
    assert "record 40 is broken" in record.cause
    assert "\n" not in record.cause
    assert 8 + rows(record) - record.segment("warm_up").steps == 40, "eight are in memory, and the others have rows"


def test_what_a_target_leaves_behind_ends_with_its_trial(trial, gone, tmp_path):
    pids = tmp_path / "pids"
    record = trial("leaves_things_behind", kwargs={"pids": str(pids)})
    assert record.status == "ok"
    assert gone(*map(int, pids.read_text(encoding="utf-8").split())) == []


def test_an_interruption_kills_the_trial_and_keeps_its_samples(trial, gone):
    pids, seen = [], []

    def progress(phase, steps):
        seen.append(steps)
        if steps > 40:
            raise KeyboardInterrupt

    record = trial(
        "never_ends",
        window_s=100.0,
        steps=5000,
        monitor=lambda pid: pids.append(pid) or Monitor(pid, gpus=(None, "none")),
        progress=progress,
    )
    assert record.status == "interrupted"
    assert "'as_is'" in record.cause
    assert rows(record) > 40
    assert gone(*pids) == []


def test_a_helper_that_is_killed_takes_its_trials_and_their_files_with_it_and_nothing_hangs(
    spec, gone, wait_for, tmp_path, temporary
):
    pids = tmp_path / "pids"
    with Helper() as mortal:
        mortal.wait_ready()
        standing = LiveTrial(spec("good", kind="arm", turns=True), mortal)
        assert standing.open(Limits(60.0, 30.0))
        written = []

        def kill():
            wait_for(pids)
            time.sleep(1.0)
            written.extend(temporary.rglob("__autograph*"))
            os.kill(mortal.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        target = spec("never_ends_with_a_child", kwargs={"pids": str(pids)}, window_s=100.0, steps=5000)
        record = run_trial(target, mortal, Limits(60.0, 30.0))
        killer.join()
        assert standing.end().status != "ok"
    assert record.status in ("exited", "killed")
    assert "helper" in record.cause
    assert record.duration_s < 20
    assert gone(standing.pid, *map(int, pids.read_text(encoding="utf-8").split())) == []
    assert written
    assert list(temporary.iterdir()) == []


KILLED = """
import os, signal
import tensorflow as tf

@tf.function
def step(batch):
    return batch if tf.reduce_sum(batch) > 0 else -batch

step(tf.ones([3]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_script_that_is_killed_leaves_no_source_of_autograph(tmp_path, temporary):
    (tmp_path / "killed.py").write_text(KILLED)
    with Helper(scripts=True) as helper:
        helper.wait_ready()
        spec = TrialSpec(trial_id="000-script", kind="script", target=str(tmp_path / "killed.py"))
        assert run_trial(spec, helper, Limits(60.0, 30.0)).status == "killed"
        assert list(temporary.rglob("__autograph*"))
    assert list(temporary.iterdir()) == []
