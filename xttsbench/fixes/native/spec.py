"""``native``: Python functions that compute with NumPy as ops of TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator

from xttsbench.fixes.spec import Candidate, Setting, Spec


def candidates(setting: Setting) -> Iterator[Candidate]:
    """Python functions that do not wait: whether one can be traced shows only where the target is loaded."""
    pipeline = setting.pipeline
    tokens = {one.token for one in pipeline.python_functions if one.gil != "blocks" and one.kind != "generator"}
    ops = tuple(op.name for op in pipeline.ops if tokens & set(op.python_functions))
    if ops:
        why = "what a Python function costs as ops of TensorFlow was not measured"
        yield Candidate("native", None, why, proof="its sums may be rounded otherwise", ops=ops)


NATIVE = Spec(
    name="native",
    words="Python functions as ops of TensorFlow",
    does="a `numpy_function` or `py_function` that computes with NumPy is traced into TensorFlow's ops, and compared "
    "with Python on real elements before it is used; floats may be rounded otherwise. What keeps state, draws at "
    "random, reads files or decides by values stays Python, with the line that says why",
    mends=("python-function",),
    candidates=candidates,
    rank=3,
    tried_unpriced=True,
    rewrite="xttsbench.fixes.native.rewrite:native",
    by_hand="write the function with TensorFlow's ops in place of NumPy's and call it in the map itself; or apply "
    "the saved plan, which traces it",
)
