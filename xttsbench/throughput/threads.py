"""Threads in which TensorFlow runs a pipeline: ops that share one, ops that run beside one another, and their needs.

Pure, from the record; no TensorFlow, so that the parent uses it as well. What is said of TensorFlow here was tried on
2.21 with functions that sleep: an op without a thread of its own runs in the thread of the nearest asynchronous op
after it; a ``map`` right before a ``batch`` is fused with it, and then works a batch ahead even where it is sequential;
a prefetch is appended unless the last op is asynchronous already; every function (a generator's too) runs on a thread
of the pool, also that of a sequential ``map``; an interleave brings threads of its own for what is not a function.

What each thread does for a batch are the stages that :mod:`xttsbench.throughput.pace` takes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from xttsbench.records.pipeline import AUTOTUNE, Pipeline, PipelineOp, PythonFunction, every_op
from xttsbench.throughput.pace import LOCK, POOL, PROCESSORS, Consumer, Machine, Thread, Work, pace

_PARALLEL: Final = re.compile(r"^(Legacy)?Parallel(Map|Filter|Batch|Interleave)|^MapAndBatch")
_GATHERS: Final = re.compile(r"Batch|Window")
_SCATTERS: Final = re.compile(r"^Unbatch")
_FUNCTIONS: Final = re.compile(r"Map|Filter|Generator|GroupBy|Scan|Reduce|TakeWhile")
_READS: Final = re.compile(r"Interleave|FlatMap|TFRecord|TextLine|FixedLength|Cache|Generator")
_COMPUTES: Final = 0.5
"""A call computes where it has a processor for this share of its time; neighbours take theirs from the rest."""
_LITTLE: Final = 0.25
"""Share of its time that a waiting call may compute for, as Python around its wait; beyond that it is work."""
_READ_AHEAD: Final = 2
"""Elements that AUTOTUNE keeps ready in a prefetch, and an interleave for each of its inputs, at least."""


def threads(pipeline: Pipeline, allowed_cpus: int) -> Thread:
    """The consumer's thread, with those that feed it; costs that were not measured count nothing."""
    return _Builder(pipeline, allowed_cpus).consumer() if pipeline.ops else Thread()


def pool_size(pipeline: Pipeline, allowed_cpus: int) -> int:
    """Threads of the pool that runs the functions: unless the options say otherwise one for each processor.

    TensorFlow counts the processors of the affinity mask and knows nothing of a quota, so what the process itself
    counted goes before ``allowed_cpus``.
    """
    return max(1, pipeline.threadpool_size or pipeline.cpus or allowed_cpus)


def written_parallelism(op: PipelineOp, pipeline: Pipeline, allowed_cpus: int) -> int:
    """Calls at once that an op asks for, at least 1; of AUTOTUNE what it chose, else the most that it can choose.

    A plain ``map`` without state counts as parallel under autotune, since TensorFlow makes it so.
    """
    pool = pool_size(pipeline, allowed_cpus)
    if op.parallelism is None:
        return pool if parallelised(op, pipeline) else 1
    cycle = op.cycle_length if op.cycle_length and op.cycle_length > 0 else None
    most = cycle if cycle and "Interleave" in op.op else pool
    parallelism = op.chosen_parallelism or most if op.parallelism == AUTOTUNE else op.parallelism
    return max(1, min(parallelism, cycle or parallelism))


def effective_parallelism(op: PipelineOp, pipeline: Pipeline, allowed_cpus: int) -> int:
    """Largest number of an op's calls that run at once: 1 for a sequential op.

    Bounded by the thread pool, which has one thread per allowed processor unless the options say otherwise; a parallel
    ``interleave`` brings its own threads. A plain ``map`` without state counts as parallel under autotune, since
    TensorFlow makes it so.
    """
    parallelism = written_parallelism(op, pipeline, allowed_cpus)
    return parallelism if "Interleave" in op.op else min(parallelism, pool_size(pipeline, allowed_cpus))


def parallelised(op: PipelineOp, pipeline: Pipeline) -> bool:
    """Whether TensorFlow makes this plain ``map`` a parallel one by itself."""
    stateful = op.stateful or bool(op.python_functions)
    return op.op == "MapDataset" and pipeline.autotune and not stateful and _allowed(pipeline, "map_parallelization")


