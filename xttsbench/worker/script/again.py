"""A script that is run again, unchanged or with its source patched, to see what a fix does.

The fix is made on the dataset that feeds the training loop, at the moment the script begins to use it, so that nothing
else in the script is another. What it writes goes to memory.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import Any

from xttsbench.records.script import ScriptAgain
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.spec import substituted
from xttsbench.worker.script.copy_on_write import copy_on_write
from xttsbench.worker.script.process import Process, kill_group
from xttsbench.worker.script.report import ScriptReport, exit_now


class AgainProcess(Process):
    """Runs a script for one trial of the kind ``elements`` or ``arm``, and ends with it.

    Args:
        report: to the parent.
        again: what is known of the script.
    """

    def __init__(self, report: ScriptReport, again: ScriptAgain) -> None:
        super().__init__(report)
        self._again = again
        self._trial: Any = None
        self._began = time.perf_counter()

    def start(self) -> None:
        """Run the script until the trial has what it needs. Does not return."""
        if self._again.redirected:
            try:
                copy_on_write(self._again.directory)
            except OSError as error:
                self.channel.send(
                    {"status": "raised", "cause": f"what the script writes cannot be redirected: {error}"}
                )
                self.channel.send({"done": True})
                exit_now(0)
        nothing = os.open(os.devnull, os.O_WRONLY)  # its first run has said all that it says
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        with substituted(self.spec.patched):
            super().start()

    @property
    def spec(self) -> TrialSpec:
        """Of the trial."""
        return self.report.spec

    def _before_script(self) -> None:
        """Nothing is learnt that the first run has not told."""
        random.seed(self.spec.seed)
        if "numpy" in sys.modules:  # else it begins unseeded, and TensorFlow brings it
            sys.modules["numpy"].random.seed(self.spec.seed)

    def _new_watched(self) -> Any:
        import numpy as np
        import tensorflow as tf

        from xttsbench.worker.script.trials import trial_of

        np.random.seed(self.spec.seed)
        tf.random.set_seed(self.spec.seed)
        self._trial = trial_of(self.report, self._again, self.end_at_once, self._began)
        return self._trial.watched

    def _keras_loaded(self) -> None:
        super()._keras_loaded()
        import keras

        keras.utils.set_random_seed(self.spec.seed)

    def end_at_once(self, why: str) -> None:
        """End the process group though the script goes on: nothing of it is needed any more."""
        self._told("stopped", None, None)
        self.channel.send({"done": True})
        kill_group(0)

    def _told(self, ended: str, code: int | None, error: BaseException | None) -> None:
        if self._trial is not None:
            self._noted("the end of the script", self._trial.end)
        failure = self._trial.failure(error) if self._trial is not None else None
        if failure is None and self._trial is None:
            failure = {"status": "empty", "cause": "the script ended before it imported TensorFlow"}
        if failure is not None:
            self.channel.send(failure)
        self.report.tell(ended=ended, exit_code=None if ended == "stopped" else code)

    def _measure_afterwards(self) -> None:
        """Nothing: the script itself was measured."""
