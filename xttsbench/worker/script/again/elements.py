"""A script that is run again to see what its dataset yields, and what it trains on the first batches of it.

The dataset is read when the script begins to use it, and the script trains on the batches that were read. Random
numbers of its step are the same ones whether it runs op by op or as one graph: an op that draws numbers is given a seed
where it is made, op by op another one in each step, in a graph the one that it was traced with. So each op that names
no seed of its own draws by its place in the step and by the step's number, which a variable holds: a graph reads it
whenever it runs.
"""

from __future__ import annotations

import gc
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf
from tensorflow.python.framework import random_seed
from tensorflow.python.ops import gen_random_ops, resource_variable_ops

from xttsbench.fixes.step import STEP_SEVERAL
from xttsbench.owners import owner
from xttsbench.records.base import name_and_place
from xttsbench.records.code import ScriptAgain
from xttsbench.records.pipeline import Elements
from xttsbench.step.modes import loss_of
from xttsbench.targets.load import Loaded
from xttsbench.worker.channel import ScriptReport, StoppedByUs
from xttsbench.worker.fingerprint import one_graph_objections, read_elements, sketched
from xttsbench.worker.script.again.trials import AgainRecorder, Trial
from xttsbench.worker.script.eager import place_of
from xttsbench.worker.script.loop import Loop

if TYPE_CHECKING:
    from xttsbench.worker.script.again.process import AgainProcess

_STEPS: Final = 3  # Steps that the script trains on the batches that were read


_OURS: Final = 0x5EED5EED  # The first of the two seeds of an op that draws by its place; the second is that place


class StepDraws:
    """Numbers the draws of a step; one that is fewer, or comes elsewhere, is another.

    Attributes:
        paused: whether what is drawn is none of the step's.
    """

    def __init__(self) -> None:
        self.paused = False
        self._place = 0
        self._traced_at: int | None = None
        with tf.init_scope():
            self.step = tf.Variable(0, dtype=tf.int32, trainable=False)
            """The step's number; none of the script's variables."""

    def install(self) -> None:
        """Have everything drawn so from now on, to the end of the process."""
        original = random_seed.get_seed

        def get_seed(op_seed: Any) -> Any:
            if op_seed is not None or self.paused or threading.current_thread() is not threading.main_thread():
                return original(op_seed)
            self._place += 1
            return _OURS, self._place

        random_seed.get_seed = get_seed
        for name, stateless in _STATELESS.items():
            setattr(gen_random_ops, name, self._by_place(getattr(gen_random_ops, name), stateless))

    def _by_place(self, original: Callable[..., Any], stateless: Callable[..., Any]) -> Callable[..., Any]:
        def draw(*args: Any, seed: int = 0, seed2: int = 0, name: str | None = None, **kwargs: Any) -> Any:
            if seed != _OURS:
                return original(*args, seed=seed, seed2=seed2, name=name, **kwargs)
            return stateless(tf.stack([seed2, self.step]), *args, **kwargs)

        return draw

    def next_step(self, *_: Any) -> None:
        """A step begins."""
        self.step.assign_add(1)
        self._place, self._traced_at = 0, None

    def next_trace(self) -> None:
        """A function is traced: a second time, as where it makes variables, its ops are the same ones."""
        if self._traced_at is None:
            self._traced_at = self._place
        self._place = self._traced_at


_STATELESS: Final[Mapping[str, Callable[..., Any]]] = {
    "random_standard_normal": lambda seed, shape, dtype: tf.random.stateless_normal(shape, seed, dtype=dtype),
    "truncated_normal": lambda seed, shape, dtype: tf.random.stateless_truncated_normal(shape, seed, dtype=dtype),
    "random_uniform": lambda seed, shape, dtype: tf.random.stateless_uniform(shape, seed, dtype=dtype),
    "random_uniform_int": lambda seed, shape, minval, maxval: tf.random.stateless_uniform(
        shape, seed, minval, maxval, dtype=tf.convert_to_tensor(maxval).dtype
    ),
}
"""Ops that draw -> the same from a seed alone; others go on as they do."""


class FewSteps(AgainRecorder):
    """Counts the steps of a script's training loop, from the third on of whose end ``at_last`` is told."""

    grace_s = 3.0

    def __init__(self, report: ScriptReport, again: ScriptAgain, at_last: Callable[[], None]) -> None:
        super().__init__(report, again)
        self._at_last = at_last
        self.ended = 0

    def wants_rows(self, loop: Loop, steps: int) -> bool:
        """Always: steps are counted."""
        return True

    def after_step(self, loop: Loop) -> bool:
        """Count a step."""
        if self.loops.is_own(loop):
            self.ended = loop.steps
            if loop.steps >= _STEPS and self.stopping_since is None:
                self._at_last()
        return False


