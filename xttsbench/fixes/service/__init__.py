"""``service:n``: the part of the pipeline that can leave runs on n workers of TensorFlow's tf.data service.

On one machine the workers share its processors with the step, so the fix is tried only where it is asked for. What it
gives there is what is said of it; what other machines would give is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from xttsbench.fixes.calls import numbered
from xttsbench.fixes.service.leaving import leaving
from xttsbench.fixes.spec import Candidate, Setting, Spec, linked
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.pace import Consumer, Machine, pace
from xttsbench.throughput.threads import elements_per_batch, inputs_of, pool_size, threads

ADDRESS: Final = "TF_DATA_SERVICE"
"""Variable from which a patched source takes the dispatcher's address."""
START: Final = (
    "it needs servers, and was tried as an edit of the graph only: start xttsbench service dispatcher --port 5000, "
    f"on each machine xttsbench service worker --dispatcher NAME:5000, and the script with {ADDRESS}=grpc://NAME:5000"
)
"""Way to start the servers of a patched source."""
SPLIT_S: Final = 0.4e-3
"""The dispatcher hands out an element of a source: 5,000 of a range took two workers 2 s."""
CROSSING_S: Final = 0.3e-3
"""An element comes from a worker, uncompressed: 2,000 of 40 KB took 0.6 s."""
_COPIED_BYTES_PER_S: Final = 1e9


def candidates(setting: Setting) -> Iterator[Candidate]:
    """Workers as many as were asked for, where something of the pipeline can leave."""
    workers, pipeline = setting.workers, setting.pipeline
    if workers is None or not pipeline.ops:
        return
    found, name = leaving(pipeline), numbered("service", workers)
    if found.after is None:
        yield Candidate(name, None, refused=found.refused)
        return
    ops, after = _until(pipeline, found.after), found.after
    taken = elements_per_batch(pipeline)
    split_s = SPLIT_S * max((taken[op.name] for op in ops if not inputs_of(op, pipeline)), default=0.0)
    cost_s = sum(op.cost_s or 0.0 for op in ops)
    refused = None
    if 0 < cost_s < split_s:
        refused = (
            f"the dispatcher hands out the {taken[ops[0].name]:,.0f} elements of {ops[0].name} for each batch one by "
            f"one, which takes {1e3 * split_s:.1f} ms, and all that could leave takes {1e3 * cost_s:.1f} ms: give the "
            "source fewer, larger elements"
        )

    def edit(given: Pipeline) -> Pipeline:
        return _served(given, after, workers, setting.cpus, split_s)

    yield Candidate(
        name, edit, proof="samples come in another order", ops=(after,), held_bytes=found.carried_bytes, refused=refused
    )


def _until(pipeline: Pipeline, name: str) -> tuple[PipelineOp, ...]:
    """The ops up to the named one, of a pipeline that may have branches after it."""
    by_name, names = {op.name: op for op in pipeline.ops}, [name]
    for one in names:  # which grows
        names += [above for above in inputs_of(by_name[one], pipeline) if above not in names]
    return tuple(op for op in pipeline.ops if op.name in names)


def _served(given: Pipeline, after: str, workers: int, cpus: int, split_s: float) -> Pipeline:
    """The record with what leaves as one op, of which as many calls run at once as there are workers."""
    given = linked(given)
    ops, taken = _until(given, after), elements_per_batch(given)
    alone = given.model_copy(update={"ops": ops})
    worker_s = pace(threads(alone, cpus), Consumer(), Machine(cpus, pool_size(alone, cpus))).period_s
    last = ops[-1]
    crossing_s = (CROSSING_S + (last.element_bytes or 0.0) / _COPIED_BYTES_PER_S) * taken[after]
    served: dict[str, Any] = {"op": "ParallelInterleaveDatasetV4", "inputs": (), "inner": (), "cost_from": "prefix"}
    served |= {"parallelism": workers, "cycle_length": workers, "cost_s": worker_s + split_s + crossing_s}
    served["cpu_s"] = sum((op.cost_s if op.cpu_s is None else op.cpu_s) or 0.0 for op in ops) + crossing_s
    names = {op.name for op in ops[:-1]}
    left = [op.model_copy(update=served) if op.name == after else op for op in given.ops if op.name not in names]
    return given.model_copy(update={"ops": tuple(left)})


SERVICE: Final = Spec(
    name="service",
    form="name:n",
    words="workers of the tf.data service",
    does="what can leave the pipeline runs on n workers of TensorFlow's tf.data service, here on this machine; samples "
    "come in another order. Tried only with `--try service:n`",
    unit="of them",
    mends=("outgrown-machine",),
    candidates=candidates,
    rewrite="xttsbench.fixes.service.rewrite:served",
    argument="workers",
    runs_ahead=True,
    patch="xttsbench.fixes.service.patch:distribute",
)
