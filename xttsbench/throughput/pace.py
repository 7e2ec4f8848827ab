"""Pace of a pipeline and the step that consumes it, from the needs of each stage: pure, on plain numbers.

An operational model (Denning and Buzen, 1978): in the long run every stage completes one batch per period, so the
period is at least what the slowest stage takes, and at least what is demanded of each shared resource over its
capacity. Where buffers are large enough that bound is reached; where a thread is away with a whole batch for longer
than the buffers before it take to fill, what fills them stands still. Times are means and calls are divisible: how much
they vary, and that eight elements by seven calls take the time of two, is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

STEP: Final = "step"
PROCESSORS: Final = "processors"
LOCK: Final = "interpreter lock"
POOL: Final = "thread pool"
_SWITCH_S: Final = 5e-3  # For which CPython lets a thread keep the lock that others want (`sys.getswitchinterval`)
_EVEN: Final = 0.5
_TIE: Final = 0.01  # A resource is named only where it is slower than every stage by this share


@dataclass(frozen=True)
class Work:
    """Needs of one op for a batch of the whole pipeline, in seconds.

    ``cost_s`` is its own time summed over parallel calls, waits included; of that it has a processor for ``cpu_s``,
    the interpreter lock for ``lock_s`` and a thread of the pool for ``pool_s``. Of the lock's time ``at_once_s`` is
    wanted as soon as its ``calls`` begin.
    """

    name: str
    cost_s: float
    cpu_s: float = 0.0
    lock_s: float = 0.0
    pool_s: float = 0.0
    at_once_s: float = 0.0
    calls: float = 1.0


@dataclass(frozen=True)
class Thread:
    """One thread of a pipeline, and the parallel calls that it hands elements to.

    Attributes:
        spread: needs of the ops whose work is spread over the elements of a batch, from the source on.
        at_once: those that work when the elements of a batch are together.
        calls: the parallel op that the thread feeds, with the ``batch`` fused to it; empty for a prefetch or the
            consumer's own thread.
        parallelism: calls at once, at least 1, before the thread pool is considered.
        ready: batches of the whole pipeline that it keeps ready for the next thread.
        elements: that it hands on for a batch of the whole pipeline.
        inputs: threads that it takes elements from.
        in_turn: whether it takes one input after the other (``concatenate``), else all of them for every element.
    """

    spread: tuple[Work, ...] = ()
    at_once: tuple[Work, ...] = ()
    calls: tuple[Work, ...] = ()
    parallelism: int = 1
    ready: float = 0.0
    elements: float = 1.0
    inputs: tuple[Thread, ...] = ()
    in_turn: bool = False

    @property
    def items(self) -> tuple[Work, ...]:
        """All that this thread and its calls do."""
        return (*self.spread, *self.at_once, *self.calls)

    def walk(self) -> Iterator[Thread]:
        """Iterates over a thread and all that feed it."""
        yield self
        for thread in self.inputs:
            yield from thread.walk()


@dataclass(frozen=True)
class Consumer:
    """The step for one batch, in seconds; all zero for a bare dataset.

    Attributes:
        alone_s: its time without an input to wait for.
        cpu_s: processor time of it, over all its threads.
        lock_s: its own Python, under the interpreter lock.
        handoff_s: handing over a batch that is ready.
    """

    alone_s: float = 0.0
    cpu_s: float = 0.0
    lock_s: float = 0.0
    handoff_s: float = 0.0


@dataclass(frozen=True)
class Machine:
    """Processors that the process may use (a quota may be a fraction) and threads of the pipeline's pool."""

    processors: float
    pool_threads: int


@dataclass(frozen=True)
class Pace:
    """Seconds from one batch to the next, and what sets them."""

    period_s: float
    limited_by: str


