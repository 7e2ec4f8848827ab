"""A checkpoint speaks: from a run's directory, its checkpoints/ or one of them; what cannot be used says why."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.records.training import SynthesisJob
from xttsbench.shipped import shipped
from xttsbench.training.checkpoints import Checkpoints, RunState, find_checkpoint
from xttsbench.training.course import Origin, Position
from xttsbench.training.state import TrainingState, generator_of
from xttsbench.training.step import make_strategy
from xttsbench.worker.synthesize import synthesise
from xttsbench.xtts.data.metadata import VOCABULARY, encode
from xttsbench.xtts.data.synthesis import utterance
from xttsbench.xtts.evaluate import write_references
from xttsbench.xtts.recipe import load_recipe
from xttsbench.xtts.wav import read_canonical_wav, write_wav

TINY = load_recipe(shipped("training", "tiny"))
SIZES = {"d_model": 16, "feed_forward": 16, "prenet": (8, 8), "layers": 2, "guided_layers": 1, "latents": 2}
RECIPE = TINY.model_copy(
    update={
        "model": TINY.model.model_copy(update=SIZES),
        "training": TINY.training.model_copy(update={"ema_decay": 0.9}),
    }
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's directory with checkpoints of the steps 5 and 9, whose averages speak for a second."""
    directory = tmp_path_factory.mktemp("saved")
    state = TrainingState(RECIPE, make_strategy("one"), "float32", 0)
    origin = Origin(
        **{name: getattr(RECIPE, name) for name in ("features", "model", "loss", "batches", "optimizer")},
        vocabulary=VOCABULARY,
        schedule=RECIPE.training.schedule,
        ema_decay=0.9,
        precision="float32",
        seed=0,
        data_sha256="",
    )
    checkpoints = Checkpoints(directory / "checkpoints", keep=2)
    for step in (5, 9):
        optimizer = state.optimizer()
        optimizer["average/heads/stop_bias"] = np.float32([100.0 if step == 9 else -100.0])
        checkpoints.save(RunState(origin=origin, position=Position(step=step)), state.weights(), optimizer)
    rng = np.random.default_rng(0)
    references = {name: rng.normal(-5, 2, (128, 80)).astype(np.float32) for name in ("low", "high")}
    write_references(directory, references)
    return directory


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "run")


def job(checkpoint: Path, **changes: str) -> SynthesisJob:
    out = checkpoint.parent / "said.wav"
    return SynthesisJob(**({"checkpoint": str(checkpoint), "text": "soli fu", "out": str(out)} | changes))


def test_the_newest_checkpoint_of_a_run_speaks_with_its_averages(run: Path) -> None:
    found = synthesise(job(run))
    assert (found.step, found.averaged, found.speaker) == (9, True, "low")
    assert found.stopped  # the averages of step 9 stop at once, its weights would not
    assert found.seconds == pytest.approx(4 * 256 / 22_050)
    samples = read_canonical_wav(found.out, 22_050)
    assert len(samples) == 4 * 256
    assert np.abs(samples).max() > 0
    assert [path.name for path in run.parent.iterdir() if path.suffix == ".wav"] == ["said.wav"]


def test_a_checkpoint_can_be_named(run: Path) -> None:
    assert find_checkpoint(run / "checkpoints", print)[0].entry.step == 9
    checkpoint, directory = find_checkpoint(run / "checkpoints" / "step-00000005", print)
    assert (checkpoint.entry.step, directory) == (5, run)
    generator, averaged = generator_of(checkpoint)
    generated = generator([encode("ab")], np.full((1, 8, 80), -5, np.float32))
    assert averaged
    assert not generated.stopped[0]


def test_without_averages_the_weights_speak(run: Path) -> None:
    checkpoint, _ = find_checkpoint(run, print)
    plain = {name: array for name, array in checkpoint.optimizer.items() if not name.startswith("average/")}
    generator, averaged = generator_of(checkpoint._replace(optimizer=plain))
    assert not averaged
    bias = generator.model.heads.stop_bias.numpy()
    assert np.array_equal(bias, checkpoint.weights["heads/stop_bias"])


def test_a_damaged_checkpoint_is_passed_over_and_said(run: Path) -> None:
    weights = run / "checkpoints" / "step-00000009" / "weights.npz"
    weights.write_bytes(weights.read_bytes()[:1000])
    found = synthesise(job(run / "checkpoints"))
    assert found.step == 5
    assert "weights.npz" in found.notes[0]
    with pytest.raises(InvalidInputError, match=r"weights\.npz"):
        synthesise(job(run / "checkpoints" / "step-00000009"))


def test_a_wav_file_is_a_voice(run: Path, tmp_path: Path) -> None:
    samples = utterance(0, 0, 0.5, 0.6).samples
    write_wav(tmp_path / "voice.wav", samples, 22_050)
    assert synthesise(job(run, reference=str(tmp_path / "voice.wav"))).speaker is None
    write_wav(tmp_path / "short.wav", samples[:300], 22_050)
    with pytest.raises(InvalidInputError, match=r"short\.wav: cannot serve as a reference"):
        synthesise(job(run, reference=str(tmp_path / "short.wav")))
    with pytest.raises(InvalidInputError, match=r"none\.wav"):
        synthesise(job(run, reference=str(tmp_path / "none.wav")))


def test_what_cannot_be_used_says_why(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"knows no speaker 'hig'.*nearest names: high"):
        synthesise(job(run, speaker="hig"))
    (run / "evaluation" / "references.npz").write_bytes(b"PK")
    with pytest.raises(InvalidInputError, match=r"references\.npz is damaged.*--reference"):
        synthesise(job(run))
    (run / "evaluation" / "references.npz").unlink()
    with pytest.raises(InvalidInputError, match=r"holds no references.*--reference"):
        synthesise(job(run))
    with pytest.raises(InvalidInputError, match="holds no checkpoint"):
        find_checkpoint(tmp_path, print)
    checkpoint, _ = find_checkpoint(run, print)
    weights = {name: array for name, array in checkpoint.weights.items() if name != "heads/stop"}
    with pytest.raises(InvalidInputError, match="not those of this version's model"):
        generator_of(checkpoint._replace(weights=weights, optimizer={}))
