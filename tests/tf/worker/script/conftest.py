"""Runs a script as the parent does, without the parent: what comes back, and how the process ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from xttsbench.execution.child import SharedRows
from xttsbench.records.rows import Rows
from xttsbench.records.trial import TrialSpec

SCRIPTS = Path(__file__).parents[3] / "targets" / "scripts"


@dataclass
class Ran:
    """A script that has ended."""

    messages: list[dict[str, Any]]
    segments: dict[str, Rows]
    code: int
    output: str

    def part(self, name: str) -> Any:
        """The last value of a field of the trial record."""
        return [message["value"] for message in self.messages if message.get("part") == name][-1]

    def column(self, segment: str, name: str) -> list[int]:
        """One column of a segment."""
        return list(self.segments[segment].columns[name]) if segment in self.segments else []

    def median_ms(self, segment: str, name: str) -> float:
        """Median of a column of nanoseconds."""
        return statistics.median(self.column(segment, name)) / 1e6


@pytest.fixture
def watched() -> Callable[..., Ran]:
    """Run one of the scripts under the watch."""

    def run(script: str, *arguments: str, **settings: Any) -> Ran:
        ours, theirs = socket.socketpair()
        target = str(SCRIPTS / script)
        fields = {"window_s": 30.0} | settings
        spec = TrialSpec(trial_id="t", kind="script", target=target, arguments=arguments, **fields)
        with ours, SharedRows() as shared:
            descriptors = [theirs.fileno(), shared.fileno()]
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "xttsbench.worker.script", *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            theirs.close()
            ours.settimeout(240)
            ours.sendall(spec.model_dump_json().encode() + b"\n")
            try:
                with ours.makefile("r", encoding="utf-8") as lines:
                    messages = [json.loads(line) for line in lines]
                output, _ = process.communicate(timeout=60)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        segments = {one.name: one for one in shared.memory.read()}
        return Ran(messages, segments, process.returncode, output)

    return run


@pytest.fixture
def bare() -> Callable[..., str]:
    """Run one of the scripts under Python alone: what it printed."""

    def run(script: str, *arguments: str) -> str:
        command = [sys.executable, str(SCRIPTS / script), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
        return ended.stdout

    return run
