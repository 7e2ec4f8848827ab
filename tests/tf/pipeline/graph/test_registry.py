"""Recording leaves the registry as it was, whatever happens in between."""

from __future__ import annotations

import gc

import pytest
import tensorflow as tf
from tensorflow.python.ops import script_ops

from xttsbench.pipeline.graph.read import inspect
from xttsbench.pipeline.graph.registry import lookup, recording

pytestmark = pytest.mark.tf


def double(x):
    return x * 2


def fail_at_six(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, tf.constant(6, tf.int64))]):
        return tf.identity(x)


def counting(calls):
    def wrap(original):
        def recorded(*arguments):
            calls.append(arguments)
            return original(*arguments)

        return recorded

    return wrap


@pytest.mark.parametrize("make", [tf.numpy_function, tf.py_function])
def test_calls_are_recorded_and_the_original_put_back_after_an_error(make):
    dataset = tf.data.Dataset.range(4).map(lambda x: make(double, [x], tf.int64))
    token = inspect(dataset).python_functions[0].token
    before = script_ops._py_funcs.get(token)
    inside = getattr(before, "_func", None)
    calls = []
    seen = []
    with pytest.raises(tf.errors.OpError), recording({token: counting(calls)}):
        seen.extend(int(x) for x in dataset.map(fail_at_six))
    assert seen == [0, 2, 4]
    gc.collect()
    made = len(calls)
    assert made == 4
    assert script_ops._py_funcs.get(token) is before
    assert getattr(before, "_func", None) is inside
    assert [int(x) for x in dataset] == [0, 2, 4, 6]
    assert len(calls) == made


def test_a_failing_wrapper_restores_what_was_already_replaced():
    first = tf.data.Dataset.range(2).map(lambda x: tf.numpy_function(double, [x], tf.int64))
    second = first.map(lambda x: tf.py_function(double, [x], tf.int64))
    one, two = (f.token for f in inspect(second).python_functions)
    before = script_ops._py_funcs.get(one)

    def broken(original):
        raise ValueError("no recorder")

    with pytest.raises(ValueError, match="no recorder"), recording({one: counting([]), two: broken}):
        pass
    assert script_ops._py_funcs.get(one) is before


def test_an_unknown_token_is_nothing():
    assert lookup("pyfunc_99999999") is None
    with recording({"pyfunc_99999999": counting([])}):
        pass
