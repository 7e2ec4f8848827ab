"""What all tests share: the marker that a test's folder gives it, a second try for those that assert on measured times,
and the reason for skipping the GPU's."""

from __future__ import annotations

import gc
import json
import signal
import socket
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and children would ignore it as well

_HERE = Path(__file__).parent
_FOLDER_MARKERS = ("unit", "tf", "e2e", "gpu", "browser")

gc.disable()  # until all tests are collected
_DONT_WRITE = sys.dont_write_bytecode
sys.dont_write_bytecode = False  # likewise: what pytest makes of the modules of tests is kept, which takes it seconds


def pytest_collection_finish() -> None:
    """Modules and thousands of tests stay to the end: each search for garbage would go through them, half a second."""
    gc.freeze()
    gc.enable()
    sys.dont_write_bytecode = _DONT_WRITE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by the folder below ``tests/``, and skip those for a GPU with the reason that there is none."""
    reason = None
    for item in items:
        folder = item.path.relative_to(_HERE).parts[0]
        if folder in _FOLDER_MARKERS:
            item.add_marker(folder)
        if item.get_closest_marker("gpu"):
            reason = _why_no_gpu() if reason is None else reason
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_gpu() -> str:
    """Return why no NVIDIA GPU can be used here, or an empty string where one can; without TensorFlow."""
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return f"no NVIDIA GPU: {error}"
    return "" if count else "no NVIDIA GPU: the driver lists none"


@pytest.fixture(autouse=True)
def import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take targets' folders off the import path after each test: one with a ``mine.py`` hides another's ``mine/``."""
    monkeypatch.setattr(sys, "path", sys.path[:])


@pytest.fixture
def loopback_tasks() -> list[str]:
    """``TF_CONFIG`` of each of two workers on ports of this machine that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    workers = [f"127.0.0.1:{listening.getsockname()[1]}" for listening in sockets]
    for listening in sockets:
        listening.close()
    return [
        json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}) for index in range(2)
    ]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a test marked ``measured`` once more, in a directory of its own, where it failed.

    A neighbour on the machine can change what is measured during one run; a wrong verdict comes twice. A report that
    lacks what a test looks for raises more than AssertionError: a KeyError, a ValueError of an unpacking.
    """
    try:
        return (yield)
    except Exception as error:  # what pytest raises to skip, fail or stop derives from BaseException
        if pyfuncitem.get_closest_marker("measured") is None:
            raise
        names = pyfuncitem._fixtureinfo.argnames
        arguments = {name: pyfuncitem.funcargs[name] for name in names}
        if "tmp_path" in arguments:
            arguments["tmp_path"] /= "again"
            arguments["tmp_path"].mkdir()
        print(f"tried once more, since the first run failed: {(str(error) or repr(error)).splitlines()[0]}")
        pyfuncitem.obj(**arguments)
        return True
