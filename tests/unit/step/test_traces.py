from __future__ import annotations

import pytest

from xttsbench.step.traces import trace_reason

A = "(TensorSpec(shape=(8, 16), dtype=tf.float32, name=None), Literal[1])"
OTHER_SHAPE = A.replace("(8, 16)", "(4, 16)")
UNKNOWN_SHAPE = A.replace("shape=(8, 16)", "shape=<unknown>")
OTHER_VALUE = A.replace("Literal[1]", "Literal[2]")
OTHER_TYPE = A.replace("float32", "float64")


@pytest.mark.parametrize(
    ("before", "function", "signature", "reason"),
    [
        ([], 1, A, "first"),
        ([(1, A)], 1, OTHER_SHAPE, "shape"),
        ([(1, A)], 1, UNKNOWN_SHAPE, "shape"),
        ([(1, A), (1, OTHER_VALUE)], 1, OTHER_VALUE.replace("(8, 16)", "(2, 16)"), "shape"),
        ([(1, A)], 1, OTHER_VALUE, "python value"),
        ([(1, A), (1, OTHER_SHAPE)], 1, OTHER_SHAPE.replace("Literal[1]", "Literal['x']"), "python value"),
        ([(1, A)], 1, OTHER_TYPE, "other"),
        ([(1, A)], 1, OTHER_SHAPE.replace("Literal[1]", "Literal[2]"), "other"),
        ([(1, A)], 2, A, "new function object"),
        ([(1, A)], 2, OTHER_SHAPE, "new function object"),
        ([(1, A), (2, A)], 3, A, "new function object"),
        ([(2, OTHER_SHAPE), (1, A)], 1, OTHER_VALUE, "python value"),
        ([(1, A)], 1, A, "first"),  # the second trace of a first call that makes variables
        ([(1, A), (1, A)], 1, A, "other"),
        ([(1, A), (1, OTHER_TYPE)], 1, A, "other"),
    ],
)
def test_the_reason_of_a_trace(before: list[tuple[int, str]], function: int, signature: str, reason: str) -> None:
    assert trace_reason(before, function, signature) == reason
