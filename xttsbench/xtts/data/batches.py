"""Plan of batches: their clips, padded sizes, references, and the divisors of their losses.

Pure functions of data and seed: a resumed run needs no state of an input pipeline but the epoch and the number of the
batch. Everything is NumPy over all clips at once, so that the plan of an epoch of 13,100 clips takes milliseconds, and
that of 10 million seconds (``benchmarks/large_index.py``). Loaders get planned batches as columns
(:mod:`xttsbench.xtts.data.planned`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.recipe import BatchSettings, ModelSettings

Ints = npt.NDArray[np.int32]
_BLOCK: Final = 2**20
COLUMNS: Final = ("clips", "references", "reference_starts")
"""Columns of a batch, with a row for each clip."""


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


@dataclass(frozen=True, slots=True, eq=False)
class Plan(Sequence[Batch]):
    """The batches of an epoch in their order, each made when it is asked for: 600,000 of them are a few columns."""

    clips: Ints
    """``[rows]`` of all batches, by bucket; the two after it likewise."""
    references: Ints
    reference_starts: Ints
    begins: npt.NDArray[np.int64]
    """``[batches]`` first row of each batch; the four after it likewise."""
    ends: npt.NDArray[np.int64]
    frames: npt.NDArray[np.int64]
    characters: npt.NDArray[np.int64]
    reference_frames: int

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        rows = slice(int(self.begins[number]), int(self.ends[number]))  # beyond the end: IndexError, as of a list
        return Batch(
            self.clips[rows],
            self.references[rows],
            self.reference_starts[rows],
            int(self.frames[number]),
            int(self.characters[number]),
            self.reference_frames,
        )

    def one_of_each_shape(self) -> list[Batch]:
        """Return a batch of each bucket that has one."""
        return [self[number] for number in np.unique(self.frames, return_index=True)[1].tolist()]


def plan(
    frames: npt.NDArray[np.integer[Any]],
    text_lengths: npt.NDArray[np.integer[Any]],
    speakers: npt.NDArray[np.integer[Any]],
    settings: BatchSettings,
    *,
    seed: int,
    epoch: int,
    name: Callable[[int], str] | None = None,
) -> Plan:
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
    bucket_of = np.searchsorted(frame_edges, frames[kept], side="left").astype(np.int16)
    longest = int(bucket_of.max())
    if not settings.bucketing:
        bucket_of[:] = longest
    characters = _text_edges(bucket_of, text_lengths[kept], settings)
    rng = np.random.default_rng([seed, epoch])

    # One permutation of all, then by bucket in its order, so the order within a bucket stays random. Checkpoints resume
    # by it: what is drawn, and in which order, never changes.
    shuffled = rng.permutation(len(kept)).astype(np.int32)
    bucket_of = bucket_of[shuffled]
    shuffled = np.concatenate([shuffled[bucket_of == bucket] for bucket in range(longest + 1)])
    if len(kept) < len(frames):
        shuffled = kept[shuffled]
    own_ends = np.cumsum(np.bincount(bucket_of, minlength=longest + 1))
    starts: list[npt.NDArray[np.int64]] = []
    edges: list[npt.NDArray[np.int64]] = []
    begin = 0  # what is left of shorter buckets lies just before the bucket's own, so a bucket is always one slice
    for bucket in range(longest + 1):
        rows = settings.rows(int(frame_edges[bucket]))
        full = (int(own_ends[bucket]) - begin) // rows
        starts.append(begin + rows * np.arange(full))
        edges.append(np.full(full, bucket))
        begin += rows * full
    if begin == 0:
        rows = settings.rows(int(frame_edges[longest]))
        raise InvalidInputError(f"{len(kept)} clips are fewer than one batch of {rows}; take a smaller batch")

    clips = shuffled[:begin]
    references, reference_starts = _references(clips, kept, frames, speakers, settings.reference_frames, rng)
    first, bucket_numbers = np.concatenate(starts), np.concatenate(edges)
    order = rng.permutation(len(first))
    buckets = bucket_numbers[order]
    ends = np.append(first[1:], begin)[order]
    return Plan(
        clips,
        references,
        reference_starts,
        first[order],
        ends,
        frame_edges[buckets],
        characters[buckets],
        settings.reference_frames,
    )


def split(batch: Batch, parts: int) -> list[Batch]:
    """Return equal parts of consecutive rows, each padded as the whole is; the arrays are views of the batch's."""
    rows = len(batch.clips) // parts
    return [
        replace(batch, **{name: getattr(batch, name)[begin : begin + rows] for name in COLUMNS})
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
) -> Ints:
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
    fit = (frames <= settings.frame_edges[-1]) & (text_lengths <= settings.text_edges[-1])
    return np.flatnonzero(fit).astype(np.int32)


def _text_edges(
    bucket_of: npt.NDArray[np.int16], text_lengths: npt.NDArray[np.integer[Any]], settings: BatchSettings
) -> npt.NDArray[np.int64]:
    """Return one text edge per bucket: the smallest that fits its texts, and those that may move there from below."""
    longest = np.zeros(int(bucket_of.max()) + 1, np.int64)
    np.maximum.at(longest, bucket_of, text_lengths)
    text_edges = np.asarray(settings.text_edges)
    return text_edges[np.searchsorted(text_edges, np.maximum.accumulate(longest), side="left")]


def _references(
    clips: Ints,
    kept: Ints,
    frames: npt.NDArray[np.integer[Any]],
    speakers: npt.NDArray[np.integer[Any]],
    reference_frames: int,
    rng: np.random.Generator,
) -> tuple[Ints, Ints]:
    """Return for each clip another of its speaker (itself where there is none), and the frame to start from."""
    own = speakers[kept]
    sizes = np.bincount(own).astype(np.int32)  # of each speaker
    first = np.cumsum(sizes, dtype=np.int32) - sizes  # place of each speaker's first clip in by_speaker
    if own.max() < 2**16:
        own = own.astype(np.uint16)  # which a stable sort takes by digits, in a tenth of the time
    by_speaker = kept[np.argsort(own, kind="stable")]
    places = np.empty(len(frames), np.int32)
    places[by_speaker] = np.arange(len(kept), dtype=np.int32)
    places, speaker = places[clips], speakers[clips]
    size, begin = sizes[speaker], first[speaker]
    # Going round the speaker's clips by 1..size-1 never comes back to the clip itself.
    steps = _drawn(rng, size - 1)
    steps += size > 1
    places -= begin
    places += steps
    places %= size
    places += begin
    references = by_speaker[places]
    spare = frames[references].astype(np.int32)
    spare -= reference_frames
    np.maximum(spare, 0, out=spare)
    return references, _drawn(rng, spare + 1)


def _drawn(rng: np.random.Generator, below: Ints) -> Ints:
    """Return a random whole number from 0 to each, not included, or 0; in blocks, for a column of floats is large."""
    drawn = np.empty(len(below), np.int32)
    for start in range(0, len(below), _BLOCK):
        block = slice(start, start + _BLOCK)
        drawn[block] = rng.random(len(drawn[block])) * below[block]
    return drawn


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
    rows: dict[str, Any] = {name: np.concatenate([getattr(batch, name) for batch in batches]) for name in COLUMNS}
    return replace(batches[0], **rows)
