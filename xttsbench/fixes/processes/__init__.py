"""``processes``: Python functions in a pool of processes, so that they do not wait for one interpreter lock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from xttsbench.fixes.calls import numbered, sequential_maps
from xttsbench.fixes.open_generator import openable
from xttsbench.fixes.spec import Candidate, Setting, Spec, each
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction
from xttsbench.throughput.threads import elements_per_batch

CROSSING_S: Final = 150e-6
"""Handing one call to another process and taking its result, measured on two cores: 0.1 to 0.2 ms."""
_LOCKED_SHARE: Final = 0.6  # share of that which is Python of this process
_LONG: Final = 4  # calls that take so many times as long as handing them over are long
_COPIED_BYTES_PER_S: Final = 2e9  # rate at which arguments and results are copied from process to process


def candidates(setting: Setting) -> Iterator[Candidate]:
    """A Python function that holds the lock, called in other processes: the lock is free, the processors are not.

    Each call is handed over and its result taken back, which takes :data:`CROSSING_S`, most of it under the lock, and
    the time to copy what the op yields.
    """
    pipeline, cpus = setting.pipeline, setting.cpus
    tokens = {one.token for one in gaining(pipeline)}
    ops = [op for op in pipeline.ops if tokens & set(op.python_functions)]
    if not ops or cpus < 2:
        return
    taken = elements_per_batch(pipeline)
    copied_s = {op.name: (op.element_bytes or 0.0) / _COPIED_BYTES_PER_S * taken[op.name] for op in ops}

    def edit(given: Pipeline) -> Pipeline:
        # A generator moves only once its loop's body is a function.
        moved = [one for one in given.python_functions if one.token in tokens and one.kind != "generator"]

        def changes(op: PipelineOp) -> dict[str, Any]:
            own = [one for one in moved if one.token in op.python_functions]
            if not own or not op.cost_s:
                return {}
            crossing_s = sum(one.calls_per_batch or 0.0 for one in own) * CROSSING_S + copied_s.get(op.name, 0.0)
            worked_s = sum((one.calls_per_batch or 0.0) * (one.call_cpu_s or 0.0) for one in own)
            cpu_s = min(op.cost_s, worked_s) if op.cpu_s is None else op.cpu_s
            return {"cost_s": op.cost_s + crossing_s, "cpu_s": cpu_s + crossing_s, "cost_from": "prefix"}

        return each(given, changes, lambda one: {"call_cpu_s": _LOCKED_SHARE * CROSSING_S} if one in moved else {})

    in_turn = {op.name for op in (*sequential_maps(pipeline), *(op for op in ops if openable(op, pipeline)))}
    yield Candidate(
        numbered("processes", cpus),
        edit,
        proof="a Python function that keeps something from call to call keeps it in each process by itself",
        ops=tuple(op.name for op in ops),
        alone=any(op.name not in in_turn for op in ops),
        refused=pipeline.immovable,
    )


def gaining(pipeline: Pipeline) -> list[PythonFunction]:
    """Python functions that would gain by a process of their own."""
    return [
        one
        for one in pipeline.python_functions
        if (one.gil == "holds" and (one.kind != "generator" or one.parts is not None)) or _shares_memory(one)
    ]


def _shares_memory(function: PythonFunction) -> bool:
    """Whether a function is a generator's body that computes for long without the lock.

    In threads of one process such calls wait for the lock between their parts, and for memory: transforms of NumPy's
    that took 11.5 ms a batch took 9 to 15 ms in two threads, and 4.7 ms in two processes (TensorFlow 2.21, two cores).
    """
    long = (function.call_cpu_s or 0.0) > _LONG * CROSSING_S
    return function.kind == "generator" and function.parts is not None and function.gil == "releases" and long


PROCESSES: Final = Spec(
    name="processes",
    form="name:n",
    words="Python functions in processes of their own",
    does="Python functions that hold the interpreter lock, and opened generators' bodies that compute for long, run in "
    "n processes",
    unit="of them",
    mends=("python-function",),
    candidates=candidates,
    rank=4,
    on_dataset="xttsbench.fixes.processes.rewrite:in_processes",
    argument="count",
    hazards="xttsbench.fixes.processes.rewrite:hazards",
    runs_ahead=True,
    by_hand="no call of TensorFlow runs a Python function in processes of its own; apply the saved plan",
)
