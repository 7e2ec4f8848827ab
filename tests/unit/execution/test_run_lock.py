"""A run's directory is one process's at a time, and free again when that one is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from xttsbench.errors import UsageError
from xttsbench.execution.run_lock import held

HOLDS = """
import sys
from pathlib import Path
from xttsbench.execution.run_lock import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_another_process_is_kept_out_until_the_holder_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match="is in use by another process"), held(tmp_path):
            pass
        holder.kill()
        holder.wait()
        with held(tmp_path):
            assert list(tmp_path.iterdir()) == []


def test_it_is_free_again_after_use(tmp_path: Path) -> None:
    for _ in range(2):
        with held(tmp_path):
            pass
