"""The token budget that fits the device's memory: real steps in processes of their own, a line through their peaks.

Memory that a process has taken comes back only with its end, so each step has its own process: forked from one that
has imported TensorFlow and run nothing, which costs a fraction of a second in place of an import.

What a step needs of a bucket is a constant and so much for each mel frame (token): a line. Across buckets of as many
tokens, the need for each token is ``a + b F + c / F`` with ``F`` frames of a clip: attention grows with the length of
a clip, and what each clip has of its own, text and reference, with how many there are. That is convex in ``F``, so the
shortest and the longest bucket need most, and what fits both of them fits all.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import psutil
import tensorflow as tf

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.processes import die_with_parent
from xttsbench.training.state import TrainingState
from xttsbench.training.step import Replicas, Shape, TrainingStep, make_strategy
from xttsbench.xtts.data.batches import Batch
from xttsbench.xtts.data.pool import Server
from xttsbench.xtts.recipe import Recipe

SMALLER: Final = "take a smaller recipe, training.gradient_checkpointing, or shorter edges"
"""Advice where a single clip is too much."""


class Bucket(NamedTuple):
    """Padded sizes of the batches of a bucket."""

    frames: int
    characters: int
    reference_frames: int

    def rows(self, tokens: int) -> int:
        """Return how many clips a batch of so many tokens holds, as ``BatchSettings.rows`` has it: one at least."""
        return max(1, tokens // self.frames)


class Peak(NamedTuple):
    """The most memory that a step of a batch took."""

    tokens: int
    """Mel frames of the batch, padding included."""
    bytes: int


class Line(NamedTuple):
    """An upper bound of the peaks of a bucket."""

    base_bytes: float
    bytes_per_token: float

    def at(self, tokens: int) -> float:
        """Return the peak that is expected of a batch, in bytes."""
        return self.base_bytes + self.bytes_per_token * tokens


def ends(batches: Iterable[Batch]) -> tuple[Bucket, ...]:
    """Return the shortest and the longest bucket of some planned batches; one where there is no other."""
    buckets = sorted({Bucket(batch.frames, batch.characters, batch.reference_frames) for batch in batches})
    return tuple(dict.fromkeys((buckets[0], buckets[-1])))


def upper_line(peaks: Sequence[Peak]) -> Line:
    """Return the least-squares line through peaks, raised until none lies above it.

    The peaks are of at least two numbers of tokens.
    """
    tokens, needed = (np.array(column, np.float64) for column in zip(*peaks, strict=True))
    centred = tokens - tokens.mean()
    # More tokens never need less: where the peaks say so, what they show is noise.
    slope = max(0.0, float(centred @ needed) / float(centred @ centred))
    return Line(float((needed - slope * tokens).max()), slope)


def most_tokens(lines: Mapping[Bucket, Line], limit_bytes: float, at_most: int) -> int:
    """Return the largest number of tokens whose batches stay within a limit in all buckets.

    Raises:
        InvalidInputError: a single clip of a bucket is expected to need more.
    """
    tokens = at_most
    for bucket, line in lines.items():
        if (alone := line.at(bucket.frames)) > limit_bytes:
            raise InvalidInputError(
                f"a batch of a single clip of {bucket.frames} mel frames needs some {alone / 2**20:.0f} MiB, and "
                f"{limit_bytes / 2**20:.0f} MiB are free for it; {SMALLER}"
            )
        if line.bytes_per_token:
            # One clip fits, so a budget below it is as good: the bucket holds one clip all the same.
            tokens = min(tokens, max(bucket.frames, int((limit_bytes - line.base_bytes) / line.bytes_per_token)))
    return tokens


SHARE: Final = 0.9
"""Share of the limit that a step may take: allocators leave gaps, and evaluations come between the steps."""
_CLIPS: Final = 8
"""Clips of a batch in the first steps, beside those of one: few, so that probing does not exhaust the machine."""
_TRIES: Final = 6  # numbers of tokens that are tried by real steps, each smaller than the one before
_NEVER_BYTES: Final = 2**60  # stands for the need of a step that ran out of memory: no device has so much
_STEP_DOWN: Final = 0.8  # of a number of tokens whose step ran out of memory, the next one
Measure = Callable[[Shape], int | None]
"""Returns the peak of a step in bytes, or ``None`` where it ran out of memory."""


class Plan(NamedTuple):
    """Training configuration, except for the size of its batches."""

    recipe: Recipe
    mode: str
    precision: str
    strategy: str
    """One of ``records.training.STRATEGIES``; of several processes only this one is looked at."""


class Fit(NamedTuple):
    """A number of tokens whose steps ran."""

    tokens_per_batch: int
    peak_bytes: int
    """The most that one of its steps took beyond what the process held before."""
    limit_bytes: int


def fit_tokens(
    plan: Plan,
    buckets: Sequence[Bucket],
    *,
    limit_bytes: int,
    at_most: int,
    prepare: Callable[[], object],
) -> Fit:
    """Return the largest token budget of a replica's batch that is found to fit.

    Args:
        plan: what is trained.
        buckets: those that need most, from :func:`xttsbench.training.memory.ends`.
        limit_bytes: what training may take: of a GPU's memory, or beyond what a process has taken that has imported
            TensorFlow where the processor trains.
        at_most: the largest number of tokens that is wanted.
        prepare: configures the devices before TensorFlow's runtime starts, in each process; it is pickled.

    Raises:
        InvalidInputError: a batch of a single clip does not fit.
        XttsbenchError: a step failed otherwise.
    """
    with measuring(plan, prepare) as measure:
        return fitted(measure, buckets, limit_bytes=limit_bytes, at_most=at_most)


def fitted(measure: Measure, buckets: Sequence[Bucket], *, limit_bytes: int, at_most: int) -> Fit:
    """Return what :func:`fit_tokens` does, with peaks from ``measure``."""
    peaks = {bucket: _first_peaks(measure, bucket) for bucket in buckets}

    def expected(at_most: int) -> int:
        lines = {bucket: upper_line(of_bucket) for bucket, of_bucket in peaks.items()}
        return most_tokens(lines, SHARE * limit_bytes, at_most)

    def measured(tokens: int) -> list[int | None]:
        found = {bucket: _peak(measure, bucket, tokens) for bucket in buckets}
        for bucket, peak in found.items():
            if peak is not None:
                peaks[bucket].append(peak)
        return [None if peak is None else peak.bytes for peak in found.values()]

    measured(expected(at_most) // 2)  # far from where it was measured, a line says little
    tokens = at_most
    for _ in range(_TRIES):
        tokens = expected(tokens)
        needed = [needed for needed in measured(tokens) if needed is not None]
        if len(needed) == len(buckets) and max(needed) <= limit_bytes:
            return Fit(tokens, max(needed), limit_bytes)
        tokens = int(_STEP_DOWN * tokens)
    raise XttsbenchError(
        f"no token budget was found whose steps stay below {limit_bytes / 2**20:.0f} MiB; the last one tried was "
        f"{tokens}; set batches.tokens_per_batch to less, without --fit-memory"
    )


def _first_peaks(measure: Measure, bucket: Bucket) -> list[Peak]:
    """Return the peaks of a batch of one clip and of one of several, as many as fit."""
    alone = _peak(measure, bucket, bucket.frames)
    if alone is None:
        raise InvalidInputError(f"a batch of a single clip of {bucket.frames} mel frames ran out of memory; {SMALLER}")
    clips = _CLIPS
    while clips > 1:
        if (several := _peak(measure, bucket, clips * bucket.frames)) is not None:
            return [alone, several]
        clips //= 2
    return [alone, Peak(2 * bucket.frames, _NEVER_BYTES)]


def _peak(measure: Measure, bucket: Bucket, tokens: int) -> Peak | None:
    rows = bucket.rows(tokens)
    found = measure(Shape(rows, bucket.frames, bucket.characters, bucket.reference_frames))
    return None if found is None else Peak(rows * bucket.frames, found)


@contextmanager
def measuring(plan: Plan, prepare: Callable[[], object]) -> Iterator[Measure]:
    """Give what measures a step in a process of its own; all of them end with the block."""
    server = Server(partial, _forked, plan, prepare)

    def measure(shape: Shape) -> int | None:
        try:
            answer: int | str | None = server.ask(shape)
        except (EOFError, ConnectionError) as error:
            raise XttsbenchError("the process that measures memory died; train without --fit-memory") from error
        if isinstance(answer, str):
            raise XttsbenchError(f"a step of {shape} failed while its memory was measured: {answer}")
        return answer

    try:
        yield measure
    finally:
        server.process.kill()
        server.process.join()


def _forked(plan: Plan, prepare: Callable[[], object], shape: Shape) -> int | str | None:
    """Return the peak of a step in bytes, ``None`` where memory ran out, a sentence where it failed otherwise."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    with warnings.catch_warnings():
        # Python warns of forking with threads; here the only other one waits for the parent's end.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        try:
            die_with_parent()  # the server, which is killed when all is measured or the run ends
            theirs.send(_measured(plan, prepare, shape))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        try:
            answer: int | str | None = ours.recv()
        except EOFError:  # killed, as a rule by the kernel for want of memory
            answer = None
    os.waitpid(pid, 0)
    return answer


