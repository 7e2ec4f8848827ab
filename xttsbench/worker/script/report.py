"""What a script's process tells the parent, from any of its threads, and what stops the script. Without TensorFlow."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from xttsbench.records.rows import RowMemory
from xttsbench.records.script import ScriptRun
from xttsbench.records.trial import TrialSpec
from xttsbench.worker.channel import Channel

exit_now: Callable[[int], Any] = os._exit
"""``os._exit`` itself, in whose place a script that runs finds ours."""


class StoppedByUs(BaseException):
    """Enough steps were measured. No ``Exception``: a script that goes on after errors would go on after this one."""


class LockedChannel(Channel):
    """A channel that several threads of this process use; in a process that the script forked it is silent."""

    def __init__(self, connection: socket.socket, rows: RowMemory) -> None:
        super().__init__(connection, rows)
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; a parent that is gone ends this process, as nobody is left to tell."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            try:
                super().send(message)
            except OSError:
                exit_now(1)


class ScriptReport:
    """The record of a script's run, sent whenever it changes.

    Args:
        spec: of the trial.
        channel: to the parent.
    """

    def __init__(self, spec: TrialSpec, channel: Channel) -> None:
        self.spec = spec
        self.channel = channel
        self.run = ScriptRun()

    def tell(self, **changed: Any) -> None:
        """Change the record, and send it where it is another one then."""
        before, self.run = self.run, self.run.model_copy(update=changed)
        if self.run != before:
            self.channel.part("script", self.run)
