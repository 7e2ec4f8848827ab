"""A tf.data pipeline as a record: ops, Python functions, options, costs, predicted pace; and what a run yielded.

Of what it yielded fingerprints are kept, by which two runs are compared, and never the data themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, Literal

from xttsbench.records.base import Estimate, Location, Record

PythonKind = Literal["numpy_function", "py_function", "generator"]
GilClass = Literal["holds", "blocks", "releases", "unknown"]
AUTOTUNE: Final = -1
"""A number that is left to TensorFlow."""
CostSource = Literal["model", "prefix"]
"""TensorFlow's performance model of the whole pipeline, or a run of the op by itself on what those before yield."""


class CallSite(Record):
    """A call in the user's code, by where its expression ends: no two calls of a file end at the same place."""

    file: str
    line: int  # At which Python says that it runs: that of the name which is called
    end_line: int | None = None  # ``None`` where Python does not tell, as in code that AutoGraph wrote
    end_column: int | None = None  # In bytes of UTF-8 from the start of that line


class PipelineOp(Record):
    """One dataset op of the graph that ``DatasetToGraphV2`` gives, in order from the source to the end."""

    name: str  # Node name in the GraphDef, e.g. ``MapDataset/_4``
    op: str  # Op type, e.g. ``ParallelMapDatasetV2``
    inputs: tuple[str, ...] = ()  # Names of the dataset nodes it reads
    function: str | None = None  # Name of its function in the graph's library
    parallelism: int | None = None
    """``num_parallel_calls`` as written; -1 is AUTOTUNE; ``None`` where the op is sequential or has no such input."""
    chosen_parallelism: int | None = None
    """Parallelism that AUTOTUNE used when the cost was read (``state_value`` of the model)."""
    buffer_size: int | None = None  # Elements of a prefetch or shuffle buffer as written; -1 is AUTOTUNE
    chosen_buffer_size: int | None = None
    batch_size: int | None = None
    deterministic: str | None = None
    stateful: bool = False  # Whether its function holds a stateful op; TensorFlow does not parallelise those by itself
    python_functions: tuple[str, ...] = ()
    """Tokens of the Python functions that it runs, directly or through its functions."""
    location: Location = Location()  # The user's file and line, where it could be found
    calls: tuple[CallSite, ...] = ()
    """The calls of the user's code that were running when it was made, the innermost, which made it, first."""
    captures: tuple[str, ...] = ()
    """State that its functions capture: ``variable``, ``table``, ``generator`` of random numbers, ``iterator``."""
    random: bool = False
    """Whether the op's elements differ from pass to pass: it shuffles, or its function draws random numbers."""
    side_effects: bool = False
    """Whether the op's function has side effects: Python, printing, writing, assigning."""
    cycle_length: int | None = None  # Inner datasets that an interleave reads at once, as written; -1 is AUTOTUNE
    filename: str | None = None
    """Constant file name of a cache on disk or a list of files; a cache in memory has ``""``."""
    files_on: str | None = None
    """File system (``ext4``, ``nfs4``) of the first file that it names, or the scheme of its URL (``gs://``)."""
    embedded_bytes: int = 0  # Size of the constants that the graph holds for it: data in memory travel with the graph
    endless: bool = False  # Whether it repeats what it reads for ever
    drops_rest: bool = False  # Whether its batches leave a last, smaller one out
    compression: str | None = None
    """Compression of the files of records that the op reads, ``GZIP`` or ``ZLIB``; ``None`` where none or not known."""
    cardinality: int | None = None  # Elements that it yields in an epoch; -1 is infinite, -2 unknown to TensorFlow
    reads: tuple[int, ...] | None = None
    """Components of its input that the result of its function depends on; ``None`` where that was not worked out."""
    passes: dict[int, int] = {}
    """Components of its output that are components of its input, untouched: output's number -> input's."""
    inner: tuple[PipelineOp, ...] = ()
    """Ops of the datasets that its function makes (``interleave``, ``flat_map``, ``group_by_window``), sources
    first; their names are unique only among themselves."""
    elements: int | None = None  # Elements produced while the cost was read
    elements_per_batch: float | None = None  # Elements that one batch of the whole pipeline takes of it
    element_bytes: float | None = None  # Mean size of an element that it yields
    cost_s: float | None = None
    """Processing time of the op per batch of the pipeline, summed over parallel calls, waits and sleeps included."""
    cpu_s: float | None = None  # Processor time of it per batch of the pipeline; the rest of ``cost_s`` it waits
    cost_from: CostSource | None = None
    cached: bool = False
    """Whether the op's elements came from a cache that was full when the steps were measured, so that it did not run.
    """