def pace(consumer: Thread, step: Consumer, machine: Machine) -> Pace:
    """The pace of a pipeline whose last stage is the thread that also runs the step, all zero for a bare dataset.

    The consumer's thread has no work of its own where a prefetch is before it.
    """
    works = [work for stage in consumer.walk() for work in stage.items]
    stepping_s = step.alone_s + step.handoff_s + (_waits_for_lock_s(consumer) if step.alone_s else 0.0)
    own = max(_limits(consumer, Work(STEP, stepping_s)), key=lambda limit: limit.period_s)
    lock_s = sum(work.lock_s for work in works)
    pooled_lock_s = sum(min(work.lock_s, work.pool_s) for work in works)
    pool_s = sum(work.pool_s for work in works)
    shared = (
        Pace(_closed_s(machine.pool_threads, pooled_lock_s, max(pool_s - pooled_lock_s, 0.0)), POOL),
        Pace(lock_s + step.lock_s, LOCK),
        Pace((sum(work.cpu_s for work in works) + step.cpu_s) / machine.processors, PROCESSORS),
    )
    # Where the lock alone explains what the pool's threads take, it is the lock that limits.
    largest = max(reversed(shared), key=lambda found: found.period_s)
    if largest.limited_by == POOL and lock_s * (1 + _TIE) >= largest.period_s:
        largest = Pace(largest.period_s, LOCK)
    if largest.period_s > own.period_s * (1 + _TIE):
        return largest
    return Pace(max(own.period_s, largest.period_s), own.limited_by)


def _waits_for_lock_s(consumer: Thread) -> float:
    """Expected wait of the consumer for the interpreter lock after it took a batch, in seconds.

    Taking a batch makes room for another, and its calls want the lock at the moment at which the consumer needs it to
    go on. Who comes first is even. Who comes second waits for the calls that run at once, which hand the lock to one
    another, each for the interpreter's switch interval at most (tried on CPython 3.11: half of the steps went on at
    once, half after what 8 calls at once held the lock for; one call at a time held them up for half of one).
    """
    waits_s = 0.0
    for thread in (thread for before in consumer.inputs for thread in before.walk()):
        for work in thread.items:
            calls = max(work.calls, 1.0)
            beside = min(thread.parallelism if work in thread.calls else 1, calls)
            waits_s += _EVEN * beside * min(work.at_once_s / calls, _SWITCH_S)
    return waits_s


@dataclass(frozen=True)
class _Limit:
    """A lower bound of the period, seen at the end of a stage.

    ``ready`` is how many batches are kept between what sets it and the consumer of the stage.
    """

    period_s: float
    limited_by: str
    ready: float


def _limits(stage: Thread, burst: Work | None = None) -> list[_Limit]:
    """Lower bounds of the period at a stage: its own work, and each stage before it.

    A thread spreads ``F`` seconds over the ``n`` elements of a batch and works ``B`` seconds when it has them all, so
    that it takes no element for ``B + F / n`` seconds. What is before it, at ``U`` seconds a batch, meanwhile fills
    the buffers between them, ``R`` batches, and then stands still: it takes ``U + max(0, B + F / n - R U)``, and the
    thread itself ``B + F``. A call takes its slot while its element is still being made in the thread that feeds it, so
    ``p`` calls of ``C`` seconds take ``(F + B + C) / p`` at least.
    """
    at_once = (*stage.at_once, *((burst,) if burst is not None else ()))
    spread_s, burst_s = _cost(stage.spread), _cost(at_once)
    own = (*stage.spread, *at_once)
    found = [_Limit(spread_s + burst_s, _largest(own), stage.ready)] if own else []
    if stage.calls:
        called_s = (spread_s + burst_s + _cost(stage.calls)) / stage.parallelism
        found.append(_Limit(called_s, _largest((*own, *stage.calls)), stage.ready))
    away_s = burst_s + spread_s / max([1.0, *(before.elements for before in stage.inputs)])
    for limit in _fed(stage):
        stands_s = max(0.0, away_s - limit.ready * limit.period_s)
        # A thread that is away for longer than it is waited for sets the pace, although its own work is not all of it.
        name = _largest(own) if own and stands_s > 0 and away_s > limit.period_s else limit.limited_by
        found.append(_Limit(limit.period_s + stands_s, name, limit.ready + stage.ready))
    return found or [_Limit(0.0, "", stage.ready)]


def _fed(stage: Thread) -> list[_Limit]:
    each = [_limits(before) for before in stage.inputs]
    if not stage.in_turn:
        return [limit for limits in each for limit in limits]
    slowest = [max(limits, key=lambda limit: limit.period_s) for limits in each]
    longest = max(slowest, key=lambda limit: limit.period_s)
    return [_Limit(sum(limit.period_s for limit in slowest), longest.limited_by, longest.ready)]


