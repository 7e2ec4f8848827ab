"""Shards of a data set's features: made from its cache in several processes, verified, and attached from elsewhere.

Which clips a shard has, and each of its bytes, depend on the data set and the target size alone, not on the number of
processes. A shard's file appears whole, then its index, and the manifest last: a run that was killed goes on, and keeps
what is there after hashing it.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.files import (
    DRAFT_PREFIX,
    LOCK,
    atomic_file,
    atomic_write,
    draft,
    flushed_file,
    locked,
    require_space,
    sync,
)
from xttsbench.xtts.data.cache_files import Index, npy_header, open_packed, settings_key
from xttsbench.xtts.data.feature_cache import FeatureCache, read_cache
from xttsbench.xtts.data.metadata import held_out
from xttsbench.xtts.data.pool import Progress, Silent, in_chunks
from xttsbench.xtts.data.shard_files import Files, sha256_of
from xttsbench.xtts.data.shard_index import (
    COLUMNS,
    INDEX,
    MANIFEST,
    REMOTE,
    File,
    Manifest,
    Remote,
    Sharded,
    ShardIndex,
    column_name,
    file_of,
    joined,
    read_record,
    read_sharded,
    shard_name,
    write_columns,
)
from xttsbench.xtts.data.speech_data import Problem, SpeechData
from xttsbench.xtts.data.verification import Verification

SHARD_BYTES: Final = 2**28
"""Size of a shard where nobody says: large enough that few are opened, small enough to be repaired one by one."""
_OURS: Final = re.compile(rf"shard-\d+\.(npy|json)|{INDEX}|{re.escape(MANIFEST)}|{LOCK}|{re.escape(DRAFT_PREFIX)}.*")


@dataclass(frozen=True)
class MadeShards:
    """Sharded data set that was made, with the number of shards that were written, and of those that were there."""

    manifest: Manifest
    made: int
    kept: int


@dataclass(frozen=True)
class _Job:
    """Shard to make: its number, what it is made from, and the frames and first packed rows of its clips."""

    shard: int
    source: str
    frames: tuple[int, ...]
    offsets: tuple[int, ...]


def make_shards(
    data: SpeechData,
    cache: FeatureCache,
    out: Path,
    *,
    seed: int = 0,
    shard_bytes: int = SHARD_BYTES,
    workers: int | None = None,
    progress: Progress | None = None,
) -> MadeShards:
    """Write a data set's features in shards, and its index; what is there and good is kept.

    Args:
        data: all clips of a data set, read with the seed.
        cache: their features.
        out: directory to write, empty or of a call that was broken off.
        seed: decides which clips are held out where the data set does not say.
        shard_bytes: size that a shard does not exceed, unless a single clip does.
        workers: processes; the allowed cores where it is None.
        progress: told of the work.

    Raises:
        UsageError: the directory holds something else, or cannot be locked.
        InvalidInputError: the cache is damaged, or the disk is full.
    """
    progress, n_mels = progress or Silent(), cache.features.n_mels
    index = read_cache(cache.directory, cache.features)
    jobs = list(_jobs(index.take(index.rows_of(data)), cache, shard_bytes))
    with locked(out, lambda: progress.update("waiting for another process that writes there", 0, 0)):
        if odd := next((path.name for path in out.iterdir() if not _OURS.fullmatch(path.name)), None):
            raise UsageError(f"{out} holds {odd!r}, which is of no sharded data set; name another directory")
        require_space(
            out, 4 * n_mels * sum(sum(job.frames) for job in jobs if not (out / shard_name(job.shard)).exists())
        )
        (out / MANIFEST).unlink(missing_ok=True)  # before what it vouches for may be replaced
        for path in (*out.glob(f"**/{DRAFT_PREFIX}*"), *out.glob("shard-*")):
            if path.name.startswith(DRAFT_PREFIX) or int(path.stem.partition("-")[2]) >= len(jobs):
                path.unlink()
        write = partial(_write, out, cache.packed, cache.packed_rows, n_mels)
        found = list(in_chunks(write, jobs, 1, workers, "shards written", progress))
        manifest = _manifest(data, cache, out, [shard for shard, _ in found], seed)
        for folder in (out / INDEX, out):
            sync(folder)
        atomic_write(out / MANIFEST, manifest.model_dump_json(indent=1).encode())
        sync(out)
    made = sum(made for _, made in found)
    return MadeShards(manifest, made, len(jobs) - made)


def _jobs(index: Index, cache: FeatureCache, shard_bytes: int) -> Iterator[_Job]:
    frames, most = index.entries["frames"], max(1, shard_bytes // (4 * cache.features.n_mels))
    begin = number = 0
    ends = np.cumsum(frames)
    while begin < len(index):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + most, side="right")))
        rows = slice(begin, end)
        sha = hashlib.sha256(settings_key(cache.features).encode())
        sha.update("\0".join(index.ids[rows]).encode() + index.entries["wav_hash"][rows].tobytes())
        yield _Job(number, sha.hexdigest(), tuple(frames[rows].tolist()), tuple(cache.offsets[rows].tolist()))
        begin, number = end, number + 1


def _write(out: Path, packed: Path, packed_rows: int, n_mels: int, jobs: Sequence[_Job]) -> tuple[ShardIndex, bool]:
    """Write one shard and its index, unless both are there and good; runs in a process of its own."""
    (job,) = jobs
    path = out / shard_name(job.shard)
    with suppress(InvalidInputError, OSError):
        index = read_record(path.with_suffix(".json"), ShardIndex)
        same = (index.shard, index.source, index.frames) == (job.shard, job.source, job.frames)
        if same and file_of(path).sha256 == index.sha256:
            return index, False
    mapped, header, sums = open_packed(packed, packed_rows, n_mels), npy_header(sum(job.frames), n_mels), list[int]()
    sha = hashlib.sha256(header)
    with atomic_file(path) as file:
        file.write(header)
        for first, frames in zip(job.offsets, job.frames, strict=True):
            rows = mapped[first : first + frames].data
            sha.update(rows)
            sums.append(zlib.crc32(rows))
            file.write(rows)
    index = ShardIndex(shard=job.shard, source=job.source, sha256=sha.hexdigest(), frames=job.frames, crc32=tuple(sums))
    atomic_write(path.with_suffix(".json"), index.model_dump_json().encode())
    return index, True


def _manifest(data: SpeechData, cache: FeatureCache, out: Path, shards: Sequence[ShardIndex], seed: int) -> Manifest:
    """Write the columns of all clips, and return the manifest."""
    metadata = data.metadata
    own = metadata.held_out_from
    out_of_training = held_out(metadata.keys) if own is None else np.arange(len(data)) >= own
    frames = np.array([count for shard in shards for count in shard.frames], np.int64)
    ids, id_ends = joined(metadata.ids)
    texts, text_ends = joined(metadata.texts)
    columns: dict[str, npt.NDArray[np.generic]] = {
        "samples": data.samples,
        "speakers": data.speakers,
        "text_lengths": data.text_lengths,
        "held_out": out_of_training,
        "offsets": np.cumsum(frames) - frames,
        "crc32": np.array([crc for shard in shards for crc in shard.crc32], np.uint32),
        "ids": ids,
        "id_ends": id_ends,
        "texts": texts,
        "text_ends": text_ends,
        "text_ids": np.concatenate([*(data.text_ids(clip) for clip in range(len(data))), [0]]),
    }
    files = write_columns(out, columns)
    for shard in shards:
        path = out / shard_name(shard.shard)
        files[path.name] = File(bytes=path.stat().st_size, sha256=shard.sha256)
        files[shard_name(shard.shard, "json")] = file_of(path.with_suffix(".json"))
    return Manifest(
        features=cache.features,
        clips=len(data),
        speaker_names=data.speaker_names,
        seed=seed if own is None else None,
        frames=tuple(sum(shard.frames) for shard in shards),
        files=files,
    )


def verify_shards(directory: Path, *, workers: int | None = None, progress: Progress | None = None) -> Verification:
    """Hash all files of a sharded data set, wherever its shards are, and return what is wrong with which.

    Raises:
        InvalidInputError: the manifest cannot be read.
    """
    sharded = Sharded(directory, read_record(directory / MANIFEST, Manifest))
    rate, data = sharded.manifest.features.sample_rate_hz, None
    with suppress(InvalidInputError):  # a column is damaged, which is named below
        data = read_sharded(directory, rate, "all", 0)
    found = in_chunks(partial(_problem, sharded), list(sharded.manifest.files), 1, workers, "files hashed", progress)
    problems = tuple(problem for problem in found if problem is not None)
    return Verification(directory, directory, data, sharded.manifest.clips, 0, problems)


def _problem(sharded: Sharded, names: Sequence[str]) -> Problem | None:
    """Return what is wrong with a file; runs in a process of its own."""
    (name,), remedy = names, "run 'xttsbench data shard' again"
    files, file = Files(sharded.directory), sharded.manifest.files[name]
    if sharded.remote is not None:
        remedy = "run 'xttsbench data attach' again, elsewhere"
        if not name.startswith(INDEX):
            files, remedy = sharded.files(), "upload the file again"
    size = file.bytes
    with suppress(OSError):
        size = max(size, (sharded.directory / name).stat().st_size)  # so that bytes behind its end are seen
    try:
        if sha256_of(files, name, size) == file.sha256:
            return None
        what = f"{files.where(name)} has other bytes than were written, by its hash"
    except InvalidInputError as error:
        what = str(error)
    return Problem(rule="corrupt-cache", clip=None, what=what, remedy=remedy)


def attach(url: str, out: Path, *, in_flight: int = 32, progress: Progress | None = None) -> Manifest:
    """Bring the index of a sharded data set here, whose shards stay where they are and are read from there.

    Raises:
        UsageError: the directory is not empty, or nothing reads the URL.
        InvalidInputError: a file cannot be read, or is another than the manifest says.
    """
    files, progress = Files(url), progress or Silent()
    remote = Remote(url=url.rstrip("/"), in_flight=in_flight)
    with draft(out.absolute()) as made:
        here = made.directory
        (here / INDEX).mkdir()
        atomic_write(here / MANIFEST, files.read(MANIFEST))
        atomic_write(here / REMOTE, remote.model_dump_json(indent=1).encode())
        manifest = read_record(here / MANIFEST, Manifest)
        for number, column in enumerate(COLUMNS):
            progress.update("columns fetched", number, len(COLUMNS))
            name, due = column_name(column), manifest.files[column_name(column)]
            with flushed_file(here / name) as file:
                found = sha256_of(files, name, due.bytes, file.write)
            if found != due.sha256:
                raise InvalidInputError(f"{files.where(name)} is not the column of its manifest; upload both again")
        if not made.publish():
            raise UsageError(f"{out} is not empty; name a directory that is not there yet")
    return manifest
