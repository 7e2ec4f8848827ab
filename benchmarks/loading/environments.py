"""The peers' environments: a virtual environment for each, made on first use from a pinned file, outside the project's.

They lie in the user's cache directory (``XTTSBENCH_CACHE``), named by the content of the file and the version of
Python, so that another pin makes another environment. Where packages come from is pip's own configuration. On PyPI
torch for Linux is the build for GPUs, some gigabytes; point pip at torch's index of CPU builds to spare them.
"""

from __future__ import annotations

import fcntl
import hashlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from xttsbench.xtts.data.make import cache_directory

PEERS = Path(__file__).resolve().parent / "peers"
NAMES = ("torch", "grain")


class EnvironmentFailedError(Exception):
    """An environment could not be made; the message says why, in one line."""


def requirements(peer: str) -> list[str]:
    """Return the pinned packages of a peer."""
    lines = (PEERS / f"{peer}-requirements.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def interpreter(peer: str) -> Path:
    """Return the interpreter of a peer's environment, which is made where it is not there.

    Raises:
        EnvironmentFailedError: it cannot be made, for instance without a network.
    """
    key = hashlib.sha256("\n".join([platform.python_version(), *requirements(peer)]).encode()).hexdigest()[:8]
    directory = cache_directory() / "benchmarks" / f"{peer}-{key}"
    directory.parent.mkdir(parents=True, exist_ok=True)
    whole = directory / "whole"  # written last: an installation broken off is not taken for a whole one
    with open(directory.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            print(f"making the environment of {peer} (once)", file=sys.stderr, flush=True)
            shutil.rmtree(directory, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(directory)], peer)
            pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
            _run([*pip, "--requirement", str(PEERS / f"{peer}-requirements.txt")], peer)
            whole.touch()
    return directory / "bin" / "python"


def _run(command: list[str], peer: str) -> None:
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        # pip's messages name indexes and directories of this machine: they are shown, and not kept.
        print(done.stderr[-2000:], file=sys.stderr)
        raise EnvironmentFailedError(f"the environment of {peer} could not be made (exit code {done.returncode})")
