"""The five loaders give the same batches, of the clips' own features, and say what is wrong with a file."""

from __future__ import annotations

import io
import itertools
import wave
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.pipeline import places
from xttsbench.pipeline.read import inspect, read_graph
from xttsbench.records.fix import FixSet
from xttsbench.samedata.tolerance import difference
from xttsbench.shipped import shipped
from xttsbench.workflows.optimize import patch_of
from xttsbench.xtts.data.batches import Batch, plan
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.precompute import precompute
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.features import log_mel
from xttsbench.xtts.loaders import CACHED, LOADERS
from xttsbench.xtts.loaders.loader import explained, make_dataset
from xttsbench.xtts.loaders.packed import BufferPool
from xttsbench.xtts.recipe import BatchSettings, load_recipe
from xttsbench.xtts.wav import read_canonical_wav

FEATURES = load_recipe(shipped("training", "tiny")).features
CLIPS = 13
SIZES: dict[str, tuple[dict[str, Any], list[int | None]]] = {
    "batch_size": ({"batch_size": 4}, [4, None, 80]),
    "tokens_per_batch": ({"tokens_per_batch": 700}, [None, None, 80]),
    "batch_size, one edge": ({"batch_size": 3, "bucketing": False}, [3, 192, 80]),
}
"""How batches are planned, and the shape that mels are known to have before one is made."""
FILES = {"numpy_wav": "wav", "tf_wav": "wav", "numpy_cache": "npy", "tf_cache": "npy"}


@dataclass(frozen=True)
class Speech:
    data: SpeechData
    cache: FeatureCache

    @cached_property
    def mels(self) -> list[Any]:
        """The features of all clips, from their sound."""
        return [log_mel(read_canonical_wav(self.data.wav(clip), 22_050), FEATURES) for clip in range(len(self.data))]

    def batches(self, epochs: int = 2, **chosen: Any) -> list[Batch]:
        settings = BatchSettings(
            **{
                "frame_edges": (64, 128, 192),
                "text_edges": (8, 16, 32, 64),
                "reference_frames": 100,
                **(chosen or {"batch_size": 4}),
            }
        )
        of = (self.cache.frames, self.data.text_lengths, self.data.speakers, settings)
        return [batch for epoch in range(epochs) for batch in plan(*of, seed=3, epoch=epoch)]

    def dataset(self, loader: str, batches: list[Batch], **chosen: Any) -> Any:
        cache = self.cache if loader in CACHED else None
        return make_dataset(loader, self.data, cache, batches, FEATURES, **{"repeat": False, **chosen})

    def truth(self, batch: Batch) -> dict[str, Any]:
        """The batch as its description says, without any code of the loaders."""
        made: dict[str, list[Any]] = {"mel": [], "reference": [], "text": []}
        for clip, source, start in zip(batch.clips, batch.references, batch.reference_starts, strict=True):
            for key, mel, frames in (
                ("mel", self.mels[clip], batch.frames),
                ("reference", self.mels[source][start : start + batch.reference_frames], batch.reference_frames),
            ):
                made[key].append(np.pad(mel, ((0, frames - len(mel)), (0, 0)), constant_values=np.log(1e-5)))
            ids = self.data.text_ids(clip)
            made["text"].append(np.pad(ids, (0, batch.characters - len(ids))))
        return {key: np.stack(rows) for key, rows in made.items()} | {
            "id": batch.clips,
            "text_length": self.data.text_lengths[batch.clips],
            "mel_length": self.cache.frames[batch.clips].astype(np.int32),
            "reference_start": np.where(batch.references == batch.clips, batch.reference_starts, -1).astype(np.int32),
        }


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Speech:
    """Clips of 26 to 190 frames, one of a speaker who has no other, and with ids that need care in paths."""
    directory = tmp_path_factory.mktemp("speech") / "a set with blanks"
    make_data(directory, CLIPS, seed=5, min_s=0.3, max_s=2.2)
    renamed = {"low-00000": "[glob] *?", "middle-00001": "ä", "low-00004": "x" * 40}
    for name in ("metadata.csv", "speakers.csv"):
        text = (directory / name).read_text(encoding="utf-8")
        for old, new in renamed.items():
            text = text.replace(old, new)
        (directory / name).write_text(text, encoding="utf-8")
    for old, new in renamed.items():
        (directory / "wavs" / f"{old}.wav").rename(directory / "wavs" / f"{new}.wav")
    speakers = (directory / "speakers.csv").read_text(encoding="utf-8").splitlines()
    speakers[-1] = speakers[-1].split("|")[0] + "|alone"
    (directory / "speakers.csv").write_text("\n".join(speakers) + "\n", encoding="utf-8")
    data = read_speech_data(directory, sample_rate_hz=22_050, split="all")
    return Speech(data, precompute(data, FEATURES, tmp_path_factory.mktemp("cache")))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("loader", LOADERS)
