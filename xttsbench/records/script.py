"""A script that is measured from outside: the data that it feeds its training loop from, and how it is run again."""

from __future__ import annotations

from typing import Literal

from xttsbench.records.base import Record

Ending = Literal["returned", "exited", "raised", "stopped", "killed"]


class ScriptData(Record):
    """Which dataset of a script feeds its training loop, as another run of the script knows it again."""

    kind: int
    """Datasets of the same ops, made at the same lines, are of one kind; numbered as kinds are first iterated."""
    begun: int = 1
    """Which dataset of that kind it is, in the order in which they are first iterated."""


class ScriptAgain(Record):
    """What a trial of a fix knows of the script from the run before."""

    data: ScriptData
    trains: bool = True
    """Gradients are taken in the loop: it is known by that. Else it is the first one over the dataset."""
    in_graph: bool = False
    """The loop lies within one tf.function, where nothing can be held up."""
    step: str | None = None
    """``name (file:line)`` of the function that takes the batch, whose losses are compared."""
    no_edit: str | None = None
    """Why the source of a step that is no Keras model's cannot be changed."""
    redirected: bool = True
    """What the script writes goes to memory, and is gone with the process."""
    directory: str
    """Of the run: what is written there stays."""


class ScriptRun(Record):
    """What was seen of a script besides its steps."""

    ended: Ending | None = None
    """``stopped``: by us, once enough steps were measured; ``exited``: by ``sys.exit``; ``None``: not yet."""
    exit_code: int | None = None
    """Its own; ``None`` where it was stopped or killed."""
    iterations: tuple[str, ...] = ()
    """How it takes batches: ``next()``, ``fit``, ``for in a tf.function``, ``next() in a tf.function``."""
    steps_per_call: int = 1
    """Steps in one call of the step function (``steps_per_execution``)."""
    step_function: str | None = None
    """``name (file:line)`` of the function that takes the batch, where one does."""
    why_no_step: str | None = None
    """Why no function that takes the batch could be run by itself."""
    datasets: int = 0
    """Datasets that it iterated."""
    steps_seen: int = 0
    lost_steps: int = 0
    """Steps inside a graph that were overwritten before they could be read: they are in no figure."""
    data: ScriptData | None = None
    """The dataset that feeds its training loop; ``None`` where none was seen."""
    trains: bool = False
    """Gradients were taken in that loop."""
    in_one_call: bool = False
    """Many steps of that loop lie within one call of a tf.function, where nothing can be held up."""
    wrote: tuple[str, ...] = ()
    """Files and directories that it wrote outside of temporary ones, the first twenty."""
    contacted: tuple[str, ...] = ()
    """``host:port`` of other machines that it connected to, the first twenty."""
    not_redirected: str | None = None
    """Why what it writes cannot be kept from the disk in another run; ``None`` where it can."""
    imports: tuple[str, ...] = ()
    """Of TensorFlow and Keras, those before whose import it set no environment variable."""
    unmeasured: dict[str, str] = {}
