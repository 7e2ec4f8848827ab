"""Failures of a trial in words, without TensorFlow."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from xttsbench.targets.spec import substituted
from xttsbench.worker.failure import failure


def test_a_worker_of_the_service_that_finds_no_python_function_is_explained() -> None:
    said = "Failed to get element from worker localhost:1: ValueError: Could not find callback with key=pyfunc_0."
    found = str(failure(RuntimeError(said))["cause"])
    assert "with key=pyfunc_0. TensorFlow does it so: a worker of the tf.data service is another process" in found
    assert "another process" not in str(failure(RuntimeError("Could not find callback"))["cause"]), "of no service"


@pytest.mark.parametrize(
    ("kind", "said", "told"),
    [
        ("AttributeError", "in user code:\n\n    AttributeError: SymbolicTensor object has no attribute 'astype'.",
         "it is a tensor: `tf.cast(y[0], tf.float32)` in place of `y[0].astype(np.float32)`."),
        ("AttributeError", "'SymbolicTensor' object has no attribute 'numpy'", "no value yet: return the tensor from"),
        ("TypeError", "float() argument must be a string or a real number, not 'SymbolicTensor'", "no value yet"),
        ("TypeError", "Input 'y' of 'Sub' Op has type float64 that does not match type float32 of argument 'x'.",
         "`tf.cast(..., tf.float32)` around what is float64."),
        ("NotImplementedError", "Cannot convert a symbolic tf.Tensor (x:0) to a numpy array.", "functions of TensorF"),
    ],
)  # fmt: skip
def test_what_a_step_cannot_do_within_a_function_is_said_with_what_to_write(
    tmp_path: Path, kind: str, said: str, told: str
) -> None:
    file = tmp_path / "train.py"
    file.write_text("loss = check(x @ w - y[0].astype(np.float32))\n")

    error = {"AttributeError": AttributeError, "TypeError": TypeError}.get(kind, NotImplementedError)(said)
    error.ag_error_metadata = SimpleNamespace(  # as AutoGraph leads back to the user's line
        translated_stack=(SimpleNamespace(is_converted=True, filename=str(file), lineno=1),)
    )
    found = str(failure(error)["cause"])
    assert found.startswith(f"{kind}: "), found
    assert f"{kind}: {kind}" not in found
    assert f"{file}:1. Inside a tf.function" in found
    assert told in found


def test_the_line_of_a_patched_copy_is_said_as_that_of_the_user_s_file(tmp_path: Path) -> None:
    file, copy = tmp_path / "train.py", tmp_path / "copy.py"
    file.write_text("for x in [0]:\n    y = 1\n    loss = y / x\n")
    copy.write_text("\n\n@str\ndef unused():\n    pass\ndef step(x):\n    y = 1\n    loss = y / x\nstep(0)\n")
    with substituted({str(file): str(copy)}):
        try:
            runpy.run_path(str(file))
        except ZeroDivisionError as error:
            found = failure(error)
    assert found["cause"] == f"ZeroDivisionError: division by zero at {file}:3"
    assert found["error"]["line"] == 3
