"""A target: its name, taken apart without importing anything, and what it may say about itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from xttsbench.errors import TargetError, UsageError

_FORMS = "'module:callable' or 'path/to/file.py:callable'"


@dataclass(frozen=True)
class TargetSpec:
    """A target's name, taken apart: ``kind``, the module or file, and the callable's dotted name in it.

    A script has no callable; ``attribute`` is empty.
    """

    text: str
    kind: Literal["module", "file", "script"]
    place: str
    attribute: str
    folder: str
    """Directory that goes first on the import path: the file's own, or the working directory for a module."""

    @property
    def name(self) -> str:
        """What a run's directory is called after."""
        return self.attribute or Path(self.place).stem


@dataclass(frozen=True)
class Workload:
    """A target that says more about itself than a pair can: what is run, what may be tuned, and where its frames are.

    Attributes:
        dataset: the ``tf.data.Dataset`` that is iterated.
        step: ``step(batch)`` runs one training step; ``None`` judges the input side alone.
        model: a compiled ``keras.Model`` in place of ``step``.
        tunables: keyword of the callable that made this workload -> the values worth trying.
        name: a name for reports.
        frames: key of the batch under which the padded tensor lies, ``[batch, frames, ...]``.
        lengths: key of the batch under which the true numbers of frames lie, ``[batch]``. With both, throughput is
            given in valid frames per second too, and the share of padding is known.
    """

    dataset: Any
    step: Callable[[Any], Any] | None = None
    model: Any = None
    tunables: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    name: str | None = None
    frames: str | None = None
    lengths: str | None = None


def parse_target(text: str, *, working_directory: Path | None = None, scripts: bool = False) -> TargetSpec:
    """Take ``module:callable`` or ``file.py:callable`` apart and check what can be checked without importing it.

    Args:
        text: the target as it is written.
        working_directory: where relative paths begin.
        scripts: whether a ``.py`` file without a callable is a target: a script.

    Raises:
        TargetError: no callable is named, a name is not a Python name, the file is missing or not a file.
    """
    here = (working_directory or Path.cwd()).resolve()
    place, separator, attribute = text.rpartition(":")
    if not separator:
        if text.endswith(".py") and scripts:
            path = _existing_file(text, text, here)
            return TargetSpec(text, "script", str(path), "", str(path.parent))
        if text.endswith(".py"):
            raise TargetError(
                f"Target {text!r} is a script, which `xttsbench diagnose` alone runs as it is. Name a callable in it "
                f"that returns the dataset and the step: {text}:make"
            )
        raise TargetError(f"Target {text!r} names no callable; write it as {_FORMS}.")
    if not all(part.isidentifier() for part in attribute.split(".")):
        raise TargetError(f"Target {text!r}: {attribute!r} is not a Python name; write the target as {_FORMS}.")
    if place.endswith(".py") or "/" in place:
        path = _existing_file(text, place, here)
        return TargetSpec(text, "file", str(path), attribute, str(path.parent))
    if not place or not all(part.isidentifier() for part in place.split(".")):
        raise TargetError(f"Target {text!r}: {place!r} is neither a module's name nor a .py file; write {_FORMS}.")
    return TargetSpec(text, "module", place, attribute, str(here))


def _existing_file(text: str, place: str, here: Path) -> Path:
    # os.path: an unknown user or a name too long is no file, not an error.
    path = (here / os.path.expanduser(place)).resolve()
    if not os.path.isfile(path):
        state = "is a directory" if os.path.isdir(path) else "does not exist"
        raise TargetError(f"Target {text!r}: {place!r} {state} (looked for {path}). Check the path.")
    return path


def parse_setting(text: str) -> tuple[str, object]:
    """Read ``KEY=VALUE`` of ``--set``; the value is YAML, with ``1e-4`` read as a number.

    Raises:
        UsageError: there is no ``=``, or the key is not a Python name.
    """
    import yaml  # not at the top: the command line starts without it

    key, separator, value = text.partition("=")
    key = key.strip()
    if not separator or not key.isidentifier():
        raise UsageError(f"--set {text!r} is not KEY=VALUE with a Python name as the key, e.g. --set batch_size=16.")
    try:
        return key, float(value) if _is_exponent(value) else yaml.safe_load(value)
    except (yaml.YAMLError, ValueError) as error:  # a date that is none is a ValueError
        raise UsageError(f"--set {key}: {value!r} is not a YAML value ({error}).") from error


def _is_exponent(value: str) -> bool:
    """Whether it is a number such as ``1e-4`` or ``1.5e4``: YAML 1.1 reads text for want of a dot or of a sign."""
    try:
        float(value)
    except ValueError:
        return False
    return "e" in value.lower()
