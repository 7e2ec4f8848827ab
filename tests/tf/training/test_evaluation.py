"""The held-out loss, and the files of an evaluation, of a small untrained model on made speech."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from xttsbench.errors import InvalidInputError
from xttsbench.records.training import Ended, Evaluated, Interval
from xttsbench.shipped import shipped
from xttsbench.training.evaluation import Hearing, HeldOutLoss, TensorBoard
from xttsbench.training.state import TrainingState
from xttsbench.training.step import make_strategy
from xttsbench.xtts.data.batches import plan
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.evaluate import RECOGNISED, Evaluation
from xttsbench.xtts.loaders.loader import make_dataset
from xttsbench.xtts.model.loss import losses
from xttsbench.xtts.recipe import Recipe, load_recipe
from xttsbench.xtts.wav import read_canonical_wav

SIZES = {"d_model": 16, "feed_forward": 16, "prenet": (8, 8), "layers": 2, "guided_layers": 1, "latents": 2}
BATCHES = {"batch_size": 3, "frame_edges": (60, 80), "text_edges": (16, 24), "reference_frames": 24}


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    tiny = load_recipe(shipped("training", "tiny"))
    return tiny.model_copy(
        update={
            "model": tiny.model.model_copy(update=SIZES),
            "batches": tiny.batches.model_copy(update=BATCHES),
            "training": tiny.training.model_copy(update={"ema_decay": 0.9}),
        }
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> SpeechData:
    directory = tmp_path_factory.mktemp("made") / "speech"
    make_data(directory, 40, 1, 0.4, 0.9, speakers=2)
    return read_speech_data(directory, sample_rate_hz=22_050, split="all")


@pytest.fixture
def state(recipe: Recipe) -> TrainingState:
    return TrainingState(recipe, make_strategy("one"), "float32", 0)


def test_a_held_out_clip_that_is_too_long_is_named(recipe: Recipe, data: SpeechData, state: TrainingState) -> None:
    short = recipe.model_copy(update={"batches": recipe.batches.model_copy(update={"frame_edges": (4,)})})
    with pytest.raises(InvalidInputError, match=rf"the clip '{data.id(0)}' has \d+ mel frames"):
        HeldOutLoss(state, short, data)


def test_the_loss_is_that_of_one_batch_of_all_held_out_clips(
    recipe: Recipe, data: SpeechData, state: TrainingState
) -> None:
    held_out = data.subset(np.arange(7))
    single = recipe.batches.model_copy(update={"batch_size": 1, "frame_edges": (80,), "text_edges": (24,)})
    by_three = recipe.model_copy(update={"batches": single.model_copy(update={"batch_size": 3})})
    found = HeldOutLoss(state, by_three, held_out)()
    assert found.clips == 7

    frames = held_out.samples // recipe.features.hop_samples
    rows = plan(frames, held_out.text_lengths, held_out.speakers, single, seed=0, epoch=0)
    columns = [
        next(iter(make_dataset("numpy_wav", held_out, None, [row], recipe.features, repeat=False))) for row in rows
    ]
    batch = {key: tf.concat([row[key] for row in columns], 0) for key in columns[0]}
    expected = losses(batch, state.model(batch), recipe.model, recipe.loss)
    np.testing.assert_allclose(found[:4], [float(part) for part in expected], rtol=1e-5)
    parts = found.mel + recipe.loss.stop_weight * found.stop + recipe.loss.guided_weight * found.guided
    assert found.loss == pytest.approx(parts, rel=1e-5)


def test_parts_of_any_size_add_up_to_the_same_loss(recipe: Recipe, data: SpeechData, state: TrainingState) -> None:
    held_out = data.subset(np.arange(7))
    by_three = HeldOutLoss(state, recipe, held_out)()
    single = recipe.model_copy(update={"batches": recipe.batches.model_copy(update={"batch_size": 1})})
    by_one = HeldOutLoss(state, single, held_out)()
    np.testing.assert_allclose(by_one[:4], by_three[:4], rtol=1e-5)


def test_the_averaged_weights_are_evaluated_and_nothing_is_changed(
    recipe: Recipe, data: SpeechData, state: TrainingState
) -> None:
    loss = HeldOutLoss(state, recipe, data.subset(np.arange(4)))
    before = loss()
    assert loss() == before  # nothing is drawn
    weights, optimizer = state.weights(), state.optimizer()
    state.restore({name: array * 0 for name, array in weights.items()}, optimizer)
    assert loss() == before
    assert all(not array.any() for array in state.weights().values())
    state.restore(weights, {n: a * 0 if n.startswith("average/") else a for n, a in optimizer.items()})
    assert loss().mel != before.mel


@pytest.mark.parametrize("loader", ["numpy_wav", "tf_wav"])
def test_a_held_out_clip_that_vanished_is_named(
    recipe: Recipe, state: TrainingState, tmp_path: Path, loader: str
) -> None:
    make_data(tmp_path / "speech", 6, 1, 0.4, 0.9)
    held_out = read_speech_data(tmp_path / "speech", sample_rate_hz=22_050, split="all")
    loss = HeldOutLoss(state, recipe, held_out, loader=loader)
    held_out.wav(4).unlink()
    with pytest.raises(InvalidInputError, match=re.escape(str(held_out.wav(4)))):
        loss()


def test_an_evaluation_is_there_to_hear_to_see_and_to_read(
    recipe: Recipe, data: SpeechData, state: TrainingState, tmp_path: Path
) -> None:
    board = TensorBoard(tmp_path)
    hearing = Hearing(state, recipe, data.subset(np.arange(35)), data.subset(np.arange(35, 40)), tmp_path, board)
    found = hearing(12)
    folder = tmp_path / "evaluation"
    assert Evaluation.model_validate_json((folder / "evaluation.json").read_bytes()) == found
    assert json.loads((folder / "evaluation.json").read_bytes())["step"] == 12
    assert found.held_out is not None
    assert found.held_out.clips == 5
    assert found.held_out.phone_error_rate_truth is not None
    assert found.training.phone_error_rate is not None
    assert found.training.phone_error_rate > 0.5  # it was never trained
    names = {path.stem for path in folder.glob("*.wav")}
    assert names == {path.stem for path in folder.glob("*.png")}
    assert sum(name.startswith("held_out-") for name in names) == 4
    for path in folder.glob("*.wav"):
        assert len(read_canonical_wav(path, 22_050))
    assert not list(folder.glob(".*"))

    interval = Interval(
        **{"first_step": 1, "steps": 20, "loss": 2.5, "mel": None, "stop": None, "guided": None},
        **{"gradient_norm": 1.0, "skipped": 0, "learning_rate": 1e-3, "epoch": 0, "samples": 9, "valid_frames": 9},
        **{"frames": 9, "wall_s": 1.0},
    )
    board.interval(interval)
    board.evaluated(Evaluated(step=20, loss=1.5, mel=1.0, stop=0.1, guided=0.1, clips=5, best=True))
    board.ended(Ended(reason="steps", step=20, samples_sha256="", weights_sha256="", optimizer_sha256=""))
    events = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"tensors": 0})
    events.Reload()
    tags = set(events.Tags()["tensors"])
    assert {"training/loss", "held_out/loss", "training/length_ratio", *names} <= tags
    assert "training/mel" not in tags  # not measured, so not a point at 0
    (point,) = events.Tensors("training/loss")
    assert (point.step, tf.make_ndarray(point.tensor_proto)) == (20, pytest.approx(2.5))


def test_of_data_whose_letters_are_not_known_there_is_a_reason_in_place_of_a_rate(
    recipe: Recipe, data: SpeechData, state: TrainingState, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("metadata.csv", "speakers.csv", "wavs"):
        (other / name).symlink_to(data.directory / name)
    real = read_speech_data(other, sample_rate_hz=22_050, split="all")
    found = Hearing(state, recipe, real.subset(np.arange(4)), None, tmp_path / "run")(1)
    assert found.held_out is None
    assert set(found.not_measured) == set(RECOGNISED)
    assert "xttsbench data make" in found.not_measured["phone_error_rate"]
    assert all(getattr(found.training, name) is None for name in RECOGNISED)
    assert found.training.wrong_over_right is not None
