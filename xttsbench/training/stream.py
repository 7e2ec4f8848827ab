"""The batches of a run from a position on, in the one order that seed and epoch give, for each replica of this process.

What a step takes is planned on the host: ids, counts of the loss and sizes need no look at a tensor. Each local replica
has a ``tf.data`` pipeline of its own over its parts, so that order is exact and each can copy ahead to its own device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from xttsbench.training.course import Position, clip_frames, planned_epoch, planned_from, with_parts
from xttsbench.training.step import Shape
from xttsbench.xtts.data.batches import Batch, LossCounts, loss_counts, split
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.loaders.loader import explained, make_dataset
from xttsbench.xtts.recipe import Recipe

Item = TypeVar("Item")
_STRETCH_ROWS: Final = 2**18
"""Clips that pipelines are made for at once, some megabytes of numbers: at the end of such a stretch, hours apart, new
ones are made. That a plan of many epochs is in one is what makes an epoch's end like any other batch."""


class Ahead(Iterator[Item], Generic[Item]):
    """An iterator whose next item is asked for, by a thread of its own, as soon as the one before it was taken.

    A pipeline that has the batch ready still takes up to a millisecond to hand it over after the processor has idled,
    which is a tenth of a short step. The order is the source's, and what it raises is raised where its item is due.
    """

    def __init__(self, source: Iterator[Item], count: int) -> None:
        """Ask for the first item.

        The source is used by the thread alone from now on, and asked for no more after ``count`` items.
        """
        self._source, self._left = source, count
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="next-batch")
        self._next: Future[Item] | None = self._asked()

    def __next__(self) -> Item:
        """Wait for the item that was asked for, and ask for the one after it."""
        if self._next is None:
            raise StopIteration
        try:
            item = self._next.result()
        except BaseException:
            self._left = 0
            self._next = self._asked()
            raise
        self._next = self._asked()
        return item

    def _asked(self) -> Future[Item] | None:
        if not self._left:
            self._thread.shutdown(wait=False)
            return None
        self._left -= 1
        return self._thread.submit(next, self._source)


class Places(Protocol):
    """Which replicas there are; :class:`xttsbench.training.step.Replicas` is so."""

    count: int
    """Replicas of all processes."""
    local: tuple[str, ...]
    """Devices of this process's replicas."""
    first_local: int
    """Number of the first of them among all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How batches are made: none of it changes what they hold, or their order."""

    loader: str = "packed"
    keep: bool = False
    prefetch: int = -1
    device_prefetch: int = 0
    workers: int = -1
    threads: int = 0
    processes: int = 0
    """These as :func:`xttsbench.xtts.loaders.loader.make_dataset` has them."""
    overlap: bool = True
    """Whether batches are made while a step runs; if not, each is made when it is asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """What one step takes, and where the run is after it."""

    position: Position
    """After the step."""
    ids: tuple[str, ...]
    """Of the clips of the global batch, in its order."""
    micro_batches: tuple[tuple[dict[str, tf.Tensor], ...], ...]
    """``[accumulation][local replicas]``"""
    counts: LossCounts
    """What the losses of the global batch are divided by."""
    batch: Batch
    """The global batch as it was planned."""
    frames: int
    """Mel frames of the global batch, padding included."""
    valid_frames: int
    """Those of speech."""

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


class BatchStream(Iterator[Fetched]):
    """An endless iterator of what steps take, from a position on."""

    def __init__(
        self,
        data: SpeechData,
        cache: FeatureCache | None,
        recipe: Recipe,
        loading: Loading,
        replicas: Places,
        *,
        seed: int,
        position: Position,
        stretch_rows: int = _STRETCH_ROWS,
    ) -> None:
        """Remember where to begin; the first batch that is asked for is planned and its pipelines are made then.

        Args:
            data: the clips.
            cache: their features, where the loader reads such.
            recipe: features, model, the batches of one replica's micro-step, and how many are accumulated.
            loading: how batches are made.
            replicas: of all processes, and ours among them.
            seed: of the order.
            position: the next step, and its batch.
            stretch_rows: clips that pipelines are made for at once.
        """
        self._data, self._cache, self._recipe, self._loading, self._replicas = data, cache, recipe, loading, replicas
        self._frames = clip_frames(data, recipe)
        self._accumulation = recipe.training.accumulation
        self._order = planned_from(data, recipe, with_parts(recipe, replicas.count), seed, position)
        self._steps = max(1, recipe.training.steps - position.step)
        # Features that are kept are kept by a pipeline, which then has to last as long as the run.
        self._rows = math.inf if loading.keep else stretch_rows
        self._stretch: Iterator[tuple[Position, Batch]] = iter(())
        self._pipelines: list[Iterator[dict[str, tf.Tensor]]] = []

    def __next__(self) -> Fetched:
        """Return what the next step takes.

        Raises:
            XttsbenchError: a clip or the cache cannot be read any more, or the clips are fewer than a batch.
        """
        following = next(self._stretch, None)
        if following is None:
            stretch = self._next_stretch()
            self._pipelines = [self._pipeline(number, stretch) for number in range(len(self._replicas.local))]
            self._stretch = iter(stretch)
            following = next(self._stretch)
        position, batch = following
        with explained():
            micro_batches = tuple(
                tuple(next(pipeline) for pipeline in self._pipelines) for _ in range(self._accumulation)
            )
        return Fetched.of(position, batch, self._data, self._recipe, self._frames, micro_batches)

    def _next_stretch(self) -> list[tuple[Position, Batch]]:
        """Return the next batches up to the run's end, as far as they are no more clips than a stretch has."""
        rows, stretch = 0, []
        for following in islice(self._order, self._steps):
            stretch.append(following)
            rows += len(following[1].clips)
            if rows >= self._rows:
                break
        return stretch

    def _pipeline(self, number: int, stretch: Sequence[tuple[Position, Batch]]) -> Iterator[dict[str, tf.Tensor]]:
        loading, count = self._loading, self._replicas.count
        mine = self._replicas.first_local + number
        ahead = loading.overlap
        dataset = make_dataset(
            loading.loader,
            self._data,
            self._cache,
            [part for _, batch in stretch for part in split(batch, self._accumulation * count)[mine::count]],
            self._recipe.features,
            keep=loading.keep,
            prefetch=loading.prefetch if ahead else 0,
            device_prefetch=loading.device_prefetch if ahead else 0,
            device=self._replicas.local[number],
            workers=loading.workers if ahead else 0,
            threads=loading.threads,
            processes=loading.processes,
            repeat=False,
        )
        return iter(dataset)


def shapes(data: SpeechData, recipe: Recipe, replicas: Places) -> list[Shape]:
    """Return the shapes that micro-batches have in all epochs, whatever the seed; the largest first.

    Raises:
        InvalidInputError: a clip is too long, or the clips are fewer than a batch.
    """
    settings = with_parts(recipe, replicas.count)
    batches = planned_epoch(data, recipe, settings, seed=0, epoch=0)
    found = {
        Shape(len(batch.clips) // settings.parts, batch.frames, batch.characters, batch.reference_frames)
        for batch in batches
    }
    return sorted(found, key=lambda shape: shape.rows * shape.frames, reverse=True)
