"""What a trial does with the dataset that feeds a script's training loop, when the script begins to use it.

The kind ``arm`` puts the fixed dataset in its place, repeated so that the loop goes on as long as it is wanted. The
kind ``elements`` reads it there and then, and has the script train on the first batches that it read.
"""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph.apply import apply
from xttsbench.fixes.step import STEP_GRAPH, STEP_XLA
from xttsbench.pipeline.fingerprinter import sketch_of
from xttsbench.pipeline.python.state import trace_time_effects
from xttsbench.records.base import name_and_place
from xttsbench.records.elements import Elements
from xttsbench.records.fix import FixSet
from xttsbench.records.script import ScriptAgain, ScriptData
from xttsbench.step.modes import loss_of
from xttsbench.targets.load import Loaded
from xttsbench.worker.channel import Channel
from xttsbench.worker.filling import fill_caches
from xttsbench.worker.fingerprint import run_elements
from xttsbench.worker.script.contents import ScriptContents
from xttsbench.worker.script.draws import StepDraws
from xttsbench.worker.script.loops.step_function import place_of
from xttsbench.worker.script.report import ScriptReport, StoppedByUs
from xttsbench.worker.script.turns import AgainRecorder, FewSteps
from xttsbench.worker.script.watched import Watched
from xttsbench.worker.trial import failure

_STEPS: Final = 3
"""Steps that the script trains on the batches that were read."""
_FOR_EVER: Final = 10**6
"""Epochs of a call of ``fit`` that is to go on as long as it is wanted."""
_MOST_STATE: Final = 200
"""Variables that are sketched, the first ones."""


class Trial:
    """One trial of a script; :attr:`watched` sees it run.

    Args:
        report: to the parent.
        again: what is known of the script.
        end_at_once: ends a script that cannot be stopped from Python.
        began: ``time.perf_counter()`` when the process began.
        recorder: of the steps.
    """

    def __init__(
        self,
        report: ScriptReport,
        again: ScriptAgain,
        end_at_once: Callable[[str], None],
        began: float,
        recorder: AgainRecorder,
    ) -> None:
        self.spec, self.channel, self.again = report.spec, report.channel, again
        self.fixes = FixSet.parse(report.spec.fix)
        self.watched = Watched(report, end_at_once, recorder)
        self.watched.before_fit = self.before_fit
        self.watched.datasets.wanted = again.data
        self.watched.datasets.stand_in = self._stand_in
        self._began: float | None = began
        self._failed: BaseException | None = None

    @property
    def began(self) -> bool:
        """Whether the script has begun to use its dataset."""
        return self._began is None

    def before_fit(self, model: Any, arguments: dict[str, Any]) -> None:
        """Make a Keras model's step what a fix of it says."""
        kinds = {fix.kind for fix in self.fixes.of_step}
        if kinds & {STEP_GRAPH.name, STEP_XLA.name}:
            model.run_eagerly = False
            model.jit_compile = STEP_XLA.name in kinds

    def use(self, dataset: Any, fixed: Any) -> Any:
        """What the script uses in place of its dataset, once it is the one that feeds the training loop."""
        raise NotImplementedError

    def end(self) -> None:
        """The script is over, or was stopped."""
        self.watched.end()

    def failure(self, error: BaseException | None) -> dict[str, Any] | None:
        """Why the trial shows nothing, as a message to the parent; ``error`` is what the script raised, if it did."""
        if self._failed is not None or error is not None:
            return failure(self._failed or error)  # type: ignore[arg-type]
        if not self.began:
            return {"status": "empty", "cause": "the script ended before it used the dataset of its training loop"}
        return None

    def _stand_in(self, dataset: Any, mark: ScriptData) -> Any:
        try:
            with self._unwatched():
                if self.fixes.of_step and self.again.no_edit is not None and not self.spec.patched:
                    raise InvalidInputError(self.again.no_edit)
                fixed = (
                    apply(dataset, parts, cache_dir=self.spec.cache_dir)
                    if (parts := self.fixes.of_dataset)
                    else dataset
                )
                if mark.begun < self.again.data.begun:
                    return fixed
                if self._began is not None:
                    self.channel.part("setup_s", time.perf_counter() - self._began)
                    self._began = None
                return self.use(dataset, fixed)
        except Exception as error:  # ours, or the data's: no exception of the script's
            self._failed = error
            self.watched.recorder.stop()
            raise StoppedByUs("the trial failed") from error

    @contextlib.contextmanager
    def _unwatched(self) -> Iterator[None]:
        before, self.watched.active = self.watched.active, False
        try:
            yield
        finally:
            self.watched.active = before


