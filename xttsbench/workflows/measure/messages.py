"""Messages between a run and a device of a cluster, as JSON: the run that is measured, its parts, the answers."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from xttsbench.records.base import Record
from xttsbench.records.machine import MeasuredOn
from xttsbench.records.plan import Comparison, RunPlan
from xttsbench.records.trial import TrialRecord


class Place(Record):
    """A device: a GPU, or the processors of a machine without one."""

    node: str  # Of the engine's own naming
    index: int = Field(0, ge=0)  # Number of the device on its machine
    devices: int = Field(1, ge=1)  # Devices of that machine, which share its processors
    gpu: bool = False
    cpus: int = 1  # Of the device's share, as the engine counts them


class Admission(Record):
    """Run whose parts a device is to measure, and what has to be the same there."""

    plan: RunPlan
    package: str | None  # Hash of this package's Python files
    folder: str  # Working directory of the command, where names of targets begin; another one if it is not there
    variables: dict[str, str]  # Those of TensorFlow, CUDA and NumPy that the user has set
    place: Place


class Admitted(Record):
    """Answer of a device: what it is, or why nothing of the run can be measured on it."""

    machine: MeasuredOn
    environment: dict[str, Any]  # Of that machine, as in ``environment.json``
    refused: str | None = None


class PartOrder(Record):
    """Part of a comparison that a device is to measure; the arguments of its measurement, but for callbacks."""

    comparison: Comparison
    how: dict[str, Any]  # Of :func:`xttsbench.workflows.measure.arms.compare_arms`
    asks: bool = False  # After each round the run says which configurations need no more
    earlier: tuple[TrialRecord, ...] = ()  # Of a run that goes on: trials of this part, which are not run again


class Told(Record):
    """One message of a device while it measures a part."""

    says: str | None = None  # What begins
    rounds: tuple[TrialRecord, ...] | None = None  # Live trials so far
    trial: TrialRecord | None = None  # One that has ended
    asks: bool = False  # It waits for the configurations that need no more rounds
    failed: str | None = None  # Nothing can be measured there
    ends: bool = False  # The part is over
