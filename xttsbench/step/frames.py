"""Frames of a stack: whose code they are, the phase of a training step that an op belongs to, and samples of the stack.

The bundled workload counts as a user's: it is measured like one.

The stack tells the phase where the framework, or the name of a function, does: inside ``tape.gradient``, an optimizer,
a loss, a metric, a layer. What is left is told by order: after the gradients and up to the next write to a variable it
is the update (clipping, schedules, a hand-written optimizer); after the last write it is neither; before the gradients
it is the forward pass.
"""

from __future__ import annotations

import linecache
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from types import CodeType, FrameType
from typing import Final, Literal, NamedTuple

from xttsbench.owners import owner
from xttsbench.records.code import Phase
from xttsbench.stacks import stacks

_WRITTEN: Final = ("user", "workload")  # owners of code that somebody wrote into a file to be measured


class Frame(NamedTuple):
    """A frame of a stack, live or kept by an op of a graph."""

    file: str
    line: int
    function: str


_GRADIENTS: Final = ("gradient", "jacobian", "batch_jacobian", "_gradient_function")
_NOT_UPDATING: Final = frozenset(
    {"minimize", "compute_gradients", "_compute_gradients", "get_gradients", "scale_loss", "__init__"}
)
_UPDATING: Final = ("apply_gradients", "_apply_gradients", "apply_grads", "update_weights", "optimizer_step")
_LOSS: Final = re.compile(r"(^|_)(loss|losses|criterion|cross_?entropy)(_|$|\d)", re.IGNORECASE)
_LOSS_LINE: Final = re.compile(r"^\s*(\w*_)?loss(es)?(_\w*)?\s*(\+|:[^=]*)?=[^=]", re.IGNORECASE)
_NOT_A_LOSS: Final = ("l2_loss",)  # TensorFlow's half a sum of squares, which the norm of the gradients is made of, too
_WRITE: Final = re.compile(r"^(Assign(Add|Sub)?VariableOp|Resource(Sparse)?Apply\w+|ResourceScatter\w+)$")


def writes(op_type: str) -> bool:
    """Whether an op of this type writes a variable."""
    return _WRITE.match(op_type) is not None


def user_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame in the user's code; ``frames`` are outermost first."""
    return next((frame for frame in reversed(frames) if owner(frame.file) in _WRITTEN), None)


def in_layer(frames: Sequence[Frame]) -> bool:
    """Whether a Keras layer made the op."""
    return any(frame.function == "__call__" and frame.file.endswith("layers/layer.py") for frame in frames)


def own_phase(frames: Sequence[Frame]) -> Phase | None:
    """The phase that the stack alone tells, or ``None`` where the order of the ops has to.

    The frames are of the stack that made the op, outermost first.
    """
    if any(_differentiates(frame) for frame in frames):
        return "backward"
    if _updates(frames):
        return "optimizer"
    for frame in reversed(frames):
        whose = owner(frame.file)
        if whose in _WRITTEN:
            by_name = _LOSS.search(frame.function) or _LOSS_LINE.match(linecache.getline(frame.file, frame.line))
            return "loss" if by_name else None
        if whose != "framework":
            continue
        if "/metrics/" in frame.file or frame.function == "compute_metrics":
            return "other"
        if "/losses/" in frame.file or (_LOSS.search(frame.function) and frame.function not in _NOT_A_LOSS):
            return "loss"
        if frame.function == "__call__" and frame.file.endswith("layers/layer.py"):
            return "forward"
    return None


def in_order(marks: Sequence[tuple[Phase | None, bool]]) -> list[Phase]:
    """The phase of each op of a step, in the order in which the ops were made.

    A mark is what :func:`own_phase` says of an op, and whether the op writes a variable.
    """
    gradients = [at for at, (phase, _) in enumerate(marks) if phase == "backward"]
    found: list[Phase] = []
    upcoming: Phase = "other"  # of an op of which nothing else tells, by what comes behind it
    for at, (phase, write) in reversed(list(enumerate(marks))):
        if phase == "backward":
            upcoming = "forward"
        elif phase == "optimizer" or (write and phase is None):
            upcoming = "optimizer"
        before: Phase = "optimizer" if write and not gradients else "forward"
        found.append(phase or (upcoming if gradients and at > gradients[0] else before))
    return found[::-1]


def _differentiates(frame: Frame) -> bool:
    of_tape = frame.file.endswith("eager/backprop.py") and frame.function in _GRADIENTS
    return owner(frame.file) == "framework" and (of_tape or frame.file.endswith("gradients_util.py"))


def _updates(frames: Sequence[Frame]) -> bool:
    if any(frame.function in _UPDATING and owner(frame.file) != "ours" for frame in frames):
        return True
    own = [frame for frame in frames if owner(frame.file) == "framework" and "/optimizers/" in frame.file]
    return bool(own) and own[-1].function not in _NOT_UPDATING


LineKind = Literal["function", "tensorflow", "python", "io", "sync", "python_function"]
Key = tuple[str, int, str, LineKind]

