"""What each op costs by itself: a prefix of the pipeline is run op by op, each on elements held from the op before.

The beginnings of the graph could be timed and neighbours subtracted; sending held elements through one op after
another gives the same differences without the noise of subtracting, and with each op run once. Nothing runs beside
the op: parallel ops are run as their sequential twins, so a cost is that of one thread that has a processor.

Caches, prefetches, ``repeat``, ``take`` and ``skip`` only hand elements on; they are stepped over, which keeps a
cache from being filled, or read, by this. A shuffle gets all that it is given into its buffer and out again, so that
filling it is spread over the elements.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, Final

import tensorflow as tf

from xttsbench.pipeline.cost.clocks import Clock
from xttsbench.pipeline.cost.cost_source import StageCost
from xttsbench.pipeline.cost.cut import TRANSPARENT, Cut, bypassed, sequential, windowed
from xttsbench.pipeline.cost.drain import MOST_ELEMENTS, Drained, Held, drain, measure_handover, one_line

_LEAST_S: Final = 0.05
"""Time that an op gets even where the whole reading is short of it."""
_SHARE: Final = 1.2
"""An op may take this many times an even share of what is left; most take far less."""
_REMOTE: Final = ("DataServiceDataset", "DataServiceDatasetV2", "DataServiceDatasetV3", "DataServiceDatasetV4")
"""Sources that work elsewhere: a second reader could wait for ever."""
_LEFT_OUT: Final = re.compile(f"{TRANSPARENT.pattern}|^Shuffle")
_WRITING: Final = ("Snapshot", "Save")
_DROPPING: Final = re.compile(r"^(Filter|TakeWhile|GroupByWindow|IgnoreErrors)")
"""Ops that may go through many elements for one of theirs: they are given few at first."""


def read_stages(graph: Any, *, max_s: float) -> dict[str, StageCost]:
    """Run the ops of a pipeline one by one, sources first; a stage for every dataset op of the graph, by name.

    ``max_s`` bounds the whole; one element that takes longer is waited for, and what is left then gets little time.
    The user's functions are called on as many elements as that allows, ``MOST_ELEMENTS`` at most.

    Raises:
        tf.errors.OpError, ValueError: TensorFlow does not take the graph apart.
    """
    cut = Cut(sequential(graph))
    handover = measure_handover()
    deadline = time.perf_counter() + max_s
    held: dict[str, Held] = {}
    stages: dict[str, StageCost] = {}
    for number, name in enumerate(cut.names):
        left_s = deadline - time.perf_counter()
        share_s = max(_LEAST_S, _SHARE * left_s / (len(cut.names) - number))
        cardinality = cut.cardinality(name)
        why_not = _why_not(cut, name, held, stages, left_s + max_s / 2)
        if why_not is not None:
            stages[name] = StageCost(cardinality, why_not=why_not)
            continue
        if TRANSPARENT.match(cut.op(name)):
            held[name] = given_on = held[cut.inputs(name)[0]]
            stages[name] = StageCost(
                cardinality,
                element_bytes=given_on.element_bytes,
                why_not="it only hands elements on",
                handed_on_s=_handed_on_s(cut, name, given_on, handover),
            )
            continue
        try:
            drained, given = _run(cut, name, held, min(share_s, max(_LEAST_S, left_s)), handover)
        except (tf.errors.OpError, ValueError, TypeError) as error:
            stages[name] = StageCost(cardinality, why_not=one_line(error))
            continue
        deadline += drained.start_up_s  # paid once in a process, and no reason to read less of the other ops
        if drained.held is not None:
            held[name] = drained.held
        stages[name] = _stage(cut, name, drained, given, held, handover, cardinality)
    return stages


def _run(
    cut: Cut, name: str, held: Mapping[str, Held], max_s: float, handover: Clock
) -> tuple[Drained, dict[str, Held]]:
    inputs = cut.inputs(name)
    if not inputs:
        return drain(cut.variant(name), cut.spec(name), max_s=max_s, handover=handover), {}
    most = max(MOST_ELEMENTS, 16 * (cut.batch_size(name) or 1))
    count = 8 if _DROPPING.match(cut.op(name)) else most
    while True:
        began = time.perf_counter()
        given = {upstream: held[upstream].repeated(count) for upstream in dict.fromkeys(inputs)}
        over = cut.over(name, {upstream: elements.variant for upstream, elements in given.items()})
        drained = drain(over, cut.spec(name), max_s=max_s, handover=handover)
        took_s = time.perf_counter() - began
        if count == most or took_s > max_s / 8:
            return drained, given
        count = min(most, 8 * count)


def _stage(
    cut: Cut,
    name: str,
    drained: Drained,
    given: Mapping[str, Held],
    held: Mapping[str, Held],
    handover: Clock,
    cardinality: int,
) -> StageCost:
    if not drained.elements:
        reason = drained.raised or ("it yielded nothing" if not given else f"none of {_counts(given)} elements passed")
        return StageCost(cardinality, why_not=reason)
    consumed: dict[str, float] | None = None
    if given and drained.exhausted and not _takes_turns(cut.op(name)):
        consumed = {upstream: elements.count / drained.elements for upstream, elements in given.items()}
    ratios = consumed or dict.fromkeys(given, float(cut.batch_size(name) or 1))
    reading_s = sum(_reading_s(given[upstream], handover) * taken for upstream, taken in ratios.items())
    return StageCost(
        cardinality,
        wall_s=max(0.0, drained.wall_s / drained.elements - reading_s),
        cpu_s=max(0.0, drained.cpu_s / drained.elements - reading_s),
        elements=drained.elements,
        consumed=consumed,
        element_bytes=held[name].element_bytes if name in held else None,
        why_not=drained.raised,
        start_up_s=drained.start_up_s,
    )


def _handed_on_s(cut: Cut, name: str, held: Held, handover: Clock) -> float | None:
    """Seconds for one held element to be handed on; ``None`` for an op that writes elements, or computes with them."""
    if cut.op(name).startswith("Prefetch"):
        most = min(MOST_ELEMENTS, 16 * held.count)
        over = cut.over(name, {cut.inputs(name)[0]: held.repeated(most).variant})
        drained = drain(over, cut.spec(name), max_s=_LEAST_S, handover=handover, max_elements=most)
        return drained.wall_s / drained.elements if drained.elements else None
    return None if cut.op(name).startswith(_WRITING) else _reading_s(held, handover)


def _reading_s(held: Held, handover: Clock) -> float:
    """Seconds for one held element to be read: what an op that does nothing would take."""
    skipped = tf.raw_ops.SkipDataset(
        input_dataset=held.variant,
        count=held.count,
        output_types=[s.dtype for s in held.spec],
        output_shapes=[s.shape for s in held.spec],
    )
    iterator = iter(windowed(skipped, held.spec, 1))
    before = Clock.read()
    next(iterator, None)
    return max(0.0, (Clock.read() - before).cpu_s - handover.cpu_s) / held.count


def _why_not(
    cut: Cut, name: str, held: Mapping[str, Held], stages: Mapping[str, StageCost], left_s: float
) -> str | None:
    missing = next((upstream for upstream in cut.inputs(name) if upstream not in held), None)
    if missing is not None:
        return f"no elements to run it on: {stages[missing].why_not or 'its input was not run'}"
    if cut.op(name) in _REMOTE:
        return "it reads from the tf.data service"
    return "the time for reading costs was over" if left_s <= 0 else None


def _takes_turns(op: str) -> bool:
    """Whether an op reads its inputs in an order of its own, so that running them dry tells no ratio."""
    return op.startswith(("Concatenate", "DirectedInterleave", "ExperimentalDirectedInterleave", "ChooseFastest"))


def _counts(given: Mapping[str, Held]) -> str:
    return ", ".join(str(elements.count) for elements in given.values())


def sequential_run(graph: Any, *, max_s: float) -> tuple[float, int] | None:
    """Seconds of one batch of the whole pipeline run sequentially, and of how many; ``None`` where none came.

    What only hands elements on, and shuffles, are taken out, so that neither a cache nor a full buffer serves it.
    """
    plain = bypassed(sequential(graph), _LEFT_OUT)
    cut = Cut(plain)
    name = cut.names[-1]
    drained = drain(cut.variant(name), cut.spec(name), max_s=max_s, handover=measure_handover())
    return (drained.wall_s / drained.elements, drained.elements) if drained.elements else None
