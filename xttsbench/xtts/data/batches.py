"""Plan of batches: their clips, padded sizes, references, and the divisors of their losses.

Pure functions of data and seed: a resumed run needs no state of an input pipeline but the epoch and the number of the
batch. Everything is NumPy over all clips at once, so that the plan of an epoch of 13,100 clips takes milliseconds.
Loaders get planned batches as columns, with what is known of the clips (:class:`Planned`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings
from xttsbench.xtts.recipe import BatchSettings, ModelSettings

Ints = npt.NDArray[np.int32]
_COLUMNS: Final = ("clips", "references", "reference_starts")  # of a batch, with a row for each clip


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One batch: its clips by number, their references, and the sizes to pad to. The arrays are views of the plan's."""

    clips: Ints
    """``[b]``"""
    references: Ints
    """``[b]``: the clip that each row's reference is cut from; the row's own where its speaker has no other."""
    reference_starts: Ints
    """``[b]``: first frame of the reference in that clip."""
    frames: int
    """Mel frames that the batch is padded to: an edge of its bucket."""
    characters: int
    """Characters that its texts are padded to: the text edge of its bucket."""
    reference_frames: int
    """Mel frames of every reference."""

    def __eq__(self, other: object) -> bool:
        """Whether both are the same rows in the same order, padded to the same sizes."""
        if not isinstance(other, Batch):
            return NotImplemented
        return all(np.array_equal(getattr(self, column), getattr(other, column)) for column in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # the arrays that it is equal by can be changed


def plan(
    frames: npt.NDArray[np.integer[Any]],
    text_lengths: npt.NDArray[np.integer[Any]],
    speakers: npt.NDArray[np.integer[Any]],
    settings: BatchSettings,
    *,
    seed: int,
    epoch: int,
    name: Callable[[int], str] | None = None,
) -> list[Batch]:
    """Return the full batches of an epoch in a seeded order, each clip in one batch at most.

    A clip goes to the first bucket that holds it, and what does not fill a batch moves to the next longer one, up to
    the longest that any clip needs: only there clips are left out, fewer than a batch. Which clips share a batch, the
    order of the batches and the references change with ``seed`` and ``epoch``; the shapes do not, one to a bucket.

    Args:
        frames: ``[n]`` mel frames of each clip.
        text_lengths: ``[n]`` characters of each clip's text.
        speakers: ``[n]`` a number for each clip's speaker.
        settings: edges, size of a batch, and what becomes of clips that are too long.
        seed: seed of the run.
        epoch: number of the epoch, from 0.
        name: what errors call a clip, by its number: ``SpeechData.id``.

    Raises:
        InvalidInputError: a clip is longer than the last edge and ``settings.too_long`` is ``refuse``, or the clips
            are fewer than a batch holds.
    """
    kept = _kept(frames, text_lengths, settings, name)
    if not len(kept):
        raise InvalidInputError(f"none of {len(frames)} clips is left for a batch; give data, or longer edges")
    frame_edges = np.asarray(settings.frame_edges)
    bucket_of = np.searchsorted(frame_edges, frames[kept], side="left")
    longest = int(bucket_of.max())
    if not settings.bucketing:
        bucket_of[:] = longest
    characters = _text_edges(bucket_of, text_lengths[kept], settings)
    rng = np.random.default_rng([seed, epoch])

    # One permutation of all, then by bucket: argsort is stable, so the order within a bucket stays random.
    shuffled = rng.permutation(len(kept))
    shuffled = shuffled[np.argsort(bucket_of[shuffled], kind="stable")]
    own_starts = np.searchsorted(bucket_of[shuffled], np.arange(longest + 2))
    starts: list[npt.NDArray[np.int64]] = []
    edges: list[npt.NDArray[np.int64]] = []
    begin = 0  # what is left of shorter buckets lies just before the bucket's own, so a bucket is always one slice
    for bucket in range(longest + 1):
        rows = settings.rows(int(frame_edges[bucket]))
        full = (int(own_starts[bucket + 1]) - begin) // rows
        starts.append(begin + rows * np.arange(full))
        edges.append(np.full(full, bucket))
        begin += rows * full
    if begin == 0:
        rows = settings.rows(int(frame_edges[longest]))
        raise InvalidInputError(f"{len(kept)} clips are fewer than one batch of {rows}; take a smaller batch")

    clips = kept[shuffled[:begin]].astype(np.int32)
    references, reference_starts = _references(clips, kept, frames, speakers, settings.reference_frames, rng)
    first, bucket_numbers = np.concatenate(starts), np.concatenate(edges)
    order = rng.permutation(len(first))
    ends = np.append(first[1:], begin)
    return [
        Batch(clips[i:j], references[i:j], reference_starts[i:j], edge, text_edge, settings.reference_frames)
        for i, j, edge, text_edge in zip(
            first[order].tolist(),
            ends[order].tolist(),
            frame_edges[bucket_numbers[order]].tolist(),
            characters[bucket_numbers[order]].tolist(),
            strict=True,
        )
    ]


def split(batch: Batch, parts: int) -> list[Batch]:
    """Return equal parts of consecutive rows, each padded as the whole is; the arrays are views of the batch's."""
    rows = len(batch.clips) // parts
    return [
        replace(batch, **{name: getattr(batch, name)[begin : begin + rows] for name in _COLUMNS})
        for begin in range(0, len(batch.clips), rows)
    ]


def padding_efficiency(batches: Sequence[Batch], frames: npt.NDArray[np.integer[Any]]) -> float:
    """Return the share of the batches' mel frames that is speech, not padding; ``frames`` is ``[n]`` of each clip."""
    valid = sum(int(frames[batch.clips].sum()) for batch in batches)
    return valid / sum(len(batch.clips) * batch.frames for batch in batches)


def _kept(
    frames: npt.NDArray[np.integer[Any]],
    text_lengths: npt.NDArray[np.integer[Any]],
    settings: BatchSettings,
    name: Callable[[int], str] | None,
) -> npt.NDArray[np.intp]:
    """Return the numbers of the clips that fit; raises for the first that does not where such are refused."""
    for lengths, edges, unit in (
        (frames, settings.frame_edges, "mel frames"),
        (text_lengths, settings.text_edges, "characters"),
    ):
        too_long = np.flatnonzero(lengths > edges[-1])
        if len(too_long) and settings.too_long == "refuse":
            clip = int(too_long[0])
            called = f"clip {clip}" if name is None else f"the clip {name(clip)!r}"
            raise InvalidInputError(
                f"{called} has {lengths[clip]} {unit}, more than the last edge, {edges[-1]} "
                f"({len(too_long)} of {len(lengths)} clips do); add an edge, or set batches.too_long to skip"
            )
    return np.flatnonzero((frames <= settings.frame_edges[-1]) & (text_lengths <= settings.text_edges[-1]))


def _text_edges(
    bucket_of: npt.NDArray[np.intp], text_lengths: npt.NDArray[np.integer[Any]], settings: BatchSettings
) -> npt.NDArray[np.int64]:
    """Return one text edge per bucket: the smallest that fits its texts, and those that may move there from below."""
    longest = np.zeros(int(bucket_of.max()) + 1, np.int64)
    np.maximum.at(longest, bucket_of, text_lengths)
    text_edges = np.asarray(settings.text_edges)
    return text_edges[np.searchsorted(text_edges, np.maximum.accumulate(longest), side="left")]


def _references(
    clips: Ints,
    kept: npt.NDArray[np.intp],
    frames: npt.NDArray[np.integer[Any]],
    speakers: npt.NDArray[np.integer[Any]],
    reference_frames: int,
    rng: np.random.Generator,
) -> tuple[Ints, Ints]:
    """Return for each clip another of its speaker (itself where there is none), and the frame to start from."""
    by_speaker = kept[np.argsort(speakers[kept], kind="stable")]
    first = np.flatnonzero(np.diff(speakers[by_speaker], prepend=-1))  # of each speaker in by_speaker
    sizes = np.diff(first, append=len(kept))
    begin, size, place = (np.empty(len(frames), np.int64) for _ in range(3))
    begin[by_speaker], size[by_speaker] = np.repeat(first, sizes), np.repeat(sizes, sizes)
    place[by_speaker] = np.arange(len(kept))
    begin, size, place = begin[clips], size[clips], place[clips] - begin[clips]
    # Going round the speaker's clips by 1..size-1 never comes back to the clip itself.
    steps = 1 + (rng.random(len(clips)) * (size - 1)).astype(np.int64)
    references = by_speaker[begin + (place + np.where(size > 1, steps, 0)) % size].astype(np.int32)
    spare = np.maximum(frames[references] - reference_frames, 0)
    return references, (rng.random(len(clips)) * (spare + 1)).astype(np.int32)


class LossCounts(NamedTuple):
    """The denominators of :func:`xttsbench.xtts.model.loss.losses`: numbers here, scalar tensors within a step."""

    mel: float
    """Frames that are predicted: real ones that the reference does not show; at least 1."""
    stop: float
    """Real steps of the decoder."""
    guided: float
    """Pairs of a real step and a character of the same clip, for one head."""


def loss_counts(
    batch: Batch,
    frames: npt.NDArray[np.integer[Any]],
    text_lengths: npt.NDArray[np.integer[Any]],
    settings: ModelSettings,
) -> LossCounts:
    """Return the counts of a planned batch, in microseconds.

    The columns ``[n]`` are of all clips of the data set; the batch may be several parts, if the loss is to be the sum
    of theirs.
    """
    lengths = frames[batch.clips].astype(np.int64)
    shown = np.clip(lengths - batch.reference_starts, 0, batch.reference_frames)
    hidden = np.where(batch.references == batch.clips, shown, 0)
    steps = -(-lengths // settings.frames_per_step)
    return LossCounts(
        mel=float(max(int((lengths - hidden).sum()), 1)),
        stop=float(steps.sum()),
        guided=float((steps * text_lengths[batch.clips]).sum()),
    )


def held_out_batches(
    frames: npt.NDArray[np.integer[Any]],
    text_lengths: npt.NDArray[np.integer[Any]],
    speakers: npt.NDArray[np.integer[Any]],
    settings: BatchSettings,
    *,
    seed: int,
    name: Callable[[int], str] | None = None,
) -> list[Batch]:
    """Return the same batches at each call, of at most as many rows as one replica trains on.

    The arguments are those of :func:`plan`; the seed decides the references.

    Raises:
        InvalidInputError: a clip is longer than the last edge and ``settings.too_long`` is ``refuse``, or none is left.
    """
    single = settings.model_copy(update={"batch_size": 1, "tokens_per_batch": None, "parts": 1})
    by_shape: dict[tuple[int, int], list[Batch]] = {}
    for batch in plan(frames, text_lengths, speakers, single, seed=seed, epoch=0, name=name):
        by_shape.setdefault((batch.frames, batch.characters), []).append(batch)
    part = settings.model_copy(update={"parts": 1})
    return [
        _joined(batches[start : start + part.rows(edge)])
        for (edge, _), batches in sorted(by_shape.items())
        for start in range(0, len(batches), part.rows(edge))
    ]


def _joined(batches: list[Batch]) -> Batch:
    rows: dict[str, Any] = {name: np.concatenate([getattr(batch, name) for batch in batches]) for name in _COLUMNS}
    return replace(batches[0], **rows)


_ENCODED: Final[WeakKeyDictionary[SpeechData, Texts]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False, slots=True)
class Texts:
    """The encoded texts of a data set in one buffer."""

    ids: npt.NDArray[np.uint8]
    """The ids of all texts, one after the other; with a 0 at the end, so that no place is out of range."""
    starts: npt.NDArray[np.int64]
    """``[n]`` where each begins."""
    lengths: Ints
    """``[n]``"""

    def padded(self, clips: Ints, characters: int) -> Ints:
        """Return the texts of some clips, ``[len(clips), characters]``, with 0 after each."""
        place = np.arange(characters)
        inside = place < self.lengths[clips, None]
        return np.where(inside, self.ids[np.where(inside, self.starts[clips, None] + place, 0)], 0).astype(np.int32)


@dataclass(frozen=True, eq=False, slots=True)
class Planned:
    """Planned batches, end to end, and what is known of the clips of their data set."""

    clips: Ints
    """``[rows]`` of all batches."""
    references: Ints
    reference_starts: Ints
    bounds: npt.NDArray[np.int64]
    """``[batches + 1]`` first row of each batch."""
    frames: Ints
    """``[batches]`` that mels are padded to."""
    characters: Ints
    """``[batches]`` that texts are padded to."""
    reference_frames: int
    lengths: Ints
    """``[n]`` mel frames of each clip of the data set."""
    texts: Texts
    n_mels: int
    floor: np.float32
    """Padding of mels: the logarithm of the features' floor."""

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def sizes(self) -> list[int]:
        """The distinct numbers of rows that batches have, rising."""
        return [int(size) for size in np.unique(np.diff(self.bounds))]

    def shapes(self, number: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return the shapes of a batch's mels and of its references, both ``[rows, frames, n_mels]``."""
        rows = int(self.bounds[number + 1] - self.bounds[number])
        return (rows, int(self.frames[number]), self.n_mels), (rows, self.reference_frames, self.n_mels)

    def most_elements(self) -> tuple[int, int]:
        """Return how many numbers the largest mels and the largest references of a batch have."""
        rows = np.diff(self.bounds)
        return int((rows * self.frames).max()) * self.n_mels, int(rows.max()) * self.reference_frames * self.n_mels


def planned(data: SpeechData, batches: Sequence[Batch], features: FeatureSettings) -> Planned:
    """Gather batches that were planned for the data into columns."""
    clips, references, reference_starts = (
        np.concatenate([getattr(batch, column) for batch in batches]).astype(np.int32, copy=False)
        for column in _COLUMNS
    )
    sizes = np.fromiter((len(batch.clips) for batch in batches), np.int64, len(batches))
    frames, characters = (
        np.fromiter((getattr(batch, column) for batch in batches), np.int32, len(batches))
        for column in ("frames", "characters")
    )
    return Planned(
        clips,
        references,
        reference_starts,
        np.concatenate(([0], np.cumsum(sizes))),
        frames,
        characters,
        batches[0].reference_frames,
        (data.samples // features.hop_samples).astype(np.int32),
        _texts(data),
        features.n_mels,
        np.log(np.float32(features.log_floor)),
    )


def _texts(data: SpeechData) -> Texts:
    """Return the encoded texts of a data set, encoded once for all of its datasets in this process."""
    if data not in _ENCODED:
        ids = bytearray()
        starts = np.empty(len(data), np.int64)
        for clip in range(len(data)):
            starts[clip] = len(ids)
            ids += data.text_ids(clip).astype(np.uint8).tobytes()
        lengths = np.diff(starts, append=len(ids)).astype(np.int32)
        ids.append(0)
        _ENCODED[data] = Texts(np.frombuffer(ids, np.uint8), starts, lengths)
    return _ENCODED[data]
