"""The pipeline in the evidence: questions about its ops, and what the model of throughput takes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from xttsbench.analysis.steps import Steps, measured
from xttsbench.evidence import Evidence, allowed_cpus
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.pace import Consumer, FloatArray, Machine, Pace, Thread, pace, period_s, production_times_s
from xttsbench.throughput.threads import consumers, inputs_of, limiting_op, pool_size, threads

INFINITE: Final = -1
"""Cardinality of what never ends."""
LARGE: Final = 0.10
"""Share of the memory, or of an epoch, from which a buffer is worth a word."""
TOO_LARGE: Final = 0.25
"""The same from which it is worth a warning."""
CACHE_MEMORY_SHARE: Final = 0.50
"""Share of the memory that a cache may take: the training needs the rest."""
PREFETCH: Final = "Prefetch"
MAPS: Final = ("MapDataset", "ParallelMapDataset")
BATCHES: Final = ("PaddedBatchDataset", "BatchDataset", "ParallelBatchDataset", "RaggedBatchDataset")

_FUNCTION: Final = re.compile(
    r"^__inference_(?:Dataset_|tf_data_experimental_)?"
    r"(?:flat_map|parallel_interleave|interleave|map|filter|scan|group_by_window|take_while)_(?P<name>.+)_\d+$"
)
_NAMELESS: Final = ("lambda", "<lambda>")
_SAME_ELEMENTS: Final = ("Prefetch", "CopyToDevice", "Cache", "Repeat", "Options", "Take", "Skip")
"""Ops that hand on the elements that they read."""
_EXPLAINS: Final = 1 / 3
"""Share of what the step waits that the ops of its pipeline take at least, each by itself, where they are the cause:
by themselves they are undisturbed, and the wait is not."""


def upstream(pipeline: Pipeline, op: PipelineOp) -> list[PipelineOp]:
    """All ops that an op reads, directly or through others, in the order of the pipeline."""
    return _reached(pipeline, op, {other.name: inputs_of(other, pipeline) for other in pipeline.ops})


def downstream(pipeline: Pipeline, op: PipelineOp) -> list[PipelineOp]:
    """All ops that read an op, directly or through others, in the order of the pipeline."""
    readers = {name: [op.name for op in ops] for name, ops in consumers(pipeline).items()}
    return _reached(pipeline, op, readers)


def _reached(pipeline: Pipeline, op: PipelineOp, edges: Mapping[str, Sequence[str]]) -> list[PipelineOp]:
    waiting, seen = list(edges.get(op.name, ())), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(edges.get(name, ()))
    return [other for other in pipeline.ops if other.name in seen]


def input_of(pipeline: Pipeline, op: PipelineOp) -> PipelineOp | None:
    """The op that an op reads; ``None`` where it reads none or several."""
    names = inputs_of(op, pipeline)
    return next((other for other in pipeline.ops if other.name == names[0]), None) if len(names) == 1 else None


def function_of(op: PipelineOp) -> str:
    """The name of an op's function as the user wrote it, or ``f`` where it has none or that is not known."""
    match = _FUNCTION.match(op.function or "")
    name = match.group("name") if match else None
    return name if name and name.isidentifier() and name not in _NAMELESS else "f"


def memory_bytes(evidence: Evidence) -> int | None:
    """Memory that the process may use: the machine's or the control group's limit, whichever is less."""
    memory = evidence.known("memory")
    known = [int(memory[key]) for key in ("total_bytes", "limit_bytes") if memory.get(key)]
    return min(known, default=None)


def bytes_of(evidence: Evidence, op: PipelineOp) -> float | None:
    """Mean size of an element of an op; at the end of the pipeline that of the batches that were kept."""
    if op.element_bytes is not None:
        return op.element_bytes
    batches, pipeline = evidence.batches, evidence.graph
    if batches is None or not batches.cached:
        return None
    same = all(other.op.startswith(_SAME_ELEMENTS) for other in downstream(pipeline, op))
    return batches.bytes / batches.cached if same else None


def last_of(evidence: Evidence, kinds: tuple[str, ...]) -> PipelineOp | None:
    """The last op of some kinds; of a data set that a function makes, the op that makes it."""
    return next((op for op in reversed(evidence.graph.ops) if op.op.startswith(kinds)), None)


def buffered(op: PipelineOp) -> int:
    """Elements that a prefetch holds: what was written or AUTOTUNE chose, and no more than there are."""
    wanted = max(op.buffer_size or 0, op.chosen_buffer_size or 0, 0)
    return min(wanted, op.cardinality) if op.cardinality is not None and op.cardinality >= 0 else wanted


