"""Runs a script as the parent does, without the parent: what comes back, and how the process ended."""

from __future__ import annotations

import json
import os
import socket
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import scripts
from tests.tf.forks import Forks
from xttsbench.execution.child import SharedRows
from xttsbench.records.rows import Rows
from xttsbench.records.trial import TrialSpec

SCRIPTS = Path(__file__).parents[3] / "targets" / "scripts"
NOT_AFTERWARDS = Path(__file__).with_name("not_afterwards.py")


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
def watched(forks: Forks) -> Callable[..., Ran]:
    """Run one of the scripts under the watch, without what is measured once it is over where a test asks for none."""

    def run(script: str, *arguments: str, afterwards: bool = True, **settings: Any) -> Ran:
        ours, theirs = socket.socketpair()
        target = str(SCRIPTS / script)
        fields = {"window_s": 30.0} | settings
        spec = TrialSpec(trial_id="t", kind="script", target=target, arguments=arguments, **fields)
        with ours, SharedRows() as shared, open(os.devnull, "w") as nothing:
            with theirs:
                descriptors = theirs.fileno(), shared.fileno()
                process = forks.start(
                    Path(scripts.__file__ if afterwards else NOT_AFTERWARDS),
                    errors=nothing.fileno(),
                    descriptors=descriptors,
                )
            ours.settimeout(240)
            ours.sendall(spec.model_dump_json().encode() + b"\n")
            with process, ours.makefile("r", encoding="utf-8") as lines:
                messages = [json.loads(line) for line in lines]
                output = process.finish(60.0)
        segments = {one.name: one for one in shared.memory.read()}
        return Ran(messages, segments, process.wait(), output)

    return run


@pytest.fixture
def bare(forks: Forks) -> Callable[..., str]:
    """Run one of the scripts under Python alone: what it printed."""

    def run(script: str, *arguments: str) -> str:
        with (
            open(os.devnull, "w") as nothing,
            forks.start(SCRIPTS / script, *arguments, errors=nothing.fileno()) as ran,
        ):
            return ran.succeed()

    return run
