"""The shorter form of the proof that the trainer learns: its gate is met, and is not by a run that cannot learn."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROOF = Path(__file__).resolve().parents[2] / "benchmarks" / "proof"


@pytest.mark.slow  # that its step lowers the loss is shown in tests/tf/training/step/test_one_device.py
@pytest.mark.parametrize(
    ("settings", "learns"),
    [
        pytest.param((), True, id="learns"),
        pytest.param(("--set", "optimizer.learning_rate=1e-9"), False, id="cannot"),
    ],
)
def test_the_loss_falls_where_the_trainer_learns_and_not_where_it_cannot(
    tmp_path: Path, settings: tuple[str, ...], learns: bool
) -> None:
    command = [sys.executable, str(PROOF), "--quick", *settings, "--out", str(tmp_path / "proof.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == (0 if learns else 1), done.stderr
    result = json.loads(done.stdout)
    assert result == json.loads((tmp_path / "proof.json").read_text())
    assert (result["met"], result["provisional"]) == (learns, True)
    (gate,) = result["gates"]
    assert (gate["goal"], gate["met"], gate["gate"]) == (">= 3.5", learns, True)
    assert learns or gate["value"] == pytest.approx(1.0, abs=0.3), "it is where it began"
    assert result["runs"]["trained"]["first_loss"] > 2, "an untrained model's"