def _closed_s(threads: int, lock_s: float, else_s: float) -> float:
    """Seconds for a batch where ``threads`` alternate between one lock and work that they do beside one another.

    Exact mean value analysis of a closed network with one queue and a delay (Reiser and Lavenberg, 1980): threads that
    wait for the lock do nothing else meanwhile, so the bound ``max(lock_s, (lock_s + else_s) / threads)`` is not
    reached where both are of a size.
    """
    if lock_s <= 0:
        return else_s / threads
    queued = period_s = 0.0
    for count in range(1, threads + 1):
        at_lock_s = lock_s * (1 + queued)
        period_s = (at_lock_s + else_s) / count
        queued = at_lock_s / period_s
    return period_s


def _cost(works: Sequence[Work]) -> float:
    return sum(work.cost_s for work in works)


def _largest(works: Sequence[Work]) -> str:
    return max(works, key=lambda work: work.cost_s).name


FloatArray = npt.NDArray[np.float64]
_PASSES: Final = 3
"""Passes over the sequence, so that filling the buffer for the first time counts little."""
_HALVINGS: Final = 40
_NO_WAIT: Final = 0.02  # A wait below this share of the mean step is the hand-over of a batch that was ready


def period_s(production_s: FloatArray, rest_s: FloatArray, ahead: int) -> float:
    """Mean seconds from one batch to the next, with a buffer of ``ahead`` batches between input and step.

    The input begins batch ``i`` when it has ended ``i - 1`` and the buffer has room again, which is when ``i - ahead``
    was taken (``tf.data``'s prefetch leaves the room of the batch that it makes free); the step takes it when it is
    there and the step before has ended. Without a buffer the two take turns. Production and the consumer's rest are of
    shape ``(n,)``, seconds.
    """
    count = len(production_s)
    if not count:
        return 0.0
    if ahead < 1:
        return float(production_s.mean() + rest_s.mean())
    taken_s = [0.0] * ahead
    ended_s = ready_s = first_s = 0.0
    for number in range(count * _PASSES):
        index = number % count
        ended_s = max(ended_s, taken_s[number % ahead]) + float(production_s[index])
        took_s = max(ended_s, ready_s)
        taken_s[number % ahead] = took_s
        ready_s = took_s + float(rest_s[index])
        if number == count - 1:
            first_s = ready_s
    return (ready_s - first_s) / (count * (_PASSES - 1))


def production_times_s(wait_s: FloatArray, rest_s: FloatArray, ahead: int, mean_s: float) -> FloatArray:
    """Seconds of the input for each batch, shape ``(n,)``, from the waits of the steps that took them and their rest.

    Where a step waited, its batch was ready when the wait ended. Of a batch that nobody waited for only an upper bound
    is known; all of these are taken to have had the same time, the one that gives ``mean_s``, what the input takes for
    a batch by itself. At least one batch was kept ``ahead``.
    """
    low_s, high_s = 0.0, mean_s
    found = _read(wait_s, rest_s, ahead, high_s)
    if not len(found) or found.mean() <= mean_s:
        return found
    for _ in range(_HALVINGS):
        middle_s = (low_s + high_s) / 2
        found = _read(wait_s, rest_s, ahead, middle_s)
        low_s, high_s = (low_s, middle_s) if found.mean() > mean_s else (middle_s, high_s)
    return found


def _read(wait_s: FloatArray, rest_s: FloatArray, ahead: int, unseen_s: float) -> FloatArray:
    """The times where those of batches that nobody waited for are ``unseen_s``, or what there was time for."""
    threshold_s = _NO_WAIT * float((wait_s + rest_s).mean()) if len(wait_s) else 0.0
    found = np.empty(len(wait_s))
    taken_s = [0.0] * max(ahead, 1)
    ended_s = ready_s = 0.0
    for number, (waited_s, busy_s) in enumerate(zip(wait_s, rest_s, strict=True)):
        took_s = ready_s + float(waited_s)
        began_s = max(ended_s, taken_s[number % len(taken_s)])
        ended_s = max(took_s if waited_s > threshold_s else min(took_s, began_s + unseen_s), began_s)
        found[number] = ended_s - began_s
        taken_s[number % len(taken_s)] = took_s
        ready_s = took_s + float(busy_s)
    return found
