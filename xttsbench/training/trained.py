"""A trained model found again: from a run's directory, or from a checkpoint alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from xttsbench.errors import InvalidInputError
from xttsbench.records.training import CHECKPOINTS, MANIFEST
from xttsbench.training.checkpoints import Checkpoint, Checkpoints, name_of

if TYPE_CHECKING:
    from xttsbench.xtts.model.generate import Generator

_AVERAGE: Final = "average/"
"""How the names of averaged weights begin among the optimizer's arrays."""


def find_checkpoint(path: Path, warn: Callable[[str], None]) -> tuple[Checkpoint, Path]:
    """Return a checkpoint and the directory of its run.

    Args:
        path: a run's directory or its ``checkpoints/``, of which the newest whole checkpoint is taken, or a checkpoint.
        warn: is told of each damaged one that is passed over.

    Raises:
        InvalidInputError: there is no checkpoint, or it is damaged.
    """
    path = path.resolve()
    for directory in (path / CHECKPOINTS, path):
        if (directory / MANIFEST).is_file():
            found = Checkpoints(directory, keep=1).newest(warn)
            if found is None:
                raise InvalidInputError(
                    f"{directory}: no checkpoint was written yet; train longer, or name another run"
                )
            return found, directory.parent
    if (path.parent / MANIFEST).is_file():
        checkpoints = Checkpoints(path.parent, keep=1)
        entry = next((entry for entry in checkpoints.entries if name_of(entry) == path.name), None)
        if entry is not None:
            return checkpoints.load(entry), path.parent.parent
    raise InvalidInputError(
        f"{path}: holds no checkpoint that a {MANIFEST} names; give the directory of a run of 'xttsbench train', its "
        f"{CHECKPOINTS}/, or one of the checkpoints in there"
    )


def generator_of(checkpoint: Checkpoint) -> tuple[Generator, bool]:
    """Return what speaks with a checkpoint's model, in float32, and whether with averaged weights: where it has such.

    Raises:
        InvalidInputError: the weights are not those of such a model.
    """
    # Here, so that a checkpoint that cannot be used is refused before TensorFlow is imported.
    from xttsbench.training.state import named_variables
    from xttsbench.xtts.model import build
    from xttsbench.xtts.model.generate import Generator

    origin = checkpoint.run.origin
    averages = {
        name.removeprefix(_AVERAGE): array for name, array in checkpoint.optimizer.items() if name.startswith(_AVERAGE)
    }
    weights = averages or checkpoint.weights
    model = build(origin.model, origin.features.n_mels, origin.vocabulary, dtype="float32")
    variables = named_variables(model)
    wanted = {name: tuple(variable.shape) for name, variable in variables.items()}
    if wanted != {name: array.shape for name, array in weights.items()}:
        raise InvalidInputError(
            f"the weights of {checkpoint.entry.files[0]} are not those of this version's model; "
            "take the version of xttsbench that trained it"
        )
    for name, variable in variables.items():
        variable.assign(weights[name])
    step_s = origin.model.frames_per_step * origin.features.hop_samples / origin.features.sample_rate_hz
    return Generator(model, step_s), bool(averages)