def slowest_op(evidence: Evidence) -> PipelineOp | None:
    """The op that sets the pace of the pipeline; ``None`` where no cost is known, or no op explains the wait."""
    return limiting_op(evidence.graph, allowed_cpus(evidence)) if explains_wait(evidence) else None


def explains_wait(evidence: Evidence) -> bool:
    """Whether the ops can be what the step waits for, by their own time; yes where that is not known.

    A distributed iterator, the hand-over of small batches on busy cores, and beginning anew take time that is no op's.
    """
    waited_s, ops_s = evidence.parts.get("input"), ops_cost_s(evidence)
    bare = not evidence.has_step and not evidence.emulated
    return bare or not waited_s or ops_s is None or ops_s >= _EXPLAINS * waited_s


def no_op_explains(evidence: Evidence) -> str:
    """Clause that replaces an op's name where :func:`explains_wait` does not hold."""
    ops_ms, waited_ms = 1e3 * (ops_cost_s(evidence) or 0.0), 1e3 * evidence.parts.get("input", 0.0)
    return (
        f"no op explains it: by themselves all of them take {ops_ms:.2g} ms of the {waited_ms:.2g} ms; handing batches "
        "over, distributing them or beginning an epoch anew takes the rest"
    )


def ops_cost_s(evidence: Evidence) -> float | None:
    """Seconds that all ops take for a batch, one after the other; ``None`` where that of one is not known."""
    ops = [op for op in evidence.graph.ops if not op.cached and not op.op.startswith(_SAME_ELEMENTS)]
    costs = [op.cost_s for op in ops]
    return sum(cost for cost in costs if cost) if costs and None not in costs else None


def pipeline_pace(pipeline: Pipeline, step: Consumer, evidence: Evidence) -> Pace:
    """Pace of a pipeline and a step together on the machine of the evidence."""
    return pace(threads(pipeline, allowed_cpus(evidence)), step, machine(pipeline, evidence))


def machine(pipeline: Pipeline, evidence: Evidence) -> Machine:
    """Processors with the quota considered, which may leave a fraction of one, and the pipeline's pool."""
    cpus = allowed_cpus(evidence)
    exact = evidence.known("cpu").get("allowed_cpus")
    return Machine(float(exact) if exact else float(cpus), pool_size(pipeline, cpus))


def consumer(evidence: Evidence, alone_s: float | None) -> Consumer:
    """The step as the model takes it; all zero but the hand-over where there is none.

    ``alone_s`` is the mean step alone, emulated waits included; where that was not measured, the step beside its input
    is taken, which is longer where the two compete.
    """
    handoff_s = evidence.facts.handed_over_s
    if not evidence.has_step and not evidence.emulated:
        return Consumer(handoff_s=handoff_s)
    alone = [steps for trial in evidence.ladder if (steps := measured(trial, "step_only")) is not None]
    beside = [steps for trial in evidence.ladder if (steps := measured(trial, "as_is")) is not None]
    if alone_s is None and not evidence.has_step:
        waits_ms = evidence.ladder[0].spec.emulated_ms if evidence.ladder else ()
        if waits_ms:
            waits_s, main_s = float(np.mean(waits_ms)) / 1e3, _mean([steps.main_cpu_s for steps in beside])
            # Where the input may hold the interpreter lock, what was measured of the step has waited for that as well.
            locks = any(one.gil in ("holds", "unknown") for one in evidence.graph.python_functions)
            late_s = 0.0 if locks else max(_median([steps.wall_s - steps.wait_s for steps in beside]) - waits_s, 0.0)
            return Consumer(waits_s + late_s, min(main_s, waits_s), min(main_s, waits_s), handoff_s)
    if alone_s is None:
        alone_s = _mean([steps.working_s for steps in beside])
        # Beside the input only the thread that runs the steps is known to be the step's.
        main_s = _mean([steps.main_cpu_s for steps in beside])
        return Consumer(alone_s, min(main_s, alone_s), min(_lock_s(evidence, beside), alone_s), handoff_s)
    if not alone:
        return Consumer(alone_s, handoff_s=handoff_s)
    return Consumer(alone_s, _mean([steps.cpu_s for steps in alone]), min(_lock_s(evidence, alone), alone_s), handoff_s)


def _lock_s(evidence: Evidence, series: Sequence[Steps]) -> float:
    """The step's own Python: outside its tf.functions, on a processor, and not in the kernels of ops run one by one."""
    outside_s = _mean([steps.outside_s for steps in series])
    if evidence.facts.eager:
        outside_s = min(outside_s, evidence.facts.dispatch_floor_s + evidence.facts.host_share * outside_s)
    return min(outside_s, _mean([steps.main_cpu_s for steps in series]))


def _median(series: Sequence[FloatArray]) -> float:
    return float(np.median(np.concatenate(series))) if any(len(one) for one in series) else 0.0


