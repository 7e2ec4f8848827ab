"""What the loading benchmark rests on: its truth, its check, its ratios and its table of contestants."""

import dataclasses
import math
import re
from itertools import cycle

import contest
import contestants
import environments
import manifest as manifests
import numpy as np
import pytest
import readers
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


def test_a_batch_is_what_the_plan_says(manifest):
    batch = manifests.element(manifest, 0, read)
    pad = np.full((3, 2), PAD, np.float32)
    np.testing.assert_array_equal(batch["mel"], [MELS[2], [*MELS[0], *pad[:2]]])
    np.testing.assert_array_equal(batch["reference"], [MELS[1][2:5], [*MELS[0], *pad[:1]]])
    np.testing.assert_array_equal(batch["text"], [[4, 5, 6], [7, 0, 0]])
    assert batch["id"].tolist() == [2, 0]
    assert batch["text_length"].tolist() == [3, 1]
    assert batch["mel_length"].tolist() == [4, 2]
    assert batch["reference_start"].tolist() == [-1, 0], "the first frame only where the reference is the clip itself"
    assert manifests.element(manifest, 1, read)["mel"].shape == (1, 6, 2)


def test_the_file_gives_the_manifest_back(manifest, tmp_path):
    manifest.save(tmp_path / "manifest.npz")
    again = manifests.load(tmp_path / "manifest.npz")
    for field in dataclasses.fields(manifest):
        np.testing.assert_array_equal(getattr(again, field.name), getattr(manifest, field.name))
    assert (len(again), again.samples) == (2, 3)


@pytest.mark.parametrize("rows", [readers.FileRows, readers.PackedRows])
def test_readinto_gives_the_same_batches(manifest, rows):
    for number in range(len(manifest)):
        truth = manifests.element(manifest, number, read)
        mel, reference = np.empty_like(truth["mel"]), np.empty_like(truth["reference"])
        readers.fill(manifest, number, rows(manifest), mel, reference)
        np.testing.assert_array_equal(mel, truth["mel"])
        np.testing.assert_array_equal(reference, truth["reference"])


@pytest.mark.parametrize("reader", readers.READERS)
def test_the_peers_readers_read_the_files(manifest, reader):
    np.testing.assert_array_equal(readers.READERS[reader](manifest)(1), MELS[1])


def test_readinto_refuses_a_short_file(manifest, tmp_path):
    rows = readers.FileRows(manifest)
    (tmp_path / "1.npy").write_bytes((tmp_path / "1.npy").read_bytes()[:-8])
    with pytest.raises(ValueError, match="40 bytes were to be read, got 32"):
        rows.read(1, 0, np.empty((5, 2), np.float32))


def test_readinto_refuses_another_kind_of_array(manifest, tmp_path):
    np.save(tmp_path / "2.npy", np.asfortranarray(MELS[2]))
    with pytest.raises(ValueError, match="Fortran order True"):
        readers.FileRows(manifest)


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


def test_passes_are_whole(monkeypatch):
    now = cycle([0.0, 1.0, 2.0, 3.0])
    monkeypatch.setattr(contest.time, "perf_counter", lambda: next(now))
    taken = iter(range(100))
    assert contest.passes(taken, batches=5, at_least_s=1.5) == (2, 2.0)
    assert next(taken) == 10


def test_each_variant_of_a_peer_has_a_name_of_its_own():
    everyone = [
        entry
        for variants in contestants.PEERS.values()
        for workers in contestants.WORKERS
        for entry in variants(workers)
    ]
    assert len({entry.name for entry in everyone}) == len(everyone)
    for entry in everyone:
        assert entry.environment in environments.NAMES
        assert (contestants.HERE / entry.script).is_file()
        assert entry.hand_made == (entry.variant["reader"] == "readinto")


@pytest.mark.parametrize("peer", environments.NAMES)
def test_a_peers_packages_are_pinned_and_named_by_no_address(peer):
    lines = environments.requirements(peer)
    assert any(line.startswith(f"{peer}==") for line in lines)
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line) for line in lines)
