"""The fix ``native``: a dataset whose Python functions became ops yields the same; what must stay Python does."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph import apply
from xttsbench.fixes.native import names
from xttsbench.pipeline.nodes import FunctionLibrary
from xttsbench.pipeline.read import read_graph
from xttsbench.pipeline.source import display_name, lookup

pytestmark = pytest.mark.tf

BANK = np.abs(np.random.default_rng(1).normal(size=(33, 8))).astype(np.float32)
SEEN = []


def helper(spectrum, floor=1e-5):
    return np.log(np.maximum(spectrum @ BANK, floor))


def features(audio):
    count = 1 + (len(audio) - 64) // 16
    frames = audio[np.arange(count)[:, None] * 16 + np.arange(64)]
    spectrum = np.abs(np.fft.rfft(frames * np.hanning(64), axis=1)) ** 2
    mel = helper(spectrum)
    return ((mel - mel.mean(0)) / (mel.std(0) + 1e-3)).astype(np.float32), np.int64(count)


def clips(count=12):
    def clip(index):
        return tf.sin(tf.range(64 + 40 * index, dtype=tf.float32) * 0.01 * tf.cast(index + 1, tf.float32))

    return tf.data.Dataset.range(count).map(clip)


def of_clips(function=features, results=(tf.float32, tf.int64)):
    def mapped(audio):
        return tf.numpy_function(function, [audio], list(results) if len(results) > 1 else results[0])

    return clips().map(mapped)


def tokens(dataset):
    return FunctionLibrary(read_graph(dataset).library.function).all_tokens()


def values(dataset):
    return [[part.numpy() for part in tf.nest.flatten(element)] for element in dataset]


def assert_close(dataset, other):
    ours, theirs = values(dataset), values(other)
    assert len(ours) == len(theirs) > 0
    for one, two in zip(ours, theirs, strict=True):
        for a, b in zip(one, two, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, atol=1e-4, rtol=0)


@pytest.mark.parametrize("fixes", ["native", "native + parallel-map:2", "native + prefetch:2"])
def test_a_pipeline_of_features_yields_the_same_without_python(fixes):
    dataset = of_clips().padded_batch(4, ([None, 8], []))
    fixed = apply(dataset, fixes)
    assert tokens(dataset)
    assert not tokens(fixed)
    assert fixed.element_spec == dataset.element_spec
    assert_close(dataset, fixed)
    assert_close(dataset, fixed)  # a second pass


def test_a_map_on_tensors_and_one_inside_a_tf_function_become_ops():
    @tf.function
    def inside(x):
        return tf.numpy_function(lambda y: y * 2 + 1, [x], tf.int64)

    def eager(x):
        return tf.py_function(lambda y: tf.cast(y, tf.float32).numpy() / 4, [x], tf.float32)

    dataset = tf.data.Dataset.range(9).map(inside).map(eager).batch(2)
    fixed = apply(dataset, "native")
    assert not tokens(fixed)
    assert_close(dataset, fixed)


def counts(audio):
    SEEN.append(len(audio))
    return audio * np.float32(len(SEEN))


def draws(audio):
    return audio * np.random.default_rng().random(dtype=np.float32)


def decides(audio):
    while True:
        if audio.sum() < 1e9:
            return audio
        audio = audio / 2


def turns(audio):
    total = 0
    for number in range(200_000):
        total += number % 7
    return audio + np.float32(total)


def otherwise(audio):
    return np.tanh(audio)


def picky(audio):
    if len(audio) > 400:
        raise ValueError("too long")
    return audio


@pytest.mark.parametrize("fixes", ["native", "native + parallel-map:2"])
def test_an_error_of_the_function_is_one_of_the_pipeline(fixes):
    fixed = apply(of_clips(picky, (tf.float32,)), fixes)
    assert not tokens(fixed)
    assert len(list(fixed.take(9))) == 9
    with pytest.raises(tf.errors.InvalidArgumentError, match="too long"):
        list(fixed)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (counts, "keeps state"),
        (draws, "draws at random"),
        (decides, "else branch must also have a return"),
        (turns, "loops more than 10,000 times in one call"),
    ],
)
def test_what_must_stay_python_is_refused_with_file_and_line(function, reason):
    dataset = of_clips(function, (tf.float32,))
    with pytest.raises(InvalidInputError, match=reason) as caught:
        apply(dataset, "native")
    line = inspect.getsourcelines(function)[1]
    assert any(f"test_rewrite.py:{number}" in str(caught.value) for number in range(line, line + 6))
    assert function.__name__ in str(caught.value)


def test_a_function_that_keeps_state_is_not_called_to_find_out():
    before = len(SEEN)
    with pytest.raises(InvalidInputError, match="keeps state"):
        apply(of_clips(counts, (tf.float32,)), "native")
    assert len(SEEN) == before


def test_other_values_as_ops_are_refused(monkeypatch):
    monkeypatch.setitem(names.UFUNCS, np.tanh, "1.001 * tnp.tanh")
    with pytest.raises(InvalidInputError, match=r"gives other values as ops: result 0 at \[\d+\] is"):
        apply(of_clips(otherwise, (tf.float32,)), "native")


def test_what_can_be_traced_is_and_the_rest_stays_python():
    dataset = of_clips(otherwise, (tf.float32,)).map(lambda x: tf.numpy_function(decides, [x], tf.float32))
    fixed = apply(dataset, "native")
    assert (len(tokens(dataset)), len(tokens(fixed))) == (2, 1)
    assert_close(dataset, fixed)


def test_a_function_of_numpys_alone_is_refused():
    dataset = tf.data.Dataset.range(3).map(lambda x: tf.numpy_function(np.square, [x], tf.int64))
    with pytest.raises(InvalidInputError, match="square cannot be traced: it has no source of the user's"):
        apply(dataset, "native")


def test_the_original_is_left_as_it_was_and_shuffles_before_it_too():
    dataset = clips().shuffle(12, seed=3, reshuffle_each_iteration=False)
    dataset = dataset.map(lambda x: tf.numpy_function(otherwise, [x], tf.float32)).cache()
    fixed = apply(dataset, "native")
    assert tokens(dataset)
    assert_close(dataset, fixed)


def test_a_generator_stays_python_and_other_functions_become_ops():
    def rows():
        for number in range(5):
            yield np.full(3, number, np.float32)

    dataset = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([3], tf.float32))
    dataset = dataset.map(lambda x: tf.numpy_function(lambda y: y * y, [x], tf.float32))
    fixed = apply(dataset, "native")
    known = [one for one in map(lookup, tokens(fixed)) if one is not None]
    assert not [one for one in known if "<lambda>" in display_name(one.user)]
    assert_close(dataset, fixed)


def test_a_dataset_without_python_or_with_a_generator_alone_is_refused():
    for dataset in (
        tf.data.Dataset.range(3),
        tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec([], tf.int32)),
    ):
        with pytest.raises(InvalidInputError, match="no Python function other than generators"):
            apply(dataset, "native")
