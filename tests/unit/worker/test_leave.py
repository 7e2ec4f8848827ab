"""How a process of ours ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ENDS = """
import importlib.util, sys
from xttsbench.worker.channel import leave
for path in sys.argv[1:]:
    name = path.rsplit("/", 1)[1].removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = importlib.util.module_from_spec(spec)
leave(7)
"""


def test_a_process_that_ends_takes_the_sources_that_autograph_wrote_with_it(tmp_path: Path) -> None:
    written, own, gone = (tmp_path / f"{name}.py" for name in ("__autograph_generated_fileabc", "mine", "gone"))
    for path in (written, own):
        path.write_text("")
    command = [sys.executable, "-c", ENDS, str(written), str(own), str(gone)]
    done = subprocess.run(command, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, check=False)
    assert done.returncode == 7
    assert os.listdir(tmp_path) == ["mine.py"]
