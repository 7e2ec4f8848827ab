"""Hooks of all tests: a marker by folder, a second try where processes or times are measured, skips without a GPU."""

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
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # likewise behind a shell's `&`
    signal.signal(signal.SIGINT, signal.default_int_handler)

_HERE = Path(__file__).parent
_FOLDER_MARKERS = ("unit", "tf", "e2e", "gpu", "browser")
_LONGEST = _HERE / "tf" / "samedata" / "test_edits.py"
"""The file that takes longest: it is begun first, since one process runs a whole file."""

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
    items.sort(key=lambda item: item.path != _LONGEST)
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


_TWICE = ("tf/", "e2e/", "unit/probes/", "unit/execution/", "unit/workflows/test_doctor")
"""Tests that run real processes, or read the real machine, which others use too: each has a second try."""
_TRIED_TWICE = "tried twice"


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a test marked ``measured``, or of :data:`_TWICE`, once more, in a directory of its own, where it failed.

    A neighbour on the machine can change what is measured during one run; a wrong verdict comes twice. A report that
    lacks what a test looks for raises more than AssertionError: a KeyError, a ValueError of an unpacking. The summary
    names the tests that needed it.
    """
    try:
        return (yield)
    except Exception as error:  # what pytest raises to skip, fail or stop derives from BaseException
        place = pyfuncitem.path.relative_to(_HERE).as_posix()
        if not place.startswith(_TWICE) and pyfuncitem.get_closest_marker("measured") is None:
            raise
        names = pyfuncitem._fixtureinfo.argnames
        arguments = {name: pyfuncitem.funcargs[name] for name in names}
        if "tmp_path" in arguments:
            arguments["tmp_path"] /= "again"
            arguments["tmp_path"].mkdir()
        pyfuncitem.user_properties.append((_TRIED_TWICE, (str(error) or repr(error)).splitlines()[0]))
        pyfuncitem.obj(**arguments)
        return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that passed at the second try only, with what the first one failed for."""
    for report in terminalreporter.getreports("passed"):
        for name, why in getattr(report, "user_properties", ()):
            if name == _TRIED_TWICE and report.when == "call":
                terminalreporter.write_line(f"TRIED TWICE {report.nodeid} - {why}")
