"""One exception tree; every message says what happened, where, with which value, and what to do next.

::

    XttsbenchError            exit code 1, a fault of ours unless a subclass says otherwise
    |-- UsageError            2, the command line is wrong
    |-- NotProvedError        3, an edit of which nothing can be compared
    |-- NothingMeasuredError  4, no element came or no step ended
    |-- InvalidInputError     5, a scenario, recipe, data set or target is unusable
    |   |-- TargetError       5, the target is missing, malformed, of the wrong type, or raised
    |   `-- JournalError      5, a run's directory cannot be read
    |-- HelperError           1, the helper process could not be started, or not with this TensorFlow
    `-- ServiceError          1, a server of the tf.data service did not start, or is gone
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "HelperError",
    "InvalidInputError",
    "JournalError",
    "NotProvedError",
    "NothingMeasuredError",
    "ServiceError",
    "TargetError",
    "UsageError",
    "XttsbenchError",
    "first_line",
]


class XttsbenchError(Exception):
    """Base of all errors that this package raises on purpose."""

    exit_code: ClassVar[int] = 1


class UsageError(XttsbenchError):
    """The command line is wrong: an unknown value, a taken directory."""

    exit_code = 2


class NotProvedError(XttsbenchError):
    """Both versions of an edit run, and no data of theirs can be compared."""

    exit_code = 3


class NothingMeasuredError(XttsbenchError):
    """No element came from the dataset, or no step ended."""

    exit_code = 4


class InvalidInputError(XttsbenchError):
    """A scenario, recipe, data set or target is missing, malformed, of the wrong type, or raises."""

    exit_code = 5


class TargetError(InvalidInputError):
    """The target cannot be imported, is not callable, returns something else, or raised."""


class JournalError(InvalidInputError):
    """A run's directory is missing, torn in the middle, or of another schema version."""


class HelperError(XttsbenchError):
    """The helper process that forks the trials could not be started, or not with the TensorFlow that is installed."""


class ServiceError(XttsbenchError):
    """A server of the tf.data service did not start, or is gone."""


def first_line(error: object, most: int = 300) -> str:
    """The first line of what an error says, or a line of its type where it says nothing; so many characters at most.

    TensorFlow and libraries of C++ put a stack or a graph behind it, of which a sentence has no room.
    """
    lines = str(error).strip().splitlines()
    return lines[0][:most] if lines else type(error).__name__
