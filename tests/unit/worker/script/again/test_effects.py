"""What a script writes is heard of; what only looks like it is not. In a process of its own: hooks stay for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from xttsbench.worker.script.again import overlays

SCRIPT = """
import os, tempfile
import h5py
from xttsbench.worker.script.again.effects import Effects, patch_h5py
tempfile.gettempdir()
effects = Effects()
os.makedirs("there", exist_ok=True)                  # exists already
tempfile.NamedTemporaryFile().close()                # opens its directory first
with tempfile.TemporaryDirectory() as folder:
    open(os.path.join(folder, "inside"), "w").close()
open("there/read").close()
open(os.devnull, "w").close()
quiet = tuple(effects.wrote)
os.makedirs("there/new", exist_ok=True)
with open("there/log", "a"):
    pass
os.replace("there/log", "there/kept")
patch_h5py(effects)
h5py.File("there/weights.h5", "w").close()
h5py.File("there/weights.h5").close()
effects.end()
open("there/late", "w").close()
here = os.getcwd()
print(quiet, [os.path.relpath(one, here) for one in effects.wrote])
"""


def test_only_what_is_left_behind_counts_as_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "read").touch()
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "() ['there/new', 'there/log', 'there/weights.h5']", done.stderr


def test_libraries_that_are_loaded_stay_the_same_files_and_others_do_not():
    found = {Path(one) for one in overlays._libraries()}
    assert any(Path(np.__file__).resolve().parent in one.parents for one in found)
    assert all(one.is_file() and ".so" in one.name for one in found)
