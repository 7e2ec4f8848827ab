"""A stack sampler of the main thread that tells TensorFlow's time from the user's own Python, line by line.

It runs only in a segment of its own that no timing uses: a sample needs the interpreter lock, and the switch interval
is shortened so that a thread that computes under the lock is sampled too.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from types import FrameType
from typing import Final, Literal

from xttsbench.step.frames import FRAMEWORK, LIBRARIES, OURS, WORKLOADS

LineKind = Literal["function", "tensorflow", "python", "io", "sync", "python_function"]
Key = tuple[str, int, str, LineKind]

_SAVING: Final = (
    "/checkpoint/",
    "/saved_model/",
    "/summary_ops",
    "/training/saver",
    "/saving/",
    "/lib/io/",
    "/callbacks/",
    "/ops/io_ops",
    "/backend/common/global_state",
)
"""Parts of TensorFlow and Keras that save, write summaries or clear state: work for the host, not for the device."""
CALLER: Final = "call_step"
"""Name of the function of ours that calls the step: user code begins above it on the stack."""
_FETCHING: Final = ("numpy", "_numpy", "__array__", "__float__", "__int__", "__bool__", "__index__", "item")


class StackSampler:
    """Samples the main thread every ``interval_s`` while it is entered; ``step`` says which step runs.

    ``weights`` maps (file, line, function, kind) to seconds, ``steps`` to the set of steps in which it was seen.
    A sample counts for the time since the one before it, so that a late sample loses nothing.
    """

    def __init__(self, interval_s: float = 0.001, *, input_runs: bool = False) -> None:
        """Sample every ``interval_s``; with ``input_runs`` no other thread's Python is taken for the step's."""
        self.interval_s = interval_s
        self._input_runs = input_runs
        self.step: int | None = None
        self.samples = 0
        self.total_s = 0.0
        self.weights: dict[Key, float] = defaultdict(float)
        self.steps: dict[Key, set[int]] = defaultdict(set)
        self._stop = threading.Event()
        self._main = threading.main_thread().ident
        self._thread = threading.Thread(target=self._run, name="xttsbench-sampler", daemon=True)
        self._switch_interval_s = 0.0

    def __enter__(self) -> StackSampler:
        self._switch_interval_s = sys.getswitchinterval()
        sys.setswitchinterval(self.interval_s / 4)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        sys.setswitchinterval(self._switch_interval_s)

    def _run(self) -> None:
        last = time.perf_counter()
        while not self._stop.wait(self.interval_s):
            step = self.step
            frames = sys._current_frames()
            frame = frames.get(self._main or 0)
            now = time.perf_counter()
            weight, last = now - last, now
            if step is None or frame is None:
                continue
            key = classify(frame)
            if key is not None and key[3] == "function" and not self._input_runs:
                key = python_function_elsewhere(frames.values()) or key
            if key is not None:
                self.samples += 1
                self.total_s += weight
                self.weights[key] += weight
                self.steps[key].add(step)


def classify(frame: FrameType | None) -> Key | None:
    """The user's innermost line on the stack, and what it is doing; ``None`` where no user code is on the stack."""
    kind: LineKind | None = None
    line: tuple[str, int, str] | None = None
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(FRAMEWORK):
            kind = _framework_kind(path, frame.f_code.co_name, kind, line is not None)
        elif path.startswith(OURS) and not path.startswith(WORKLOADS):
            if frame.f_code.co_name == CALLER:
                break  # all of the step is above it; other frames of ours are wrappers around TensorFlow's functions
        elif not path.startswith(LIBRARIES) and "__autograph_generated" not in path:
            kind = kind or "python"
            line = line or (path, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    if line is None:
        # A Keras model's own step, or a lambda of ours around it: no line of the user's, but the time is real.
        return ("", 0, "", kind) if kind else None
    return (*line, kind or "python")


def python_function_elsewhere(frames: Iterable[FrameType]) -> Key | None:
    """The user's line in a Python function that a tf.function runs on a thread of TensorFlow, if one is running."""
    for frame in frames:
        key = classify(frame)
        if key is not None and key[3] == "python_function":
            return key
    return None


def _framework_kind(path: str, function: str, kind: LineKind | None, below_user: bool) -> LineKind:
    """Refine the kind by one more frame of TensorFlow or Keras, going outwards."""
    if below_user:  # TensorFlow calls the user's function: a Python function inside the step
        return "python_function" if "script_ops" in path else (kind or "tensorflow")
    if any(part in path for part in _SAVING):
        return "io"
    if function in _FETCHING and kind != "io":
        return "sync"
    if kind in (None, "tensorflow") and path.endswith("polymorphic_function.py") and function == "__call__":
        return "function"
    return kind or "tensorflow"
