"""A training, from the parent: its process, and how it ended.

The parent stays in charge of signals: the first SIGINT, SIGTERM or SIGHUP is passed on, and the process ends at the
next step with its checkpoint written; a second one kills it. What it tells is kept as it comes.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, Protocol

from xttsbench.execution import ending
from xttsbench.execution.child import Collected, Follower, Monitor, SharedRows, child_environment, now_utc, start
from xttsbench.processes import ends_within, kill_group
from xttsbench.records.readings import Readings
from xttsbench.records.training import HistoryLine, TrainJob
from xttsbench.records.trial import TrialRecord, TrialSpec

TRAINING_ROWS: Final = 5000
"""Steps of a session whose rows are kept, the newest: a journal line is read by people too."""
_END_S: Final = 30.0  # for a process that said it was done, or closed its pipe, to end by itself


class TrainingListener(Protocol):
    """Receiver of the events of a training."""

    def phase(self, name: str) -> None:
        """Called when the process begins another phase."""

    def told(self, line: HistoryLine) -> None:
        """Called with a line on the run; the session's number is not in it."""

    def stopping(self) -> None:
        """Called when the process was asked to end at the next step."""


@dataclass(frozen=True)
class Trained:
    """End of a session of training.

    Attributes:
        record: for the journal.
        exit_code: of the error that ended it, ``None`` where none did.
        shape: the batch that it took last, in words.
    """

    record: TrialRecord
    exit_code: int | None
    shape: str | None


def run_training(
    job: TrainJob,
    spec: TrialSpec,
    listener: TrainingListener,
    *,
    variables: Mapping[str, str],
    monitor: Callable[[int], Monitor] | None = None,
    print_to_stderr: bool = False,
    has_gpu: bool = False,
) -> Trained:
    """Run a session of training to its end, whatever that is.

    ``variables`` are put on top of this process's own; ``monitor`` gives the readings, called with its process id.

    Raises:
        HelperError: it could not be started.
    """
    started_utc, began = now_utc(), time.monotonic()
    ours, theirs = socket.socketpair()
    with ours:
        with theirs, SharedRows(TRAINING_ROWS + 1) as shared:
            session = _Session(ours, Collected(spec, shared.memory), listener)
            process = start(
                "xttsbench.worker.training",
                theirs.fileno(),
                shared.fileno(),
                what="The process that trains",
                environment=child_environment(variables, has_gpu=has_gpu),
                print_to_stderr=print_to_stderr,
                start_new_session=True,
            )
        try:
            with _signals_go_to(process, session):
                session.monitor = monitor(process.pid) if monitor else None
                session.lines.tell(job.to_line())
                session.follow()
                ends_within(process.pid, _END_S)
        finally:
            kill_group(process.pid)  # what it started and left behind goes with it
            process.wait()  # not before: the id is its own until then, and no signal is passed on any more
    session.name_the_end(process.returncode)
    readings = session.monitor.readings() if session.monitor else Readings()
    record = session.collected.record(started_utc=started_utc, duration_s=time.monotonic() - began, readings=readings)
    return Trained(record, session.exit_code, session.shape)


class _Session(Follower):
    def __init__(self, connection: socket.socket, collected: Collected, listener: TrainingListener) -> None:
        super().__init__(connection, collected)
        self.exit_code: int | None = None
        self.shape: str | None = None
        self.signals = 0
        self.listener = listener

    def take(self, message: dict[str, Any]) -> None:
        if "told" in message:
            self.listener.told(HistoryLine.model_validate(message["told"]))
        elif "shape" in message:
            self.shape = message["shape"]
        else:
            super().take(message)
            self.exit_code = message.get("exit_code", self.exit_code)
            if "phase" in message:
                self.listener.phase(message["phase"])

    def name_the_end(self, code: int) -> None:
        """Name an end that the process did not announce itself."""
        collected = self.collected
        if collected.done or collected.status != "ok":
            return
        if self.signals and code < 0:
            collected.status, collected.cause = "interrupted", f"killed in phase {collected.phase!r}"
        elif code == -signal.SIGKILL:
            # The kernel does not tell; nobody else sends this signal to a process that was asked for nothing.
            collected.status = "out_of_memory"
            collected.cause = f"killed in phase {collected.phase!r}, as the kernel does when memory runs out"
        else:
            collected.ended(code)


@contextmanager
def _signals_go_to(process: subprocess.Popen[bytes], session: _Session) -> Iterator[None]:
    def pass_on() -> None:
        session.signals += 1
        if session.signals > 1:
            kill_group(process.pid)
        elif not ends_within(process.pid, 0.0):
            os.kill(process.pid, signal.SIGTERM)
            session.listener.stopping()

    def heard(number: int, frame: FrameType | None) -> None:
        if ending.note(number):
            pass_on()

    with ending.heeded(heard):
        if ending.asked:  # while the process was started
            pass_on()
        yield


_ONE_THREAD_EACH: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def training_environment(job: TrainJob, *, has_gpu: bool) -> dict[str, str]:
    """Return the variables of a training process, to be put below those that the user has set. Pure.

    - Input processes share the cores, so NumPy gets one thread in each of them; they inherit it.
    - A GPU's kernels are launched by threads of their own, which a busy input pipeline cannot hold up. Its memory is
      taken as needed, from CUDA's own pool, which batches of several shapes fragment less; but where it is limited,
      from TensorFlow's own allocator, whose limit is a hard one.
    """
    variables = dict.fromkeys(_ONE_THREAD_EACH, "1") if job.input_workers else {}
    if has_gpu and job.logical_cpus is None:
        variables["TF_GPU_THREAD_MODE"] = "gpu_private"
        if job.device_memory_mb is None:
            variables |= {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_GPU_ALLOCATOR": "cuda_malloc_async"}
    return variables
