"""``xttsbench optimize`` where Python computes: as ops of TensorFlow it is faster, and yields the same; patched too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_optimize import run

# Two minutes each; what they put together has tests of its own in tests/tf/fixes and, with other fixes, in e2e.
pytestmark = [pytest.mark.measured, pytest.mark.slow]


def test_the_body_of_a_generators_loop_becomes_ops_that_can_be_read(tmp_path: Path) -> None:
    ran = run("speech.py:lines", tmp_path, "--accelerator", "emulated:2", budget_s=160)
    assert ran.code == 0, ran.err
    chosen = ran.chosen
    kinds = [one.partition(":")[0] for one in chosen["fixes"]]
    assert kinds[:2] == ["open-generator", "native"], chosen["name"]
    assert chosen["outcome"] == "accepted"
    assert chosen["semantics"]["equivalent"] is True
    assert chosen["verified_speedup"]["low"] > 1.2
    patch = chosen["patch"]
    assert (patch["ran"], patch["equivalent"]) == (True, True), patch["why_not"]
    assert patch["unpatched"] == {}
    added = [line[1:] for line in patch["diff"].splitlines() if line.startswith("+")]
    assert any("def samples_native(audio, number):" in line for line in added)
    assert any("yield audio, number" in line for line in added)
    assert any("element=samples_native" in line for line in added)
    assert any("tf.signal.rfft(" in line for line in added)


def test_features_in_python_become_ops_that_can_be_read(tmp_path: Path) -> None:
    ran = run("speech.py:features", tmp_path, "--accelerator", "emulated:2", budget_s=100)
    assert ran.code == 0, ran.err
    chosen = ran.chosen
    assert "native" in chosen["fixes"], chosen["name"]
    assert chosen["outcome"] == "accepted"
    assert chosen["semantics"]["equivalent"] is True
    assert chosen["semantics"]["how"] == "rounding"  # spectra and their logarithms, rounded otherwise
    assert chosen["verified_speedup"]["low"] > 1.2
    patch = chosen["patch"]
    assert (patch["ran"], patch["equivalent"]) == (True, True), patch["why_not"]
    assert patch["unpatched"] == {}
    (text,) = patch["files"].values()
    added = [line[1:] for line in patch["diff"].splitlines() if line.startswith("+")]
    assert any("def levels_native(audio, index):" in line for line in added)
    assert any("levels = tnp.log(tnp.maximum(" in line for line in added)
    assert "tf.numpy_function(" not in text