def consumers(pipeline: Pipeline) -> dict[str, list[PipelineOp]]:
    """Op's name -> ops that read it."""
    found: dict[str, list[PipelineOp]] = {op.name: [] for op in pipeline.ops}
    for op in pipeline.ops:
        for name in inputs_of(op, pipeline):
            found.setdefault(name, []).append(op)
    return found


def inputs_of(op: PipelineOp, pipeline: Pipeline) -> tuple[str, ...]:
    """Names of what an op reads; where no op says so, each reads the one before it."""
    if any(other.inputs for other in pipeline.ops):
        return op.inputs
    before = pipeline.ops.index(op) - 1
    return (pipeline.ops[before].name,) if before >= 0 else ()


def elements_per_batch(pipeline: Pipeline) -> dict[str, float]:
    """Elements that a batch of the whole pipeline takes of each op; what was not counted follows from batch sizes."""
    taken: dict[str, float] = {pipeline.ops[-1].name: 1.0} if pipeline.ops else {}
    for op in reversed(pipeline.ops):
        if op.elements_per_batch is not None:
            taken[op.name] = op.elements_per_batch
        own = taken.setdefault(op.name, 1.0)
        for name in inputs_of(op, pipeline):
            taken[name] = own * (op.batch_size or 1)
    return taken


def demand(op: PipelineOp, pipeline: Pipeline, allowed_cpus: int) -> Work:
    """Seconds of each resource that an op needs for one batch.

    Its cost is summed over parallel calls; of an op before a full cache it is nothing. Of calls that wait for one
    another's interpreter lock that is a multiple of what they need, so a function that holds it is taken at the time
    for which it does, where that is known (a cost from a prefix of the graph is one of calls that came one after the
    other).
    """
    if op.cached:
        return Work(op.name, 0.0)
    own = functions_of(op, pipeline)
    lock_s = sum(_held_s(function) for function in own)
    cost_s = op.cost_s or 0.0
    called_s = sum((function.calls_per_batch or 0.0) * (function.call_time_s or 0.0) for function in own)
    if lock_s and all(function.gil == "holds" for function in own) and op.cost_from != "prefix":
        side_by_side = min(written_parallelism(op, pipeline, allowed_cpus), pool_size(pipeline, allowed_cpus))
        cost_s = max(lock_s, cost_s / side_by_side)
    if op.cpu_s is not None:
        cpu_s = op.cpu_s  # above its time where TensorFlow divides one call over several threads
    elif own:
        cpu_s = min(cost_s, sum((one.calls_per_batch or 0.0) * (one.call_cpu_s or 0.0) for one in own))
    else:
        cpu_s = 0.0 if _READS.search(op.op) else cost_s
    # As soon as a call begins it wants the lock for all of that; one that waits has begun, waited, and then ends.
    at_once_s = min(sum(_held_s(one) * (0.5 if one.gil == "blocks" else 1.0) for one in own), cost_s)
    calls = sum(function.calls_per_batch or 0.0 for function in own)
    return Work(op.name, cost_s, cpu_s, min(lock_s, cost_s), _pool_s(op, cost_s, called_s), at_once_s, calls)


def _pool_s(op: PipelineOp, cost_s: float, called_s: float) -> float:
    if "Interleave" not in op.op and not op.op.startswith("FlatMap"):
        return cost_s if _FUNCTIONS.search(op.op) else 0.0
    priced = sum(one.cost_s or 0.0 for one in every_op(op.inner) if _FUNCTIONS.search(one.op))
    return min(cost_s, max(priced, called_s))  # reading in an interleave has threads of its own


def functions_of(op: PipelineOp, pipeline: Pipeline) -> list[PythonFunction]:
    """The Python functions that an op calls."""
    return [function for function in pipeline.python_functions if function.token in op.python_functions]


def _held_s(function: PythonFunction) -> float:
    """Seconds per batch under the interpreter lock.

    A function too cheap to be classed is Python's own work, and so is the little that one computes which waits. Making
    the call takes the lock whatever the function does with it.
    """
    cpu_s = function.call_cpu_s or 0.0
    little = function.around_call_s is not None and cpu_s <= _LITTLE * (function.call_time_s or 0.0)
    held_s = cpu_s if function.gil in ("holds", "unknown") or (function.gil == "blocks" and little) else 0.0
    return (function.calls_per_batch or 0.0) * (held_s + (function.around_call_s or 0.0))


