"""The process of a script that runs again, for one trial: what it writes goes to memory, and nothing else is reached.

The fix is made on the dataset that feeds the training loop, at the moment the script begins to use it, so that nothing
else in the script is another.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
import time
from typing import Any

from xttsbench.records.code import OUTSIDE, ScriptAgain
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.source.training_loops import Hearing
from xttsbench.targets.spec import substituted
from xttsbench.worker.channel import ScriptReport, StoppedByUs
from xttsbench.worker.script.again.effects import Effects
from xttsbench.worker.script.process import Process, kill_group


class AgainProcess(Process):
    """Runs a script again for one trial of the kind ``elements`` or ``arm``, and ends with it.

    Attributes:
        again: what its first run showed.
        began: the ``time.perf_counter()`` at which the process began.
    """

    def __init__(self, report: ScriptReport, again: ScriptAgain) -> None:
        super().__init__(report)
        self.again = again
        self._trial: Any = None
        self._refused: str | None = None  # why it was stopped before it did what memory cannot keep
        self.began = time.perf_counter()

    def start(self) -> None:
        """Run the script until the trial has what it needs. Does not return."""
        nothing = os.open(os.devnull, os.O_WRONLY)  # its first run has said all that it says
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        with substituted(self.spec.patched):
            super().start()

    @property
    def spec(self) -> TrialSpec:
        """Specification of the trial."""
        return self.report.spec

    def _cover(self) -> None:
        """As in the first run, but nothing can be written elsewhere unless the user has said that it may be."""
        if self.again.redirected:
            self._overlays = self._covered(self.again.directory, share=8, strict=not self.again.anything)

    def _before_script(self) -> None:
        """Refuse what the first run has not done and memory cannot keep."""
        if self._overlays is not None and not self.again.anything:
            self._effects = Effects(self._overlays, self._refuse)
        random.seed(self.spec.seed)
        if "numpy" in sys.modules:  # else it begins unseeded, and TensorFlow brings it
            sys.modules["numpy"].random.seed(self.spec.seed)

    def _refuse(self, what: str) -> None:
        self._refused = self._refused or f"{OUTSIDE}: {what}, which its first run did not. Say --repeat if it may do so"
        raise StoppedByUs(what)

    def _new_watched(self) -> Any:
        import numpy as np
        import tensorflow as tf

        from xttsbench.worker.script.again.elements import ElementsTrial
        from xttsbench.worker.script.again.own_batches import RunningElements
        from xttsbench.worker.script.again.trials import VariantTrial

        np.random.seed(self.spec.seed)
        tf.random.set_seed(self.spec.seed)
        elements = ElementsTrial if self.again.own is None else RunningElements
        self._trial = elements(self) if self.spec.kind == "elements" else VariantTrial(self)
        return self._trial.watched

    def _new_hearing(self, watched: Any) -> Hearing:
        """Batches of the script's own are heard of where they feed the loop that the trial is about."""
        if self.again.own is None:
            return Hearing()
        from xttsbench.worker.script.again.own_batches import OwnBatchesAgain

        return OwnBatchesAgain(watched, self._loops, self._trial)

    def _keras_loaded(self, package: str) -> None:
        super()._keras_loaded(package)
        importlib.import_module(f"{package}.utils").set_random_seed(self.spec.seed)

    def end_at_once(self, why: str) -> None:
        """End the process group though the script goes on: nothing of it is needed any more."""
        self._told("stopped", 0, None)
        self.channel.send({"done": True})
        kill_group(0)

    def _told(self, ended: str, code: int, error: BaseException | None) -> None:
        self._tell_files()
        if self._trial is not None:
            self._noted("the end of the script", self._trial.end)
        failure = self._trial.failure(error) if self._trial is not None else None
        if failure is not None and error is not None:
            failure = failure | self._of_memory(error)
        if (refused := self._refused or self.refused) is not None:
            failure = {"status": "raised", "cause": refused}
        if failure is None and self._trial is None:
            failure = {"status": "empty", "cause": "the script ended before it imported TensorFlow"}
        if failure is not None:
            self.channel.send(failure)
        self.report.tell(ended=ended, exit_code=None if ended == "stopped" else code)

    def _measure_afterwards(self) -> None:
        """Skips the measurements afterwards: the script itself was measured."""
