"""``native``: Python functions that compute with NumPy as ops of TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xttsbench.fixes.spec import Candidate, Setting, Spec, each
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction

_PROOF = "its sums may be rounded otherwise"


def candidates(setting: Setting) -> Iterator[Candidate]:
    """Python functions: at the price of their ops where they were traced and timed, else to be tried.

    What waits is worth trying only where its ops were timed, for nothing that only waits can be traced.
    """
    pipeline = setting.pipeline
    functions = {one.token: one for one in pipeline.python_functions if one.kind != "generator"}
    found = [one.native for one in functions.values() if one.native is not None]
    priced = {token: one for token, one in functions.items() if one.native and one.native.call_time_s is not None}
    if priced:
        ops = tuple(op.name for op in pipeline.ops if priced.keys() & set(op.python_functions))
        exact = all(one.native is not None and one.native.exact for one in priced.values())
        proof = None if exact else _PROOF
        yield Candidate("native", lambda given: _as_ops(given, priced), proof=proof, ops=ops)
    elif found:
        ops = tuple(op.name for op in pipeline.ops if functions.keys() & set(op.python_functions))
        named = {one.name: one.native.refused for one in functions.values() if one.native and one.native.refused}
        why = "; ".join(f"{name}() stays Python: it {refused}" for name, refused in named.items())
        yield Candidate("native", None, why, ops=ops, refused=why)
    else:
        tokens = {token for token, one in functions.items() if one.gil != "blocks"}
        ops = tuple(op.name for op in pipeline.ops if tokens & set(op.python_functions))
        if ops:
            why = "what a Python function costs as ops of TensorFlow was not measured"
            yield Candidate("native", None, why, proof=_PROOF, ops=ops)


def _as_ops(given: Pipeline, priced: Mapping[str, PythonFunction]) -> Pipeline:
    """The record of a pipeline whose priced functions are ops: they hold no lock, and TensorFlow may divide them."""

    def changed(op: PipelineOp) -> dict[str, Any]:
        own = [one for one in given.python_functions if one.token in priced and one.token in op.python_functions]
        if not own or op.cost_s is None:
            return {}
        before = [(one.calls_per_batch or 0.0, one.call_time_s or 0.0, one.call_cpu_s or 0.0) for one in own]
        after = [(one.calls_per_batch or 0.0, one.native) for one in own if one.native is not None]
        cost_s = max(op.cost_s - sum(calls * max(wall_s, cpu_s) for calls, wall_s, cpu_s in before), 0.0)
        used_s = op.cpu_s if op.cpu_s is not None else sum(calls * cpu_s for calls, _, cpu_s in before)
        cpu_s = max(used_s - sum(calls * cpu_s for calls, _, cpu_s in before), 0.0)
        left = tuple(token for token in op.python_functions if token not in priced)
        return {
            "cost_s": cost_s + sum(calls * (native.call_time_s or 0.0) for calls, native in after),
            "cpu_s": cpu_s + sum(calls * (native.call_cpu_s or 0.0) for calls, native in after),
            "cost_from": "prefix",
            "python_functions": left,
            "stateful": op.stateful and bool(left),
        }

    others = tuple(one for one in given.python_functions if one.token not in priced)
    return each(given, changed).model_copy(update={"python_functions": others})


NATIVE = Spec(
    name="native",
    words="Python functions as ops of TensorFlow",
    does="a `numpy_function` or `py_function` that computes with NumPy becomes TensorFlow's ops: the same function "
    "with other names, traced by AutoGraph; floats may be rounded otherwise. What keeps state, draws at random, reads "
    "files, or has no such name stays Python, with the line that says why",
    mends=("python-function",),
    candidates=candidates,
    rank=3,
    tried_unpriced=True,
    rewrite="xttsbench.fixes.native.rewrite:native",
    patch="xttsbench.fixes.native.patch:native",
)
