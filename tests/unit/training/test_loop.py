"""The loop over fakes: what is called when, exact resume, runs off course, and checkpoints that cannot be written."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.training.course import Sums, Values

STEPS = {"steps": 17, "log_every": 3, "checkpoint_every": 4, "evaluate_every": 5}


def left_out(*numbers: int) -> Any:
    """Steps whose gradient is not finite."""
    nothing = {"total": math.nan, "mel": math.nan, "gradient_norm": math.inf, "applied": False}
    return lambda number, rate: nothing if number in numbers else None


def without_times(run: Any) -> list[Any]:
    """The checkpoints; of an interval that is not over, ``state.json`` holds how long it took so far."""
    return [entry.model_copy(update={"state_sha256": ""}) for entry in run.checkpoints.entries]


def test_the_calls_of_a_step_come_in_their_order(trainee: Any) -> None:
    run = trainee(
        settings={**STEPS, "steps": 10, "log_every": 5, "checkpoint_every": 5}, held_out=lambda step: 1 / step
    )
    ended = run.train()
    names = [name for name, *_ in run.calls]
    step = ["fetching", "fetched", "stepped"]
    boundary = ["interval", "evaluated", "saved"]
    assert names == ["saved", "begun", *step * 5, *boundary, *step * 5, *boundary, "ended"]
    (first,), (second,) = run.said("saved")[1:]
    assert (first.step, first.epoch, first.batch) == (5, 1, 0)
    assert (second.step, second.best, ended.reason) == (10, True, "steps")
    assert (ended.samples_sha256, ended.weights_sha256) == (second.samples_sha256, second.weights_sha256)
    assert ended.optimizer_sha256 == second.optimizer_sha256


def test_an_interval_has_the_mean_of_its_steps(trainee: Any) -> None:
    losses = [4.0, 2.0, math.nan, 1.0, 0.5]
    run = trainee(
        settings={"steps": 5, "log_every": 3},
        unusual=lambda number, rate: {"total": losses[number], "applied": losses[number] == losses[number]},
    )
    run.train()
    first, second = run.intervals
    assert (first.first_step, first.steps, first.loss, first.skipped) == (1, 3, 3.0, 1)
    assert (first.samples, first.frames, first.valid_frames, first.learning_rate) == (6, 60, 45, 0.1)
    assert (second.first_step, second.steps, second.loss, second.skipped) == (4, 2, 0.75, 0)
    assert (second.stop, second.guided, second.gradient_norm) == (1.0, 0.25, 3.0)
    assert run.warnings == ["1 of the 3 steps up to 3 were left out, for a gradient was not finite"]


@pytest.mark.parametrize("killed_at", range(17))
def test_a_run_that_was_killed_at_any_step_ends_as_one_that_was_not(trainee: Any, killed: Any, killed_at: int) -> None:
    whole = trainee("whole", settings=STEPS, held_out=lambda step: abs(step - 9))
    expected = whole.train()
    first = trainee(settings=STEPS, killed_at=killed_at, held_out=lambda step: abs(step - 9))
    with pytest.raises(killed):
        first.train()
    again = trainee(settings=STEPS, held_out=lambda step: abs(step - 9))
    assert again.train() == expected
    begun = again.said("begun")[0][0]
    assert begun <= killed_at
    assert begun % 4 == 0 or begun in (5, 10), "a checkpoint is due every 4 steps, and at each best held-out loss"
    assert {i.first_step + i.steps: i for i in [*first.intervals, *again.intervals]} == {
        i.first_step + i.steps: i for i in whole.intervals
    }
    assert without_times(again) == without_times(whole)


@pytest.mark.parametrize("after", range(1, 16))
def test_a_signal_ends_at_the_boundary_of_a_step_and_nothing_is_lost(trainee: Any, after: int) -> None:
    whole = trainee("whole", settings=STEPS)
    expected = whole.train()
    first = trainee(settings=STEPS, stopped_after=after)
    ended = first.train()
    assert (ended.reason, ended.step) == ("terminated", after)
    assert first.checkpoints.entries[-1].step == after
    again = trainee(settings=STEPS)
    assert again.train() == expected
    assert again.said("begun") == [[after]]
    assert [*first.intervals, *again.intervals] == whole.intervals, "an interval that was cut in two is one"


def test_a_run_that_is_over_takes_no_step(trainee: Any) -> None:
    expected = trainee(settings=STEPS).train()
    again = trainee(settings=STEPS)
    assert again.train() == expected
    assert [name for name, *_ in again.calls] == ["begun", "ended"]


def test_a_longer_run_goes_on_with_a_shorter_one(trainee: Any) -> None:
    expected = trainee("whole", settings={**STEPS, "steps": 24}).train()
    trainee(settings={**STEPS, "steps": 12}).train()
    assert trainee(settings={**STEPS, "steps": 24}).train() == expected


def test_too_many_steps_left_out_in_a_row_end_it_and_say_what_to_try(trainee: Any) -> None:
    settings = {"steps": 20, "log_every": 4, "checkpoint_every": 4, "health": {"skipped_in_a_row": 3}}
    calm = trainee("calm", settings=settings, unusual=left_out(1, 2, 9, 10))
    calm.train()
    assert [interval.skipped for interval in calm.intervals] == [2, 0, 2, 0, 0]
    run = trainee(settings=settings, unusual=left_out(10, 11, 12, 13))
    with pytest.raises(XttsbenchError, match=r"up to step 16 4 steps in a row .*; try a lower optimizer") as error:
        run.train()
    assert error.value.exit_code == 1
    assert [entry.step for entry in run.checkpoints.entries] == [4, 8, 12], "none of what went wrong"


def test_a_loss_that_blows_up_ends_it(trainee: Any) -> None:
    settings = {"steps": 12, "log_every": 3, "checkpoint_every": 4, "health": {"blow_up": 2}}
    run = trainee(settings=settings, unusual=lambda number, _: {"total": 100.0 if number >= 7 else 10.0 - number / 10})
    with pytest.raises(XttsbenchError, match=r"up to step 9 the mean loss rose to 69.8, more than 2 times the lowest"):
        run.train()
    assert [interval.first_step for interval in run.intervals] == [1, 4, 7]


def test_the_best_checkpoint_is_kept(trainee: Any) -> None:
    losses = {2: 5.0, 4: 3.0, 6: 2.95, 8: 4.0, 10: 3.5}
    settings = {"steps": 10, "log_every": 5, "checkpoint_every": 7, "evaluate_every": 2, "keep_checkpoints": 1}
    run = trainee(settings=settings, held_out=losses.__getitem__)
    run.train()
    assert [(entry.step, entry.best) for entry in run.checkpoints.entries] == [(6, True), (10, False)]
    assert [(told.step, told.best) for (told,) in run.said("evaluated")] == [
        *((2, True), (4, True), (6, True), (8, False), (10, False))
    ]


def test_a_held_out_loss_that_is_not_finite_is_told_and_is_not_the_best(trainee: Any) -> None:
    run = trainee(settings={"steps": 4, "evaluate_every": 2}, held_out=lambda step: math.nan if step == 2 else 1.0)
    run.train()
    assert run.warnings == ["the held-out loss of step 2 is nan"]
    assert [(told.step, told.best) for (told,) in run.said("evaluated")] == [(4, True)]


def test_a_full_disk_is_told_once_and_training_goes_on(trainee: Any, full_disk: Any, tmp_path: Any) -> None:
    limits: list[Any] = []

    def fills_up(number: int, rate: float) -> None:
        if number in (3, 11):
            limits.append(full_disk(100))
            limits[-1].__enter__()
        if number in (9, 14):
            limits.pop().__exit__(None, None, None)

    settings = {"steps": 16, "log_every": 4, "checkpoint_every": 2, "keep_checkpoints": 50}
    run = trainee(settings=settings, unusual=fills_up)
    run.train()
    assert [entry.step for entry in run.checkpoints.entries] == [0, 2, 10, 16]
    assert len(run.warnings) == 2
    assert run.warnings[0] == (
        f"{run.checkpoints.directory}: the checkpoint of step 4 cannot be written (File too large); the older ones "
        "stay, and it is tried again when the next one is due"
    )
    assert sorted(path.name for path in run.checkpoints.directory.iterdir()) == [
        *("manifest.json", "step-00000000", "step-00000002", "step-00000010", "step-00000016")
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "checkpoint of step 4 cannot be written .*; make room and run again: it begins at step 2"),
        (
            {"stopped_after": 3},
            "checkpoint of step 3 cannot be written .*; make room and run again: it begins at step 2",
        ),
    ],
)
def test_a_last_checkpoint_that_cannot_be_written_is_an_error(trainee, full_disk, fields, message) -> None:
    settings = {"steps": 4, "checkpoint_every": 2}
    trainee(settings={**settings, "steps": 2}).train()
    with full_disk(100), pytest.raises(XttsbenchError, match=message) as error:
        trainee(settings=settings, **fields).train()
    assert error.value.exit_code == 1


def test_a_checkpoint_of_another_run_is_refused_by_what_differs(trainee: Any, origin: Any) -> None:
    settings = {"steps": 2}
    trainee(settings=settings).train()
    other = origin(seed=7, data_sha256="1" * 64, precision="mixed_bfloat16")
    with pytest.raises(InvalidInputError) as error:
        trainee(settings=settings, origin=other).train()
    said = str(error.value)
    assert "step-00000002/weights.npz is of another run: precision: float32 there, mixed_bfloat16 here; " in said
    assert "seed: 0 there, 7 here; data: another set, or its metadata changed" in said


def test_only_the_chief_writes_and_all_begin_at_the_same_step(trainee: Any) -> None:
    settings = {"steps": 6, "checkpoint_every": 3}
    other = trainee("nowhere", settings=settings, is_chief=False)
    ended = other.train()
    assert not other.checkpoints.directory.exists()
    chief = trainee(settings=settings)
    assert chief.train() == ended
    behind = trainee("elsewhere", settings=settings, is_chief=False, others=(6.0,))
    with pytest.raises(XttsbenchError, match=r"found checkpoints of the steps -1, 6 .*; give them one directory"):
        behind.train()
    assert trainee(settings=settings, is_chief=False, others=(6.0,)).train() == ended


def test_what_a_killed_process_was_writing_is_removed(trainee: Any) -> None:
    settings = {"steps": 2}
    run = trainee(settings=settings)
    directory = run.checkpoints.directory
    for name in (".step-00000001.draft", "step-00000001", "kept by the user"):
        (directory / name).mkdir(parents=True)
    (directory / ".draft-1-abc").write_text("{")
    run.train()
    assert sorted(path.name for path in directory.iterdir()) == [
        *("kept by the user", "manifest.json", "step-00000000", "step-00000002")
    ]
    state = json.loads((directory / "step-00000002" / "state.json").read_text())
    assert state["position"] == {"step": 2, "epoch": 0, "batch": 2}
    assert state["origin"]["model"]["d_model"] == run.origin.model.d_model


RNG = np.random.default_rng(0)
STEP_LOSSES = [Values(*RNG.normal(size=5).astype(np.float32).tolist(), 1.0) for _ in range(11)]
STEP_LOSSES[4] = Values(math.nan, math.nan, 1.0, 1.0, math.inf, 0.0)
STEP_LOSSES[7] = Values(math.inf, 1.0, 1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("cut", range(12))
def test_an_interval_cut_in_two_and_written_as_json_is_bit_equal(cut: int) -> None:
    whole = Sums().plus(STEP_LOSSES)
    first = Sums.model_validate_json(Sums().plus(STEP_LOSSES[:cut]).model_dump_json())
    assert first.plus(STEP_LOSSES[cut:]) == whole


def test_means_are_of_good_steps_alone() -> None:
    interval = Sums().plus(STEP_LOSSES).interval(last_step=20, learning_rate=0.1, loss_scale=8.0, epoch=2)
    good = [values for values in STEP_LOSSES if values.applied and math.isfinite(values.total)]
    assert (interval.first_step, interval.steps, interval.skipped) == (10, 11, 2)
    assert interval.loss == pytest.approx(np.mean([values.total for values in good]), rel=1e-12)
    assert interval.gradient_norm == pytest.approx(np.mean([values.gradient_norm for values in good]), rel=1e-12)
    nothing = Sums().plus(STEP_LOSSES[4:5]).interval(last_step=5, learning_rate=0.1, loss_scale=None, epoch=0)
    assert (nothing.loss, nothing.mel, nothing.skipped) == (None, None, 1)