class ItemTensor(Record):
    """A part of a generator's item, handed on as a tensor."""

    value: str  # As it is written in the loop
    dtype: str  # TensorFlow's name of it
    rank: int


class NativeFunction(Record):
    """A Python function as ops of TensorFlow: what a call of it takes then, and its text; or why it stays Python."""

    refused: str | None = None  # Why it stays Python, as a phrase after "it", with file and line
    call_time_s: float | None = None  # Mean wall time of one call, one after the other
    call_cpu_s: float | None = None  # Mean processor time of one call, of all threads, while all processors make calls
    exact: bool = False  # Whether the results of the calls that were compared are Python's to the last bit
    name: str | None = None  # Of the function that ``text`` defines
    text: str | None = None
    """The user's function with other names, TensorFlow's as ``tf``; empty where none had to change."""
    names: tuple[str, ...] = ()  # What the text takes from the scope of the user's function
    why_no_text: str | None = None
    items: tuple[ItemTensor, ...] = ()
    """Empty: reports of before have in it the parts of an item, where the body of a generator's loop became ops."""


class GeneratorParts(Record):
    """Split of a generator into a head that picks the next item and a body that makes the element of it."""

    file: str | None = None
    line: int  # Of the loop
    given: tuple[str, ...] = ()  # Variables of the generator that the body is given
    head_s: float | None = None  # Mean wall time of picking an item; ``None`` where it was not measured
    reads: str | None = None
    """Phrase for what the body reads and other code changes, which Keras has a ``PyDataset`` do between epochs; with
    its line. ``None`` where there is nothing."""


class SlowLine(Record):
    """The line of the user's code that most of the time of a Python function passes through."""

    location: Location
    text: str  # Its source
    share: float  # Of the function's time
    ops_share: float  # Share of the line's time in which TensorFlow runs ops that Python calls one by one
    carried: tuple[str, ...] = ()  # Variables that it reads and that the loop around it changes from round to round


class Setting(Record):
    """A setting at whose value a condition in a Python function was taken: what it turns off was not read."""

    name: str  # As the function writes it: ``self.config.enable_pitch_shift``, or a global
    value: str  # As Python writes it
    file: str  # Of the condition
    line: int
    owners: tuple[str, ...] = ()
    """Names of the classes of the object with which the name begins; empty for a global of the file."""


class PythonFunction(Record):
    """A Python function that runs inside the graph, found through its token in TensorFlow's script-op registry."""

    token: str
    kind: PythonKind
    name: str
    location: Location = Location()  # File and line of the user's function; ``op`` is the dataset op that runs it
    gil: GilClass = "unknown"
    """``holds``: computes under the interpreter lock; ``blocks``: waits; ``releases``: computes outside the lock."""
    calls: int | None = None
    call_time_s: float | None = None  # Mean wall time of one call
    call_cpu_s: float | None = None  # Mean processor time of one call on its own thread
    calls_per_batch: float | None = None
    around_call_s: float | None = None
    """Time that TensorFlow takes to call a function that does nothing, nearly all of it under the interpreter lock;
    ``None`` where it was not measured.
    """
    native: NativeFunction | None = None  # The function as ops of TensorFlow; ``None`` where that was not tried
    parts: GeneratorParts | None = None  # Of a generator that can be cut in two
    whole_because: str | None = None  # Why a generator cannot be
    slow_line: SlowLine | None = None  # Of a generator that cannot be cut; ``None`` where no line has most of its time
    settings: tuple[Setting, ...] = ()  # Settings at whose values its code was read
    random: str | None = None  # Why its calls give other values each time, as its code says
    elements: int | None = None
    """Elements of one epoch of a generator whose items were counted to their end; ``None`` where that was not reached.
    """


