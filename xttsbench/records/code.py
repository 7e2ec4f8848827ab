"""What the user's code is made of: the ops of its step by line and device, and places in its text; no verdicts."""

from __future__ import annotations

from typing import Literal

from xttsbench.records.base import Record

Phase = Literal["forward", "loss", "backward", "optimizer", "other"]


class OpLine(Record):
    """Ops of the step that one line of the user's code made."""

    file: str
    line: int
    function: str
    phase: Phase
    ops: int
    share: float | None = None
    """Share of the time of all ops of the step; ``None`` where ops were not timed."""
    device: str = ""
    """Where they ran: ``CPU:0``, ``GPU:0``; empty where that is not known."""


class Placement(Record):
    """Ops of one type on one device."""

    op: str
    device: str
    """``CPU:0``, ``GPU:0``."""
    count: int
    share: float | None = None
    why: str
    """Why TensorFlow put them there: asked for by ``tf.device``, no kernel for the GPU, no GPU, beside a resource."""


class StepOps(Record):
    """The ops of a step, from a run on cached batches that no timing uses."""

    phases: dict[Phase, float] = {}
    """Share of the time of the step's ops; the shares add up to 1."""
    how: str | None = None
    """How ops were told apart and timed."""
    op_time_s: float | None = None
    """Time of all ops of a step, summed over threads."""
    between_ops_s: float | None = None
    """Of an eager step: time in Python between its ops, per step."""
    lines: tuple[OpLine, ...] = ()
    placements: tuple[Placement, ...] = ()
    ops: int | None = None
    """Ops in one step."""
    short_ops: int | None = None
    """Of those, ops of compiled functions that were too short to be timed (some microseconds each); they are in no
    share. ``None`` where that could not be told."""
    keras_layers: bool | None = None
    """Whether Keras layers made some of them, so that the step may follow Keras's policy of precision."""
    unmeasured: dict[str, str] = {}


SourceKind = Literal[
    "autotune-arithmetic",
    "fixed-npy-header",
    "dead-option",
    "option-never-applied",
    "pool-size",
    "late-environment",
    "late-threads",
    "own-environment",
    "growth-with-limit",
]
"""``late-environment``: a variable that TensorFlow reads at its import, set after it; ``own-environment``: set before
it, so that a process that had imported TensorFlow already did not see it; ``late-threads``: thread settings after
something has run; ``growth-with-limit``: memory growth beside a memory limit; ``pool-size``: where a pipeline's pool
gets its threads, which is no fault by itself."""


class SourceFact(Record):
    """One place in the user's source."""

    kind: SourceKind
    file: str
    line: int
    text: str
    """The line as it stands."""
    detail: str = ""