class ElementsTrial(Trial):
    """Takes the fingerprints of the dataset, then compares what the script trains on the first batches of it."""

    def __init__(self, process: AgainProcess) -> None:
        self._steps = FewSteps(process.report, process.again, self.stepped)
        super().__init__(process, self._steps)
        self._ending = threading.Lock()
        self._state: tuple[tuple[float, ...], ...] | None = None
        self._record: Elements | None = None
        self._read = False
        self._losses: list[float | None] = []
        self._step, _ = name_and_place(self.again.step)
        self._called: Any = None
        self._untrained: list[Any] = []
        self._hooks: list[str] = []
        self._draws: StepDraws | None = None
        self.watched.after_function = self._returned

    def before_fit(self, model: Any, arguments: dict[str, Any]) -> None:
        """Steps that share a call are those that are compared, whose number says nothing of what they train."""
        super().before_fit(model, arguments)
        self._untrained.append(getattr(model, "_steps_per_execution", None))  # Keras 2 has a variable for it
        if STEP_SEVERAL.name in self.fixes:
            model.steps_per_execution = _STEPS
            self._hooks += _hooks_of_batches(arguments.get("callbacks"))

    def use(self, dataset: Any, fixed: Any) -> Any:
        """The first batches that were read; round and round where the loop asks for more than there are."""
        if self._record is not None:
            self._take_state()
            self.watched.recorder.stop()
            raise StoppedByUs("the data were read")
        batches: list[Any] = []

        def collect(batch: Any) -> float:
            batches.append(batch)
            return 0.0

        bench = self.watched.recorder.results.bench
        self._record = read_elements(self.spec, Loaded("script", fixed, None), collect, bench, original=dataset)
        self._read = True
        if not self._trains or not batches:
            self.watched.recorder.stop()
            raise StoppedByUs("the data were read")
        self.channel.phase("stepping")
        self._draws = self._draw_by_place()
        self.watched.on_batch = self._draws.next_step
        few = tf.data.Dataset.from_tensors(batches[0])
        for batch in batches[1:]:
            few = few.concatenate(tf.data.Dataset.from_tensors(batch))
        return few if self.again.in_graph else few.repeat()

    def _draw_by_place(self) -> StepDraws:
        """Have the step draw by its places, and its losses told."""
        draws = StepDraws()
        draws.install()
        self.watched.on_trace = draws.next_trace
        if self._step:
            sys.setprofile(self._profiled)
        return draws

    @property
    def _trains(self) -> bool:
        """Whether training is compared: of a fix of the step, and of the original beside it."""
        return bool(self.fixes.of_step) or (self.spec.fix is None and not self.spec.patched)

    def end(self) -> None:
        """Send what was read, with what was trained; another thread may be about to do so."""
        with self._ending:
            record, self._record = self._record, None
            if record is not None:
                self._send(record)

    def stepped(self) -> None:
        """The script has trained on enough batches."""
        self._take_state()
        self.watched.recorder.stop()

    def _take_state(self) -> None:
        """Sketch the variables, before the script's frames let go of them."""
        if self._trains and self._state is None:
            sys.setprofile(None)
            own = [*self._untrained, *([self._draws.step] if self._draws is not None else [])]
            trained = [one for one in _variables() if not any(one is other for other in own)]
            self._state = sketched(trained, {})

    def _send(self, record: Elements) -> None:
        losses = [one for one in self._losses if one is not None and math.isfinite(one)][:_STEPS]
        unknown = {}
        if self._steps.ended or self.again.in_graph:
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
        """Message on an error; ``None`` once the batches were read: trouble of the script with so few is no failure."""
        if self._failed is None and self._read:
            return None
        return super().failure(error)

    def _objections(self) -> tuple[str, ...]:
        function = _function_at(self.again.step) or getattr(self._called, "python_function", None)
        return (*self._hooks, *(one_graph_objections(function) if self.fixes.of_step else ()))

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


_OF_BATCHES: Final = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")


def _hooks_of_batches(callbacks: Any) -> Iterator[str]:
    """Methods of the user's callbacks that ``fit`` calls for each batch, one sentence each."""
    callbacks = getattr(callbacks, "callbacks", callbacks) or ()
    for callback in callbacks if isinstance(callbacks, list | tuple) else (callbacks,):
        for name in _OF_BATCHES:
            code = getattr(getattr(callback, name, None), "__code__", None)
            if code is not None and owner(code.co_filename) != "framework":
                where = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
                yield f"{name}() at {where} would be called for the last batch of a call alone"


def _variables() -> list[Any]:
    """All variables of the process, in the order in which they were made: TensorFlow numbers them."""
    gc.collect()
    kinds = resource_variable_ops.ResourceVariable, resource_variable_ops.UninitializedVariable
    found = [one for one in gc.get_objects() if issubclass(type(one), kinds)]
    return sorted(found, key=lambda one: int(str(one._unique_id).rpartition("_")[2] or 0))


def _function_at(place: str | None) -> FunctionType | None:
    name, found = name_and_place(place)
    functions = (one for one in gc.get_objects() if isinstance(one, FunctionType)) if found.file is not None else ()
    wanted = name, found.file
    return next((one for one in functions if (one.__code__.co_name, one.__code__.co_filename) == wanted), None)
