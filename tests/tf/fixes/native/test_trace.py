"""Functions that compute with NumPy as TensorFlow's ops: the same values and dtypes, or refused by line."""

from __future__ import annotations

import functools
import inspect
import math
import os
import random
import re
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.tf.fixes.native.traced import refused, same
from xttsbench.fixes.native.observe import RefusedError
from xttsbench.fixes.native.trace import trace

pytestmark = pytest.mark.tf

WINDOW = np.hanning(64).astype(np.float32)
FILTERS = np.abs(np.random.default_rng(0).normal(size=(33, 8))).astype(np.float32)
RANDOM = np.random.default_rng(3)
AUDIO = [RANDOM.normal(size=length).astype(np.float32) for length in (64, 100, 777)]
SHARES = {"low": 0.25, "high": 2.0}
LENGTH = 5


def same_of(function, *arguments, tolerance=1e-5, tensors=False):
    return same(function, arguments, tolerance=tolerance, tensors=tensors)


# Audio and images, as they are preprocessed


def frames_of(audio, length=64, hop=16):
    count = 1 + (len(audio) - length) // hop
    return audio[np.arange(count)[:, None] * hop + np.arange(length)[None, :]]


def log_mel(audio):
    spectrum = np.abs(np.fft.rfft(frames_of(audio) * WINDOW, axis=-1)) ** 2
    mel = np.log(np.maximum(spectrum.astype(np.float32) @ FILTERS, 1e-5))
    return ((mel - mel.mean(axis=0)) / (mel.std(axis=0) + 1e-3)).astype(np.float32)


def log_mel_in_double(audio):
    """The window is made in double precision, and so is all that follows."""
    emphasised = np.append(audio[0], audio[1:] - 0.97 * audio[:-1])
    frames = frames_of(emphasised) * np.hanning(64)
    power = np.abs(np.fft.rfft(frames, 128)) ** 2 / 128
    mel = 10 * np.log10(np.dot(power[:, :33], FILTERS) + 1e-10)
    mel -= mel.max()
    return np.clip(mel, -80.0, None).T.astype(np.float32), np.int64(len(frames)), mel.shape[1]


def of_one_length(audio):
    if len(audio) < 200:  # noqa: SIM108 - as people write it
        audio = np.pad(audio, (0, 200 - len(audio)), mode="constant")
    else:
        audio = audio[:200]
    peak = np.abs(audio).max()
    return audio / peak if peak > 0 else audio, np.float32(peak), len(audio)