_SAVING: Final = re.compile(
    "/checkpoint/|/saved_model/|/summary_ops|/training/saver|/saving/|/lib/io/|/callbacks/|/ops/io_ops"
    "|/backend/common/global_state"
)
"""Parts of TensorFlow and Keras that save, write summaries or clear state: work for the host, not for the device."""
CALLER: Final = "call_step"
"""Name of the function of ours that calls the step: user code begins above it on the stack."""
_FETCHING: Final = ("numpy", "_numpy", "__array__", "__float__", "__int__", "__bool__", "__index__", "item")


_INTERVAL_S: Final = 0.001


class StackSampler:
    """Samples the main thread every millisecond while it is entered; ``step`` says which step runs.

    It runs only in a segment of its own that no timing uses: a sample needs the interpreter lock, and the switch
    interval is shortened so that a thread that computes under the lock is sampled too.

    ``weights`` maps (file, line, function, kind) to seconds, ``steps`` to the set of steps in which it was seen.
    A sample counts for the time since the one before it, so that a late sample loses nothing.
    """

    def __init__(self, *, input_runs: bool = False) -> None:
        """With ``input_runs`` no other thread's Python is taken for the step's."""
        self._input_runs = input_runs
        self.step: int | None = None
        self.samples = 0
        self.total_s = 0.0
        self.weights: dict[Key, float] = defaultdict(float)
        self.steps: dict[Key, set[int]] = defaultdict(set)
        self._of_step: list[tuple[Key, float]] = []
        self._last_step: int | None = None
        self._stop = threading.Event()
        self._main = threading.main_thread().ident
        self._thread = threading.Thread(target=self._run, name="xttsbench-sampler", daemon=True)
        self._switch_interval_s = 0.0

    def __enter__(self) -> StackSampler:
        self._switch_interval_s = sys.getswitchinterval()
        sys.setswitchinterval(_INTERVAL_S / 4)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        sys.setswitchinterval(self._switch_interval_s)

    def _run(self) -> None:
        last = time.perf_counter()
        while not self._stop.wait(_INTERVAL_S):
            step = self.step
            with stacks() as frames:
                now = time.perf_counter()
                weight, last = now - last, now
                key = None if step is None else classify(frames.get(self._main or 0))
                if key is not None and key[3] == "function" and not self._input_runs:
                    key = python_function_elsewhere(frames.values()) or key
            if step is not None and key is not None:
                self.samples += 1
                self.total_s += weight
                self.weights[key] += weight
                self.steps[key].add(step)
                if step != self._last_step:
                    self._last_step = step
                    self._of_step.clear()
                self._of_step.append((key, weight))

    def forget(self, step: int) -> None:
        """Leave out what was sampled in the last step, which never ended; called once the sampler was left."""
        if step != self._last_step:
            return
        for key, weight in self._of_step:
            self.samples -= 1
            self.total_s -= weight
            self.weights[key] -= weight
            self.steps[key].discard(step)
        for key in {key for key, _ in self._of_step if not self.steps[key]}:
            del self.weights[key], self.steps[key]
        self._last_step = None


def classify(frame: FrameType | None) -> Key | None:
    """The user's innermost line on the stack, and what it is doing; ``None`` where no user code is on the stack."""
    kind: LineKind | None = None
    line: tuple[str, int, str] | None = None
    while frame is not None:
        path = frame.f_code.co_filename
        whose = owner(path)
        if whose == "framework":
            kind = _framework_kind(path, frame.f_code.co_name, kind, line is not None)
        elif whose == "ours":
            if frame.f_code.co_name == CALLER:
                break  # all of the step is above it; other frames of ours are wrappers around TensorFlow's functions
        elif whose in (*_WRITTEN, "typed"):
            kind = kind or "python"
            line = line or (path, frame.f_lineno, _function(frame.f_code))
        frame = frame.f_back
    if line is None:
        # A Keras model's own step, or a lambda of ours around it: no line of the user's, but the time is real.
        return ("", 0, "", kind) if kind else None
    return (*line, kind or "python")


def _function(code: CodeType) -> str:
    """Name of a function; of a comprehension, which Python 3.11 runs as one, that of the function it is in."""
    if code.co_name not in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"):
        return code.co_name
    return next((name for name in reversed(code.co_qualname.split(".")) if not name.startswith("<")), code.co_name)


def python_function_elsewhere(frames: Iterable[FrameType]) -> Key | None:
    """The user's line in a Python function that a tf.function runs on a thread of TensorFlow, if one is running."""
    return next((key for key in map(classify, frames) if key is not None and key[3] == "python_function"), None)


def _framework_kind(path: str, function: str, kind: LineKind | None, below_user: bool) -> LineKind:
    """Refine the kind by one more frame of TensorFlow or Keras, going outwards."""
    if below_user:  # TensorFlow calls the user's function: a Python function inside the step
        return "python_function" if "script_ops" in path else (kind or "tensorflow")
    if _SAVING.search(path):
        return "io"
    if function in _FETCHING and kind != "io":
        return "sync"
    if kind in (None, "tensorflow") and path.endswith("polymorphic_function.py") and function == "__call__":
        return "function"
    return kind or "tensorflow"
