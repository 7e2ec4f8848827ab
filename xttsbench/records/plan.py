"""What a run set out to do: kept beside the journal, so that the report can be built again from files alone."""

from __future__ import annotations

from typing import Any

from xttsbench.records.base import SCHEMA_VERSION, Record
from xttsbench.records.report import Kind


class Accelerator(Record):
    """The device that the steps run on: the real one, or an emulated one that waits as long as a recorded one took."""

    kind: str = "real"
    """``real`` or ``emulated``."""
    label: str = "real device"
    step_times_ms: tuple[float, ...] = ()
    source: str | None = None
    """The file that the step times came from."""


class RunPlan(Record):
    """``plan.json``."""

    schema_version: int = SCHEMA_VERSION
    kind: Kind
    command: str
    created_utc: str
    target: str
    kwargs: dict[str, Any] = {}
    accelerator: Accelerator = Accelerator()
    steps: int
    budget_s: float
    seed: int = 0
    profile: bool = False
