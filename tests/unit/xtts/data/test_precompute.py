"""Making caches: only what is missing or stale, the same whatever the processes, whole however they end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.forked import start
from tests.unit.xtts.data.caching import hangs, one_of_two
from xttsbench import files
from xttsbench.errors import InvalidInputError, UsageError, XttsbenchError
from xttsbench.xtts.data import feature_cache
from xttsbench.xtts.data import precompute as module
from xttsbench.xtts.data.cache_files import CacheFileError, read_npy
from xttsbench.xtts.data.feature_cache import FeatureCache, cache_path, open_cache
from xttsbench.xtts.data.precompute import Made, make_cache, precompute
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings
from xttsbench.xtts.wav import write_wav

Read = Callable[[Path], SpeechData]


class Told:
    """Progress that is written down."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int, int]] = []

    def update(self, what: str, done: int, total: int) -> None:
        self.lines.append((what, done, total))


@pytest.fixture(autouse=True)
def two_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six clips are two jobs, for which no process is started."""
    monkeypatch.setattr(module, "_CLIPS_A_JOB", 3)


@pytest.fixture
def make(speech: Path, tmp_path: Path, read: Read, features: FeatureSettings) -> Callable[..., Made]:
    return lambda **options: make_cache(read(speech), features, tmp_path / "root", **options)


def contents(cache: FeatureCache) -> dict[str, bytes]:
    """The files of features by name; no other file may be there but index and lock."""
    files = {str(path.relative_to(cache.directory)): path for path in cache.directory.rglob("*") if path.is_file()}
    for other in ("index.npz", "lock"):
        files.pop(other, None)
    return {name: path.read_bytes() for name, path in files.items()}


def times(cache: FeatureCache) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in cache.directory.rglob("*") if path.is_file()}


def test_all_is_made_once(make, speech: Path, read: Read, features: FeatureSettings, tmp_path: Path) -> None:
    told = Told()
    made = make(progress=told)
    assert (made.made, made.kept) == (6, 0)
    assert set(contents(made.cache)) == {"packed.npy", *(f"npy/c{number}.npy" for number in range(6))}
    assert told.lines[0] == ("features made", 0, 6)
    assert ("features made", 6, 6) in told.lines
    assert told.lines[-1] == ("clips packed", 6, 6)
    before = times(made.cache)
    again = make()
    assert (again.made, again.kept) == (0, 6)
    assert times(again.cache) == before
    np.testing.assert_array_equal(again.cache.offsets, made.cache.offsets)
    assert precompute(read(speech), features, tmp_path / "root").frames.tolist() == made.cache.frames.tolist()


def test_the_number_of_processes_does_not_matter(make, noise, tmp_path, read, features) -> None:
    one = make(workers=1).cache
    two = make_cache(one.data, features, tmp_path / "other", workers=2).cache
    assert contents(one) == contents(two)


def test_only_what_is_missing_damaged_or_stale_is_made(make, speech: Path) -> None:
    first = make()
    before, packed = times(first.cache), contents(first.cache)
    first.cache.npy(0).unlink()
    first.cache.npy(1).write_bytes(first.cache.npy(1).read_bytes()[:-7])
    np.save(first.cache.npy(2), np.asfortranarray(read_npy(first.cache.npy(2), 80)))
    made = make()
    assert (made.made, made.kept) == (3, 3)
    assert contents(made.cache) == packed
    after = times(made.cache)
    assert sorted(name for name in before if before[name] == after[name] and name.startswith("c")) == [
        "c3.npy",
        "c4.npy",
        "c5.npy",
    ]

    write_wav(speech / "wavs/c3.wav", np.zeros(5000), 22050)
    made = make()
    assert (made.made, made.kept) == (1, 5)
    assert made.cache.frames[3] == 5000 // 256
    rows = np.load(made.cache.packed)[made.cache.offsets[3] :][: made.cache.frames[3]]
    np.testing.assert_allclose(rows, np.log(1e-5), rtol=1e-6)
    open_cache(made.cache.data, made.cache.features, made.cache.directory.parents[2])


def test_a_touched_wav_file_is_no_other(make, speech: Path, monkeypatch) -> None:
    before = times(make().cache)
    os.utime(speech / "wavs/c2.wav", ns=(10**18, 10**18))
    again = make()
    assert again.made == 0
    after = times(again.cache)
    assert {name for name in before if after[name] != before[name]} == {"index.npz"}
    monkeypatch.setattr(feature_cache, "wav_hash", lambda _: pytest.fail("it was noted when the file was touched"))
    assert make().made == 0


def test_clips_that_left_go(make, speech) -> None:
    make()
    (speech / "wavs/c0.wav").unlink()
    lines = (speech / "metadata.csv").read_text().splitlines(keepends=True)
    (speech / "metadata.csv").write_text("".join(lines[1:]))
    assert make().made == 0  # what is too much in a cache does no harm
    (speech / "wavs/c3.wav").write_bytes((speech / "wavs/c4.wav").read_bytes())
    made = make()
    assert made.made == 1
    assert not (made.cache.directory / "npy/c0.npy").exists()
    assert made.cache.packed_rows == made.cache.frames.sum()


def test_a_clip_that_cannot_be_used_is_named_and_the_others_are_kept(make, speech, read, features, tmp_path) -> None:
    data = read(speech)
    content = (speech / "wavs/c5.wav").read_bytes()
    (speech / "wavs/c5.wav").write_bytes(content[:-100])
    with pytest.raises(InvalidInputError, match=r"c5\.wav: is truncated"):
        make_cache(data, features, tmp_path / "root")
    with pytest.raises(InvalidInputError, match=r"not finished|index\.npz is missing"):
        open_cache(data, features, tmp_path / "root")
    (speech / "wavs/c5.wav").write_bytes(content)
    assert make().made == 3  # it, and those that shared its job


def test_a_new_clip_that_cannot_be_used_leaves_the_cache_of_the_others_as_it_was(
    make, speech, read, features, tmp_path
):
    some = make().cache.data
    (speech / "wavs/c6.wav").write_bytes((speech / "wavs/c5.wav").read_bytes())
    with (speech / "metadata.csv").open("a") as file:
        file.write("c6|some words\n")
    data = read(speech)
    (speech / "wavs/c6.wav").write_bytes((speech / "wavs/c6.wav").read_bytes()[:-100])
    with pytest.raises(InvalidInputError, match=r"c6\.wav: is truncated"):
        make_cache(data, features, tmp_path / "root")
    open_cache(some, features, tmp_path / "root")


def test_clips_that_are_too_short_or_of_another_rate_are_refused(speech, read, features, tmp_path) -> None:
    long = features.model_copy(update={"n_fft": 2048, "window_samples": 2048})
    write_wav(speech / "wavs/c1.wav", np.zeros(897), 22050)
    assert make_cache(read(speech), long, tmp_path / "root").cache.frames[1] == 897 // 256
    write_wav(speech / "wavs/c1.wav", np.zeros(896), 22050)
    with pytest.raises(InvalidInputError, match=r"the clip 'c1' has 896 samples, and features need 897 \(1 of 6"):
        make_cache(read(speech), long, tmp_path / "root")
    slow = features.model_copy(update={"sample_rate_hz": 16000})
    with pytest.raises(InvalidInputError, match="read at 22050 Hz, and the features are of 16000 Hz"):
        make_cache(read(speech), slow, tmp_path / "root")


def test_a_wav_file_that_changes_meanwhile_is_refused(make, speech: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.log_mel

    def log_mel(samples, features):
        os.utime(speech / "wavs/c4.wav")
        return real(samples, features)

    monkeypatch.setattr(module, "log_mel", log_mel)
    with pytest.raises(InvalidInputError, match=r"c4\.wav changed while its features were made; run again"):
        make()
    monkeypatch.undo()
    assert make().made == 3  # the job of the fifth

    cache = make().cache
    write_wav(speech / "wavs/c0.wav", np.zeros(9000), 22050)
    with pytest.raises(InvalidInputError, match=r"c0\.wav changed while the features were made"):
        make_cache(cache.data, cache.features, cache.directory.parents[2])


def test_too_little_room_is_said_before_the_work(make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda _: 50_000)
    with pytest.raises(InvalidInputError, match=r"about 0\.1 MB are needed, 0\.1 MB are free there; make room"):
        make()


def test_a_place_that_cannot_be_written_is_refused(speech, read, features, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot be written: .* Not a directory; make it writable, or name another"):
        make_cache(read(speech), features, tmp_path / "file")


def test_a_cache_that_cannot_be_written_will_do_where_it_is_whole(make, monkeypatch) -> None:
    make()

    def locked(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(module, "locked", locked)
    assert make().kept == 6


def test_two_processes_at_once_make_one_good_cache(speech, read, features, tmp_path, make) -> None:
    root = tmp_path / "shared"
    pair = [start(one_of_two, speech, root) for _ in range(2)]
    for _, pipe in pair:
        assert pipe.recv() == "ready"
    for _, pipe in pair:
        pipe.send("go")
    assert sorted(pipe.recv() for _, pipe in pair) == [(0, 6), (6, 0)]
    for process, _ in pair:
        process.join()
    assert contents(open_cache(read(speech), features, root)) == contents(make().cache)


# The calls of fsync for six clips, two a job: their features and a note on them, three times; then the index, the
# packed file, the directory of clips, the directory, the index that says that all is there, and the directory.
KILLED = {3: "first note", 5: "fourth clip", 11: "packed file", 14: "complete index"}


def test_a_process_killed_at_any_point_leaves_what_the_next_one_finishes(
    speech, read, features, tmp_path, make
) -> None:
    whole = contents(make().cache)
    data = read(speech)
    processes = {call: start(hangs, speech, tmp_path / f"killed{call}", call) for call in KILLED}
    for call, (process, pipe) in processes.items():
        assert pipe.recv() == "now", KILLED[call]
        process.kill()
        process.join()
        root = tmp_path / f"killed{call}"
        directory = cache_path(data, features, root)
        assert any(path.name.startswith(".draft-") for path in directory.rglob("*")), KILLED[call]
        with pytest.raises(InvalidInputError, match=r"not finished|index\.npz is missing"):
            open_cache(data, features, root)
        made = make_cache(data, features, root)
        assert made.made == {3: 6, 5: 4}.get(call, 0), KILLED[call]  # what was noted is not made again
        assert contents(made.cache) == whole, KILLED[call]
        assert make_cache(data, features, root).made == 0


# A clip's features take 5 to 12 kB; the greater limit stops the packed file alone.
@pytest.mark.parametrize(("limit", "left"), [(4_000, 6), (20_000, 0)])
def test_a_full_disk_is_one_sentence_and_nothing_half_made_counts(
    speech, read, features, tmp_path, make, full_disk, limit: int, left: int
) -> None:
    data, root = read(speech), tmp_path / "limited"
    with full_disk(limit), pytest.raises(XttsbenchError) as caught:
        make_cache(data, features, root, workers=1)
    (line,) = str(caught.value).splitlines()
    assert "the disk or a limit is full (File too large" in line
    assert "what was made is kept; make room, or name another place (--out ROOT, or XTTSBENCH_CACHE)" in line
    assert not [path for path in root.rglob("*") if path.name.startswith(".draft-")]
    with pytest.raises(InvalidInputError, match=r"not finished|index\.npz is missing"):
        open_cache(data, features, root)
    made = make_cache(data, features, root)
    assert made.made == left
    assert contents(made.cache) == contents(make().cache)


def test_an_old_entry_never_vouches_for_a_new_file(make, speech: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A WAV file is replaced, precompute is broken off after the clip's features, and the old WAV file comes back.
    cache = make().cache
    good = contents(cache)
    wav = speech / "wavs/c2.wav"
    old, status = wav.read_bytes(), wav.stat()
    write_wav(wav, np.zeros(cache.data.samples[2]), 22050)

    real, calls = module.write_index, []

    def broken_off(*arguments, **options):
        calls.append(options)
        if len(calls) > 1:
            raise RuntimeError
        real(*arguments, **options)

    monkeypatch.setattr(module, "write_index", broken_off)
    with pytest.raises(RuntimeError):
        make()
    monkeypatch.undo()
    assert contents(cache)["npy/c2.npy"] != good["npy/c2.npy"]
    wav.write_bytes(old)
    os.utime(wav, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(InvalidInputError, match="not finished"):
        open_cache(cache.data, cache.features, cache.directory.parents[2])
    assert make().made == 1
    assert contents(cache) == good


def test_a_clips_file_that_vanishes_while_packing_is_named(make, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = make().cache
    cache.packed.unlink()
    monkeypatch.setattr(module, "faults", lambda *_, **__: iter(()))
    cache.npy(3).unlink()
    with pytest.raises(CacheFileError, match=r"c3\.npy is missing; run 'xttsbench data precompute'"):
        make()
