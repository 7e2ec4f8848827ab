"""``open-generator``: the loop of a generator as a data set of items with a parallel map."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from xttsbench.fixes.calls import calls_wanted, held_bytes, numbered
from xttsbench.fixes.spec import Candidate, Setting, Spec
from xttsbench.records.pipeline import AUTOTUNE, Pipeline, PipelineOp, PythonFunction

_HANDING_S: Final = 150e-6
"""Python of this process that an item's number takes on its way from the generator to the map and to the body."""


def openable(op: PipelineOp, pipeline: Pipeline) -> PythonFunction | None:
    """The generator of an op that can be opened."""
    own = [one for one in pipeline.python_functions if one.token in op.python_functions and one.kind == "generator"]
    opens = op.op.startswith("FlatMap") and len(own) == 1 and own[0].parts is not None
    return own[0] if opens else None


def opened(given: Pipeline, calls: int = AUTOTUNE) -> Pipeline:
    """The record with generators that can be opened as items and a parallel map, which has the generator's name."""
    ops: list[PipelineOp] = []
    functions = {one.token: one for one in given.python_functions}
    for op in given.ops:
        function = openable(op, given)
        if function is None or function.parts is None:
            ops.append(op)
            continue
        head_s = function.parts.head_s or 0.0
        per_batch = function.calls_per_batch or op.elements_per_batch or 0.0
        body_s = max((function.call_time_s or 0.0) - head_s, 0.0)
        body_cpu_s = max((function.call_cpu_s or 0.0) - head_s, 0.0)
        # What no call explains is beginning anew, which stays with the items.
        made_s = None if function.call_time_s is None else per_batch * body_s
        cost_s = op.cost_s if op.cost_s is None or made_s is None else min(op.cost_s, made_s)
        taken_s = None if cost_s is None or op.cost_s is None else op.cost_s - cost_s + per_batch * _HANDING_S
        taking: dict[str, Any] = {"cost_s": taken_s, "cpu_s": None, "inner": ()}
        items = op.model_copy(update={"name": f"{op.name}/items", "python_functions": (f"{op.name}/items",), **taking})
        made = {"inputs": (items.name,), "op": "ParallelMapDatasetV2", "parallelism": calls, "cost_s": cost_s}
        ops += [items, op.model_copy(update={**made, "chosen_parallelism": None, "cpu_s": None, "inner": ()})]
        told = {"kind": "numpy_function", "call_time_s": body_s, "call_cpu_s": body_cpu_s}
        functions[function.token] = function.model_copy(update=told)
        held = {"token": f"{op.name}/items", "gil": "holds", "call_cpu_s": head_s + _HANDING_S, "parts": None}
        functions[f"{op.name}/items"] = function.model_copy(update={**held, "call_time_s": head_s + _HANDING_S})
    return given.model_copy(update={"ops": tuple(ops), "python_functions": tuple(functions.values())})


def candidates(setting: Setting) -> Iterator[Candidate]:
    """Generators whose loop can be cut in two: as many calls as wait, one a processor where they hold the lock."""
    pipeline, cpus = setting.pipeline, setting.cpus
    found = [(op, function) for op in pipeline.ops if (function := openable(op, pipeline)) is not None]
    if not found:
        whole = [one for one in pipeline.python_functions if one.kind == "generator" and one.whole_because is not None]
        if whole:
            why = "; ".join(f"{one.name}() stays whole: {one.whole_because}" for one in whole)
            yield Candidate("open-generator", None, why, refused=why)
        return
    calls = calls_wanted(opened(pipeline), cpus, setting.goal_s) or AUTOTUNE
    if any(function.gil == "holds" for _, function in found):
        calls = max(calls, cpus, 2)
    ops = [op for op, _ in found]
    yield Candidate(
        numbered("open-generator", calls),
        lambda given: opened(given, calls),
        ops=tuple(op.name for op in ops),
        held_bytes=held_bytes(ops, calls),
    )


OPEN_GENERATOR: Final = Spec(
    name="open-generator",
    form="name[:n]",
    words="the generator's loop as a parallel map",
    does="`for item in items: yield f(item)` in a generator, or the `__getitem__` of a `PyDataset`, becomes a data set "
    "of items with a parallel map of the loop's body (AUTOTUNE, or n calls); order, shuffles and epochs stay. Other "
    "forms, and a body that counts, draws, leaves items out or needs the element before, are refused with the line",
    unit="calls",
    mends=("python-function",),
    candidates=candidates,
    rank=12,
    on_dataset="xttsbench.fixes.open_generator.rewrite:open_generators",
    argument="calls",
    hazards="xttsbench.fixes.open_generator.rewrite:hazards",
    runs_ahead=True,
    patch="xttsbench.fixes.open_generator.patch:open_generator",
    by_hand="have the generator yield its items, and make the elements in a map: "
    "`Dataset.from_generator(items, ...).map(element, num_parallel_calls=...)`; or apply the saved plan",
)
