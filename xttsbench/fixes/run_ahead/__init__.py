"""``run-ahead``: generators in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from xttsbench.fixes.processes import CROSSING_S
from xttsbench.fixes.spec import Candidate, Setting, Spec, each
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction

ELEMENTS: Final = 16
"""Elements that are kept ready, and the most that come over at once."""


def candidates(setting: Setting) -> Iterator[Candidate]:
    """Generators that compute and cannot be opened: the lock is free, the processors are not."""
    pipeline = setting.pipeline
    tokens = {
        one.token
        for one in pipeline.python_functions
        if one.kind == "generator" and one.gil in ("holds", "releases") and one.parts is None
    }
    ops = [op for op in pipeline.ops if op.op.startswith("FlatMap") and tokens & set(op.python_functions)]
    if not ops or setting.cpus < 2:
        return

    def edit(given: Pipeline) -> Pipeline:
        made: list[PipelineOp] = []
        for op in given.ops:
            if not tokens & set(op.python_functions):
                made.append(op)
                continue
            inner = op.model_copy(update={"name": f"{op.name}/generator"})
            buffer = {"inputs": (inner.name,), "op": "PrefetchDataset", "buffer_size": ELEMENTS, "cost_s": 0.0}
            nothing = {"cpu_s": None, "inner": (), "python_functions": ()}
            made += [inner, op.model_copy(update=buffer | nothing)]

        def crossing(one: PythonFunction) -> dict[str, Any]:
            return {"call_cpu_s": min(one.call_cpu_s or 0.0, CROSSING_S), "gil": "holds"} if one.token in tokens else {}

        return each(given.model_copy(update={"ops": tuple(made)}), of_function=crossing)

    yield Candidate(
        "run-ahead",
        edit,
        proof="its random numbers are drawn from a copy of the generator's state",
        ops=tuple(op.name for op in ops),
    )


RUN_AHEAD: Final = Spec(
    name="run-ahead",
    form="name[:n]",
    words="generators in processes of their own",
    does=f"a generator that cannot be opened runs in a process of its own, at most n elements ahead ({ELEMENTS}), so "
    "that it does not wait for the interpreter lock of the step; what it would change in objects that others see is "
    "refused",
    unit="elements ahead",
    mends=("python-function",),
    candidates=candidates,
    rank=13,
    on_dataset="xttsbench.fixes.run_ahead.rewrite:run_ahead",
    argument="elements",
    hazards="xttsbench.fixes.run_ahead.rewrite:hazards",
    runs_ahead=True,
    by_hand="no call of TensorFlow runs a generator in a process of its own; apply the saved plan",
)
