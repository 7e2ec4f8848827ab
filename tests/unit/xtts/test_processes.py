"""Batches from processes of their own: the planned ones, and no process that dies unseen or outlives its use."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.processes import still_running
from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.files import shipped
from xttsbench.xtts.data.batches import plan, planned
from xttsbench.xtts.data.precompute import precompute
from xttsbench.xtts.data.speech_data import read_speech_data
from xttsbench.xtts.features import log_mel
from xttsbench.xtts.loaders import IN_PYTHON
from xttsbench.xtts.loaders.numpy_loaders import Arrays, InputProcesses, Source, check_processes, in_this_process
from xttsbench.xtts.recipe import BatchSettings, load_recipe
from xttsbench.xtts.wav import read_canonical_wav

FEATURES = load_recipe(shipped("training", "tiny")).features
SETTINGS = BatchSettings(batch_size=2, frame_edges=(24, 40), text_edges=(16,), reference_frames=30)

# Makes batches without end in two processes, and says which; TensorFlow cannot be imported, by whoever tries.
SCRIPT = """
import multiprocessing, sys
from pathlib import Path

sys.modules["tensorflow"] = sys.modules["keras"] = None
sys.path.insert(0, sys.argv[2])
from processes_script import source_of
from xttsbench.xtts.loaders.numpy_loaders import InputProcesses

make = InputProcesses(source_of(Path(sys.argv[1]), "numpy_wav"), 2)
make(0), make(1)
print(*(process.pid for process in multiprocessing.active_children()), flush=True)
while True:
    make(0)
"""


def source_of(directory: Path, loader: str = "numpy_wav") -> Source:
    data = read_speech_data(directory, sample_rate_hz=22_050, split="all")
    cache = None if loader == "numpy_wav" else precompute(data, FEATURES, directory / "cache")
    frames = data.samples // FEATURES.hop_samples
    batches = plan(frames, data.text_lengths, data.speakers, SETTINGS, seed=1, epoch=0)
    return Source(loader, planned(data, batches, FEATURES), data, cache, FEATURES)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, noise: Callable[[Path], Path]) -> Path:
    """Six clips of noise of 17 to 36 frames."""
    return noise(tmp_path_factory.mktemp("made") / "speech")


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert not multiprocessing.active_children()


def same(ours: Arrays, theirs: Arrays) -> bool:
    return all(np.array_equal(first, second) for first, second in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(("loader", "processes"), [*zip(IN_PYTHON, (2, 1, 1), strict=True)])
def test_they_are_the_same_bits_as_without(directory: Path, loader: str, processes: int) -> None:
    source = source_of(directory, loader)
    make = InputProcesses(source, processes)
    alone = in_this_process(source.planned, source.fill())
    made = [make(number) for number in (2, 0, 1, 0)]
    assert all(same(batch, alone(number)) for batch, number in zip(made, (2, 0, 1, 0), strict=True))
    # And what they are, from the sound: the first clip of a batch, padded.
    clip = int(made[0].numbers[0])
    mel = log_mel(read_canonical_wav(source.data.wav(clip), 22_050), FEATURES)
    np.testing.assert_array_equal(made[0].mel[0, : len(mel)], mel)
    assert (made[0].mel[0, len(mel) :] == np.log(np.float32(FEATURES.log_floor))).all()


def test_an_error_is_the_loaders_own_and_the_next_batch_comes(directory: Path) -> None:
    source = source_of(directory)
    make = InputProcesses(source, 1)
    number = int(np.flatnonzero(source.planned.clips == 3)[0]) // 2
    path = source.data.wav(3)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    try:
        with pytest.raises(InvalidInputError, match=r"c3\.wav.*; "):
            make(number)
    finally:
        path.write_bytes(whole)
    assert same(make(number), in_this_process(source.planned, source.fill())(number))


def test_a_process_that_dies_is_a_sentence_each_time(directory: Path) -> None:
    make = InputProcesses(source_of(directory), 1)
    make(0)
    (process,) = multiprocessing.active_children()
    os.kill(process.pid or 0, signal.SIGKILL)
    for _ in range(2):  # nor does the second call wait for ever
        with pytest.raises(XttsbenchError, match="one of 1 processes that make batches died"):
            make(1)


def test_they_end_when_nothing_refers_to_them(directory: Path) -> None:
    make = InputProcesses(source_of(directory), 2)
    assert len(multiprocessing.active_children()) == 2
    del make
    gc.collect()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGKILL, id="SIGKILL"),
        pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.slow),
    ],
)
def test_they_import_no_tensorflow_and_end_with_their_parent(directory: Path, tmp_path: Path, how: int) -> None:
    (tmp_path / "processes_script.py").write_bytes(Path(__file__).read_bytes())
    command = [sys.executable, "-c", SCRIPT, str(directory), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        for pid in pids:
            assert "_pywrap_tensorflow" not in Path(f"/proc/{pid}/maps").read_text()
        process.send_signal(how)
        process.wait()
        assert still_running(pids, within_s=20.0) == []


@pytest.mark.parametrize(
    ("loader", "processes", "keep", "message"),
    [
        ("tf_wav", 1, False, "the loader tf_wav is TensorFlow's own work.*take no process, or one of numpy_wav"),
        ("tf_cache", 2, False, "the loader tf_cache"),
        ("packed", -1, False, "must be 0 to 256, got -1"),
        ("packed", 300, False, "must be 0 to 256, got 300"),
        ("numpy_wav", 2, True, "each of 2 would keep the features"),
    ],
)
def test_what_cannot_be_is_refused(loader: str, processes: int, keep: bool, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check_processes(loader, processes, keep=keep)


def test_features_are_kept_in_this_process() -> None:
    check_processes("numpy_wav", 0, keep=True)
