"""What stays as it is where a script's writes go to memory."""

from __future__ import annotations

import site
import sys
from pathlib import Path

import numpy as np

from xttsbench.worker.script import copy_on_write


def test_libraries_that_are_loaded_stay_the_same_files_wherever_they_are_installed(monkeypatch, tmp_path):
    packages = Path(np.__file__).resolve().parents[1]
    for name in ("prefix", "base_prefix"):  # as where a .pth file or PYTHONPATH brings them
        monkeypatch.setattr(sys, name, str(tmp_path))
    monkeypatch.setattr(site, "getsitepackages", lambda: [])
    monkeypatch.setattr(sys, "path", [str(tmp_path / "project"), str(packages)])
    (tmp_path / "project").mkdir()
    found = [Path(one) for one in copy_on_write._installed()]
    assert packages in found
    assert tmp_path / "project" not in found
