"""A script that is run again whose training loop makes its batches itself, or takes them from a dataset put around it.

What such a loop gets may depend on what the step does with the batches before. So its batches are read as they come,
while the script trains, and their fingerprints are taken from copies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.dataset import DATASET
from xttsbench.fixes.graph.hazards import hazards
from xttsbench.pipeline.read import read_graph
from xttsbench.records.pipeline import Elements
from xttsbench.records.trial import TrialSpec
from xttsbench.samedata.epochs import EPOCHS
from xttsbench.targets.load import Loaded
from xttsbench.targets.source.training_loops import Loops
from xttsbench.worker.batches import size_bytes
from xttsbench.worker.bench import Bench
from xttsbench.worker.channel import StoppedByUs
from xttsbench.worker.fingerprint import read_elements
from xttsbench.worker.script.again.elements import ElementsTrial
from xttsbench.worker.script.again.trials import Trial
from xttsbench.worker.script.own_batches import OwnBatchesHeard
from xttsbench.worker.script.watched import Watched

if TYPE_CHECKING:
    from xttsbench.worker.script.again.process import AgainProcess

_KEPT_BYTES: Final = 1 << 29


class OwnBatchesAgain(OwnBatchesHeard):
    """Hears of the batches at the place that a trial is about, whoever makes them there."""

    def __init__(self, watched: Watched, loops: Loops, trial: Trial) -> None:
        super().__init__(watched, loops)
        self._trial = trial
        self._number = trial.again.own

    def over(self, iterable: Any, number: int, anew: Callable[[], Any]) -> Any:
        """The batches with the trial told of each; on and on where it only times them."""
        own = super().over(iterable, number, anew)
        return self._passes(own, number, anew) if self._is_own(number) else own

    def asks(self, number: int) -> None:
        """Statements that ask for a batch begin."""
        if self._is_own(number):
            self._trial.asks()
        super().asks(number)

    def got(self, batch: Any, number: int) -> None:
        """The batch is there."""
        super().got(batch, number)
        if self._is_own(number):
            self._trial.got(batch[0] if len(batch) == 1 else batch)

    def take(self, make: Callable[[], Any], number: int) -> Any:
        """The batch that a call gives; of an iterable it was asked for already."""
        if not self._is_own(number) or self._loops.places[number].text.startswith("for "):
            return super().take(make, number)
        self._trial.asks()
        batch = super().take(make, number)
        self._trial.got(batch)
        return batch

    def _is_own(self, number: int) -> bool:
        return number == self._number and self._hears()

    def _passes(self, batches: Any, number: int, anew: Callable[[], Any]) -> Iterator[Any]:
        while True:
            some = False
            self._trial.asks()
            for batch in batches:
                some = True
                self._trial.got(batch)
                yield batch
                self._trial.asks()
            self._trial.passed()
            if not some or self._trial.spec.kind == "elements":
                return
            batches = super().over(anew(), number, anew)

    def _source(self, number: int) -> Any:
        source = super()._source(number)
        if number == self._number and source.tells is None:
            # From the first batch on, so that steps bear the same numbers in all trials.
            source.tells = DATASET.name not in self._trial.fixes
        return source


class RunningElements(ElementsTrial):
    """Takes the fingerprints of the batches that the loop gets, and compares what the script trains on the first."""

    def __init__(self, process: AgainProcess) -> None:
        super().__init__(process)
        self._kept = Kept(self.spec)
        self._dataset: Any = None

    def asks(self) -> None:
        """The step draws by its places, and what is drawn for a batch is none of the step's."""
        super().asks()
        if self.fixes and not self.spec.patched:
            why = (self.again.no_dataset if DATASET.name in self.fixes else None) or self.again.no_edit
            self._failed = InvalidInputError(why or f"{self.spec.fix} is no edit of this script")
            self.watched.recorder.stop()
            raise StoppedByUs("the trial failed")
        if self._draws is None:
            self._draws = self._draw_by_place()
        self._draws.paused = True

    def got(self, batch: Any) -> None:
        """Keep the batch; once there are enough, and the script has trained on some, it stops."""
        self._dataset = self._dataset or self.watched.graph.last_dataset
        self._kept.add(batch)
        if self._draws is not None:
            self._draws.paused = False
            self._draws.next_step()

    def passed(self) -> None:
        """The iterable has ended."""
        self._kept.end_pass()

    def stepped(self) -> None:
        """The script has trained on some batches; it goes on until there are enough."""
        self._take_state()
        if self._kept.enough:
            self.watched.recorder.stop()

    def end(self) -> None:
        """Read what was kept, and send it."""
        if not self._read and self._kept.passes[0]:
            try:
                self._record = self._kept.read(self.spec, self.watched.recorder.results.bench)
                self._read = True
            except Exception as error:  # of values that have no fingerprint
                self._failed = error
        super().end()

    def failure(self, error: BaseException | None) -> dict[str, Any] | None:
        """Message on an error, also where the script raised before there were enough batches."""
        if error is not None and not self._kept.enough:
            self._failed = self._failed or error
        return super().failure(error)

    @property
    def _trains(self) -> bool:
        return True

    def _objections(self) -> tuple[str, ...]:
        """Also why what makes the batches may not run ahead of the step."""
        fixes, dataset = self.fixes.of_dataset, self._dataset
        found = hazards(dataset, read_graph(dataset), fixes, assumed=self.spec.assume_pure) if fixes and dataset else ()
        return (*super()._objections(), *found)


