"""Observations of the user's code, without a verdict: ops of its step, places in its text, a script that is run."""

from __future__ import annotations

from typing import Final, Literal

from xttsbench.records.base import Record
from xttsbench.records.pipeline import CallSite

Ending = Literal["returned", "exited", "raised", "stopped", "killed"]
Phase = Literal["forward", "loss", "backward", "optimizer", "other"]


class OpLine(Record):
    """Ops of the step that one line of the user's code made."""

    file: str
    line: int
    function: str
    phase: Phase
    ops: int
    share: float | None = None  # Share of the time of all ops of the step; ``None`` where ops were not timed
    device: str = ""  # Where they ran: ``CPU:0``, ``GPU:0``; empty where that is not known


class Placement(Record):
    """Ops of one type on one device."""

    op: str
    device: str  # ``CPU:0``, ``GPU:0``
    count: int
    share: float | None = None
    why: str
    """Why TensorFlow put them there: asked for by ``tf.device``, no kernel for the GPU, no GPU."""


class StepOps(Record):
    """The ops of a step, from a run on cached batches that no timing uses."""

    phases: dict[Phase, float] = {}  # Share of the time of the step's ops; the shares add up to 1
    how: str | None = None  # How ops were told apart and timed
    op_time_s: float | None = None  # Time of all ops of a step, summed over threads
    between_ops_s: float | None = None  # Of an eager step: time in Python between its ops, per step
    lines: tuple[OpLine, ...] = ()
    placements: tuple[Placement, ...] = ()
    ops: int | None = None  # Ops in one step
    short_ops: int | None = None
    """Ops of compiled functions that were too short to be timed (some microseconds each) and are in no share; ``None``
    where their number is not known.
    """
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
    "early-workers",
]
"""``late-environment``: a variable that TensorFlow reads at its import, set after it; ``own-environment``: set before
it, so that a process that had imported TensorFlow already did not see it; ``late-threads``: thread settings after
something has run; ``growth-with-limit``: memory growth beside a memory limit; ``pool-size``: where a pipeline's pool
gets its threads, which is no fault by itself; ``early-workers``: an ``on_epoch_begin`` of a dataset of Keras that has
workers."""


class SourceFact(Record):
    """One place in the user's source."""

    kind: SourceKind
    file: str
    line: int
    text: str  # The line as it stands
    detail: str = ""


class OwnBatches(Record):
    """Batches that a script makes without a dataset, in the thread that trains."""

    place: CallSite  # Where its loop asks for one
    text: str  # The code there: ``for x, y in Clips(files)``
    names: str  # That have the batch then: ``x, y``
    number: int = 0  # Of the place, as such places are found in the script's files, with an edit there or without
    maker: CallSite | None = None  # The first function that ran meanwhile; ``None`` where none of Python's did
    maker_name: str | None = None
    elsewhere: bool = False  # Whether they come by a queue: ``maker`` is what another thread that fills it runs
    signature: str | None = None  # ``output_signature`` for them, as code; ``None`` where a part is no array
    kind: str | None = None
    """Kind of its parts: ``arrays``, ``tensors``, ``lists of`` either; ``None`` where they are of several kinds."""


_MANY: Final = 20


def for_each_batch(calls: int, batches: int) -> bool:
    """Whether there were many calls, of one or two batches each; ``batches`` are those of all but the first call."""
    return calls >= _MANY and batches <= 2 * (calls - 1)


class KerasCalls(Record):
    """Calls of ``fit``, ``evaluate`` or ``predict`` of a Keras model at one line; the first is in no time."""

    method: str
    place: CallSite
    on_batch: str  # That call as code, in the method for one batch
    calls: int
    batches: int  # Or groups of them: calls of a tf.function
    time_s: float
    function_s: float  # Of ``time_s``, within those functions
    span_s: float  # From the first of these calls to the end of the last, at whatever line

    @property
    def for_each_batch(self) -> bool:
        """Whether there were many calls, and of one or two batches each: no epochs that a script counts itself."""
        return for_each_batch(self.calls, self.batches)

    @property
    def own_s(self) -> float:
        """Seconds of a call outside of compiled functions: a dataset, an iterator and callbacks are made."""
        return max(self.time_s - self.function_s, 0.0) / (self.calls - 1)

    @property
    def own_share(self) -> float:
        """Share of the time from the first of such calls to the last that goes to what Keras makes anew in them."""
        return self.own_s * (self.calls - 1) / self.span_s if self.span_s else 0.0