def test_every_loader_gives_the_planned_batches(speech: Speech, loader: str, size: str) -> None:
    chosen, shape = SIZES[size]
    batches = speech.batches(**chosen)
    dataset = speech.dataset(loader, batches)
    # All are held while others are made, so that memory used again too early would show.
    found = list(dataset)
    assert len(found) == len(batches)
    for number, (batch, planned) in enumerate(zip(found, batches, strict=True)):
        assert difference(speech.truth(planned), batch, batch=number) is None
    spec = dataset.element_spec
    assert spec["mel"] == tf.TensorSpec(shape, tf.float32)
    assert spec["text"].shape[0] == spec["reference"].shape[0] == shape[0]
    assert all(tensor.dtype in (tf.int32, tf.float32) for tensor in spec.values())
    # What makes it worth asking: references from the same clip, and references that are padded.
    assert any((planned.references == planned.clips).any() for planned in batches)
    assert min(speech.cache.frames[planned.references].min() for planned in batches) < batches[0].reference_frames


@pytest.mark.parametrize("loader", ["packed", "tf_cache"])
@pytest.mark.parametrize("arguments", [{"workers": 0, "prefetch": 0}, {"workers": 2, "prefetch": 3, "threads": 2}])
def test_workers_prefetch_and_threads_change_nothing(speech: Speech, loader: str, arguments: Any) -> None:
    batches = speech.batches(epochs=1)[:2]
    for batch, planned in zip(speech.dataset(loader, batches, **arguments), batches, strict=True):
        assert difference(speech.truth(planned), batch) is None


def test_the_arguments_reach_the_pipeline(speech: Speech) -> None:
    def described(**arguments: Any) -> dict[str, Any]:
        pipeline = inspect(speech.dataset("packed", speech.batches(), **arguments))
        of_kind = {op.op: op for op in pipeline.ops}
        parallel, prefetch = of_kind.get("ParallelMapDatasetV2"), of_kind.get("PrefetchDataset")
        return {
            "workers": parallel and (parallel.parallelism, parallel.deterministic),
            "prefetch": prefetch and prefetch.buffer_size,
            "threads": pipeline.threadpool_size,
            "deterministic": pipeline.deterministic,
        }

    assert described() == {"workers": (-1, "true"), "prefetch": -1, "threads": None, "deterministic": True}
    assert described(workers=0, prefetch=0, threads=3, deterministic=False) == {
        "workers": None,
        "prefetch": None,
        "threads": 3,
        "deterministic": False,
    }
    assert described(workers=5, prefetch=7, deterministic=False)["workers"] == (5, "false")


def test_it_begins_again_where_asked(speech: Speech) -> None:
    batches = speech.batches(epochs=1)
    endless = speech.dataset("packed", batches, repeat=True)
    ids = [batch["id"].numpy().tolist() for batch in itertools.islice(endless, 2 * len(batches))]
    assert ids == 2 * [batch.clips.tolist() for batch in batches]
    assert int(speech.dataset("packed", batches).cardinality()) == len(batches)


