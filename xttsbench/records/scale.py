"""Records of ``xttsbench plan``: predictions for more machines, and the measured costs that they rest on."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from xttsbench.records.base import Estimate, Record

USUAL_GBIT_S: Final = 10.0
"""Speed of a network where nothing says another one."""


class Served(Record):
    """A tf.data service that a trial measures: its address, and the process ids of its dispatcher and its worker."""

    target: str
    dispatcher: int
    worker: int


class ServiceCost(Record):
    """Mean costs of a batch that one worker of the service handed to one client, over one stretch.

    The batch is in the worker's memory, so that making it costs nothing.
    """

    compressed: bool
    splits: bool = False  # Whether each batch is a split that the dispatcher hands out
    paced: bool = False  # Whether the client paused before each batch
    bytes: int  # Of the batch in memory
    wire_bytes: int  # Of the batch as it is sent, without what the protocol adds
    batches: int
    wall_s: float
    client_cpu_s: float
    worker_cpu_s: float
    dispatcher_cpu_s: float


class Workers(Record):
    """Services that a trial runs the input of a target on, on this machine: of one worker, of two, ..."""

    most: int = Field(ge=1)
    cores: float = Field(gt=0)  # Quota of each worker


class WorkersRate(Record):
    """Batches that an input gave on some workers, over one stretch."""

    workers: int
    batches: int
    wall_s: float


class MachineType(Record):
    """A machine that may be rented for input workers, from a file of prices."""

    name: str
    cores: float = Field(gt=0)
    gbit_s: float = Field(USUAL_GBIT_S, gt=0)
    price_per_hour: float | None = Field(None, ge=0)
    """``None`` without a file of prices: no price is invented."""


class Prices(Record):
    """A file of prices: what machines for input workers cost."""

    currency: str = ""
    trainer_per_hour: float | None = Field(None, ge=0)
    """Price of the machine that trains, once per replica."""
    machines: tuple[MachineType, ...] = Field(min_length=1)


class ScaleRequest(Record):
    """Settings of a plan beside the run that it is made from."""

    run: str  # Directory of the run of ``diagnose``
    cores: float | None = Field(None, gt=0)
    """Cores of each worker; ``None`` for as many as this machine has."""
    sharding: Literal["dynamic", "off"] = "dynamic"
    latencies_s: tuple[float, ...] = (2e-4,)
    """Round trips of the network, beyond those within a machine."""
    prices: Prices | None = None


class ScaleConditions(Record):
    """Conditions under which the number of workers varies."""

    cores: float
    """Cores of each worker, or of the machine where there are no workers."""
    replicas: int = 1
    gbit_s: float | None = USUAL_GBIT_S
    """Speed of each machine's network; ``None`` without workers: nothing is sent."""
    latency_s: float = 0.0
    accelerator: float = 1.0
    """Speed of the step, in times that of the measured one."""


class ScaleCell(ScaleConditions):
    """Throughput of one layout, as predicted."""

    workers: int
    """Input workers; 0 for a training that reads its input in its own process."""
    compressed: bool
    """Whether batches are compressed on the network: where that gives more."""
    throughput_per_s: Estimate
    """Batches a second, of all replicas together."""
    utilization: Estimate
    """Share of the time in which the step runs, 0..1."""
    limited_by: str
    extrapolated: bool
    """Whether predictions for so many workers, or such a network or step, were never compared with measurements."""


class ScaleKnee(ScaleConditions):
    """Number of workers from which on more of them give no more than 5 %."""

    workers: Estimate
    limited_by: str
    """Resource that sets the pace from there on."""
    utilization: Estimate
    """At that number of workers."""


class ScaleChoice(ScaleCell):
    """The cheapest layout that keeps the accelerator busy for 90 % of the time, at the low end of its range."""

    machine: str
    price_per_hour: float | None
    """Price of the workers, and of the machine that trains where the file has it; ``None`` without prices."""


class ScaleMeasured(Record):
    """Throughput of the input on some workers of this machine, measured and as the plan would have it."""

    workers: int
    measured_per_s: Estimate
    predicted_per_s: Estimate


class ScaleProof(Record):
    """Measurements of the input on workers of this machine."""

    cores: float
    """Cores of each worker."""
    rates: tuple[ScaleMeasured, ...]
    needed: Estimate | None = None
    """Workers of so many cores that make batches as fast as the step takes them; ``None`` without a step, or where more
    workers gave too little more to tell."""


class Scale(Record):
    """Predicted gain of more cores, input workers and replicas, and of faster networks and accelerators."""

    run: str
    """The run of ``diagnose`` that it is made from."""
    needs: dict[str, Estimate]
    """Needs of a batch that the predictions rest on, with units in their names."""
    measured_per_s: Estimate
    """Batches a second of the target as it is, measured."""
    predicted_per_s: Estimate
    """Rate of the target as it is by the model."""
    sharding: Literal["dynamic", "off"]
    cells: tuple[ScaleCell, ...]
    knees: tuple[ScaleKnee, ...]
    choices: tuple[ScaleChoice, ...]
    """The cheapest layout for each speed of the step that workers can feed; without prices the fewest machines."""
    proof: ScaleProof | None = None
    currency: str = ""
    notes: tuple[str, ...] = ()

    @property
    def usual(self) -> ScaleKnee:
        """The knee of the step as it is, on the usual network."""
        return next(one for one in self.knees if (one.gbit_s, one.accelerator, one.replicas) == (USUAL_GBIT_S, 1, 1))
