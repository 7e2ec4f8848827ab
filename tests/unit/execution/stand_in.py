"""A helper without TensorFlow, ``python stand_in.py FD``: the real one, whose trials are the functions below.

A target is the name of one of them. What runs with the variable ``LEAVES`` set was started by a trial or is one.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import types
from pathlib import Path

from xttsbench.records.trial import TrialSpec
from xttsbench.worker import helper
from xttsbench.worker.channel import Channel, shared_rows

FOR_EVER_S = 600


def fine(channel: Channel) -> None:
    """Nothing is left."""


def session(channel: Channel, then: str = "") -> None:
    """A child in a session of its own that does not hear SIGTERM."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    child.stdout.readline()
    if then:
        globals()[then](channel)


def daemon(channel: Channel) -> None:
    """A daemon as the book has it: two forks, a session between them."""
    reading, writing = os.pipe()
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.write(writing, b".")
            time.sleep(FOR_EVER_S)
        os._exit(0)
    os.wait()
    os.read(reading, 1)


def generations(channel: Channel) -> None:
    """Five generations in as many sessions, all of which stand still."""
    reading, writing = os.pipe()
    if not os.fork():
        for _ in range(4):
            os.setsid()
            if os.fork():
                break
        else:
            os.setsid()
        os.write(writing, b".")
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(FOR_EVER_S)
    said = b""
    while len(said) < 5:
        said += os.read(reading, 5)


def hopping(channel: Channel) -> None:
    """For three seconds, a process that forks and ends again and again: whoever kills it comes too late."""
    end = time.monotonic() + 3.0
    if os.fork():
        return
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
        os.setsid()
    os._exit(0)


def stands_still(channel: Channel) -> None:
    """Stops itself, without a word."""
    os.kill(os.getpid(), signal.SIGSTOP)


def silent(channel: Channel) -> None:
    """Lives, and says nothing."""
    time.sleep(FOR_EVER_S)


def hangs_up(channel: Channel) -> None:
    """Closes its end, and lives."""
    channel._connection.shutdown(socket.SHUT_RDWR)
    time.sleep(FOR_EVER_S)


def turns(channel: Channel, leaves: str) -> None:
    """Takes turns; leaves something behind in its first."""
    globals()[leaves](channel)
    stretch: tuple[int, ...] = ()
    while channel.next_turn(*stretch) is not None:
        now = time.perf_counter_ns()
        stretch = (now, now + 1)


def beside(channel: Channel, folder: str) -> None:
    """Has a child in its own group, and waits until it is killed."""
    subprocess.Popen(["sleep", str(FOR_EVER_S)])
    (Path(folder) / "there").touch()
    time.sleep(FOR_EVER_S)


def main(connection: socket.socket, rows: int) -> int:
    """Run one trial, as ``xttsbench.worker.trial`` does."""
    if "DEAF" in os.environ:
        silent(Channel(connection))
    time.sleep(float(os.environ.get("SLOW", "0")))
    channel = Channel(connection, shared_rows(rows))
    spec = channel.receive(TrialSpec)
    globals()[spec.target](channel, **{name: value for name, value in spec.kwargs.items() if name != "long"})
    channel.send({"done": True})
    return 0


if __name__ == "__main__":
    for _ in range(int(os.environ.get("FILES", "0"))):
        os.open("/dev/null", os.O_RDONLY)
    stand_in = types.ModuleType("xttsbench.worker.trial")
    stand_in.main = main  # type: ignore[attr-defined]
    sys.modules[stand_in.__name__] = stand_in
    with socket.socket(fileno=int(sys.argv[1])) as control:
        helper.serve(control, scripts=False, modules=())
    os._exit(0)
