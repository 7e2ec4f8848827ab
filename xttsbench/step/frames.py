"""Frames of a stack: whose code they are, and which phase of a training step an op that they made belongs to.

The bundled workload counts as a user's: it is measured like one.

The stack tells the phase where the framework, or the name of a function, does: inside ``tape.gradient``, an optimizer,
a loss, a metric, a layer. What is left is told by order: after the gradients and up to the next write to a variable it
is the update (clipping, schedules, a hand-written optimizer); after the last write it is neither; before the gradients
it is the forward pass.
"""

from __future__ import annotations

import importlib.util
import linecache
import os
import re
import sysconfig
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from xttsbench.records.step_ops import Phase

Owner = Literal["user", "framework", "library", "ours"]

FRAMEWORK: Final = tuple(  # found and not imported: a script may do without Keras
    os.path.dirname(found.origin)
    for name in ("tensorflow", "keras")
    if (found := importlib.util.find_spec(name)) is not None and found.origin
)
OURS: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKLOADS: Final = tuple(os.path.join(OURS, *parts) for parts in (("xtts",), ("training",), ("targets", "bundled.py")))
LIBRARIES: Final = tuple(
    {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {"<frozen"}
)


class Frame(NamedTuple):
    """A frame of a stack, live or kept by an op of a graph."""

    file: str
    line: int
    function: str


@lru_cache(maxsize=4096)
def owner(path: str) -> Owner:
    """Whose code the file is."""
    if path.startswith(FRAMEWORK):
        return "framework"
    if path.startswith(OURS) and not path.startswith(WORKLOADS):
        return "ours"
    if path.startswith(LIBRARIES) or "__autograph_generated" in path or path.startswith("<"):
        return "library"
    return "user"


_GRADIENTS: Final = ("gradient", "jacobian", "batch_jacobian", "_gradient_function")
_NOT_UPDATING: Final = (
    "minimize",
    "compute_gradients",
    "_compute_gradients",
    "get_gradients",
    "scale_loss",
    "__init__",
)
_UPDATING: Final = ("apply_gradients", "_apply_gradients", "apply_grads", "update_weights", "optimizer_step")
_LOSS: Final = re.compile(r"(^|_)(loss|losses|criterion|cross_?entropy)(_|$|\d)", re.IGNORECASE)
_LOSS_LINE: Final = re.compile(r"^\s*(\w*_)?loss(es)?(_\w*)?\s*(\+|:[^=]*)?=[^=]", re.IGNORECASE)
_NOT_A_LOSS: Final = ("l2_loss",)
"""TensorFlow's half a sum of squares, which the norm of the gradients is made of, too."""
_WRITE: Final = re.compile(r"^(Assign(Add|Sub)?VariableOp|Resource(Sparse)?Apply\w+|ResourceScatter\w+)$")


def writes(op_type: str) -> bool:
    """Whether an op of this type writes a variable."""
    return _WRITE.match(op_type) is not None


def user_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame in the user's code; ``frames`` are outermost first."""
    return next((frame for frame in reversed(frames) if owner(frame.file) == "user"), None)


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
        if whose == "user":
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
    has_gradients = any(phase == "backward" for phase, _ in marks)
    following: list[str | None] = [None] * len(marks)
    upcoming: str | None = None
    for at in range(len(marks) - 1, -1, -1):
        phase, write = marks[at]
        if phase == "backward":
            upcoming = "backward"
        elif phase == "optimizer" or (write and phase is None):
            upcoming = "write"
        following[at] = upcoming
    found: list[Phase] = []
    after_gradients = False
    for (phase, write), next_event in zip(marks, following, strict=True):
        after_gradients = after_gradients or phase == "backward"
        if phase is not None:
            found.append(phase)
        elif not has_gradients:
            found.append("optimizer" if write else "forward")
        elif not after_gradients:
            found.append("forward")
        elif next_event == "write":
            found.append("optimizer")
        else:
            found.append("forward" if next_event == "backward" else "other")
    return found


def _differentiates(frame: Frame) -> bool:
    if owner(frame.file) != "framework":
        return False
    return frame.file.endswith("gradients_util.py") or (
        frame.file.endswith("eager/backprop.py") and frame.function in _GRADIENTS
    )


def _updates(frames: Sequence[Frame]) -> bool:
    if any(frame.function in _UPDATING and owner(frame.file) != "ours" for frame in frames):
        return True
    own = [frame for frame in frames if owner(frame.file) == "framework" and "/optimizers/" in frame.file]
    return bool(own) and own[-1].function not in _NOT_UPDATING