class ScriptData(Record):
    """Identity of the dataset that feeds a script's training loop, by which another run of the script finds it."""

    kind: int  # Datasets of the same ops, made at the same lines, are of one kind; numbered as kinds are first iterated
    begun: int = 1  # Which dataset of that kind it is, in the order in which they are first iterated


OUTSIDE: Final = "it was stopped before it reached what cannot be kept in memory"
"""Beginning of a trial's cause where a script did in another run what it had not done in its first."""


class ScriptAgain(Record):
    """Facts about the script from the run before, for a trial of a fix."""

    data: ScriptData | None = None
    own: int | None = None  # Where no dataset feeds the loop: number of the place that gives its batches
    trains: bool = True
    """Gradients are taken in the loop: it is known by that. Else it is the first one over the dataset."""
    in_graph: bool = False  # The loop lies within one tf.function, where nothing can be held up
    step: str | None = None  # ``name (file:line)`` of the function that takes the batch, whose losses are compared
    no_edit: str | None = None  # Why the source of a step that is no Keras model's cannot be changed
    no_dataset: str | None = None  # Why no dataset can be written around the batches of its loop
    redirected: bool = True  # What the script writes goes to memory, and is gone with the process
    directory: str  # Of the run: what is written there stays
    anything: bool = False  # It may do again whatever it does: the user said so


class Checkout(Record):
    """Tree of another revision, in which a trial finds its code in place of the user's work tree."""

    top: str  # The work tree
    tree: str  # The other one
    folder: str  # Working directory of the trial


class ScriptRun(Record):
    """Observations of a script besides its steps."""

    ended: Ending | None = None
    """``stopped``: by us, once enough steps were measured; ``exited``: by ``sys.exit``; ``None``: not yet."""
    exit_code: int | None = None  # Its own; ``None`` where it was stopped or killed
    iterations: tuple[str, ...] = ()
    """Ways in which the script takes batches: ``next()``, ``fit``, ``for in a tf.function``, ``next() in a
    tf.function``.
    """
    steps_per_call: int = 1  # Steps in one call of the step function (``steps_per_execution``)
    step_function: str | None = None  # ``name (file:line)`` of the function that takes the batch, where one does
    why_no_step: str | None = None  # Why no function that takes the batch could be run by itself
    datasets: int = 0  # Datasets that it iterated; where it calls ``fit``, calls of it
    between_fits_s: float = 0.0
    """From the last batch of a call of a model's ``fit`` to the first epoch of the next one, with another dataset."""
    steps_seen: int = 0
    lost_steps: int = 0  # Steps inside a graph that were overwritten before they could be read: they are in no figure
    data: ScriptData | None = None  # The dataset that feeds its training loop; ``None`` where none was seen
    own_batches: OwnBatches | None = None  # Of that loop, where it takes no dataset
    keras_calls: tuple[KerasCalls, ...] = ()
    trains: bool = False  # Gradients were taken in that loop
    in_one_call: bool = False
    """Many steps of that loop lie within one call of a tf.function, where nothing can be held up."""
    wrote: tuple[str, ...] = ()  # Files and directories that it wrote outside of temporary ones, the first twenty
    in_memory: int | None = None  # Files whose writes were kept in memory, and are gone; ``None``: they went to disk
    uncovered: tuple[str, ...] = ()  # Of what it wrote, what cannot be kept in memory: it was written for good
    contacted: tuple[str, ...] = ()
    """Others that it connected to, not its own processes, the first twenty: ``host:port``, sockets, named pipes."""
    not_redirected: str | None = None
    """Why what it writes cannot be kept from the disk in another run; ``None`` where it can."""
    imports: tuple[str, ...] = ()  # Of TensorFlow and Keras, those before whose import it set no environment variable
    unmeasured: dict[str, str] = {}

    @property
    def anew_share(self) -> float:
        """Share of the time from its first call of Keras to the last that is made anew, in calls for a batch or two."""
        return sum(one.own_share for one in self.batch_calls)

    @property
    def batch_calls(self) -> tuple[KerasCalls, ...]:
        """Calls of Keras for a batch or two each; none where a call of the step function is of many steps."""
        return tuple(one for one in self.keras_calls if one.for_each_batch) if self.steps_per_call == 1 else ()