class Kept:
    """The first batches of a running loop, pass after pass, iterated as those of a dataset are.

    Attributes:
        passes: the batches of each pass, from its begin.
        enough: whether no more are kept, as time or room is over.
    """

    def __init__(self, spec: TrialSpec) -> None:
        self.passes: list[list[Any]] = [[]]
        self.enough = False
        self._most, self._epochs, self._window_s = spec.steps, max(spec.epochs, EPOCHS), spec.window_s
        self._cut: set[int] = set()  # passes that have more batches
        self._room, self._until, self._read = _KEPT_BYTES, 0.0, 0

    def add(self, batch: Any) -> None:
        """Keep a batch, unless the pass, the room or the time is full."""
        now = time.perf_counter()
        self._until = self._until or now + self._window_s
        self.enough = self.enough or (bool(self.passes[0]) and (now > self._until or self._room <= 0))
        if self.enough or len(self.passes[-1]) >= self._most:
            self._cut.add(len(self.passes) - 1)
            return
        self.passes[-1].append(kept := tensors_of(batch))
        self._room -= size_bytes(kept)

    def end_pass(self) -> None:
        """Begin the next pass."""
        self.enough = self.enough or len(self.passes) >= self._epochs
        if not self.enough:
            self.passes.append([])

    def read(self, spec: TrialSpec, bench: Bench) -> Elements:
        """The fingerprints."""
        record = read_elements(spec, Loaded("script", self, None), None, bench, original=self)

        def seen(parts: Sequence[Any]) -> tuple[Any, ...]:
            ended = [one.ended and number not in self._cut for number, one in enumerate(parts)]
            changed = [one.model_copy(update={"ended": end}) for one, end in zip(parts, ended, strict=True)]
            return tuple(changed[: sum(map(bool, self.passes))])

        return record.model_copy(update={"epochs": seen(record.epochs), "whole": seen(record.whole)})

    def __iter__(self) -> Iterator[Any]:
        self._read += 1
        return iter(self.passes[self._read - 1] if self._read <= len(self.passes) else ())

    @property
    def element_spec(self) -> Any:
        """Specification of the first batch."""
        return tf.nest.map_structure(tf.TensorSpec.from_tensor, self.passes[0][0])

    def cardinality(self) -> int:
        """Unknown."""
        return int(tf.data.UNKNOWN_CARDINALITY)


def tensors_of(batch: Any) -> Any:
    """A copy of a batch in the structure that a dataset has it in: a list is a tuple."""
    parts = tuple(batch) if isinstance(batch, list) else batch
    return tf.nest.map_structure(lambda one: one if isinstance(one, tf.Tensor) else tf.constant(np.array(one)), parts)
