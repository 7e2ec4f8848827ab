"""Plan of a run, kept beside the journal so that the report can be built again from files alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field

from xttsbench.records.base import MARGIN, SCHEMA_VERSION, Record
from xttsbench.records.code import Checkout, ScriptAgain
from xttsbench.records.redaction import Hidden, Redaction
from xttsbench.records.report import Kind
from xttsbench.records.scale import ScaleRequest


class Accelerator(Record):
    """The device that the steps run on: the real one, or an emulated one that waits as long as a recorded one took."""

    kind: str = "real"  # ``real`` or ``emulated``
    label: str = "real device"
    step_times_ms: tuple[float, ...] = ()
    source: str | None = None  # The file that the step times came from


class PlannedVariant(Record):
    """One configuration that a comparison measures."""

    id: str
    role: Literal["baseline", "aa", "candidate"]
    config: dict[str, Any] = {}  # What makes it differ from the base
    kwargs: dict[str, Any] = {}  # All keyword arguments of the target: base and ``config``
    fix: str | None = None  # A rewrite of the target, or several joined by `` + ``
    patched: dict[str, str] = {}  # File of the user's -> file that is read in its place
    target: str | None = None  # Where it is another one than the comparison's
    script: ScriptAgain | None = None  # The same of what is known of a script
    checkout: Checkout | None = None  # Where its code is that of another revision


class Comparison(Record):
    """Configurations that are measured against their baseline in complete blocks, a group for each accelerator."""

    name: str  # The group of its trials and configurations; with the accelerator it says what may be compared
    description: str = ""
    target: str
    arguments: tuple[str, ...] = ()  # Of a target that is a script
    script: ScriptAgain | None = None  # What is known of the script from the run before
    bundled: bool = False  # The target is the bundled workload, whose arguments are known
    arms: tuple[PlannedVariant, ...] = Field(min_length=1)
    """The first is the baseline; the baseline again (role ``aa``), where there is one, is the last."""
    accelerators: tuple[Accelerator, ...] = Field((Accelerator(),), min_length=1)
    blocks: int = Field(ge=1)
    steps: int = Field(ge=1)
    window_s: float = Field(gt=0)  # Seconds at most for the measured steps of a trial
    margin: float = Field(MARGIN, gt=0)  # The smallest difference that matters, as a share
    loss_tolerance: float = Field(1e-3, gt=0)
    """Largest relative difference from the baseline's losses, for a configuration with another step."""
    trial_s: float = Field(gt=0)  # Time limit of a trial
    stall_s: float = Field(gt=0)  # A trial that is silent for so long is ended
    hashed: bool = False  # Digests of the batches that the configurations are timed on are taken
    fill_caches: bool = False
    """Caches are filled before anything is measured: what is compared are the epochs after the first."""
    fill_s: float | None = Field(None, gt=0)
    """Seconds at most that filling may take in a trial; ``None`` leaves that to the trial's window."""
    source_limit: int | None = Field(None, ge=1)
    """Elements that each source is cut to, for all configurations; ``None`` where they read all of their data."""

    @property
    def baseline(self) -> PlannedVariant:
        """The configuration that the others are compared with."""
        return self.arms[0]


class Procedure(Record):
    """Procedure of a sweep, which looks for the best of its configurations."""

    blocks: int = Field(20, ge=2, le=100)  # Processes of each configuration, at most
    cost: tuple[str, ...] = ()
    """Configuration keys whose smaller value is cheaper, the weightiest first: memory, then threads."""


class RunPlan(Record):
    """``plan.json``."""

    schema_version: int = SCHEMA_VERSION
    kind: Kind
    command: str
    created_utc: str
    target: str
    kwargs: dict[str, Any] = {}
    arguments: tuple[str, ...] = ()  # Of a script
    accelerator: Accelerator = Accelerator()
    steps: int
    budget_s: float
    seed: int = 0
    profile: bool = False
    comparison: Comparison | None = None  # The configurations that the run compares, where it does
    procedure: Procedure | None = None  # How a sweep looks for the best of them
    code: str | None = None  # Hash of the target's Python files, where they could be found
    data: str | None = None  # Hash of the bundled workload's data set
    new: str | None = None  # The other version of the target, where an edit is to be proved
    scale: ScaleRequest | None = None  # What a plan of more machines is made from
    timed: bool = True  # Whether an edit is timed, too
    any_order: bool = False  # An edit may give the samples in another order
    assume_pure: tuple[str, ...] = ()  # Functions (``module.function``) that the user says are pure
    tries: tuple[str, ...] = ()  # Fixes that are verified whatever is expected of them
    verified: bool = True  # Whether fixes are verified, where there is time
    devices: int | None = Field(None, ge=1)
    """Devices of a cluster on which blocks are measured at a time; ``None`` for this machine alone."""
    keep_writes: bool = False  # Whether the first run of a script writes to the disk
    repeat: bool = False  # Whether a script may be run again, whatever it writes
    redact: bool = False  # Whether values of arguments, paths and names are left out of every file
    hidden: Hidden | None = None  # What is masked in it; ``None`` where nothing is

    def redaction(self, known: Collection[str] = (), **where: Any) -> Redaction:
        """Return what leaves secrets, and with ``redact`` more, out of files; what is compared stays."""
        compared = self.comparison.arms if self.comparison is not None else ()
        bundled = self.comparison is not None and self.comparison.bundled
        shown = None if bundled else {key for arm in compared for key in arm.config}
        return Redaction(known, redact=self.redact, shown=shown, **where)

    def sealed(self, salt: str) -> RunPlan:
        """Return the plan with a digest of what is masked in its files.

        Raises:
            UsageError: a value is the mask itself.
        """
        found = self.redaction()
        found.kept(self.model_copy(update={"command": ""}))
        found.require_values()
        return self.model_copy(update={"hidden": Hidden.of(sorted(set(found.hidden)), salt)})

    @property
    def why_unverified(self) -> str | None:
        """Why no fix is verified, whatever time there is; ``None`` where fixes are."""
        if self.verified:
            return None
        if self.comparison is not None:
            return "configurations were compared in place of fixes; xttsbench optimize verifies those"
        return "no verification was asked for"
