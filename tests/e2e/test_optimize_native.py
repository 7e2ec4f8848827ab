"""``xttsbench optimize`` where Python computes: as ops of TensorFlow it is faster, and yields the same; patched too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_optimize import mended, run

# Two minutes each; what they put together has tests of its own in tests/tf/fixes and, with other fixes, in e2e.
pytestmark = [pytest.mark.measured, pytest.mark.slow]


def test_features_in_python_become_ops_that_can_be_read(tmp_path: Path) -> None:
    ran = run("speech.py:features", tmp_path, "--accelerator", "emulated:2", budget_s=100)
    chosen = mended(ran, 1.2)
    assert "native" in chosen["fixes"], chosen["name"]
    assert chosen["semantics"]["how"] == "rounding"  # spectra and their logarithms, rounded otherwise
    patch = chosen["patch"]
    (text,) = patch["files"].values()
    added = [line[1:] for line in patch["diff"].splitlines() if line.startswith("+")]
    assert any("def levels_native(audio, index):" in line for line in added)
    assert any("levels = tnp.log(tnp.maximum(" in line for line in added)
    assert "tf.numpy_function(" not in text
