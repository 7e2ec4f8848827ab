"""Processes that run to their own end, from the parent: a script that is watched, and a training.

A script has this process's terminal, standard input and process group, so that whatever a terminal does reaches it by
itself. Signals that somebody sends to this process alone are passed on. Nothing ends the script but what would end it
without us, and the death of this process: what fails here is noted, and the script is followed to its end.

Of a training the parent stays in charge of signals: the first SIGINT, SIGTERM or SIGHUP is passed on, and the process
ends at the next step with its checkpoint written; a second one kills it. What it tells is kept as it comes.
"""

from __future__ import annotations

import glob
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, Protocol

from xttsbench.errors import HelperError
from xttsbench.execution import HELD_BACK, ending, held_back
from xttsbench.execution.child import (
    Collected,
    Follower,
    Monitor,
    SharedRows,
    checkout,
    child_environment,
    message_of,
    now_utc,
    start,
)
from xttsbench.execution.guard import Guard
from xttsbench.processes import ends_within, kill_group
from xttsbench.records.readings import Readings
from xttsbench.records.training import HistoryLine, TrainJob
from xttsbench.records.trial import TrialRecord, TrialSpec

ROWS: Final = 8192
"""Steps whose rows are kept, the newest."""
TICK_S: Final = 0.5
_FROM_KERNEL: Final = 0x80  # ``si_code`` of a signal that a terminal sent, which has reached the script as well


class Listener(Protocol):
    """Receiver of the events of a watched run; an error that a method raises is noted, and ends nothing."""

    guard: Guard

    def take(self, message: dict[str, Any]) -> None:
        """Take one message of the script's process."""

    def tick(self) -> None:
        """So much time has gone by; rows may have come."""

    def show(self) -> None:
        """Somebody wants to see what is known so far."""

    def started(self, pid: int) -> None:
        """The script's process is there."""


@dataclass(frozen=True)
class Left:
    """End of the script's process: its exit code, negative where a signal ended it."""

    returncode: int
    asked: int | None  # the last signal that asked this process or the terminal's group to end; ``None`` where none did


def run_whole(spec: TrialSpec, listener: Listener, shared: SharedRows, *, print_to_stderr: bool) -> Left:
    """Run a script to its end, whatever that is.

    Raises:
        HelperError: it could not be started.
        KeyboardInterrupt: a signal asked for the end before.
    """
    with held_back():
        for number in {*ending.SIGNALS, signal.SIGQUIT} & signal.sigpending():
            if signal.getsignal(number) != signal.SIG_IGN:
                ending.note(number)
                raise KeyboardInterrupt  # somebody asked for the end before there was a script to tell it to
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                process = _started(spec, theirs.fileno(), shared.fileno(), print_to_stderr=print_to_stderr)
            listener.guard("Noting the start", listener.started, process.pid)
            following = _Following(process, ours, listener)
            listener.guard("Telling the script's process what to watch", following.tell, spec)
            listener.guard("Following the script", following.follow)
            following.wait()  # where that failed; else it has ended
            return Left(process.returncode, following.asked)


_STARTUP: Final = Path(__file__).parent.parent / "worker" / "script" / "startup"


def _started(spec: TrialSpec, connection: int, rows: int, *, print_to_stderr: bool) -> subprocess.Popen[bytes]:
    """Start ``python script``, with the module on its path that watches it (see its ``sitecustomize``).

    It inherits what this process would have: the descriptors, too, that a shell opened for it.
    """
    own = os.environ.get("PYTHONPATH")
    given = {
        "connection": connection,
        "rows": rows,
        "signals": [int(number) for number in HELD_BACK],
        "root": checkout(),
        "environment": {} if own is None else {"PYTHONPATH": own},
    }
    path = os.pathsep.join(filter(None, (str(_STARTUP), own)))
    for descriptor in (connection, rows):
        os.set_inheritable(descriptor, True)
    try:
        return subprocess.Popen(
            [sys.executable, spec.target, *spec.arguments],
            stdout=sys.stderr.fileno() if print_to_stderr else None,
            env=os.environ | {"XTTSBENCH_WATCHED": json.dumps(given), "PYTHONPATH": path},
            close_fds=False,
        )
    except OSError as error:
        raise HelperError(f"The script's process could not be started: {error.strerror or error}.") from error
    finally:
        for descriptor in (connection, rows):
            os.set_inheritable(descriptor, False)


class _Following:
    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket, listener: Listener) -> None:
        self._process = process
        self._connection = connection
        self._listener = listener
        self._buffer = b""
        self._unsent = b""
        self.asked: int | None = None

    def tell(self, spec: TrialSpec) -> None:
        """Send what to watch; one that does not read it holds nothing up, and gets the rest while it is followed."""
        self._connection.setblocking(False)
        self._unsent = spec.to_line().encode() + b"\n"
        self._send()

    def _send(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._connection.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:  # it has closed its end, and is watched no more
            self._unsent = b""

    def follow(self) -> None:
        due = time.monotonic() + TICK_S
        while self._process.poll() is None:
            received = signal.sigtimedwait(HELD_BACK, max(due - time.monotonic(), 0.0))
            if received is not None and received.si_signo != signal.SIGCHLD:
                self._signalled(received)
            self._send()
            self._read()
            if time.monotonic() >= due:
                due = time.monotonic() + TICK_S
                self._listener.guard("Keeping what was seen", self._listener.tick)
        self._read()

    def wait(self) -> None:
        while self._process.poll() is None:
            received = signal.sigtimedwait(HELD_BACK, TICK_S)
            if received is not None and received.si_signo != signal.SIGCHLD:
                self._listener.guard("Passing a signal on", self._signalled, received)

    def _signalled(self, received: signal.struct_siginfo) -> None:
        number, pid = received.si_signo, self._process.pid
        if number == signal.SIGUSR1 and not _is_wanted(pid, number):
            self._listener.guard("Showing what was seen", self._listener.show)
            return
        asks = number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
        if asks and not _masks(f"/proc/{pid}/status", number)["SigIgn"]:
            self.asked = number
        if received.si_code != _FROM_KERNEL:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _read(self) -> None:
        while True:
            try:
                data = self._connection.recv(1 << 18)
            except (BlockingIOError, ConnectionResetError):
                return
            if not data:
                return
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._listener.guard("Reading what the script's process says", self._take, line)

    def _take(self, line: bytes) -> None:
        self._listener.take(message_of(line))


def _is_wanted(pid: int, number: int) -> bool:
    """Whether a process does anything with a signal but die of it: handles it, in Python or C, or waits for it.

    Whoever waits has it blocked in all threads; so has a process that is about to become the script's, with all others
    that were held back.
    """
    if _masks(f"/proc/{pid}/status", number)["SigCgt"]:
        return True
    threads = glob.glob(f"/proc/{pid}/task/*/status")
    blocked = [_masks(thread, number)["SigBlk"] for thread in threads]
    others = [_masks(f"/proc/{pid}/status", other)["SigBlk"] for other in HELD_BACK]
    return bool(blocked) and all(blocked) and not all(others)


def _masks(status: str, number: int) -> defaultdict[str, bool]:
    """Whether a signal is blocked, ignored, caught, by the names in ``/proc``; not so where the process is gone."""
    found: defaultdict[str, bool] = defaultdict(bool)
    with suppress(OSError, ValueError):
        for line in Path(status).read_text(encoding="ascii", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name in ("SigBlk", "SigIgn", "SigCgt"):
                found[name] = bool(int(value, 16) >> (number - 1) & 1)
    return found


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
                session.tell(job.to_line())
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