class VariantTrial(Trial):
    """Measures the training loop, with the fix or without."""

    def __init__(
        self, report: ScriptReport, again: ScriptAgain, end_at_once: Callable[[str], None], began: float
    ) -> None:
        recorder = AgainRecorder(report, again)
        super().__init__(report, again, end_at_once, began, recorder)
        self._contents = ScriptContents(recorder.loops) if report.spec.hashed else None
        if self._contents is not None:
            self.watched.on_batch, self.watched.clock.contents = self._contents.got, self._contents
            recorder.turn_over = self._contents.digest

    def end(self) -> None:
        """Send what the batches held, too."""
        super().end()
        contents, self._contents = self._contents, None
        if contents is not None:
            contents.digest()
            self.channel.part("contents", contents.look.record())

    def before_fit(self, model: Any, arguments: dict[str, Any]) -> None:
        """Have it go on, too."""
        super().before_fit(model, arguments)
        arguments["epochs"] = _FOR_EVER

    def use(self, dataset: Any, fixed: Any) -> Any:
        """The dataset with the fix, its caches full, for ever."""
        if self.spec.fill_caches:
            fill_caches(self.spec, Loaded("script", fixed, None), self.watched.recorder.results.bench)
        if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
            return fixed
        return fixed.repeat()

    def failure(self, error: BaseException | None) -> dict[str, Any] | None:
        """Also where the script ended before its loop was warm."""
        found = super().failure(error)
        main = self.watched.recorder.results.loops.main
        if found is None and (main is None or main.warming):
            steps = main.steps if main is not None else 0
            found = {"status": "empty", "cause": f"the script ended after {steps} steps, before its loop was warm"}
        return found