def _allowed(pipeline: Pipeline, rewrite: str) -> bool:
    names = (rewrite, "apply_default_optimizations")
    return all(pipeline.options.get(f"experimental_optimization.{name}", "").lower() != "false" for name in names)


def may_wait(function: PythonFunction) -> bool:
    """Whether calls of a Python function may leave their thread idle: seen, or unknown and not mostly computing."""
    if function.gil != "unknown" or not function.call_time_s or function.call_cpu_s is None:
        return function.gil in ("blocks", "unknown")
    return function.call_cpu_s < _COMPUTES * function.call_time_s


class _Builder:
    """Cuts the ops into threads, from the end to the sources."""

    def __init__(self, pipeline: Pipeline, allowed_cpus: int) -> None:
        self._pipeline = pipeline
        self._allowed_cpus = allowed_cpus
        self._by_name = {op.name: op for op in pipeline.ops}
        self._taken = elements_per_batch(pipeline)

    def consumer(self) -> Thread:
        last = self._last()
        ahead = self._boundary(last)
        if ahead is not None:
            return Thread(inputs=(ahead,))
        injects = self._pipeline.injects_prefetch and self._pipeline.autotune
        # TensorFlow takes the last op for a prefetch by its type, also one that keeps nothing ready.
        if injects and not last.op.startswith("Prefetch") and _allowed(self._pipeline, "inject_prefetch"):
            ready = float(max(self._pipeline.injected_buffer_size or 0, _READ_AHEAD))
            return Thread(inputs=(replace(self._collect(last, keep=True), ready=ready),))
        return self._collect(last, keep=True)

    def _last(self) -> PipelineOp:
        """The last op that does something; options and the model are no work."""
        op = self._pipeline.ops[-1]
        while op.op in ("OptionsDataset", "ModelDataset") and inputs_of(op, self._pipeline):
            op = self._by_name[inputs_of(op, self._pipeline)[0]]
        return op

    def _boundary(self, op: PipelineOp) -> Thread | None:
        """The thread that an asynchronous op runs, or ``None`` for one that runs in its consumer's thread."""
        if op.op.startswith("PrefetchDataset") and op.buffer_size != 0:
            buffered = op.buffer_size if op.buffer_size and op.buffer_size > 0 else op.chosen_buffer_size
            elements = self._per_batch(op)
            own = self._collect(op, keep=True)
            return replace(own, ready=(buffered or _READ_AHEAD) / elements, elements=elements)
        fused = self._fused(op)
        if fused is None and not _PARALLEL.match(op.op) and not parallelised(op, self._pipeline):
            return None
        calling = fused or op
        parallelism = written_parallelism(calling, self._pipeline, self._allowed_cpus)
        ready = float(parallelism)
        if fused is not None:
            ready = max(1.0, parallelism / (op.batch_size or 1))
        elif op.op.startswith("MapAndBatch"):
            ready = 1.0
        elif "Interleave" in op.op:
            ready = float(_READ_AHEAD * max(parallelism, op.cycle_length or 0))
        return replace(
            self._collect(calling, keep=False),
            calls=tuple(map(self._demand, (op,) if fused is None else (fused, op))),
            parallelism=parallelism,
            ready=ready / self._per_batch(op),
            elements=self._per_batch(op),
        )

    def _fused(self, op: PipelineOp) -> PipelineOp | None:
        names = inputs_of(op, self._pipeline)
        if not re.match(r"^BatchDataset", op.op) or op.parallelism is not None or len(names) != 1:
            return None
        before = self._by_name.get(names[0])
        if before is None or not re.match(r"^(Parallel)?MapDataset", before.op):
            return None
        return before if _allowed(self._pipeline, "map_and_batch_fusion") else None

    def _collect(self, op: PipelineOp, *, keep: bool) -> Thread:
        """The thread of what is before ``op``; with ``keep``, the op's own work goes into it."""
        parts = [self._upstream(name) for name in inputs_of(op, self._pipeline) if name in self._by_name]
        works = [one for part in parts for one in part.spread]
        at_once = [one for part in parts for one in part.at_once]
        inputs = tuple(thread for part in parts for thread in part.inputs)
        in_turn = any(part.in_turn for part in parts) or (op.op.startswith("Concatenate") and len(inputs) > 1)
        if keep:
            if _GATHERS.search(op.op) and not _SCATTERS.match(op.op):
                works, at_once = [*works, *at_once], [self._demand(op)]
            elif at_once:
                at_once.append(self._demand(op))
            else:
                works.append(self._demand(op))
        return Thread(spread=tuple(works), at_once=tuple(at_once), inputs=inputs, in_turn=in_turn)

    def _upstream(self, name: str) -> Thread:
        """Input of an op: a thread of its own to take from, or work to do itself."""
        op = self._by_name[name]
        boundary = self._boundary(op)
        return Thread(inputs=(boundary,)) if boundary is not None else self._collect(op, keep=True)

    def _demand(self, op: PipelineOp) -> Work:
        return demand(op, self._pipeline, self._allowed_cpus)

    def _per_batch(self, op: PipelineOp) -> float:
        return max(self._taken.get(op.name, 1.0), 1e-9)


