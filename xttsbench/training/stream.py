"""The batches of a run from a position on, in the one order that seed and epoch give, for each replica of this process.

What a step takes is planned on the host: ids, counts of the loss and sizes need no look at a tensor. Each local replica
has a ``tf.data`` pipeline of its own over its parts, so that order is exact and each can copy ahead to its own device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from xttsbench.training.course import Position, clip_frames, planned_epoch, planned_from, with_parts
from xttsbench.training.step import Replicas, Shape
from xttsbench.xtts.data.batches import Batch, LossCounts, loss_counts, split
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.loaders.loader import explained, make_dataset
from xttsbench.xtts.recipe import Recipe

Item = TypeVar("Item")
_STRETCH_ROWS: Final = 2**18
"""Clips that pipelines are made for at once, some megabytes of numbers: at the end of such a stretch, hours apart, new
ones are made. That a plan of many epochs is in one is what makes an epoch's end like any other batch."""


def ahead(source: Iterator[Item], count: int) -> Iterator[Item]:
    """Return the first ``count`` items of an iterator; a thread asks for each as soon as the one before it was taken.

    A pipeline that has the batch ready still takes up to a millisecond to hand it over after the processor has idled,
    which is a tenth of a short step. The first item is asked for at once; the source is used by the thread alone from
    now on. What it raises is raised where its item is due.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="next-batch")
    asked = deque(thread.submit(next, source) for _ in range(min(count, 1)))

    def items() -> Iterator[Item]:
        try:
            for number in range(1, count + 1):
                asked[0].result()
                if number < count:
                    asked.append(thread.submit(next, source))
                yield asked.popleft().result()  # held by nobody here while it is used
        finally:
            thread.shutdown(wait=False)

    return items()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """Settings of the loader; none of them changes what the batches hold, or their order."""

    loader: str = "packed"
    keep: bool = False
    prefetch: int = -1
    device_prefetch: int = 0
    workers: int = -1
    threads: int = 0
    moved: Callable[[tf.data.Dataset], tf.data.Dataset] | None = None
    """Moves the loader's Python functions into processes of their own."""
    overlap: bool = True
    """Whether batches are made while a step runs; if not, each is made when it is asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """Input of one step, and the position of the run after it."""

    position: Position
    """After the step."""
    ids: tuple[str, ...]
    """Clips of the global batch, in its order."""
    micro_batches: tuple[tuple[dict[str, tf.Tensor], ...], ...]
    """``[accumulation][local replicas]``"""
    counts: LossCounts
    """Divisors of the losses of the global batch."""
    batch: Batch
    """The global batch as it was planned."""
    frames: int
    """Mel frames of the global batch, padding included."""
    valid_frames: int
    """Frames of speech, without padding."""

    @classmethod
    def of(
        cls,
        position: Position,
        batch: Batch,
        data: SpeechData,
        recipe: Recipe,
        mel_frames: npt.NDArray[np.int64],
        micro_batches: tuple[tuple[dict[str, tf.Tensor], ...], ...] = (),
    ) -> Fetched:
        """Return what a step takes of a planned batch; ``mel_frames`` is ``[n]``, of each clip of the data."""
        return cls(
            position=position,
            ids=tuple(data.id(clip) for clip in batch.clips.tolist()),
            micro_batches=micro_batches,
            counts=loss_counts(batch, mel_frames, data.text_lengths, recipe.model),
            batch=batch,
            frames=len(batch.clips) * batch.frames,
            valid_frames=int(mel_frames[batch.clips].sum()),
        )

    @property
    def samples(self) -> int:
        """Clips of the global batch."""
        return len(self.ids)


def batch_stream(
    data: SpeechData,
    cache: FeatureCache | None,
    recipe: Recipe,
    loading: Loading,
    replicas: Replicas,
    *,
    seed: int,
    position: Position,
    stretch_rows: int = _STRETCH_ROWS,
) -> Iterator[Fetched]:
    """Yield what steps take, without end, from a position on; planned, with its pipelines, when the first is asked for.

    Args:
        data: the clips.
        cache: their features, where the loader reads such.
        recipe: features, model, the batches of one replica's micro-step, and how many are accumulated.
        loading: how batches are made.
        replicas: of all processes, and ours among them.
        seed: of the order.
        position: the next step, and its batch.
        stretch_rows: clips that pipelines are made for at once.

    Raises:
        XttsbenchError: a clip or the cache cannot be read any more, or the clips are fewer than a batch.
    """
    frames, accumulation = clip_frames(data, recipe), recipe.training.accumulation
    order = planned_from(data, recipe, with_parts(recipe, replicas.count), seed, position)
    while True:
        # Up to the run's end at most; features that are kept are kept by a pipeline, which then lasts as long.
        stretch, rows = [], 0
        for following in islice(order, max(1, recipe.training.steps - position.step)):
            stretch.append(following)
            rows += len(following[1].clips)
            if rows >= stretch_rows and not loading.keep:
                break
        # Of each batch the parts of each replica of this process, one after the other.
        parts = [split(batch, accumulation * replicas.count) for _, batch in stretch]
        pipelines = [
            _pipeline(
                data, cache, recipe, loading, device, [part for each in parts for part in each[place :: replicas.count]]
            )
            for place, device in enumerate(replicas.local, replicas.first_local)
        ]
        for after, batch in stretch:
            yield Fetched.of(after, batch, data, recipe, frames, _taken(pipelines, accumulation))


def _taken(pipelines: list[Iterator[dict[str, tf.Tensor]]], count: int) -> tuple[tuple[dict[str, tf.Tensor], ...], ...]:
    with explained():
        return tuple(tuple(next(pipeline) for pipeline in pipelines) for _ in range(count))


def _pipeline(
    data: SpeechData,
    cache: FeatureCache | None,
    recipe: Recipe,
    loading: Loading,
    device: str,
    batches: list[Batch],
) -> Iterator[dict[str, tf.Tensor]]:
    ahead = loading.overlap
    dataset = make_dataset(
        loading.loader,
        data,
        cache,
        batches,
        recipe.features,
        keep=loading.keep,
        prefetch=loading.prefetch if ahead else 0,
        device_prefetch=loading.device_prefetch if ahead else 0,
        device=device,
        workers=loading.workers if ahead else 0,
        threads=loading.threads,
        moved=loading.moved,
        repeat=False,
    )
    return iter(dataset)


def shapes(data: SpeechData, recipe: Recipe, replicas: Replicas) -> list[Shape]:
    """Return the shapes that micro-batches have in all epochs, whatever the seed; the largest first.

    Raises:
        InvalidInputError: a clip is too long, or the clips are fewer than a batch.
    """
    settings = with_parts(recipe, replicas.count)
    batches = planned_epoch(data, recipe, settings, seed=0, epoch=0)
    found = {
        Shape(len(batch.clips) // settings.parts, batch.frames, batch.characters, batch.reference_frames)
        for batch in batches.one_of_each_shape()
    }
    return sorted(found, key=lambda shape: shape.rows * shape.frames, reverse=True)
