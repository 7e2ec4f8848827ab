"""This project's own loaders under its own fixture: recorded in every run, failed only by a proven regression.

Without ``--benchmark-enable`` (``pyproject.toml`` disables benchmarks) each loader runs a few steps and nothing is
measured. With it, and ``--benchmark-autosave``, the record is kept; ``--benchmark-compare`` compares with the last one.
Two processes for each loader keep this short, so that only a large regression is proven; a gate would take 12.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xttsbench.execution.journal import read_trials
from xttsbench.workflows.bundled import prepare
from xttsbench.xtts.data.make import make_data

TARGET = "xttsbench.targets.bundled:make_workload"
LOADERS = ("numpy_wav", "packed")
"""The slowest and the fastest: most of a test's time is TensorFlow's import, twice."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The arguments for forty short clips and their features."""
    root: Path = tmp_path_factory.mktemp("loaders")
    make_data(root / "speech", 40, 3, 1.0, 2.0)
    arguments = {"data": str(root / "speech"), "features": str(root / "features"), "batch_size": 4, "with_step": False}
    prepare([arguments | {"loader": "packed"}])
    return arguments


@pytest.mark.alone
@pytest.mark.benchmark(group="loaders behind an emulated accelerator, 10 ms a step")
@pytest.mark.parametrize("loader", LOADERS)
def test_loader(xttsbench_benchmark: Any, data: dict[str, Any], loader: str) -> None:
    result = xttsbench_benchmark(
        TARGET,
        kwargs=data | {"loader": loader},
        accelerator="emulated:10",
        steps=120,
        window_s=2.0,
        blocks=2,
        max_regression="20%",
    )
    if result.report is not None:  # measured
        assert 0 < result.extra_info["utilization"]["estimate"] <= 1
        assert len(read_trials(Path(result.extra_info["run"]))) >= 2
        assert result.extra_info["processes"] in (1, 2)  # one that a neighbour disturbed is left out
