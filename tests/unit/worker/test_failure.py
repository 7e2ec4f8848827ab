"""Failures of a trial in words, without TensorFlow."""

from __future__ import annotations

from xttsbench.worker.failure import failure


def test_a_worker_of_the_service_that_finds_no_python_function_is_explained() -> None:
    said = "Failed to get element from worker localhost:1: ValueError: Could not find callback with key=pyfunc_0."
    found = str(failure(RuntimeError(said))["cause"])
    assert "with key=pyfunc_0. TensorFlow does it so: a worker of the tf.data service is another process" in found
    assert "another process" not in str(failure(RuntimeError("Could not find callback"))["cause"]), "of no service"
