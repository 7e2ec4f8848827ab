"""Branches, loops over ranges and assignments that the values of arrays decide: what Python gives, either way."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.tf.fixes.native.traced import refused, same

pytestmark = pytest.mark.tf

SHORT, LONG, LOUD = (np.linspace(-1, 1, count).astype(np.float32) * by for count, by in ((5, 1), (40, 1), (40, 9)))
CALLS = ((SHORT,), (LONG,), (LOUD,))
SIZE = 16


def cropped_or_padded(x):
    if len(x) >= SIZE:  # noqa: SIM108
        x = x[:SIZE]
    else:
        x = np.pad(x, (0, SIZE - len(x)))
    if np.abs(x).max() > 1.0:
        x = x / np.abs(x).max()
    return x


def with_early_returns(x):
    if x.ndim > 1:
        x = x.mean(axis=1)
    if len(x) < 10:
        return np.zeros(3, np.float32), np.int64(0)
    loud = x.max() > 2.0
    if loud and not len(x) < 20:
        return x[:3] * np.float32(2), np.int64(1)
    return x[-3:], np.int64(2)


def with_others(x):
    kept = x
    scale = 0.5 if x.sum() > 1e-3 or len(x) == 5 else 2.0
    y = x * 2
    z = y
    if x.max() > 2:
        y += 1
        x = x[:2]
    return kept * np.float32(scale), y, z, x


def which_raises(x):
    if not len(x):
        raise ValueError("empty audio")
    assert x.max() < 100, "too loud"
    return x - x.mean()


def assigned(x):
    out = np.zeros((8, 2), np.float32)
    count = min(len(x), 8)
    out[:count, 0] = x[:count]
    out[1] = 5
    out[-2:, 1] += np.float32(len(x))
    y = x.copy()
    y[y < 0] = 0.0
    y[-1] = 3
    return out, y


def framed_by_a_loop(x):
    frames = []
    for i in range((len(x) - 4) // 2 + 1):
        frame = x[i * 2 : i * 2 + 4] * np.hanning(4)
        power = np.abs(np.fft.rfft(frame)) ** 2
        frames.append(power.astype(np.float32))
    starts = [i * 2 for i in range(len(x) // 2)]
    return np.stack(frames), np.array(starts), np.array([x[i] for i in range(len(x) - 2)]), np.stack(frames, axis=1)


@pytest.mark.parametrize(
    "function", [cropped_or_padded, with_early_returns, with_others, which_raises, framed_by_a_loop, assigned]
)
def test_either_way_gives_what_python_gives(function):
    same(function, *CALLS, tolerance=1e-5)


def test_text_decides_too():
    def numbered(text):
        known = text.decode().strip()
        if not known or known.startswith("#"):
            return np.int64(-1)
        return np.int64(int(known))

    same(numbered, (b" 12",), (b"  ",), (b"# 3",))


def test_a_way_that_only_raises_is_a_check():
    traced = same(which_raises, *CALLS)
    with pytest.raises(tf.errors.InvalidArgumentError, match="empty audio"):
        traced(tf.zeros([0]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="too loud"):
        traced(tf.constant([1000.0]))


def another_rank(x):
    if x.sum() > 0:
        x = x[None]
    return x


def another_dtype(x):
    return x if x.sum() > 0 else x.astype(np.float64)


def of_two_names(x):
    out = np.zeros(3, np.float32)
    other = out
    out[0] = x[0]
    return other


def grown(x):
    parts = [x]
    if x.sum() > 0:
        parts.append(x)
    return np.concatenate(parts)


def replaced_or_changed(x):
    y = x * 2
    z = y
    if x.sum() > 0:
        y += 1
    else:
        y = y + 1
    return z


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (another_rank, "another number of axes"),
        (another_dtype, "another dtype"),
        (grown, "changes a list"),
        (of_two_names, "an array that has several names"),
        (replaced_or_changed, "changes in place what it may also replace"),
    ],
)
def test_what_differs_by_the_way_is_refused(function, reason):
    refused(function, reason)