@pytest.mark.parametrize("loader", LOADERS)
def test_graphs_hold_no_features(speech: Speech, loader: str) -> None:
    def size_bytes(epochs: int) -> int:
        return int(read_graph(speech.dataset(loader, speech.batches(epochs))).ByteSize())

    rows = 8 * sum(len(batch.clips) for batch in speech.batches(1))
    assert (size_bytes(9) - size_bytes(1)) / rows < 30  # bytes a row of the plan; its features are some 40,000


def test_a_fix_of_a_loader_as_people_write_it_has_a_patch(speech: Speech) -> None:
    """What ``xttsbench optimize --set loader=numpy_wav`` hands over."""
    uninstall = places.install()
    try:
        pipeline = inspect(speech.dataset("numpy_wav", speech.batches(), repeat=True))
    finally:
        uninstall()
    rows = next(op.name for op in pipeline.ops if op.op.startswith("ParallelMap"))
    patch = patch_of(FixSet.parse(f"cache@{rows}"), pipeline, Path())
    assert patch is not None
    assert not patch.unpatched
    assert "+    dataset = dataset.map(row, " in patch.diff
    assert patch.diff.index(".cache()") < patch.diff.index("dataset = dataset.repeat()")


# What can happen to a file after it was checked, and what is then said.


def gone(path: Path, whole: bytes) -> None:
    path.unlink()


