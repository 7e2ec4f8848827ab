"""Failures of a trial in words: what raised, and where in the user's code. Imports no TensorFlow: a script may not."""

from __future__ import annotations

import difflib
import linecache
import re
import tokenize
import traceback
from typing import Final

from xttsbench.errors import TargetError, XttsbenchError
from xttsbench.owners import owner
from xttsbench.records.trial import TrialError

_OF_MEMORY: Final = ("MemoryError", "ResourceExhaustedError")
_WHERE: Final = ("Graph execution error", "Detected at", "<stack", "File ", "[[")
"""Beginnings of lines in which TensorFlow says where something happened, before it says what."""
_ELSEWHERE: Final = re.compile(r"from worker .*could not find callback", re.DOTALL | re.IGNORECASE)
_WHY_ELSEWHERE: Final = (
    "TensorFlow does it so: a worker of the tf.data service is another process, which is given the ops of the dataset "
    "and none of its Python functions (nor, without an error, the entries of a mutable table). What helps: "
    "from_generator, numpy_function and py_function behind .apply(distribute(...)), or written as ops of TensorFlow, "
    "of files that the workers can read"
)
"""Seen with TensorFlow 2.21 of a worker in a process of its own; one in the same process finds all of them."""
_OF_ARRAYS: Final = re.compile(
    r"SymbolicTensor'? object has no attribute '(\w+)'|[Cc]annot convert a symbolic tf\.Tensor|not 'SymbolicTensor'"
)
_OF_TYPES: Final = re.compile(r"Op has type (\w+) that does not match type (\w+) of argument")
_CAST: Final = re.compile(r"([\w.\[\]]+)\.astype\((?:np\.|numpy\.|tf\.)?[\"']?(\w+)[\"']?\)")


class ExhaustedError(Exception):
    """The dataset yields nothing (more), even when it is begun again."""


class StepRaisedError(Exception):
    """The target raised in the middle of a segment; ``__cause__`` is what it raised."""

    def __init__(self, segment: str, step: int, where: str, batch_size: int | None = None) -> None:
        super().__init__(f"{where} of step {step} ({segment})")
        self.step = step
        self.where = where
        self.batch_size = batch_size


def failure(error: BaseException, script: str | None = None) -> dict[str, object]:
    """Message to the parent about an error; the ``script`` is where it happened if no line of the user's is known."""
    if isinstance(error, ExhaustedError):
        return {"status": "empty", "cause": str(error) or "the dataset yields no element"}
    step, size, cause = None, None, error
    if isinstance(error, StepRaisedError) and error.__cause__ is not None:
        step, size, cause = error.step, error.batch_size, error.__cause__
    # Our own error may only put that of the target into a sentence.
    root = cause.__cause__ if isinstance(cause, TargetError) and cause.__cause__ is not None else cause
    file, ran = _place(root)
    line = _on_disk(file, ran) if file and ran else ran
    message = str(error)
    if not isinstance(error, XttsbenchError):
        message = said(cause) + (f" at {file}:{line}" if file else "")
        message = f"{message.rstrip('.')}. {_WHY_ELSEWHERE}" if _ELSEWHERE.search(str(cause)) else message
        message = f"{message.rstrip('.')}.{told}" if (told := _in_a_graph(cause, file, ran)) else message
        message = f"the target raised in {error}: {message}" if isinstance(error, StepRaisedError) else message
    record = TrialError(
        type=type(cause).__name__,
        message=message,
        file=file or script,
        line=line,
        step=step,
        batch_size=size,
        traceback="".join(traceback.format_exception(cause))[-8000:],
    )
    of_memory = any(kind.__name__ in _OF_MEMORY for kind in type(root).__mro__)
    status = "out_of_memory" if of_memory else "raised"
    return {"status": status, "cause": message, "error": record.model_dump(mode="json")}


def said(error: BaseException) -> str:
    """Type of an error, and the line that says what happened.

    TensorFlow puts the Python error of a PyFunc into the middle of its own.
    """
    name = type(error).__name__
    lines = [re.sub(r"^\{\{.*?\}\}", "", line.strip()).strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(_WHERE)]
    python = (line for line in lines if line.startswith(name) or "Error: " in line)
    found = next(python, lines[0] if lines else "")
    return (found[:300] if found.startswith(f"{name}: ") else f"{name}: {found[:300]}") if found else name


def _in_a_graph(cause: BaseException, file: str | None, line: int | None) -> str:
    """Code to write in a function of TensorFlow's in place of what only runs outside one; empty for other errors."""
    taken, text = _OF_ARRAYS.search(str(cause)), linecache.getline(file or "", line or 0)
    if types := _OF_TYPES.search(str(cause)):
        return (
            f" Inside a tf.function an array keeps its type: `tf.cast(..., tf.{types[2]})` around what is {types[1]}."
        )
    if taken is None:
        return ""
    if (cast := _CAST.search(text)) and taken[1] == "astype":
        return f" Inside a tf.function it is a tensor: `tf.cast({cast[1]}, tf.{cast[2]})` in place of `{cast[0]}`."
    if taken[1] in ("numpy", "item") or taken[0].startswith("not "):
        return " Inside a tf.function it has no value yet: return the tensor from the function, and fetch it outside."
    return " Inside a tf.function it is a tensor: write what is done with it in functions of TensorFlow."


def _place(error: BaseException) -> tuple[str | None, int | None]:
    """The innermost frame that is neither ours nor a library's."""
    # Raised while a function was traced: the frames are of code that AutoGraph wrote, which it can lead back.
    for written in getattr(getattr(error, "ag_error_metadata", None), "translated_stack", ()):
        if written.is_converted and owner(written.filename) == "user":
            return written.filename, written.lineno
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next(((one.filename, one.lineno) for one in frames[::-1] if owner(one.filename) == "user"), (None, None))


def _on_disk(file: str, line: int) -> int:
    """The line of a file for one of the text that ran, which may be a patched copy of it."""
    ran = [one.strip() for one in linecache.getlines(file)]
    try:
        with tokenize.open(file) as opened:
            there = [one.strip() for one in opened]
    except (OSError, SyntaxError, UnicodeError):
        return line
    for _, start, end, first, last in difflib.SequenceMatcher(None, ran, there, autojunk=False).get_opcodes():
        if start < line <= end:
            return min(first + line - start, max(last, 1))
    return line
