"""Fingerprints: what a dataset yields, with a fix or without, so that two runs can be told apart.

Nothing is timed. A run is short: sources are cut so that epochs end, and there is a limit of elements, of rows and of
seconds. The judging is :mod:`xttsbench.samedata.judge`'s.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.errors import first_line
from xttsbench.fixes.graph import apply
from xttsbench.fixes.graph.edit import from_graph
from xttsbench.fixes.graph.hazards import hazards, not_there, random_ops
from xttsbench.fixes.open_generator.rewrite import ends_of_epochs
from xttsbench.fixes.service import SERVICE
from xttsbench.fixes.service.leaving import leaving
from xttsbench.fixes.service.rewrite import listed, served
from xttsbench.fixes.step import STEP_GRAPH, STEP_XLA
from xttsbench.pipeline.altered import (
    Places,
    draws_from_seeds,
    jittered,
    keep_last_batch,
    places_of,
    reseeded,
    shortened,
    source_length,
)
from xttsbench.pipeline.cut import Cut
from xttsbench.pipeline.fingerprinter import Batching, Fingerprinter, batching, sketch_of
from xttsbench.pipeline.identity import identity
from xttsbench.pipeline.python.step_effects import trace_time_effects
from xttsbench.pipeline.read import described, inspect, read_graph
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import Element, Elements, Epoch, Whole, every_op
from xttsbench.records.trial import TrialSpec
from xttsbench.samedata.epochs import EPOCHS
from xttsbench.samedata.whole import digest
from xttsbench.step.modes import loss_of
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench, Step
from xttsbench.worker.channel import Channel
from xttsbench.worker.failure import ExhaustedError, said
from xttsbench.worker.whole import more_traits, shown, traits, values_at

MOST_ROWS: Final = 2000
"""Rows of a record, over all epochs."""
MOST_NUMBERS: Final = 60_000
"""Hashes and numbers of sketches in a record, which is sent and kept as text: about a megabyte."""
_WHOLE: Final = 15
"""Times as many rows and numbers, where an edit is to be proved: there are four such records."""
_ALL: Final = 2**62  # Elements of a source that are as good as all
_STEPS: Final = 3
_MOST_STATE: Final = 200  # Variables that are sketched, the first ones
_ALIVE_S: Final = 1.0
_WIDER: Final = 8
_WIDEST: Final = 10_000  # Elements of a source from which on it is not cut at all, where a shorter one yields nothing


def read_elements(
    spec: TrialSpec,
    loaded: Loaded,
    step: Step | None,
    bench: Bench,
    original: tf.data.Dataset,
    variables: Sequence[Any] = (),
) -> Elements:
    """The fingerprints of some passes over a dataset to which ``spec.fix`` is applied already.

    There are ``spec.epochs`` of them, or three where the original draws at random: what is drawn once and repeated
    shows in the second, what is repeated after two of them in the third.

    Args:
        spec: ``steps`` bounds the elements of a pass and ``window_s`` the seconds of all; the first element is always
            waited for.
        loaded: the target with the fix.
        step: its step; it is run on the first batches of the first pass, once they are taken.
        bench: its channel is told how it goes.
        original: the dataset without the fix.
        variables: that the target created; their state after the steps is sketched.

    Raises:
        ExhaustedError: the first pass yields nothing.
    """
    unknown: dict[str, str] = {}
    fixes = FixSet.parse(spec.fix)
    workers = next((fix.number for fix in fixes if fix.kind == SERVICE.name), None)
    if workers is not None:  # sources are cut before what they yield is shared out
        rest = fixes.of_dataset.without(SERVICE.name)
        loaded = replace(loaded, dataset=apply(original, rest) if rest else original)
    bench.channel.phase("reading the graph")
    before, after = _graph(original, unknown), _graph(loaded.dataset, unknown)
    made = cut = batching(before) if before is not None else Batching()
    # Of two versions that yield the same only one may say that it makes batches.
    if spec.whole or not isinstance(original, tf.data.Dataset):
        cut = replace(cut, batched=True, size=None)
    drawn = () if before is None else random_ops(original, before)
    passes = max(spec.epochs, EPOCHS) if drawn else spec.epochs
    objections: dict[str, None] = {}
    has = traits(original, before) if spec.whole and before is not None else ()
    own = None if spec.had is None else more_traits(has, spec.had)

    def look() -> None:
        """Read the code as its settings are now, which a pass may have changed, and keep all objections to the fix."""
        if before is not None:
            fixes = FixSet.parse(spec.fix) if own is None else own
            objections.update(dict.fromkeys(hazards(original, before, fixes, assumed=spec.assume_pure)))

    limit = spec.source_limit if after is not None else None
    while True:
        told = _Passes(spec, bench.channel, cut, passes, trained=0 if step is None else _STEPS)
        places = {} if before is None or limit is None else places_of(before, limit)
        most = _ALL if spec.whole else limit
        dataset, graph, kept = _shortened(loaded.dataset, after, most, places)
        with contextlib.ExitStack() as stack:
            jitter = spec.jitter and graph is not None and stack.enter_context(jittered(graph, spec.seed)) > 0
            ends = () if before is None else (*ends_of_epochs(before), look)
            dataset_of = _epochs(dataset, graph, before, _service(after, workers))
            if spec.shown is not None and spec.shown_file is not None:
                values = values_at(spec.shown, dataset_of, told.prints)
                bench.channel.part("shown", shown(values, Path(spec.shown_file), spec.shown.component))
            epochs = told.read(dataset_of, ends)
        if epochs[0].elements or limit is None:
            break
        # A batch that is never full, or a filter: the same elements are missing from a run of the fixed pipeline.
        limit = limit * _WIDER if limit < _WIDEST else None
    if not epochs[0].elements:
        raise ExhaustedError("the dataset yields no element: next() ended at once")
    bench.channel.phase("reading the code")
    if before is not None and spec.assume_pure and not (spec.fix or spec.whole):
        for sentence in not_there(original, before, spec.assume_pure):
            bench.channel.note(sentence)
    losses = _losses(spec, step, told.kept, unknown, bench)
    look()
    if spec.shown is not None:
        return Elements(spec=str(loaded.dataset.element_spec))
    return Elements(
        fix=spec.fix,
        seed=spec.seed,
        spec=str(loaded.dataset.element_spec),
        components=told.prints.components,
        epochs=epochs,
        source_limit=limit,
        rows_of=_rows_of(original, before, made),
        cardinality=int(loaded.dataset.cardinality()),
        whole=tuple(told.whole),
        traits=has,
        last_batch_kept=kept,
        ordered=workers is None and (after is None or _ordered(loaded.dataset, after)),
        random_ops=() if after is None else random_ops(loaded.dataset, after),
        objections=(*objections, *_step_objections(spec, loaded)),
        jittered=jitter,
        identity=None if before is None else identity(original, before),
        losses=losses,
        state=sketched(variables, unknown),
        unknown={**told.prints.unknown, **unknown},
    )


class _Passes:
    """The passes over one dataset, on whose first ``trained`` batches a step is run."""

    def __init__(self, spec: TrialSpec, channel: Channel, cut: Batching, epochs: int, trained: int) -> None:
        self._spec, self._channel, self._epochs, self._trained = spec, channel, epochs, trained
        self.kept: list[Any] = []  # the first batches, for the step
        self.prints = Fingerprinter(cut, MOST_ROWS * _WHOLE) if spec.whole else Fingerprinter(cut)
        self.whole: list[Whole] = []
        self._began = self._told = time.perf_counter()
        self._numbers, self._times = 0, _WHOLE if spec.whole else 1

    def read(
        self, dataset_of: Callable[[int], tf.data.Dataset], ends: Sequence[Callable[[], Any]]
    ) -> tuple[Epoch, ...]:
        """All passes, ``ends`` called after each; those for which no time is left are missing, but for the first."""
        epochs: list[Epoch] = []
        while len(epochs) < self._epochs and (not epochs or self._in_time(1.0)):
            self._alive(f"epoch {len(epochs)}", at_once=True)
            epochs.append(self._pass(dataset_of(len(epochs)), len(epochs)))
            for end in ends:
                end()
        return tuple(epochs)

    def _pass(self, dataset: tf.data.Dataset, number: int) -> Epoch:
        elements: list[Element] = []
        rows, digests = 0, list[tuple[int, int, int]]()
        share = (number + 1) / self._epochs
        time_share = (1 + share) / 2  # the first pass is read to its end, if any is: others show little without it
        late = ended = False
        for value in dataset:
            # On a busy machine, too, the step trains on as many batches as in the trials that this is compared with.
            to_train = not number and len(elements) < self._trained and self._in_time(1.0)
            full = rows >= self._times * MOST_ROWS / self._epochs or self._numbers >= self._times * MOST_NUMBERS * share
            late = not self._in_time(time_share)
            element = self.prints.element(value)
            if elements and not to_train and (len(elements) >= self._spec.steps or full or late):
                if late or not self._spec.whole or self._spec.shown is not None:
                    break
                digests.append(digest(element))
                self._alive(f"epoch {number}")
                continue
            if not number and len(self.kept) < self._trained:
                self.kept.append(value)
            elements.append(element)
            digests += [digest(element)] * self._spec.whole
            rows += len(element.rows)
            self._numbers += sum(2 * len(row.hashes) + sum(map(len, row.sketches)) for row in element.rows)
            self._alive(f"epoch {number}")
        else:
            late = False
            ended = not self._spec.whole or len(digests) == len(elements)
        columns = dict(zip(("rows", "elements", "sums"), zip(*digests, strict=True), strict=False))
        self.whole += [Whole(ended=not late, **columns)] * self._spec.whole
        return Epoch(elements=tuple(elements), ended=ended)

    def _in_time(self, share: float) -> bool:
        """Whether a pass may go on: each has its share of the window, and what those before it left of theirs."""
        return time.perf_counter() - self._began < self._spec.window_s * share

    def _alive(self, phase: str, *, at_once: bool = False) -> None:
        now = time.perf_counter()
        if at_once or now - self._told >= _ALIVE_S:
            self._told = now
            self._channel.phase(phase)


def _shortened(
    dataset: tf.data.Dataset, graph: Any | None, limit: int | None, places: Places
) -> tuple[tf.data.Dataset, Any | None, bool]:
    """The dataset with its sources cut, its graph, and whether a last batch is kept that the dataset drops."""
    if graph is None or limit is None:
        return dataset, graph, False
    cut, spec = shortened(graph, limit, places), dataset.element_spec
    kept = all(isinstance(one, tf.TensorSpec) for one in tf.nest.flatten(spec)) and keep_last_batch(cut)
    if kept:
        sizes = tf.TensorShape([None])
        spec = tf.nest.map_structure(lambda one: tf.TensorSpec(sizes.concatenate(one.shape[1:]), one.dtype), spec)
    return from_graph(cut, spec, source=dataset), cut, kept


def _service(graph: Any | None, workers: int | None) -> Callable[[Any], Any] | None:
    """Edit that has workers run the part of a shortened graph that they run of the whole one."""
    if workers is None or graph is None:
        return None
    after = leaving(described(graph)).after
    return lambda cut: served(listed(cut), workers=workers, after=after)


def _epochs(
    dataset: tf.data.Dataset, graph: Any | None, original: Any | None, last: Callable[[Any], Any] | None = None
) -> Callable[[int], tf.data.Dataset]:
    """The dataset of each epoch: the same one, with other random numbers in its functions where the original draws any.

    Caches and the state of ``shuffle`` are shared by all of them. ``last`` is an edit of each graph.
    """
    draws = graph is not None and original is not None and draws_from_seeds(original)

    def of(epoch: int) -> tf.data.Dataset:
        if not (epoch and draws) and last is None:
            return dataset
        edited = reseeded(graph, epoch) if epoch and draws else graph
        return from_graph(edited if last is None else last(edited), dataset.element_spec, source=dataset)

    return of


def _graph(dataset: tf.data.Dataset, unknown: dict[str, str]) -> Any | None:
    if not isinstance(dataset, tf.data.Dataset):  # batches of a loop that runs
        return None
    try:
        return read_graph(dataset)
    except tf.errors.OpError as error:
        unknown["graph"] = f"the dataset's graph cannot be read: {first_line(error.message)}"
        return None


def _rows_of(dataset: tf.data.Dataset, graph: Any | None, cut: Batching) -> int | None:
    """Samples of a whole epoch; those of the only source where the dataset is endless."""
    elements = int(dataset.cardinality())
    if elements >= 0:
        return elements * (cut.size or 1) - _lacking(elements, graph, cut)
    return source_length(graph) if graph is not None else None


def _lacking(elements: int, graph: Any | None, cut: Batching) -> int:
    """Samples by which the last batches of whole passes are short; 0 where that cannot be read."""
    if graph is None or cut.node is None or cut.size is None:
        return 0
    try:
        pieces = Cut(graph)
        batches, samples = pieces.cardinality(cut.node), pieces.cardinality(pieces.inputs(cut.node)[0])
    except (tf.errors.OpError, ValueError):
        return 0
    known = batches > 0 and samples >= 0 and elements % batches == 0
    return elements // batches * max(0, batches * cut.size - samples) if known else 0


def _ordered(dataset: tf.data.Dataset, graph: Any) -> bool:
    """Whether no op and no option lets elements come in another order than they were asked for."""
    pipeline = inspect(dataset, graph)
    unordered = ("false", "default") if pipeline.deterministic is False else ("false",)
    if any(op.deterministic in unordered for op in every_op(pipeline.ops)):
        return False
    return not any(node.attr["sloppy"].b for node in graph.node if "sloppy" in node.attr)


def _losses(
    spec: TrialSpec, step: Step | None, batches: Sequence[Any], unknown: dict[str, str], bench: Bench
) -> tuple[float, ...]:
    if step is None:
        return ()
    try:
        losses = losses_of(step, batches, spec.seed, lambda: bench.channel.phase("stepping"))
    except Exception as error:  # whatever a step raises: the data were seen all the same
        unknown["losses"] = f"the step raises {said(error)}"
        return ()
    if losses is None:
        unknown["losses"] = "the step returns no number that could be its loss"
        return ()
    for number, loss in enumerate(losses):
        if not math.isfinite(loss):
            unknown["losses"] = f"the loss of step {number} is {loss}"
            return ()
    return tuple(losses)


def losses_of(step: Step, batches: Iterable[Any], seed: int, alive: Callable[[], None]) -> list[float] | None:
    """The losses of a step on each of these batches; ``None`` where one returns no number.

    The seed is of all random numbers: what reading the data has drawn is not the same for all. ``alive`` is called
    before each step.
    """
    tf.keras.utils.set_random_seed(seed)
    losses: list[float] = []
    for batch in batches:
        alive()
        loss = loss_of(step(batch))
        if loss is None:
            return None
        losses.append(loss)
    return losses


def sketched(variables: Sequence[Any], unknown: dict[str, str]) -> tuple[tuple[float, ...], ...]:
    """Sketches of the first 200 variables; why one has none is put into ``unknown``."""
    state = []
    for number, variable in enumerate(variables[:_MOST_STATE]):
        try:
            state.append(tuple(sketch_of(np.asarray(variable))))
        except (TypeError, ValueError, tf.errors.OpError) as error:
            unknown[f"variable {number}"] = first_line(error)
    return tuple(state)


def _step_objections(spec: TrialSpec, loaded: Loaded) -> tuple[str, ...]:
    fixes = FixSet.parse(spec.fix)
    compiled = any(one.name in fixes for one in (STEP_GRAPH, STEP_XLA))
    return one_graph_objections(loaded.step) if compiled else ()  # as the target returned it: the fix is on the other


def one_graph_objections(step: Any) -> tuple[str, ...]:
    """Why one graph of a step may not do what the step does, whatever its first losses are."""
    if step is None or isinstance(step, tf.types.experimental.PolymorphicFunction):
        return ()
    why = trace_time_effects(step)
    return () if why is None else (f"one graph of the step runs its Python once, while it is traced: {why}",)