def _measured(plan: Plan, prepare: Callable[[], object], shape: Shape) -> int | str | None:
    with suppress(OSError):  # when memory runs out, this process is the one to be killed
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    try:
        return peak_bytes(plan, prepare, shape)
    except (tf.errors.ResourceExhaustedError, MemoryError):
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def peak_bytes(plan: Plan, prepare: Callable[[], object], shape: Shape) -> int:
    """Return the most memory that a new model and a step of one shape take; to be called once in a process.

    On a GPU as TensorFlow's allocator counts it, of the GPU that took most; else what the process took beyond what it
    held before.
    """
    before_bytes = psutil.Process().memory_info().rss
    prepare()
    strategy = make_strategy("one" if plan.strategy == "one" else "mirrored")
    replicas = Replicas(strategy)
    state = TrainingState(plan.recipe, strategy, plan.precision, seed=0)
    step = TrainingStep(state, plan.recipe, replicas, mode=plan.mode, seed=0)
    step.warm_up([shape, shape])  # the second has what the first left behind beside it, as in training
    gpus: list[Any] = [device.name for device in tf.config.list_logical_devices("GPU")]
    if gpus:
        return max(int(tf.config.experimental.get_memory_info(gpu.removeprefix("/device:"))["peak"]) for gpu in gpus)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_bytes
