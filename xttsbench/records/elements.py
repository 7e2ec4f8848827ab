"""What one run of a dataset yielded, as fingerprints: what two runs are compared by, and never the data themselves."""

from __future__ import annotations

from xttsbench.records.base import Record


class Row(Record):
    """One sample: a row of a batch, or a whole element where the elements are no batches."""

    hashes: tuple[str, ...]
    """Of each component: 16 hexadecimal digits over dtype, shape and every bit."""
    sketches: tuple[tuple[float, ...], ...] = ()
    """Of each component a few numbers that are close where its values are close (mean, standard deviation, random
    projections); empty for what is not floating-point. All sketches of a component have one length."""


class Element(Record):
    """What one ``next()`` gave."""

    shapes: tuple[str, ...]
    """Of each component: dtype and shape, as text."""
    rows: tuple[Row, ...]


class Epoch(Record):
    """One pass over the dataset."""

    elements: tuple[Element, ...]
    ended: bool
    """Whether the dataset ended; else the pass was cut off by a limit, and only what was seen can be compared."""


class GraphIdentity(Record):
    """What a pipeline is known again by: hashes that do not depend on the process."""

    graph: str
    """Of its ops, their attributes, functions and small constants, and of the code of its Python functions."""
    data: str
    """Of the tensors that its sources hold: names of files, slices in memory."""


class OtherBatches(Record):
    """The samples of a fixed pipeline beside those of the original, whatever batch they are in and without padding."""

    same: bool | None
    """``None`` where it could not be told."""
    sentence: str
    samples: int = 0
    padding_share: tuple[float, float] = (0.0, 0.0)
    """Of the values of the padded components, before and after, 0..1."""


class Contents(Record):
    """Digests of the batches that a timed run was given, as columns of equal length."""

    epochs: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()
    """Number of each batch in its epoch, from 0."""
    digests: tuple[int, ...] = ()
    """Of each: over dtypes and shapes in the upper 31 bits, over values in the lower 32."""
    seen: int = 0
    """Batches of the run, with a digest or without."""
    cost_s: float = 0.0
    """That the digests took, in all, after the turns."""


class Elements(Record):
    """What a trial of the kind ``elements`` saw."""

    fix: str | None = None
    seed: int = 0
    spec: str
    """The dataset's ``element_spec``, as text: dtypes, structure and static shapes."""
    components: tuple[str, ...] = ()
    """Path of each component in the element, such as ``features.mel``."""
    epochs: tuple[Epoch, ...] = ()
    source_limit: int | None = None
    """Elements that each source was cut to, so that epochs end soon; ``None`` where none was cut."""
    last_batch_kept: bool = False
    """Whether a last, smaller batch was kept that the dataset drops behind a shuffle: other samples each epoch."""
    rows_of: int | None = None
    """Samples that an epoch of the whole dataset has, as far as its cardinality or its only source tells."""
    ordered: bool = True
    """Whether TensorFlow promises the order: no op and no option allows another one."""
    random_ops: tuple[str, ...] = ()
    """Ops of the pipeline that shuffle or draw random numbers."""
    objections: tuple[str, ...] = ()
    """Why the fix may change the data, from the graph and the code of its Python functions, whatever was seen."""
    jittered: bool = False
    """Whether calls of Python functions were held up at random, so that parallel ones ended in another order."""
    identity: GraphIdentity | None = None
    other_batches: OtherBatches | None = None
    """Of a fix that puts samples into other batches."""
    losses: tuple[float, ...] = ()
    """Of the first steps, where there is a step that returns one."""
    state: tuple[tuple[float, ...], ...] = ()
    """Sketches of the variables that the target made, after those steps."""
    unknown: dict[str, str] = {}
    """What could not be read -> why: a component without bits, a step without a loss."""
