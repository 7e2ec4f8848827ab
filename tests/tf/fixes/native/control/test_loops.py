"""Loops whose length the values of arrays decide: what Python gives, or a refusal with the line."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tf.fixes.native.traced import refused, same

pytestmark = pytest.mark.tf

SHORT, LONG, QUIET = (
    np.sin(np.arange(count, dtype=np.float32)) * np.float32(by) for count, by in ((7, 1), (40, 9), (23, 0.01))
)
CALLS = ((SHORT,), (LONG,), (QUIET,))


def halved(x):
    while np.abs(x).max() > 0.5:
        x = x / 2
    return x


def trimmed(x):
    start, end = 0, len(x)
    while start < end and abs(x[start]) < 0.5:
        start += 1
    while end > start and abs(x[end - 1]) < 0.5:
        end -= 1
    return x[start:end], start


def running(x):
    total, found = np.float32(0), []
    for i in range(len(x)):
        total = total * np.float32(0.5) + x[i]
        found.append(total)
    return np.stack(found)


def filtered(x):
    y = [x[0]]
    for value in x[1:]:
        y.append(value - np.float32(0.97) * y[-1])
    return np.array(y, dtype=np.float32)


def filled(x):
    out = np.zeros((len(x) // 2, 3), np.float32)
    whole = np.zeros(50, np.float32)
    for i, start in enumerate(range(0, len(x) - 2, 2)):
        out[i] = x[start : start + 3]
        whole[i] += x[start]
    return out, whole


def first_loud(x):
    place = -1
    for i, (one, other) in enumerate(zip(x, x[::-1], strict=False)):
        if one < 0:
            continue
        if one + other > 0.3:
            place = i
            break
    return np.int64(place)


def forever(x):
    count = 0
    while True:
        count += 1
        x = x[::2]
        if len(x) < 3:
            break
    return x, np.int32(count)


def nested(x):
    best = np.float32(-1)
    for i in range(0, len(x), 4):
        power = np.float32(0)
        for j in range(i, min(i + 4, len(x))):
            power += x[j] ** 2
        if power > best:
            best = power * 1
    return best


def in_both(x):
    parts = []
    for i in range(len(x) // 4):
        for j in range(i, i + 2):
            parts.append(x[j] * 2)
    ends = [1.0]
    for one in x:
        ends.append(ends[-1] + one)
    return np.stack(parts), np.array(ends, np.float32)


def some(x):
    places = []
    for i in range(len(x)):
        if x[i] > 0.2:
            places.append(i)
    loud = []
    for i in range(len(x) // 4):
        part = x[i * 4 : i * 4 + 4]
        level = np.abs(part).max()
        if level > 0.005:
            scaled = part / level
            loud.append(scaled)
    return np.array(places, np.int64), len(places), np.concatenate(loud)


def known(x):
    total = x * 0
    for number in range(5):
        if x.sum() > number:
            break
        total = total + number
    return total


@pytest.mark.parametrize(
    "function", [halved, trimmed, running, filtered, filled, first_loud, forever, nested, in_both, some, known]
)
def test_loops_that_values_decide_give_what_python_gives(function):
    same(function, *CALLS, tolerance=1e-5)


def other_kinds(x):
    y = x
    for _ in range(len(x)):
        y = y[None]
    return y


def two_ways(x):
    for i in range(len(x)):
        if x[i] > 0.5:
            return x[:i]
    return x


def used_behind(x):
    for one in x:
        last = one * 2
    return last


def of_two_loops(x):
    parts = []
    for i in range(len(x)):
        level = x[i]
        for j in range(i):
            level = level + x[j]
            parts.append(level)
    return np.stack(parts)


def of_text(x):
    text = ""
    for _ in range(len(x)):
        text = text + "a"
    return np.int64(len(text))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (other_kinds, "how many axes"),
        (two_ways, "goes through a range"),
        (used_behind, "a loop that may not run"),
        (of_two_loops, "in a loop within another"),
        (of_text, "computes with str"),
    ],
)
def test_loops_that_cannot_be_carried_are_refused_with_their_line(function, reason):
    refused(function, reason)