class Pipeline(Record):
    """The pipeline as written, before TensorFlow's default rewrites, with costs read while it ran."""

    ops: tuple[PipelineOp, ...] = ()
    python_functions: tuple[PythonFunction, ...] = ()
    immovable: str | None = None  # Why those that would gain by it cannot run in another process, in a sentence
    threadpool_size: int | None = None
    """``options.threading.private_threadpool_size``; ``None`` or 0 means the shared pool (one thread per core)."""
    autotune: bool = True
    injects_prefetch: bool = True  # Whether TensorFlow itself appends a prefetch (autotune and ``inject_prefetch`` on)
    injected_buffer_size: int | None = None
    """Elements of that prefetch when AUTOTUNE had settled; ``None`` where there is none or it was not seen."""
    deterministic: bool | None = None
    options: dict[str, str] = {}  # Options that were set, by their dotted name, as text
    cpus: int | None = None  # Processors that the process could use while the costs were read
    costs_from: str | None = None  # How the costs were read, or why they could not be
    unserialisable: str | None = None
    """Why the whole has no graph; the ops that are not in it are then as Python-side attributes show them."""


_KIND: Final = re.compile(r"^_*(?:Experimental|Legacy|Parallel)*(\w+?)(?:Dataset)?(?:V\d+)?$")


def kind_of_op(name: str) -> str:
    """Kind of an op, without its version or parallelism: ``Map`` of ``ParallelMapDatasetV2``.

    The name may be that of a dataset class of TensorFlow's.
    """
    found = _KIND.match(name)
    return found.group(1) if found is not None else name


class Pin(Record):
    """An op that has to run in this process, or that workers of the tf.data service would run otherwise."""

    op: str
    location: Location = Location()
    why: str  # A sentence
    frees: str | None = None  # What would let it leave; ``None`` where nothing does
    only_other_hosts: bool = False  # Whether workers on this machine could run it


class Sharding(Record):
    """A sharding policy of the tf.data service."""

    policy: Literal["OFF", "DYNAMIC", "FILE", "DATA"]
    once: bool  # Whether each sample is seen once in an epoch, as long as no worker is lost
    why: str  # A sentence


class Leaving(Record):
    """The part of a pipeline that other machines could run, on TensorFlow's tf.data service."""

    pins: tuple[Pin, ...] = ()
    after: str | None = None  # Name of the last op that can leave, behind which ``distribute`` stands
    location: Location = Location()  # Of that op
    share: float | None = None  # Of the time of all ops; ``None`` where their costs are not known
    refused: str | None = None  # Why nothing of it can leave, a sentence
    carried_bytes: int = 0  # Data in memory that travel to each worker with the graph
    copied: tuple[str, ...] = ()  # What each worker gets a copy of, a sentence each
    shardings: tuple[Sharding, ...] = ()


def every_op(ops: Sequence[PipelineOp]) -> Iterator[PipelineOp]:
    """The ops and those of the datasets that their functions make, at any depth."""
    for op in ops:
        yield op
        yield from every_op(op.inner)


def place(op: PipelineOp | None) -> Location:
    """The user's line that made an op, with the op's name."""
    return op.location.model_copy(update={"op": op.name}) if op is not None else Location()


def size(size_bytes: float) -> str:
    """A number of bytes with a binary prefix: ``512 B``, ``1.50 GiB``."""
    power = 0
    while abs(size_bytes) / 1024**power >= 999.5 and power < len(_BYTE_UNITS) - 1:
        power += 1
    if power == 0:
        return f"{size_bytes:,.0f} B"
    number = size_bytes / 1024**power
    return f"{f'{number:#.3g}'.rstrip('.') if abs(number) < 999.5 else f'{number:,.0f}'} {_BYTE_UNITS[power]}"


_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Prediction(Record):
    """The throughput that the model predicts under one condition: as the target is, without an input, or with fixes."""

    name: str
    """The condition: ``as it is``, ``input costs nothing``, or the fixes joined by `` + ``."""
    fixes: tuple[str, ...] = ()
    """The fixes, each with its number or op: ``parallel-map:16``, ``cache@Map/_2``."""
    batches_per_s: float | None
    """Batches (steps, where there is a step) a second."""
    speedup: float | None = None
    """Predicted speed-up against the target as it is."""
    limited_by: str = ""
    """Cause of that pace: an op's name, or such as ``step`` or ``processors``."""
    measured_per_s: Estimate | None = None
    why_not: str | None = None
    """Why nothing is predicted, or why the fix would change the data."""


