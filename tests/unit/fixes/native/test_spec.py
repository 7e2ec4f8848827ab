"""The fix ``native``: at the price of the ops where they were timed, refused where they cannot be, and as a patch."""

from __future__ import annotations

import pytest

from tests.unit.fixes.pipelines import BATCH, ENVIRONMENT, PYTHON, RANGE, pipeline, python
from xttsbench.fixes.native import candidates
from xttsbench.fixes.patch import propose
from xttsbench.fixes.proposals import forbidden
from xttsbench.fixes.spec import Setting
from xttsbench.records.base import Location
from xttsbench.records.fix import FixSet, Patch
from xttsbench.records.pipeline import NativeFunction, Pipeline, PipelineOp, PythonFunction

FILE = "/home/her/data.py"
TEXT = 'def f_native(x):\n    """As ops."""\n    return tf.tanh(x) * tf.constant(BANK, tf.float32)\n'


def given(native: NativeFunction | None, gil: str = "holds") -> Pipeline:
    function = python(gil, cpu_s=0.01).model_copy(update={"native": native})
    return pipeline(RANGE, PYTHON, BATCH, python_functions=(function,))


def known(native: NativeFunction | None, gil: str = "holds"):
    return list(candidates(Setting(given(native, gil), 2, ENVIRONMENT)))


def test_a_timed_function_costs_what_its_ops_do_and_holds_no_lock():
    native = NativeFunction(call_time_s=0.002, call_cpu_s=0.003)
    (found,) = known(native)
    after = found.edit(given(native))
    (op,) = [one for one in after.ops if one.op == "MapDataset"]
    assert (op.cost_s, op.cpu_s) == (pytest.approx(0.016), pytest.approx(0.024))
    assert (op.python_functions, op.stateful, after.python_functions) == ((), False, ())
    assert (found.why_not, found.refused) == (None, None)
    assert "rounded" in found.proof


def test_what_is_the_same_to_the_last_bit_has_nothing_to_prove():
    (found,) = known(NativeFunction(call_time_s=0.002, call_cpu_s=0.003, exact=True))
    assert found.proof is None


def test_what_cannot_be_traced_is_not_tried_and_says_where_and_why():
    (found,) = known(NativeFunction(refused="draws at random (data.py:7)"))
    assert forbidden([found]) == "f() stays Python: it draws at random (data.py:7)"


@pytest.mark.parametrize(("gil", "count"), [("holds", 1), ("blocks", 0)])
def test_what_was_not_looked_at_is_tried_unless_it_waits(gil, count):
    found = known(None, gil)
    assert len(found) == count
    assert all(one.edit is None and forbidden([one]) is None for one in found)


def patch_of(source: str, native: NativeFunction, **fields: object) -> Patch:
    """The patch of a source whose ``# f`` marks the function and ``# op`` the map."""
    lines = source.splitlines()
    f, op = (next(n for n, one in enumerate(lines, 1) if one.endswith(mark)) for mark in ("# f", "# op"))
    function = PythonFunction(
        **({"token": "t", "kind": "numpy_function", "name": "f"} | fields),
        location=Location(file=FILE, line=f),
        native=native,
    )
    ops = (
        PipelineOp(name="range", op="RangeDataset"),
        PipelineOp(
            name="map",
            op="MapDataset",
            inputs=("range",),
            python_functions=("t",),
            location=Location(file=FILE, line=op),
        ),
    )
    record = Pipeline(ops=ops, python_functions=(function,))
    return propose(FixSet.of(["native"]), record, lambda _: source, own=lambda file: file == FILE)


TRACED = NativeFunction(call_time_s=1e-3, call_cpu_s=1e-3, name="f_native", text=TEXT, names=("BANK",))
AT_MODULE_LEVEL = """import tensorflow as tf
BANK = [1.0]


def f(x):  # f
    return x


def mapped(x, y):
    return tf.numpy_function(f, [x, *y], tf.float32)


def make():
    return tf.data.Dataset.range(3).map(mapped)  # op
"""


def test_the_function_is_written_before_the_one_that_calls_it():
    patch = patch_of(AT_MODULE_LEVEL, TRACED)
    text = patch.files[FILE]
    assert patch.unpatched == {}
    assert "def f_native(x):" in text
    assert text.index("def f_native") < text.index("def mapped")
    assert "return f_native(x, *y)\n" in text
    assert "numpy_function" not in text
    compile(text, FILE, "exec")


def test_a_lambda_in_a_chain_has_it_before_the_statement():
    source = """import tensorflow as tensor
def make(BANK):
    f = lambda x: x  # f
    ds = tensor.data.Dataset.range(3)
    return ds.map(lambda x: tensor.py_function(func=f, inp=(x,), Tout=[tensor.float32]))  # op
"""
    text = patch_of(source, TRACED, kind="py_function").files[FILE]
    assert "    def f_native(x):\n" in text
    assert "tensor.tanh(x) * tensor.constant(BANK, tensor.float32)" in text
    assert "ds.map(lambda x: [f_native(x)])" in text


def test_inside_a_class_it_is_written_in_the_method():
    source = AT_MODULE_LEVEL.replace("def mapped(x, y):\n    return", "class A:\n  def mapped(self, x, y):\n    return")
    text = patch_of(source, TRACED).files[FILE]
    assert "  def mapped(self, x, y):\n    def f_native(x):\n" in text
    compile(text, FILE, "exec")


def test_a_name_that_is_taken_is_left_alone():
    text = patch_of(AT_MODULE_LEVEL.replace("def make", "def f_native():\n    pass\n\n\ndef make"), TRACED).files[FILE]
    assert "def f_native_(x):" in text
    assert "return f_native_(x, *y)" in text


@pytest.mark.parametrize(
    ("source", "native", "why"),
    [
        (AT_MODULE_LEVEL.replace("BANK", "OTHER"), TRACED, "BANK, which the ops use, is not known"),
        (AT_MODULE_LEVEL.replace("(f, [", "(g, ["), TRACED, "o call of numpy_function or py_function names f"),
        (AT_MODULE_LEVEL.replace("def mapped(x", "def mapped(f, x"), TRACED, "o call of numpy_function"),
        (AT_MODULE_LEVEL.replace("f, [x, *y], tf.float32", "*given"), TRACED, "o call of numpy_function"),
        (AT_MODULE_LEVEL, TRACED.model_copy(update={"text": None, "why_no_text": "it is long"}), "it is long"),
    ],
)
def test_where_there_is_no_place_or_text_the_saved_plan_is_named(source, native, why):
    patch = patch_of(source, native)
    assert not patch.files
    assert why in patch.unpatched["native"]
    assert "saved plan" in patch.unpatched["native"]