class ElementsTrial(Trial):
    """Takes the fingerprints of the dataset, then compares what the script trains on the first batches of it."""

    def __init__(
        self, report: ScriptReport, again: ScriptAgain, end_at_once: Callable[[str], None], began: float
    ) -> None:
        recorder = FewSteps(report, again, _STEPS, self._take_state)
        super().__init__(report, again, end_at_once, began, recorder)
        self._ending = threading.Lock()
        self._state: tuple[tuple[float, ...], ...] | None = None
        self._held = _Held(report.channel)
        self._losses: list[float | None] = []
        self._step, _ = name_and_place(again.step)
        self._called: Any = None
        self._draws: StepDraws | None = None
        self.watched.after_function = self._returned

    def use(self, dataset: Any, fixed: Any) -> Any:
        """The first batches that were read; round and round where the loop asks for more than there are."""
        if self._held.record is not None:
            self._take_state()
            self.watched.recorder.stop()
            raise StoppedByUs("the data were read")
        batches: list[Any] = []

        def collect(batch: Any) -> float:
            batches.append(batch)
            return 0.0

        bench = replace(self.watched.recorder.results.bench, channel=self._held)
        run_elements(self.spec, Loaded("script", fixed, None), collect, bench, original=dataset)
        if not self._trains or not batches:
            self.watched.recorder.stop()
            raise StoppedByUs("the data were read")
        self.channel.phase("stepping")
        self._draws = draws = StepDraws()
        draws.install()
        self.watched.on_batch, self.watched.on_trace = draws.next_step, draws.next_trace
        if self._step:
            sys.setprofile(self._profiled)
        few = tf.data.Dataset.from_tensors(batches[0])
        for batch in batches[1:]:
            few = few.concatenate(tf.data.Dataset.from_tensors(batch))
        return few if self.again.in_graph else few.repeat()

    @property
    def _trains(self) -> bool:
        """Whether training is compared: of a fix of the step, and of the original beside it."""
        return bool(self.fixes.of_step) or (self.spec.fix is None and not self.spec.patched)

    def end(self) -> None:
        """Send what was read, with what was trained; another thread may be about to do so."""
        with self._ending:
            record, self._held.record = self._held.record, None
            if record is not None:
                self._send(record)

    def _take_state(self) -> None:
        """Sketch the variables, before the script's frames let go of them."""
        sys.setprofile(None)
        if self._trains and self._state is None:
            own = self._draws.step if self._draws is not None else None
            trained = [one for one in _variables() if one is not own]
            self._state = tuple(tuple(sketch_of(np.asarray(one))) for one in trained[:_MOST_STATE])

    def _send(self, record: Elements) -> None:
        losses = [one for one in self._losses if one is not None and math.isfinite(one)][:_STEPS]
        recorder = self.watched.recorder
        steps = recorder.ended if isinstance(recorder, FewSteps) else 0
        unknown = {}
        if steps or self.again.in_graph:
            self._take_state()
        elif self._trains:
            unknown["losses"] = "no step of the script ended on the batches that were read"
        update = {
            "losses": tuple(losses),
            "state": self._state or (),
            "unknown": record.unknown | unknown,
            "objections": (*record.objections, *self._objections()),
        }
        self.channel.part("elements", record.model_copy(update=update))

    def failure(self, error: BaseException | None) -> dict[str, Any] | None:
        """What the script made of few batches is no failure, once they were read."""
        if self._failed is None and self._held.sent:
            return None
        return super().failure(error)

    def _objections(self) -> Iterator[str]:
        """Why one graph of the step may not do what the step does, whatever its first losses are."""
        function = _function_at(self.again.step) or getattr(self._called, "python_function", None)
        if (
            not self.fixes.of_step
            or function is None
            or isinstance(function, tf.types.experimental.PolymorphicFunction)
        ):
            return
        why = trace_time_effects(function)
        if why is not None:
            yield f"one graph of the step runs its Python once, while it is traced: {why}"

    def _returned(self, function: Any, result: Any) -> None:
        if function is not None and any(file in place_of(function) for file in self.spec.patched):
            self._called = function
        if function is None or name_and_place(place_of(function))[0] == self._step:
            self._losses.append(loss_of(result))

    def _profiled(self, frame: FrameType, event: str, value: Any) -> None:
        if event != "return" or frame.f_code.co_name != self._step:
            return
        if frame.f_code.co_filename in (self.again.step or "") and tf.executing_eagerly():  # else it is traced
            self._losses.append(loss_of(value))


class _Held(Channel):
    """A channel that keeps the record of the elements for later."""

    def __init__(self, channel: Channel) -> None:
        self.rows = channel.rows
        self.record: Elements | None = None
        self.sent = False
        self._channel = channel

    def send(self, message: dict[str, Any]) -> None:
        """Hand it on."""
        self._channel.send(message)

    def part(self, field: str, value: Any) -> None:
        """Keep the elements, and hand on all else."""
        if field == "elements":
            self.record, self.sent = value, True
        else:
            super().part(field, value)


def trial_of(report: ScriptReport, again: ScriptAgain, end_at_once: Callable[[str], None], began: float) -> Trial:
    """The trial of a kind."""
    if report.spec.kind == "elements":
        return ElementsTrial(report, again, end_at_once, began)
    return VariantTrial(report, again, end_at_once, began)


def _variables() -> list[Any]:
    """All variables of the process, in the order in which they were made: TensorFlow numbers them."""
    gc.collect()
    kinds = resource_variable_ops.ResourceVariable, resource_variable_ops.UninitializedVariable
    found = [one for one in gc.get_objects() if issubclass(type(one), kinds)]
    return sorted(found, key=lambda one: int(str(one._unique_id).rpartition("_")[2] or 0))


def _function_at(place: str | None) -> FunctionType | None:
    """The Python function of that ``name (file:line)``."""
    name, found = name_and_place(place)
    if found.file is None:
        return None
    for one in gc.get_objects():
        code: CodeType | None = one.__code__ if isinstance(one, FunctionType) else None
        if code is not None and code.co_name == name and code.co_filename == found.file:
            return one
    return None