def cut(path: Path, whole: bytes) -> None:
    path.write_bytes(whole[: len(whole) // 2])


def cut_within_a_number(path: Path, whole: bytes) -> None:
    path.write_bytes(whole[: len(whole) // 2 // 4 * 4 + 3])


def empty(path: Path, whole: bytes) -> None:
    path.write_bytes(b"")


def other_content(path: Path, whole: bytes) -> None:
    path.write_bytes(b"no features, and no sound" * 100)


def fortran(path: Path, whole: bytes) -> None:
    np.save(path, np.asfortranarray(np.load(path)))


def doubles(path: Path, whole: bytes) -> None:
    np.save(path, np.load(path).astype(np.float64))


def other_frames(path: Path, whole: bytes) -> None:
    np.save(path, np.load(path)[:-1])


def other_mels(path: Path, whole: bytes) -> None:
    np.save(path, np.load(path)[:, :40].copy())


def pickled(path: Path, whole: bytes) -> None:
    np.save(path, np.asarray([{}], object), allow_pickle=True)


def longer_header(path: Path, whole: bytes) -> None:
    """Not a fault: another writer's header of 192 bytes."""
    text = whole[10:128].rstrip() + b" " * 100
    text = text[: 192 - 10 - 1] + b" " * max(0, 192 - 10 - 1 - len(text)) + b"\n"
    path.write_bytes(whole[:8] + len(text).to_bytes(2, "little") + text + whole[128:])


def version_2(path: Path, whole: bytes) -> None:
    """Not a fault either: four bytes for the header's length."""
    with path.open("wb") as file:
        np.lib.format.write_array(file, np.load(io.BytesIO(whole)), version=(2, 0))


def another_chunk(path: Path, whole: bytes) -> None:
    """Not a fault: notes between the form and the samples, which many programs write."""
    notes = b"LIST" + (6).to_bytes(4, "little") + b"INFO\0\0"
    size = len(whole) - 8 + len(notes)
    path.write_bytes(b"RIFF" + size.to_bytes(4, "little") + whole[8:36] + notes + whole[36:])


def stereo(path: Path, whole: bytes) -> None:
    _rewritten(path, whole[44:], channels=2)


def other_rate(path: Path, whole: bytes) -> None:
    _rewritten(path, whole[44:], rate=16_000)


def longer(path: Path, whole: bytes) -> None:
    _rewritten(path, 2 * whole[44:])


def _rewritten(path: Path, samples: bytes, channels: int = 1, rate: int = 22_050) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples)


ANY = (gone, cut, cut_within_a_number, empty, other_content)
FAULTS: dict[str, tuple[Callable[[Path, bytes], None], ...]] = {
    "npy": (*ANY, fortran, doubles, other_frames, other_mels, pickled),
    "wav": (*ANY, stereo, other_rate, longer),
}
NO_FAULTS: dict[str, tuple[Callable[[Path, bytes], None], ...]] = {
    "npy": (longer_header, version_2),
    "wav": (another_chunk,),
}
REMEDIES = {"npy": "run 'xttsbench data precompute'", "wav": ""}


@pytest.mark.parametrize("loader", FILES)
def test_a_file_that_changes_is_named(speech: Speech, loader: str) -> None:
    kind = FILES[loader]
    path = speech.cache.npy(2) if kind == "npy" else speech.data.wav(2)
    whole = path.read_bytes()
    planned = next(batch for batch in speech.batches() if 2 in batch.clips)
    dataset = speech.dataset(loader, [planned], workers=0, prefetch=0)
    try:
        for fault in FAULTS[kind]:
            fault(path, whole)
            with pytest.raises(InvalidInputError) as caught, explained():
                next(iter(dataset))
            path.write_bytes(whole)
            assert str(caught.value).startswith(str(path)), fault.__name__
            assert REMEDIES[kind] in str(caught.value), fault.__name__
            assert "; " in str(caught.value), fault.__name__
        for harmless in NO_FAULTS[kind]:
            harmless(path, whole)
            assert difference(speech.truth(planned), next(iter(dataset))) is None, harmless.__name__
    finally:
        path.write_bytes(whole)


def test_a_packed_file_that_is_cut_while_it_is_read_is_named(speech: Speech) -> None:
    batches, path = speech.batches(), speech.cache.packed
    whole = path.read_bytes()
    iterator = iter(speech.dataset("packed", batches, workers=0, prefetch=0))
    next(iterator)
    try:
        with path.open("r+b") as file:
            file.truncate(len(whole) // 2)
        with pytest.raises(InvalidInputError) as caught, explained():
            list(iterator)
        message = str(caught.value)
        assert message.startswith(f"{path} ends in the clip ")
        assert message.endswith("it was cut short while it was read; run 'xttsbench data precompute'")
        with pytest.raises(InvalidInputError, match=r"packed\.npy is truncated"):
            speech.dataset("packed", batches)
    finally:
        path.write_bytes(whole)


def test_other_errors_are_not_explained() -> None:
    with pytest.raises(tf.errors.ResourceExhaustedError), explained():
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")


def test_memory_is_used_again_only_when_all_views_are_gone() -> None:
    pool = BufferPool(100)
    array = pool.take(4, 25)
    assert (array.shape, array.dtype, array.ctypes.data % 64) == ((4, 25), np.float32, 0)
    address, view = array.ctypes.data, array[1:, ::2].T
    del array
    others = [pool.take(100) for _ in range(3)]
    assert len({address, *(other.ctypes.data for other in others)}) == 4
    del view
    assert pool.take(2, 3).ctypes.data == address


def test_arrays_become_tensors_without_a_copy() -> None:
    """What the pool is for: TensorFlow copies an array that is not aligned, and says nothing."""
    handed = BufferPool(1000).take(10, 100)
    dataset = tf.data.Dataset.range(1).map(lambda _: tf.numpy_function(lambda: handed, [], tf.float32))
    (tensor,) = dataset
    assert np.asarray(memoryview(tensor)).ctypes.data == handed.ctypes.data


@pytest.fixture(autouse=True)
def _nothing_is_left_open(recwarn: pytest.WarningsRecorder) -> Iterator[None]:
    yield
    assert not [str(warning.message) for warning in recwarn if issubclass(warning.category, ResourceWarning)]