def _mean(series: Sequence[FloatArray]) -> float:
    return float(np.mean([one.mean() for one in series if len(one)])) if any(len(one) for one in series) else 0.0


_FEW: Final = 40  # Fewer steps say too little of how waits vary
_UNEVEN: Final = 0.5  # Waits vary where their standard deviation has this share of their mean
_LOST: Final = 0.03  # Share of the step from which what bursts cost is considered
_ENOUGH: Final = 0.02  # A buffer is large enough where a larger one gives no more than this share of the step
_SIZES: Final = (4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Bursts:
    """Times of each batch in the input and in the consumer, where the input comes in bursts.

    Attributes:
        production_s: of the input, ``(n,)`` seconds.
        rest_s: of the consumer, ``(n,)`` seconds.
        source: the op whose work comes in bursts, by all that is known the most costly one.
        ahead: batches that are kept ready behind it now.
    """

    production_s: FloatArray
    rest_s: FloatArray
    source: str
    ahead: float

    def lost_s(self, ahead: float) -> float:
        """Seconds of a step that are lost to bursts with so many batches kept ready, beyond what the rates ask for."""
        batches = max(round(ahead), 1)
        if batches not in self._known_s:
            least_s = max(float(self.production_s.mean()), float(self.rest_s.mean()))
            self._known_s[batches] = max(period_s(self.production_s, self.rest_s, batches) - least_s, 0.0)
        return self._known_s[batches]

    @cached_property
    def _known_s(self) -> dict[int, float]:
        """Cache of lost seconds by batches kept ready: every combination of fixes asks again."""
        return {}

    @cached_property
    def enough(self) -> int | None:
        """The smallest buffer that is worth its memory; ``None`` where none gives much."""
        step_s = float(self.rest_s.mean()) + self.lost_s(self.ahead)
        sizes = [size for size in _SIZES if size > self.ahead]
        if not sizes or self.lost_s(self.ahead) - self.lost_s(sizes[-1]) < _LOST * step_s:
            return None
        return next(size for size in sizes if self.lost_s(size) - self.lost_s(sizes[-1]) <= _ENOUGH * step_s)


def bursts(evidence: Evidence, pipeline: Pipeline, input_s: float) -> Bursts | None:
    """Bursts of the input, from the steps' waits; ``None`` where they are even, few, or no step waits.

    For a batch the input alone takes ``input_s``.
    """
    steps = evidence.steps
    if steps is None or len(steps) < _FEW or not (evidence.has_step or evidence.emulated):
        return None
    source = max(pipeline.ops, key=lambda op: op.cost_s or 0.0, default=None)
    ahead = kept_ready(pipeline, source.name, allowed_cpus(evidence)) if source is not None else None
    if source is None or not source.cost_s or ahead is None or ahead <= 0:
        return None
    # What handing over a batch that is ready costs belongs to the step: no buffer makes it less.
    wait_s = np.maximum(steps.wait_s - evidence.facts.handed_over_s, 0.0)
    rest_s = np.maximum(steps.wall_s - wait_s, 0.0)
    begins = np.diff(steps.epoch, prepend=steps.epoch[0]) > 0
    if begins.any() and not begins.all():
        wait_s[begins] = np.median(wait_s[~begins])  # beginning anew is known by itself, and no buffer helps it
    if wait_s.mean() <= 0 or wait_s.std() < _UNEVEN * wait_s.mean():
        return None
    production_s = production_times_s(wait_s, rest_s, max(round(ahead), 1), input_s)
    found = Bursts(production_s, rest_s, source.name, ahead)
    return found if found.lost_s(ahead) >= _LOST * float(steps.wall_s.mean()) else None


def kept_ready(pipeline: Pipeline, source: str, cpus: int) -> float | None:
    """Batches that may lie ready between an op and the consumer; ``None`` where the op is not in the pipeline."""
    found = next(_paths(threads(pipeline, cpus), source), None)
    return None if found is None else sum(thread.ready for thread in found)


def _paths(thread: Thread, source: str) -> Iterator[tuple[Thread, ...]]:
    """The threads from the consumer's to the one that runs an op."""
    if any(work.name == source for work in thread.items):
        yield (thread,)
    for one in thread.inputs:
        for path in _paths(one, source):
            yield (thread, *path)


def lost_to_bursts_s(found: Bursts | None, pipeline: Pipeline, cpus: int) -> float:
    """Seconds that bursts cost a step of a pipeline with fixes; parallel calls keep batches ready as buffers do."""
    if found is None:
        return 0.0
    source = next((op for op in pipeline.ops if op.name == found.source), None)
    if source is None or not source.cost_s:
        return 0.0
    ahead = kept_ready(pipeline, source.name, cpus)
    return found.lost_s(found.ahead if ahead is None else ahead)
