"""Costs of each op of a pipeline, from two readings and a check.

Each op is run by itself (:mod:`xttsbench.pipeline.stages`), then TensorFlow's own performance model is read while
the whole runs, with fusion and the default rewrites off, so that every op keeps its name, and autotune on, without
which there is no model. :mod:`xttsbench.pipeline.op_costs` says which is believed, after a sequential run of
the whole. The values that AUTOTUNE uses come from a run of their own, of the pipeline as it really is; nothing consumes
the batches then, so AUTOTUNE works for the highest rate, and beside a slow step it may settle for less. How fast the
pipeline is as it really runs is measured elsewhere.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.framework import model_pb2

from xttsbench.pipeline import op_costs
from xttsbench.pipeline.cut import TRANSPARENT
from xttsbench.pipeline.op_costs import ModelNode, StageCost
from xttsbench.pipeline.read import strip_unserialisable_tail
from xttsbench.pipeline.stages import one_line, read_stages, sequential_run
from xttsbench.records.pipeline import Pipeline, PipelineOp

_KNOWN_RATIO: Final = (model_pb2.NodeClass.KNOWN_RATIO, model_pb2.NodeClass.ASYNC_KNOWN_RATIO)


def snapshot(iterator: Any) -> tuple[dict[int, ModelNode], int]:
    """The nodes of an iterator's model now, by id, and the id of its root.

    Raises:
        tf.errors.NotFoundError: there is no model, since autotune is off.
    """
    proto = tf.data.experimental.get_model_proto(iterator)
    nodes = {
        node.id: ModelNode(
            id=node.id,
            name=node.name,
            elements=node.num_elements,
            time_ns=node.processing_time,
            ratio=node.ratio if node.node_class in _KNOWN_RATIO and node.ratio > 0 else None,
            inputs=tuple(i for i in node.inputs if i in proto.nodes),
            parameters={parameter.name: parameter.state_value for parameter in node.parameters},
        )
        for node in proto.nodes.values()
    }
    return nodes, proto.output


_REWRITES: Final = frozenset(
    {"filter_fusion", "filter_parallelization", "inject_prefetch", "map_and_batch_fusion", "map_and_filter_fusion"}
    | {"map_fusion", "map_parallelization", "noop_elimination", "parallel_batch", "seq_interleave_prefetch"}
    | {"shuffle_and_repeat_fusion"}
)
_SNAPSHOTS: Final = 16
"""Iterators of inner datasets and past epochs vanish with their counters; a few looks on the way catch them."""


@dataclass(frozen=True, slots=True)
class _Modelled:
    """Costs that the model of a run of the whole counted, and a note on them for a person."""

    costs: Mapping[str, op_costs.OpCost] = field(default_factory=dict)
    note: str = ""
    first_batch_s: float = 0.0


def _read_model(dataset: Any, ops: Sequence[PipelineOp], batches: int, max_s: float) -> _Modelled:
    """Run a dataset for ``batches`` batches after the first, or ``max_s`` seconds, and read the model's costs.

    Raises:
        tf.errors.OpError: what the pipeline itself raises before its first batch.
    """
    snapshots: list[dict[int, ModelNode]] = []
    root, drawn, first_batch_s, error = 0, 0, 0.0, ""
    every = max(1, batches // _SNAPSHOTS)
    try:
        iterator, began = iter(_as_written(dataset)), time.perf_counter()
        while next(iterator, None) is not None:
            drawn += 1  # the first batch fills buffers; the differences start after it
            now_s = time.perf_counter() - began
            first_batch_s = first_batch_s or now_s
            last = drawn > batches or now_s > max_s
            if drawn == 1 or last or drawn % every == 0:
                nodes, root = snapshot(iterator)
                snapshots.append(nodes)
            if last:
                break
    except tf.errors.OpError as raised:
        missing = isinstance(raised, tf.errors.NotFoundError) and re.search("model|autotune", raised.message.lower())
        if not snapshots and missing:
            return _Modelled(note=f"TensorFlow kept no model ({raised.message})")
        if not snapshots:
            raise  # the pipeline's own: a missing file
        error = f"; then the pipeline raised {one_line(raised)}"
    if not snapshots:
        return _Modelled(note="no costs: the dataset is empty")
    merged = op_costs.merge(snapshots)
    matched, ignored = op_costs.match(merged, root, ops)
    costs = op_costs.costs(merged, matched, ops)
    if not any(cost.cost_s for cost in costs.values()):
        return _Modelled(note="TensorFlow's model counted no time in any op")
    text = f"TensorFlow's performance model over {max(1, drawn - 1)} batches, fusion and default rewrites off"
    text += f"; {ignored} nodes of it belong to no op" if ignored else ""
    return _Modelled(costs, text + error, first_batch_s)


def _as_written(dataset: Any) -> Any:
    options = tf.data.Options()
    options.autotune.enabled = True
    for rewrite in _REWRITES:
        setattr(options.experimental_optimization, rewrite, False)
    return dataset.with_options(options)


_EVERY_S: Final = 0.1
_ALIKE: Final = 3
"""Looks in a row that see the same values: it has settled (TensorFlow looks again at ever longer intervals)."""


@dataclass(frozen=True, slots=True)
class _Tuned:
    """Values in force, by op name."""

    parallelism: dict[str, int]
    buffer_size: dict[str, int]
    injected_buffer: int | None  # elements of the prefetch that TensorFlow appends; ``None`` where it appends none


def _read_tuned(dataset: Any, ops: Sequence[PipelineOp], *, least_s: float, max_s: float) -> _Tuned | None:
    """Run a dataset until its tuned values hold still, for ``least_s`` to ``max_s`` seconds, and read them.

    ``None`` where TensorFlow kept no model or the dataset raised or ended before a first look. A batch that takes
    longer than ``max_s`` is waited for.
    """
    looks: list[_Tuned] = []
    try:
        iterator = iter(dataset)
        began = looked = time.perf_counter()
        while next(iterator, None) is not None:
            now = time.perf_counter()
            if now - looked >= _EVERY_S or not looks:
                nodes, root = snapshot(iterator)
                looks.append(_tuned(nodes, root, ops))
                looked = now
            settled = len(looks) > _ALIKE and all(look == looks[-1] for look in looks[-_ALIKE:])
            if now - began > max_s or (now - began > least_s and settled):
                break
    except tf.errors.OpError:  # the dataset's own errors are told by the run that reads the costs
        pass
    return looks[-1] if looks else None


def _tuned(nodes: dict[int, op_costs.ModelNode], root: int, ops: Sequence[PipelineOp]) -> _Tuned:
    matched, _ = op_costs.match(nodes, root, ops, rewritten=True)

    def values(parameter: str) -> dict[str, int]:
        found = {name: nodes[ids[-1]].parameters.get(parameter) for name, ids in matched.items() if ids}
        return {name: round(value) for name, value in found.items() if value}

    own = {i for ids in matched.values() for i in ids}
    first = [nodes[i] for i in nodes[root].inputs[:1] if i not in own and nodes[i].name.startswith("Prefetch")]
    injected = round(first[0].parameters.get("buffer_size", 0.0)) if first else None
    return _Tuned(values("parallelism"), values("buffer_size"), injected)


_FILL: Final = 1.5  # a first batch that takes this many times the time for the whole run is not waited for
STAGES_S: Final = 6.0
"""Time for running the ops by themselves, the check of their sum and the look at AUTOTUNE included."""


def read_costs(dataset: Any, *, batches: int, max_s: float, stages_s: float = STAGES_S) -> Pipeline:
    """Run a dataset for ``batches`` batches after the first, or ``max_s`` seconds, and describe it with its costs.

    Before that, its ops are run one by one for up to ``stages_s`` seconds; 0 leaves it at TensorFlow's model. The
    user's functions are called as in any run; an in-memory cache is filled by the run of the whole. Costs are per
    batch of the whole pipeline, summed over parallel calls, waits included. A batch that takes longer than ``max_s``
    is waited for. A pipeline is not run as a whole where an op by itself lets nothing through, since that might never
    end, nor where its first batch alone would take far longer than ``max_s``.

    Raises:
        tf.errors.OpError: what the pipeline itself raises before its first batch.
    """
    notes: list[str] = []
    pipeline, dataset, graph = strip_unserialisable_tail(dataset)
    pipeline = pipeline.model_copy(update={"cpus": len(os.sched_getaffinity(0))})
    if pipeline.unserialisable is not None and graph is not None:
        notes.append("read without the last ops, which TensorFlow does not write into a graph")
    stages: dict[str, StageCost] = {}
    if graph is not None and stages_s > 0:
        try:
            stages = read_stages(graph, max_s=0.6 * stages_s)
        except (tf.errors.OpError, ValueError, TypeError, KeyError) as error:
            notes.append(f"the ops could not be run by themselves: {one_line(error)}")
        notes.extend(
            f"the first call of {name} took {stage.start_up_s:.2g} s more than the next, and counts for no batch"
            for name, stage in stages.items()
            if stage.start_up_s
        )
    elif graph is None:
        notes.append(f"the ops could not be run by themselves: the graph cannot be read ({pipeline.unserialisable})")
    blocked = _blocked(pipeline.ops, stages) or _too_long(pipeline, stages, max_s)
    if blocked is not None:
        notes.append(f"the pipeline was not run as a whole: {blocked}")
        modelled = _Modelled()
    else:
        modelled = _read_model(dataset, pipeline.ops, batches, max_s)
        notes.insert(0, modelled.note)
    sequential_s = None
    if stages and not _blocked(pipeline.ops, stages):
        sequential_s, why_not = _sequential_s(graph, pipeline.ops, modelled, stages, 0.15 * stages_s)
        if why_not:
            notes.append(why_not)
    tuned, tuned_s = None, 0.25 * stages_s
    if pipeline.autotune and blocked is None and stages_s > 0:
        if modelled.first_batch_s > tuned_s:
            notes.append(f"what AUTOTUNE chose was not read: a first batch takes {modelled.first_batch_s:.2g} s")
        else:
            tuned = _read_tuned(dataset, pipeline.ops, least_s=min(0.5, 0.1 * stages_s), max_s=tuned_s)
    return _filled(pipeline, modelled, stages, sequential_s, tuned, notes)


def _filled(
    pipeline: Pipeline,
    modelled: _Modelled,
    stages: Mapping[str, StageCost],
    sequential_s: float | None,
    tuned: _Tuned | None,
    notes: list[str],
) -> Pipeline:
    chosen = op_costs.choose(pipeline.ops, modelled.costs, stages, sequential_s)
    priced = [cost for cost in chosen.values() if cost.cost_s is not None]
    if stages:
        alone = sum(cost.cost_from == "prefix" for cost in priced)
        notes.append(f"for {alone} of {len(pipeline.ops)} ops as measured where they run by themselves")
    if len(priced) < len(pipeline.ops):
        notes.append(f"{len(pipeline.ops) - len(priced)} of the ops have no cost")
    text = "; ".join(note for note in notes if note)
    if not any(cost.cost_s for cost in priced) and not text.startswith("no costs"):
        text = f"no costs: {text}"
    ops = []
    for op in pipeline.ops:
        cost, stage, numbers = modelled.costs.get(op.name), stages.get(op.name), asdict(chosen[op.name])
        if stage is not None:
            numbers |= {"element_bytes": stage.element_bytes, "cardinality": stage.cardinality}
        if tuned is not None:
            numbers["chosen_parallelism"] = tuned.parallelism.get(op.name)
            numbers["chosen_buffer_size"] = tuned.buffer_size.get(op.name)
        numbers["elements"] = cost.elements if cost is not None else stage.elements or None if stage else None
        ops.append(op.model_copy(update=numbers))
    injected = tuned.injected_buffer if tuned is not None else None
    return pipeline.model_copy(update={"ops": tuple(ops), "costs_from": text, "injected_buffer_size": injected})


def _blocked(ops: Sequence[PipelineOp], stages: Mapping[str, StageCost]) -> str | None:
    """Why running the whole might never end: an op let none of many elements through."""
    known = ((op.name, stages[op.name].why_not or "") for op in ops if op.name in stages)
    return next((f"at {name}, {why_not}" for name, why_not in known if why_not.endswith("elements passed")), None)


def _too_long(pipeline: Pipeline, stages: Mapping[str, StageCost], max_s: float) -> str | None:
    """Why the first batch would take too long: full buffers of shuffles, or ops that take so long by themselves.

    What runs in parallel is counted as if all its calls ran at once.
    """
    if not _all_ran(pipeline.ops, stages):
        return None
    alone = op_costs.choose(pipeline.ops, {}, stages)
    before_s: dict[str, float] = {}
    for op in pipeline.ops:
        cost = alone[op.name]
        calls = max(1, op.parallelism or 1) if op.parallelism != -1 else pipeline.cpus or 1
        per_element_s = (cost.cost_s or 0.0) / cost.elements_per_batch / calls if cost.elements_per_batch else 0.0
        for upstream in op.inputs:
            ratio = (alone[upstream].elements_per_batch or 0.0) / (cost.elements_per_batch or 1.0)
            per_element_s += before_s.get(upstream, 0.0) * ratio
        before_s[op.name] = per_element_s
        if op.op.startswith("Shuffle") and op.buffer_size and op.inputs[0] in stages:
            here = stages[op.inputs[0]].cardinality
            fill_s = per_element_s * (min(op.buffer_size, here) if here >= 0 else op.buffer_size)
            if fill_s > _FILL * max_s:
                return f"to fill the buffer of {op.name} takes some {fill_s:.2g} s"
    whole_s = before_s.get(pipeline.ops[-1].name, 0.0) if pipeline.ops else 0.0
    return f"a batch takes some {whole_s:.2g} s" if whole_s > max_s else None


def _sequential_s(
    graph: Any, ops: Sequence[PipelineOp], modelled: _Modelled, stages: Mapping[str, StageCost], max_s: float
) -> tuple[float | None, str | None]:
    """Seconds of a batch of the whole without concurrency, or why that was not measured."""
    if not _all_ran(ops, stages):
        return None, None
    expected = op_costs.choose(ops, modelled.costs, stages)
    batch_s = sum(cost.cost_s for cost in expected.values() if cost.cost_s)
    if batch_s > max_s:
        return None, f"the sum was not checked: a sequential batch would take some {batch_s:.2g} s"
    try:
        ran = sequential_run(graph, max_s=max_s)
    except (tf.errors.OpError, ValueError, TypeError, KeyError) as error:
        return None, f"the sum was not checked: {one_line(error)}"
    return (ran[0], None) if ran is not None else (None, "the sum was not checked: the sequential run yielded nothing")


def _all_ran(ops: Sequence[PipelineOp], stages: Mapping[str, StageCost]) -> bool:
    return bool(stages) and all(
        op.name not in stages or stages[op.name].priced or TRANSPARENT.match(op.op) for op in ops
    )