class Row(Record):
    """One sample: a row of a batch, or a whole element where the elements are no batches."""

    WORDLESS: ClassVar = True  # Nothing in it is text of others, and there are many

    hashes: tuple[str, ...]  # Of each component: 16 hexadecimal digits over dtype, shape and every bit
    sketches: tuple[tuple[float, ...], ...] = ()
    """Numbers per component that are close where its values are close (mean, standard deviation, random projections);
    empty for a component that is not floating-point. All sketches of a component have one length.
    """


class Element(Record):
    """Element that one ``next()`` returned."""

    shapes: tuple[str, ...]  # Of each component: dtype and shape, as text
    rows: tuple[Row, ...]


class Epoch(Record):
    """One pass over the dataset."""

    elements: tuple[Element, ...]
    ended: bool
    """Whether the dataset ended; else the pass was cut off by a limit, and only what was seen can be compared."""


class GraphIdentity(Record):
    """Identity of a pipeline across processes: hashes that do not depend on the process."""

    graph: str
    data: str


class Whole(Record):
    """Digests of the elements of one pass, as columns of equal length."""

    ended: bool  # Whether the dataset ended; else time was over
    rows: tuple[int, ...] = ()  # Of each element
    elements: tuple[int, ...] = ()  # Of each: its digest
    sums: tuple[int, ...] = ()  # Of each: the sum of the digests of its rows, modulo 2 ** 64, whatever their order


class Place(Record):
    """Place of a value in a pass over a dataset; all numbers count from 0."""

    epoch: int
    element: int
    row: int | None = None  # ``None`` for all rows of the element
    component: str | None = None  # Its path; ``None`` for the first one that differs


class Shown(Record):
    """One component at one place in two datasets, compared value by value."""

    component: str
    where: str = ""  # The first value that differs: its indices in the row, or in the element; empty for a scalar
    old: str
    new: str
    unlike: int = 1  # Values that differ
    of: int = 1


class Contents(Record):
    """Digests of the batches that a timed run was given, as columns of equal length."""

    epochs: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()  # Number of each batch in its epoch, from 0
    digests: tuple[int, ...] = ()  # Of each: over dtypes and shapes in the upper 31 bits, over values in the lower 32
    seen: int = 0  # Batches of the run, with a digest or without
    cost_s: float = 0.0  # That the digests took, in all, after the turns


class Elements(Record):
    """Elements read by a trial of the kind ``elements``."""

    fix: str | None = None
    seed: int = 0
    spec: str  # The dataset's ``element_spec``, as text: dtypes, structure and static shapes
    components: tuple[str, ...] = ()  # Path of each component in the element, such as ``features.mel``
    epochs: tuple[Epoch, ...] = ()
    source_limit: int | None = None
    """Elements that each source was cut to, so that epochs end soon; ``None`` where none was cut."""
    last_batch_kept: bool = False
    """Whether a last, smaller batch was kept that the dataset drops behind a shuffle: other samples each epoch."""
    rows_of: int | None = None
    """Samples that an epoch of the whole dataset has, as far as its cardinality or its only source tells."""
    ordered: bool = True  # Whether TensorFlow promises the order: no op and no option allows another one
    random_ops: tuple[str, ...] = ()  # Ops of the pipeline that shuffle or draw random numbers
    objections: tuple[str, ...] = ()
    """Why the fix may change the data, from the graph and the code of its Python functions, whatever was seen."""
    jittered: bool = False
    """Whether calls of Python functions were held up at random, so that parallel ones ended in another order."""
    identity: GraphIdentity | None = None
    cardinality: int = -2  # Elements of an epoch of the whole dataset; -1 without end, -2 where TensorFlow cannot tell
    whole: tuple[Whole, ...] = ()  # Digests of each pass, where an edit is to be proved
    traits: tuple[str, ...] = ()
    """Fixes that the pipeline as it is written has made already, where an edit is to be proved."""
    losses: tuple[float, ...] = ()  # Of the first steps, where there is a step that returns one
    state: tuple[tuple[float, ...], ...] = ()  # Sketches of the variables that the target made, after those steps
    unknown: dict[str, str] = {}  # What could not be read -> why: a component without bits, a step without a loss