def deltas(audio):
    frames = audio[: len(audio) // 4 * 4].reshape(-1, 4)
    padded = np.pad(frames, ((2, 2), (0, 0)), mode="reflect")
    n, total = len(frames), np.zeros_like(frames)
    for k in range(1, 3):
        total = total + k * (padded[2 + k : 2 + k + n] - padded[2 - k : 2 - k + n])
    found = total / np.float32(2 * sum(k * k for k in range(1, 3)))
    return np.concatenate([frames, found, np.diff(found, axis=1)[:, ::-1]], axis=1)


@pytest.mark.parametrize("function", [log_mel, log_mel_in_double, of_one_length, deltas])
def test_features_of_audio_of_any_length(function):
    same(function, *((one,) for one in AUDIO), tolerance=1e-4)


def image(pixels):
    x = pixels.astype(np.float32) / 255.0
    x = (x - np.array([0.485, 0.456, 0.406], dtype=np.float32)) / np.array([0.2, 0.2, 0.2], np.float32)
    height, width = x.shape[:2]
    top, left = (height - 4) // 2, (width - 4) // 2
    x = x[top : top + 4, left : left + 4, :][:, ::-1]
    gray = np.dot(x, np.float32([0.299, 0.587, 0.114]))
    return np.transpose(x, (2, 0, 1)), np.round(gray * 10), np.expand_dims(gray, -1), pixels.mean(), pixels / 255


def test_images():
    pictures = [RANDOM.integers(0, 256, (height, width, 3)).astype(np.uint8) for height, width in ((7, 9), (5, 4))]
    same(image, *((one,) for one in pictures))


# Values and dtypes


def mixed(a, b):
    low, high = np.float32(SHARES["low"]), SHARES["high"]
    c = np.where(a > b, a * low, b / 3) + high
    return c, np.clip(c, -5, 5), np.sum(a, axis=0), a.mean(), (a * 3).astype(np.int32), a % 7, a.astype(np.int16) // 4


def shapes(a, b):
    c, d = np.concatenate([a, b[::-1]], axis=0), np.stack([a, b], axis=-1)
    return (
        *(np.roll(a, 2), np.roll(a, -1, axis=1), np.moveaxis(d, 0, -1), np.flip(d, 1), np.swapaxes(a, 0, 1)),
        *(np.expand_dims(a, axis=1), np.pad(a, ((0, 3), (1, 0)), mode="constant", constant_values=-1.0)),
        *(np.tile(a, (2, 1)), np.repeat(a, 2, axis=1), np.append(a, b), np.hstack([a, b]), np.vstack((a, b)), c.T),
        *(d.transpose(2, 0, 1), a.reshape(-1, 1).squeeze(-1).copy()[::2], a[..., -1], a[:, None, :-1], a[1:]),
        *(a[-2:, ::-1], a[::2], a.flatten(), a.ravel()[-1], np.zeros_like(b), np.ones((len(a), 2)), a.shape[0], a.size),
    )


def backwards(a, b):
    n = len(a)
    return a[9::-1], a[-1:-9:-2], a[n:0:-1], b[:, 9:0:-1], a[-99:-1], a[1 - n :], a[n:], b[n - 1], b[-n, ::-1]


def statistics(a, b):
    spread = a - a.mean(axis=1, keepdims=True)
    return (
        *(spread.std(), np.var(b, axis=0), np.cumsum(a, axis=1), np.diff(b, axis=0), np.linalg.norm(a, axis=1)),
        *(a.max(), b.min(axis=0), np.any(a > 3), np.round(a), np.sign(b), np.hypot(a, b), np.log1p(np.abs(a))),
        *(np.einsum("ij,kj->ik", a, b), np.sqrt(np.sum(np.square(a))), np.minimum(a, 1.5), -a, abs(b), np.power(a, 2)),
    )


@pytest.mark.parametrize("function", [mixed, shapes, statistics, backwards])
@pytest.mark.parametrize("shape", [(2, 2), (3, 5), (6, 4)])
def test_whatever_the_values_they_are_those_of_numpy(function, shape):
    same_of(function, *(RANDOM.normal(size=(2, *shape)) * 9).astype(np.float32), tolerance=3e-4)


def whole(a, b):
    return (
        *(a // b, a % b, a / 4, a * 2 + 1, np.float32(0.5) * a, a > b, a**2, abs(a), -a, a & b, np.minimum(a, b)),
        *(a.sum(), a.max(), np.argmax(a), np.argmin(b), a.mean(), np.sort(a), a.astype(np.float32) / 3, (a > 3).sum()),
    )


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_whole_numbers_divide_and_promote_as_numpys_do(kind):
    a, b = RANDOM.integers(-50, 50, 9).astype(kind), np.array([1, -2, 3, 4, -5, 6, 7, -8, 9], kind)
    same_of(lambda x, y: whole(x, y)[:-1], a, b)


KINDS = (np.bool_, np.uint8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64, np.complex64)


def promoted(x, y):
    return x * y + 1


def divided(x, y):
    return x / (y + 1)


def together(x, y):
    return np.concatenate([x, y])


@pytest.mark.parametrize("function", [promoted, divided, together])
def test_dtypes_of_two_kinds_are_promoted_by_numpys_rules_or_refused(function):
    kept = 0
    for first in KINDS:
        for second in KINDS:
            a, b = np.array([1, 0, 3]).astype(first), np.array([2, 5, 1]).astype(second)
            try:
                same_of(function, a, b, tolerance=2e-3)
            except RefusedError:
                continue
            kept += 1
    assert kept >= 55


def wraps(x):
    return x.astype(np.int16) * np.int16(300), (x * 100).astype(np.int8), x.astype(np.uint8), x.astype(np.int32)


def test_what_does_not_fit_wraps_as_it_does_in_numpy():
    same_of(wraps, np.float32([1, -1, 200, 300, 70_000, -70_000, 0.9, -0.9]))


def halves(x):
    return np.round(x), round(float(x[0])), np.rint(x)


def test_halves_are_rounded_to_even():
    same_of(halves, np.float32([0.5, 1.5, 2.5, -0.5, -1.5, 3.49]))


def first(x):
    return np.argmax(x, axis=1), np.argmin(x, axis=0), x.argmax()


def test_of_equal_values_the_first_is_the_largest():
    for size in (3, 40, 900):
        same_of(first, RANDOM.integers(0, 3, (7, size)))


def passes_on_nan(x):
    return np.max(x), np.minimum(x, 1.0), np.sum(x), np.clip(x, 0, 1), np.isnan(x), x > 0


def test_what_is_no_number_stays_none():
    same_of(passes_on_nan, np.float32([1, np.nan, -3, np.inf, -np.inf]))


# Python around the arrays


def row(index):
    return np.arange(16, dtype=np.float32) + np.float32(index)


def in_loops(x):
    total = np.zeros(3, np.float32)
    for number in range(4):
        total = total + x * number if number % 2 else total - x
    parts = [total[i : i + 2] * scale for i, scale in enumerate((1.0, 2.0))]
    return np.stack(parts).astype(np.float32), sum(parts)


def in_place(x):
    y = x * 2
    y += 1.5
    y -= y.mean()
    return y


def lengths(x):
    n = len(x)
    half = int(n * 0.5)
    best = max(n, 10) - min(n, 3)
    numbers = np.arange(best), np.arange(2, n), np.arange(0, n, 2), np.arange(n, dtype=np.float32)
    return (
        np.zeros((n, 2), np.float32),
        np.full(half, 7),
        *numbers,
        x[: n // 2],
        np.float32(n),
        x[-1],
        n,
        math.ceil(n / 4),
    )


def masked(x):
    loud = x[np.abs(x) > 1.0]
    return loud, np.int64(loud.size), x[[0, 2]]


def halved(x):
    while np.abs(x).max() > 1:
        x = x / 2
    return x


def turns(x):
    total = x[0] * 0
    for i in range(len(x)):
        total = total + x[i] * x[i]
        if total > 100:
            break
    return total


def branches(x):
    scale = 1.0
    if x.mean() > 0.5:
        scale = 2.0
    return x * np.float32(scale), x if x.sum() > 3 else -x


class Scaled:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return self.scale(x, offset=1)

    def scale(self, x, offset=0):
        return x * self.by + offset


def collected(x):
    parts = []
    for step in (1, 2, 3):
        parts.append(x[::step].mean())
    found = {"mean": np.array(parts), "count": len(parts)}
    return found["mean"], found["count"]


def inner(x):
    def scaled(y, by=2):
        return y * np.float32(by) + x[0]

    less = lambda y: y - x  # noqa: E731
    return scaled(x), less(x * 3)


def silenced(x, scale=LENGTH):
    with np.errstate(divide="ignore"):
        y = x / x[0]
    assert x.ndim == 1
    return y * scale


def several(*parts):
    first, *rest = parts
    return first + rest[0]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (row, [np.int64(7)]),
        (in_loops, [np.float32([1, 2, 3])]),
        (in_place, [np.float32([1, 2, 3])]),
        (lengths, [np.float32(range(9))]),
        (masked, [np.float32([0.5, -3, 2, 0])]),
        (halved, [np.float32([9, -5])]),
        (turns, [np.float32([9, -5, 3])]),
        (branches, [np.float32([0.1, 0.2])]),
        (branches, [np.float32([3, 0.2])]),
        (collected, [np.float32(range(9))]),
        (inner, [np.float32(range(3))]),
        (silenced, [np.float32([2, 3])]),
        (several, [np.float32([1, 2]), np.float32([3, 4])]),
        (functools.partial(lambda x, by: x * by, by=3), [np.float32([1, 2])]),
        (functools.partial(lambda by, x: x * by, np.float32(3)), [np.float32([1, 2])]),
        (Scaled(np.float32(2)), [np.float32([1, 2])]),
        (Scaled(2.0).scale, [np.float32([1, 2])]),
        (lambda ids: FILTERS[ids].sum(axis=1), [np.int64([0, 3, 1])]),
        (lambda i: FILTERS[i] * 2, [np.int64(-1)]),
        (lambda x: np.fft.irfft(np.fft.rfft(x, 16) * 2), [np.float64(range(10))]),
        (lambda x: x * LENGTH if LENGTH > 3 else x, [np.float32([1, 2])]),
    ],
)
def test_python_around_the_arrays_means_what_it_does(function, arguments):
    same_of(function, *arguments)


def test_branches_that_no_call_took_are_followed_too():
    traced = same(of_one_length, (AUDIO[0],), (AUDIO[1],))
    for given, found in zip(of_one_length(AUDIO[2]), traced(tf.constant(AUDIO[2])), strict=True):
        np.testing.assert_allclose(found, given, rtol=1e-6)


def test_functions_of_tensors_stay_as_they_are_and_their_arrays_do_not():
    def chain(x):
        y = tf.cast(x, tf.float32)
        for _ in range(3):
            y = y + 1.0
        return y

    def helped(x):
        return chain(x) * 2.0

    def half(x):
        y = tf.cast(x, tf.float32) * 2.0
        return np.log1p(np.abs(y.numpy())) + 1.0

    assert same_of(chain, np.int32([1, 2]), tensors=True).text == ""
    assert same_of(helped, np.int32([1, 2]), tensors=True).text == ""
    assert "tnp.log1p(tnp.absolute(y)) + 1.0" in same_of(half, np.int32([1, 2]), tensors=True).text


# The text of it


def test_the_text_is_the_users_own_function_with_other_names():
    text = same(log_mel, *((one,) for one in AUDIO), tolerance=1e-4).text
    assert (
        text
        == inspect.cleandoc("""
        tnp = tf.experimental.numpy


        def frames_of_native(audio, length=64, hop=16):
            count = 1 + (tf.shape(audio, tf.int64)[0] - length) // hop
            return tf.gather(audio, tf.range(count)[:, None] * hop + np.arange(length)[None, :])


        def log_mel_native(audio):
            spectrum = tnp.absolute(tf.signal.rfft(frames_of_native(audio) * WINDOW)) ** 2
            mel = tnp.log(tnp.maximum(tf.cast(spectrum, tf.float32) @ FILTERS, 1e-5))
            return tf.cast((mel - tnp.mean(mel, axis=0)) / (tnp.std(mel, axis=0) + 1e-3), tf.float32)
    """)
        + "\n"
    )


def noted(x):  # a header
    """Doubles."""
    # what it is for
    y = x.astype(
        np.float64  # wide
    )

    return y * WINDOW[:2]  # narrow


def test_comments_layout_and_what_numpy_does_by_itself_are_written_out():
    traced = same_of(noted, np.float32([1, 2]))
    assert (traced.name, traced.names, traced.why_no_text) == ("noted_native", ("WINDOW",), None)
    assert (
        traced.text
        == inspect.cleandoc('''
        def noted_native(x):
            """Doubles."""
            # what it is for
            y = tf.cast(x, tf.float64)

            return y * tf.cast(WINDOW[:2], tf.float64)  # narrow
    ''')
        + "\n"
    )


# What stays Python


def draws(x):
    scale = 2.0
    return x * np.float32(np.random.normal() * scale)  # refused: may do more than compute


def draws_by_python(x):
    return x * np.float32(random.random())  # refused: may do more than compute


def tells_the_time(x):
    begin = time.time()  # refused: may do more than compute
    return x * np.float32(begin)


def reads(x):
    names = os.listdir("/dev")  # refused: may do more than compute
    return x * np.float32(len(names))


def decided(x):
    function = np.sin if x[0] > 0 else np.cos
    return function(x)  # refused: calls several functions


def reads_arrays(x):
    return x * np.load("/nowhere.npy")  # refused: may do more than compute


def prints(x):
    print(x)  # refused: may do more than compute
    return x


def reads_where_no_call_came(x):
    if len(x) > 1000:
        return x * np.load("/nowhere.npy")  # refused: may do more than compute
    return x


def unknown(x):
    y = x + 1
    return np.unwrap(y)  # refused: numpy.unwrap, which has no equal


def helped(x):
    return middle(x) + 1


def middle(x):
    return np.median(x)  # refused: numpy.median


def assigns(x):
    y = np.zeros_like(x)
    y[:2] = x[:2]  # refused: assigns to a part of an array
    return y


def swallows(x):
    try:  # refused: statement `try`
        return np.unwrap(x)
    except Exception:
        return x


def in_views(x):
    y = x * 2
    z = y[1:]
    y += 1  # refused: y in place, which has another name
    return z


def in_its_argument(x):
    x += 1  # refused: x in place, which has another name
    return x


def floored(x):
    return x // 0.1  # refused: has float32 in `x // 0.1`, where TensorFlow differs


def largest(x):
    return np.argmax(x)  # refused: where TensorFlow differs


def sorts(x):
    return np.sort(x)  # refused: where TensorFlow differs


def ordered(x):
    return np.argsort(x)  # refused: no equal


def looks_up(x):
    return np.float32({0: 1.0, 1: 2.0}[int(x[0])])  # refused: looks up


def by_its_kind(x):
    return x if isinstance(x, np.ndarray) else x * 2  # refused: isinstance


def by_edges(x):
    return np.pad(x, 2, mode="edge")  # refused: pads by 'edge'


def by_degrees(x):
    return x.std(ddof=1)  # refused: ddof


def text(x):
    return np.float32(len(f"{x[0]}"))  # refused: makes text


def shifted(x):
    return x.astype(np.int32) << 2  # refused: operator


def raised(x):
    return 2 ** x.astype(np.int32)  # refused: where TensorFlow differs


def truth(x):
    return x[0] or x[1]  # refused: true or false


@pytest.mark.parametrize(
    "function",
    [
        *(draws, draws_by_python, tells_the_time, reads, reads_arrays, prints, reads_where_no_call_came, unknown),
        *(assigns, swallows, in_views, in_its_argument, floored, largest, sorts, ordered, looks_up, by_its_kind),
        *(by_edges, by_degrees, text, decided, shifted, raised, truth),
    ],
)
def test_what_is_refused_names_its_line_and_reason(function):
    lines, start = inspect.getsourcelines(function)
    line, word = next(
        (start + n, one.split("# refused: ")[1].strip()) for n, one in enumerate(lines) if "# refused" in one
    )
    assert refused(function, re.escape(word)).line == line


def test_a_helper_is_refused_at_its_own_line():
    assert refused(helped, "numpy.median").line == inspect.getsourcelines(middle)[1] + 1


def another_dtype(x):
    return x.astype(np.float64)


def test_results_that_the_graph_does_not_expect_are_refused():
    spec, seen = [tf.TensorSpec([None], tf.float32)], [(np.float32([1, 2]),)]
    with pytest.raises(RefusedError, match="returns float64, and the graph expects float32"):
        trace(another_dtype, spec, [tf.float32], seen=seen)
    with pytest.raises(RefusedError, match="returns 2 results, and the graph expects 1"):
        trace(lambda x: (x, x), spec, [tf.float32], seen=seen)
    with pytest.raises(RefusedError, match="RandomStandardNormal, which holds state"):
        trace(lambda x: x + tf.random.normal([]), spec, [tf.float32], tensors=True, seen=[(tf.constant([1.0]),)])
