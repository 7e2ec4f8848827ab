"""Every scenario that comes with the project runs: each of its arms is measured, in one short trial."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from xttsbench.records.base import DECIDED
from xttsbench.shipped import available
from xttsbench.workflows.scenario import Request, run
from xttsbench.xtts.data.make import make_data

ROOT = Path(__file__).parents[2]
SLOW = ("full", "mode", "precision", "batch", "threads", "workers", "prefetch")
"""34 arms; XLA compiles; more arms of the loaders."""
SHIPPED = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
    for name in available("scenarios")
    if name != "diagnose"  # by `make diagnose` and its tests
]


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("speech") / "set"
    make_data(directory, 80, 3, 1.0, 2.0)
    return directory


@pytest.mark.parametrize("name", SHIPPED)
def test_it_runs(name: str, speech: Path, on_one_helper: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xttsbench.reporting.page.write_run", lambda *_: ())
    text = (ROOT / "scenarios" / f"{name}.yaml").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^(steps|window_s|blocks|budget_s):.*\n", "", text)
    text += "steps: 4\nwindow_s: 0.2\nblocks: 1\nbudget_s: 600\n"
    (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "scenarios" / "step-times.json", tmp_path)
    asked = Request(
        scenario=str(tmp_path / f"{name}.yaml"),
        data=speech,
        settings={"features": str(speech.parent / "features")},
        out=tmp_path / "out",
    )
    outcome = run(asked)
    report = outcome.report
    # So short a run decides large differences and no others.
    decided = all(arm.decision in DECIDED for arm in report.arms if arm.role == "candidate")
    assert outcome.exit_code == (0 if decided else 3), outcome.message
    assert [arm.status for arm in report.arms] == ["ok"] * len(report.arms), report.warnings
    assert all(arm.throughput_per_s is not None and arm.steps >= 2 for arm in report.arms)
    assert report.parity is None or report.parity["same"], report.parity
    assert not report.parity or not report.parity["failed"]
