"""What the loading benchmark rests on: its check of batches and its ratios."""

import math
import re

import manifest as manifests
import numpy as np
import pytest
import results

PAD = -9.0
MELS = [
    np.arange(frames * 2, dtype=np.float32).reshape(frames, 2) + 100 * clip for clip, frames in enumerate((2, 5, 4))
]
"""The first clip is shorter than a reference of three frames."""


@pytest.fixture
def manifest(tmp_path):
    files = [tmp_path / f"{clip}.npy" for clip in range(len(MELS))]
    for file, mel in zip(files, MELS, strict=True):
        np.save(file, mel)
    np.save(tmp_path / "packed.npy", np.concatenate([MELS[2], MELS[0], MELS[1]]))
    return manifests.Manifest(
        files=np.array([str(file) for file in files]),
        mel_lengths=np.array([2, 5, 4], np.int32),
        text_ids=np.array([7, 8, 9, 4, 5, 6], np.int32),
        text_starts=np.array([0, 1, 3, 6]),
        packed=np.array([str(tmp_path / "packed.npy")]),
        packed_rows=np.array([4, 6, 0]),
        batch_starts=np.array([0, 2, 3]),
        clips=np.array([2, 0, 1], np.int32),
        references=np.array([1, 0, 0], np.int32),
        reference_starts=np.array([2, 0, 1], np.int32),
        frames=np.array([4, 6], np.int32),
        characters=np.array([3, 4], np.int32),
        reference_frames=3,
        n_mels=2,
        pad=PAD,
    )


def read(clip):
    return MELS[clip]


def write(manifest, directory, change=lambda batch: batch):
    for number in range(len(manifest)):
        np.savez(directory / f"{number}.npz", **change(manifests.element(manifest, number, read)))


def test_the_check_measures_how_far_batches_are_apart(manifest, tmp_path):
    write(manifest, tmp_path)
    assert results.difference(manifest, tmp_path, tolerance=0.0) == 0
    write(manifest, tmp_path, lambda batch: batch | {"mel": batch["mel"] + np.float32(0.25)})
    assert results.difference(manifest, tmp_path, tolerance=0.25) == 0.25


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda batch: batch | {"mel": batch["mel"] + np.float32(0.25)}, "mel is 0.25 away"),
        (lambda batch: batch | {"reference": batch["reference"] * np.float32("nan")}, "reference is nan away"),
        (lambda batch: batch | {"id": batch["id"][::-1]}, "id is 2 away"),
        (lambda batch: batch | {"mel": batch["mel"].astype(np.float64)}, "mel is float64"),
        (lambda batch: batch | {"mel": batch["mel"][:, :-1]}, r"mel is float32 \(2, 3, 2\)"),
        (lambda batch: {name: array for name, array in batch.items() if name != "text"}, "expected .*'text'"),
    ],
)
def test_the_check_refuses_other_batches(manifest, tmp_path, change, message):
    write(manifest, tmp_path, change)
    with pytest.raises(ValueError, match=message):
        results.difference(manifest, tmp_path, tolerance=0.1)


def test_the_check_refuses_a_missing_batch(manifest, tmp_path):
    write(manifest, tmp_path)
    (tmp_path / "1.npz").unlink()
    with pytest.raises(OSError, match=re.escape("1.npz")):
        results.difference(manifest, tmp_path, tolerance=0.0)


def known(squares):
    """Student's reach with six degrees of freedom: three of four rounds, and three of the 3 % known before."""
    return 2.446912 * math.sqrt((3 * 0.03**2 + squares) / 6 / 4)


def test_a_ratio_is_paired_by_round():
    """A round in which all are slow moves no ratio: what is left is the spread of the ratios themselves."""
    slow = np.array([1.0, 0.2, 0.7, 1.5])
    steady = results.ratio({"a": 300 * slow, "b": 100 * slow}, "a", "b")
    assert (steady["estimate"], steady["low"]) == (3.0, pytest.approx(3 * math.exp(-known(0.0)), abs=1e-3))
    found = results.ratio({"a": 300 * slow * np.exp([0.1, -0.1, 0.1, -0.1]), "b": 100 * slow}, "a", "b")
    half = known(4 * 0.1**2)
    assert found == pytest.approx({"estimate": 3.0, "low": 3 * math.exp(-half), "high": 3 * math.exp(half)}, abs=1e-3)
    assert results.ratio({"a": [300], "b": [100]}, "a", "b") == {"estimate": 3.0}, "one round has no interval"


def test_a_figure_is_judged_beside_its_goal():
    met = results.judged({"estimate": 4.2, "low": 3.9, "high": 4.5}, 4)
    assert (met["met"], met["surely"]) == (True, False)
    assert results.judged({"estimate": 3.9}, 4)["met"] is False
    missing = results.judged(None, 4, reason="no network")
    assert (missing["value"], missing["met"], missing["reason"]) == (None, None, "no network")