_ORDERING: Final = re.compile(r"(Shuffle|Repeat|ForeverRepeat|ShuffleAndRepeat)Dataset(V\d+)?")
_MAP: Final = re.compile(r"(Parallel)?MapDataset(V\d+)?")
_ONE_BY_ONE: Final = re.compile(rf"{_MAP.pattern}|PrefetchDataset|OptionsDataset")
"""Ops that yield one element for each that they read, in the same order."""


@dataclass(frozen=True)
class Chain:
    """An op with the shuffles and repeats before it that may as well come after it, where it is a map.

    Attributes:
        orderings: their names, sources first; empty where there are none.
        between: names of the ops that stand behind one of them, the map included, sources first.
        source: name of the op that the first of them reads; of the op itself where there are none.
    """

    orderings: tuple[str, ...]
    between: tuple[str, ...]
    source: str


def chain_before(op: PipelineOp, pipeline: Pipeline) -> Chain:
    """The chain that ends in an op of a pipeline's record, as :func:`chain_of` has it."""
    inputs = {one.name: inputs_of(one, pipeline) for one in pipeline.ops}
    return chain_of(op.name, {one.name: one.op for one in pipeline.ops}, inputs)


def chain_of(name: str, types: Mapping[str, str], inputs: Mapping[str, Sequence[str]]) -> Chain:
    """The chain that ends in the named op, from the type and the inputs of each op by its name."""
    read = Counter(one for names in inputs.values() for one in names)
    passed, found = [name], Chain((), (), name)
    while _MAP.fullmatch(types.get(name, "")) and len(inputs[passed[-1]]) == 1:
        (above,) = inputs[passed[-1]]
        is_ordering = _ORDERING.fullmatch(types.get(above, "")) is not None
        # What others read as well is theirs too; and an op is named once, so that there is no circle.
        if read[above] != 1 or not (is_ordering or _ONE_BY_ONE.fullmatch(types.get(above, ""))):
            break
        passed.append(above)
        if is_ordering and len(inputs[above]) == 1 and inputs[above][0] in types:
            orderings = [one for one in passed if _ORDERING.fullmatch(types[one])]
            between = [one for one in passed if one not in orderings]
            found = Chain(tuple(reversed(orderings)), tuple(reversed(between)), inputs[above][0])
    return found


def limiting_op(pipeline: Pipeline, allowed_cpus: int) -> PipelineOp | None:
    """The op that sets the pace of a pipeline without a step; ``None`` where no op has a cost.

    The rate of a pipeline whose threads overlap is that of the slowest (the operational analysis of Denning and Buzen,
    1978, as Plumber applies it to tf.data: Kuchnik et al., MLSys 2022). Where it is the pool's threads, the interpreter
    lock or the processors that all ops share, it is the op that needs most of them.
    """
    found = pace(threads(pipeline, allowed_cpus), Consumer(), Machine(allowed_cpus, pool_size(pipeline, allowed_cpus)))
    kind = {POOL: "pool_s", LOCK: "lock_s", PROCESSORS: "cpu_s"}.get(found.limited_by)
    if found.period_s <= 0:
        return None
    if kind is not None:
        return max(pipeline.ops, key=lambda op: float(getattr(demand(op, pipeline, allowed_cpus), kind)))
    return next((op for op in pipeline.ops if op.name == found.limited_by), None)
