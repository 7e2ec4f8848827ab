"""The training step of a script, replaced by the wait of an emulated accelerator.

The first step of each shape is real, of a model in ``fit`` the first of all. From then on the functions that it called
are not called, and the statements that it runs op by op are left out (:mod:`xttsbench.targets.source.left_out`): the
script gets the values of that step again, and the wait between two steps stands for the device's work. A script whose
course depends on these values is refused with the line, and so is a step that cannot be replaced.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf
from tensorflow.python.eager import context

from xttsbench.owners import owner
from xttsbench.pipeline.places import user_calls
from xttsbench.records.pipeline import CallSite
from xttsbench.targets.source.left_out import GUARDED, Deciding
from xttsbench.worker.channel import StoppedByUs

if TYPE_CHECKING:
    from xttsbench.worker.script.watched import Watched

_MOST: Final = 6
"""Real steps of one function. Then those of the same shape do, where it is made anew each time, and the first ones do
for more shapes, where all that was returned is of one."""
_TOO_MANY: Final = 40
_REMEDY: Final = "name a function that makes the dataset (FILE.py:FUNCTION) to measure the input beside the wait alone"
_STOPS: Final = "EarlyStopping"
_HOOKS: Final = ("on_train_batch_begin", "on_train_batch_end", "on_batch_end", "on_epoch_begin", "on_epoch_end")


class ReplacedStep(Deciding):
    """Values of the first real step of a script's loops; :attr:`refused` says why there can be none.

    Attributes:
        real: whether something of the open step was real, so that its time tells nothing.
    """

    def __init__(self, watched: Watched) -> None:
        self.refused: str | None = None
        self.real = False
        self._watched = watched
        self._kept: dict[Any, dict[Any, tuple[Any, ...]]] = {}
        self._used: dict[int, dict[str, Any]] = {}
        self._inside = 0
        self._models: dict[int, bool] = {}
        self._main = threading.main_thread().ident

    # Functions that are called

    def instead(self, function: Any) -> tuple[Any, ...] | None:
        """Earlier result of a function, first in a tuple, in place of a call's; ``None`` where it is to be called."""
        shape = self._shape()
        if shape is None or not self._watched.eager.trains:
            return None
        return self._find(_code_of(function), (id(function), shape))

    def ran(self, function: Any, result: Any) -> None:
        """An outermost function has run, and returned that."""
        shape = self._shape()
        if shape is not None and self._watched.eager.trains:
            self._keep(_code_of(function), (id(function), shape), result, result, function)
            self._look("branch_on_step", user_calls(sys._getframe(1)), None)

    def around(self, function: Any, call: Callable[[], Any]) -> Any:
        """Result of a call that trains, or what stands in its place; it is none of a tf.function."""
        if (kept := self.instead(function)) is not None:
            return kept[0]
        tapes, self._inside = self._watched.recorder.tapes, self._inside + 1
        try:
            result = call()
        finally:
            self._inside -= 1
        if self._watched.recorder.tapes != tapes:
            self._watched.eager.takes_gradients()
        self.ran(function, result)
        return result

    # Statements that are written out

    def runs(self, number: int) -> bool:
        """Whether statements of the step are to run."""
        shape = self._shape()
        if shape is None or (found := self._find(number, (None, shape))) is None:
            self._inside += shape is not None
            return True
        self._used[number] = found[0]
        return False

    def wrote(self, number: int, *places: dict[str, Any]) -> None:
        """Keep the names that statements have set, which are in these places."""
        shape = self._shape()
        if shape is None:
            return
        self._inside = max(self._inside - 1, 0)
        one = GUARDED[number]
        values = {name: at[name] for name in one.names for at in places[::-1] if name in at}
        self._keep(number, (None, shape), values, [value for name, value in values.items() if name in one.said])
        calls = user_calls(sys._getframe(1))
        self._look("branch_on_step", (CallSite(file=one.file, line=one.first), *calls[1:]), (one.first, one.last))

    def values(self, number: int) -> dict[str, Any]:
        """The values of their names."""
        return self._used[number]

    # Gradients

    def tape(self) -> None:
        """A gradient tape is entered: in a step that is replaced nobody does so op by op, but where it is real."""
        if not (self._inside or self._watched.recorder.watch.calling) and self._shape() is not None:
            frame = sys._getframe(1)
            while frame.f_back is not None and owner(frame.f_code.co_filename) in ("ours", "framework"):
                frame = frame.f_back
            self.refuse(f"gradients are taken op by op at {frame.f_code.co_filename}:{frame.f_lineno}")

    def step_ended(self) -> bool:
        """A step of a loop in Python is over; returns whether something of it was real."""
        real, self.real, self._inside = self.real, False, 0
        return real

    # Keras

    def fit_begins(self, callbacks: Any, where: tuple[str, int]) -> None:
        """Refuse callbacks whose course depends on the logs; ``fit`` is called there."""
        for callback in callbacks:
            if any(kind.__name__ == _STOPS for kind in type(callback).__mro__):
                self._refuse_test(f"{where[0]}:{where[1]}: {_STOPS}")
            for hook in _HOOKS:
                code = getattr(getattr(type(callback), hook, None), "__code__", None)
                if code is not None and owner(code.co_filename) == "user":
                    self._look("branch_on_argument", code.co_filename, code.co_firstlineno, "logs")

    def batch_ended(self, model: Any, logs: Any) -> None:
        """A batch of ``fit`` is over; the first one of a model was real, and the others give its logs."""
        state = self._models.get(id(model))
        if state is None:
            self._models[id(model)] = False
            self._replace(model, dict(logs or {}))
        elif not state:
            self.refuse("fit does not call the model's train_step")

    def _replace(self, model: Any, logs: dict[str, Any]) -> None:
        @tf.autograph.experimental.do_not_convert
        def train_step(_: Any) -> dict[str, Any]:
            self._models[id(model)] = True
            return dict(logs)

        model.run_eagerly = model.jit_compile = False  # neither is anything to a step that computes nothing
        own = vars(model)  # Keras would track what is set as an attribute
        own["train_step"] = train_step
        for name in ("_get_metrics_result_or_logs", "_validate_and_get_metrics_result"):  # Keras 3, Keras 2
            own[name] = lambda logs: logs
        model.make_train_function(force=True)

    # What is refused

    def cannot(self, why: str) -> str:
        """Note that the step cannot be replaced; the sentence."""
        said = f"The training step cannot be replaced by the emulated accelerator: {why}; {_REMEDY}."
        self.refused = self.refused or said
        return said

    def refuse(self, why: str) -> None:
        """Stop the script: its step cannot be replaced."""
        self._stop(self.cannot(why))

    def _refuse_test(self, test: str) -> None:
        self._stop(
            f"The script's course depends on what its training step returns ({test}), and the emulated accelerator "
            f"in its place gives the values of the first step each time; take that out, or {_REMEDY}."
        )

    def _stop(self, text: str) -> None:
        self.refused = self.refused or text
        self._watched.recorder.stop()
        raise StoppedByUs(text)

    def _look(self, how: str, *where: Any) -> None:
        from xttsbench.targets.source import returned  # LibCST, not before a step is replaced

        try:
            test = getattr(returned, how)(*where)
        except (SyntaxError, ValueError, RecursionError, OSError) as error:
            self._watched.recorder.report.channel.note(f"the script's tests were not read: {error}")
            return
        if test is not None:
            self._refuse_test(test)

    # What is kept

    def _shape(self) -> int | None:
        """Index of the shape of the open step's batch; ``None`` outside of a loop's step, and inside of a graph."""
        watched = self._watched
        if not watched.active or watched.fitting or threading.get_ident() != self._main:
            return None
        batch = watched.eager.batch
        if batch is None or not context.executing_eagerly():
            return None
        return watched.recorder.results.shape_of(batch)[0]

    def _find(self, what: Any, key: tuple[Any, int]) -> tuple[Any, ...] | None:
        """Values kept of a function's code or of statements, for a function and a shape."""
        kept = self._kept.get(what, {})
        found = kept.get(key)
        if found is None and len(kept) >= _MOST:
            alike = [values for (_, shape), values in kept.items() if shape == key[1]]
            if alike or len({shapes for *_, shapes in kept.values()}) == 1:
                found = next(iter(alike or kept.values()))
        if found is None and len(kept) >= _TOO_MANY:
            self.refuse(f"what it returns has the shape of its batch, of which there are more than {_TOO_MANY}")
        return found

    def _keep(self, what: Any, key: tuple[Any, int], values: Any, said: Any, *alive: Any) -> None:
        """Keep what a function or statements gave, of which those parts are ``said`` that others read."""
        self.real = True
        shapes = [tuple(getattr(one, "shape", None) or ()) for one in tf.nest.flatten(said)]
        self._kept.setdefault(what, {})[key] = values, alive, tuple(shapes)


def _code_of(function: Any) -> Any:
    """The code of a function, by which one that is made anew in each step is known again."""
    plain = getattr(function, "python_function", function)
    return getattr(getattr(plain, "__wrapped__", plain), "__code__", id(function))
