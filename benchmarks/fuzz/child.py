"""One fuzzer in a process of its own: ``python child.py KIND [libFuzzer's options] FOLDER...``."""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import atheris

_OURS = """inputs limited_yaml scenario execution.run_directory execution.accelerator training.checkpoints xtts.recipe
xtts.clips xtts.wav xtts.data.metadata xtts.data.cache_files workflows.saved workflows.compare.sides
workflows.monitor.log"""
_READ = (*(f"xttsbench.{name}" for name in _OURS.split()), "yaml", "json", "zipfile", "csv", "numpy.lib")
with atheris.instrument_imports(include=list(_READ)):
    import inputs


def main() -> None:
    """Feed a kind's property until libFuzzer has had its time, or something is found."""
    kind = sys.argv.pop(1)
    sys.argv[0] = f"{sys.executable} {__file__} {kind}"  # a merge starts it again, through a shell
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        there = Path(folder)
        atheris.Setup(sys.argv, lambda content: inputs.KINDS[kind](content, there))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
