"""Whether batches, losses and variables are the same within a tolerance, where other code computes the same.

:mod:`xttsbench.samedata.judge` asks for the same bits, or for the rounding of one computation, which is what a fix to
one pipeline must keep. Two loaders that compute the same features by other routes, and a step that is compiled in
another way, agree within a tolerance, and that is what is asked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from xttsbench.records.fix import How, Semantics
from xttsbench.records.pipeline import Elements

TOLERANCE: Final = 1e-4
"""Largest absolute difference of two floats that count as the same; on log-mels, 0.01 % of a magnitude."""

STATE_TOLERANCE: Final = 1e-3
"""Relative difference of two losses, or of two sketches of a variable, that counts as none: the order in which a
compiler sums is its own."""
_NOISE: Final = 3.0  # A step that differs from itself is compared at this many times that difference

Array = npt.NDArray[Any]


def difference(first: Any, second: Any, *, tolerance: float = TOLERANCE, batch: int = 0) -> str | None:
    """Say where two batches differ, or return ``None`` where they do not.

    Structure, dtypes and shapes must be the same, and so must integers, strings and booleans. Floating-point and
    complex values may be ``tolerance`` apart; NaN equals NaN, and an infinity the same infinity, in the same place.

    Args:
        first: dicts, tuples and lists of tensors, NumPy arrays or numbers, nested at will; ragged and sparse tensors
            are compared part by part.
        second: the same of the other side.
        tolerance: largest absolute difference of two floats.
        batch: number of the batch, for the sentence.

    Returns:
        One sentence: the batch, the key, and what differs. Of values it names the place of the largest difference
        (the first, where values must be the same): row, the clip's id where the batch has a key ``id`` with one number
        per row, frame and the rest of the index, both values, and how many differ.
    """
    ours, theirs = dict(_leaves(first)), dict(_leaves(second))
    for path in [*ours, *theirs]:
        if path not in ours or path not in theirs:
            side = "second" if path in ours else "first"
            return f"batch {batch}: the key {path or 'of the whole batch'} is missing from the {side}"
    ids = next((array for path, array in ours.items() if _last(path) == "id" and array.ndim == 1), None)
    # Ids first: where other clips are in the batch, everything else differs as well, and says less.
    for path in sorted(ours, key=lambda path: _last(path) != "id"):
        found = _of_arrays(ours[path], theirs[path], tolerance, ids)
        if found is not None:
            return f"batch {batch}, {path or 'value'}: {found}"
    return None


def loss_difference(ours: Sequence[float], theirs: Sequence[float], tolerance: float) -> tuple[float, str | None]:
    """Compare the losses of the same steps with the baseline's, ours.

    Returns:
        The largest relative difference of all steps, at most 2, which is also what a loss gets that is no number on
        one side alone; and the first step that is further apart than the tolerance with both losses, or ``None``.
    """
    apart = [min(_apart([first], [second]), 2.0) for first, second in zip(ours, theirs, strict=True)]
    for step, (first, second, found) in enumerate(zip(ours, theirs, apart, strict=True)):
        if found > tolerance:
            return max(apart), (
                f"step {step}: the loss is {second:.6g}, and the baseline's {first:.6g}; "
                f"{found:.2g} apart relative to them, and {tolerance:g} is allowed"
            )
    return max(apart, default=0.0), None


def same_training(original: Elements, again: Elements, changed: Elements) -> Semantics:
    """Compare what three runs trained on the same batches: the original, again in another process, and the changed one.

    Each has the losses of its first steps, and a sketch of every variable after them; what the original and its repeat
    differ by is nobody's change. ``unknown`` where there is neither a loss nor a variable, or that is more than ten
    times the tolerance.
    """
    steps = len(original.losses)

    def said(equivalent: bool | None, how: How, sentence: str) -> Semantics:
        return Semantics(equivalent=equivalent, how=how, sentence=sentence, elements=steps)

    if not original.losses and not original.state:
        return said(None, "unknown", "the step returns no loss and the target made no variable: nothing to compare")
    if changed.losses == () != original.losses and (reason := changed.unknown.get("losses")):
        return said(None, "unknown", f"the changed step could not be compared: {reason}")
    if len(changed.losses) != steps or [*map(len, changed.state)] != [*map(len, original.state)]:
        return said(False, "different", "the changed step returns other losses, or made other variables")
    noise = _furthest(original, again)
    if noise > 10 * STATE_TOLERANCE:
        why = f"the original step differs from itself by {noise:.2g}, so nothing can be compared"
        return said(None, "unknown", why)
    allowed = max(STATE_TOLERANCE, _NOISE * noise)
    found, what = _furthest(original, changed), _compared(steps, len(original.state))
    if found > allowed:
        apart = f"{what} are up to {found:.2g} apart relative to them, and {allowed:.2g} is allowed"
        return said(False, "different", apart)
    same = f"{what} are the same within {max(found, 1e-9):.1g}"
    return said(True, "rounding" if found else "identical", same)


def _compared(steps: int, variables: int) -> str:
    """Phrase for the compared values: ``losses of 3 steps and 10 variables after them``."""
    trained = f"{variables} {'variable' if variables == 1 else 'variables'} after"
    if not steps:
        return f"{trained} the first steps, which return no loss,"
    losses = "the loss of the last step" if steps == 1 else f"losses of {steps} steps"
    return f"{losses} and {trained} {'it' if steps == 1 else 'them'}" if variables else losses


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Array]]:
    """Yield a path such as ``mel`` or ``features.mel[1]`` and an array for every tensor."""
    if isinstance(value, Mapping):
        for key in value:
            yield from _leaves(value[key], f"{path}.{key}" if path else str(key))
    elif isinstance(value, tuple | list):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{path}[{number}]")
    elif (parts := _parts(value)) is not None:
        for number, item in enumerate(parts):
            yield f"{path}[part {number}]", np.asarray(item)
    else:
        yield path, np.asarray(value)


def _parts(value: Any) -> tuple[Any, ...] | None:
    """The dense tensors that a ragged or a sparse one is made of; ``None`` for any other value."""
    if hasattr(value, "nested_row_splits"):
        return (value.flat_values, *value.nested_row_splits)
    return (value.indices, value.values, value.dense_shape) if hasattr(value, "dense_shape") else None


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _of_arrays(ours: Array, theirs: Array, tolerance: float, ids: Array | None) -> str | None:
    if ours.dtype != theirs.dtype:
        return f"dtype {ours.dtype} against {theirs.dtype}"
    if ours.shape != theirs.shape:
        return f"shape {list(ours.shape)} against {list(theirs.shape)}"
    floating, is_complex = "float" in ours.dtype.name, ours.dtype.kind == "c"  # bfloat16 is no float to NumPy
    inexact = floating or is_complex
    if inexact:
        wide = np.complex128 if is_complex else np.float64
        first, second = ours.astype(wide), theirs.astype(wide)
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        with np.errstate(invalid="ignore"):  # infinity less infinity, which `same` has dealt with
            apart = np.where(same, 0.0, np.abs(first - second))
        apart[np.isnan(apart)] = np.inf  # NaN, or an infinity, on one side
        unlike = apart > tolerance
    else:
        unlike = np.asarray(ours != theirs)
        apart = unlike
    if not unlike.any():
        return None
    place = np.unravel_index(int(np.argmax(apart)), apart.shape)
    many = int(np.count_nonzero(unlike))
    value, other = ours[place], theirs[place]
    # Eight digits: two float32 that differ are not written alike.
    values = f"{float(value):.8g} against {float(other):.8g}" if floating else f"{value!s} against {other!s}"
    how = f"are more than {tolerance:g} apart" if inexact else "differ"
    reason = f"; {many} of {ours.size} values {how}" if inexact or many > 1 else ""
    return f"{_where(place, ids)}{values}{reason}"


def _where(place: tuple[Any, ...], ids: Array | None) -> str:
    """Name a place of ``[row, frame, ...]``; a scalar has none."""
    if not place:
        return ""
    row = int(place[0])
    clip = f" (clip {ids[row]})" if ids is not None and row < len(ids) else ""
    words = [f"row {row}{clip}", *(f"{'position' if len(place) == 2 else 'frame'} {number}" for number in place[1:2])]
    if len(place) > 2:
        words.append(f"band {place[2]}" if len(place) == 3 else f"index {[int(number) for number in place[2:]]}")
    return ", ".join(words) + ": "


def _furthest(ours: Elements, theirs: Elements) -> float:
    pairs = [(ours.losses, theirs.losses), *zip(ours.state, theirs.state, strict=False)]
    return max((_apart(a, b) for a, b in pairs), default=0.0)


def _apart(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Largest difference of two vectors relative to their largest number, since small ones are sums that cancel.

    Infinity where one side alone is no number, or missing.
    """
    if len(ours) != len(theirs):
        return float("inf")
    first, second = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    if same.all():
        return 0.0
    if not (np.isfinite(first) & np.isfinite(second))[~same].all():
        return float("inf")
    scale = max(float(np.abs(first).max()), float(np.abs(second).max()))
    return float(np.abs(first - second)[~same].max()) / scale
