"""Functions of projects that nobody here wrote for this: traced whole, and what Python gives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tf.fixes.native import strangers
from tests.tf.fixes.native.traced import same
from xttsbench.fixes.native.trace import RefusedError

pytestmark = pytest.mark.tf

RANDOM = np.random.default_rng(0)
SOUNDS = [
    (np.sin(np.arange(n) * 0.05) * np.linspace(0.001, 1, n) + RANDOM.normal(size=n) * 0.01).astype(np.float32)
    for n in (4000, 12000, 7001)
]
DURATIONS = [np.array(one, np.int64) for one in ([3, 0, 5, 2], [1, 9, 4], [2, 2, 2, 2, 2])]
TEXTS = [(one.encode(),) for one in ("Hello  Dr. Mork, 2 Cafes!", "St. Mr. Mrs. 1 fine; 3rd of - May", "x")]
UNICODE = [(one.encode(),) for one in ("Mörk, 2 Cafés!", "“fine” — 3rd", "x")]


@pytest.mark.parametrize(
    "function", [strangers.mfcc, strangers.mel_spectrogram, strangers.energy_contour, strangers.trimmed]
)
def test_features_of_audio(function):
    same(function, *((one,) for one in SOUNDS), tolerance=1e-4)


def test_values_averaged_by_durations():
    values = [np.maximum(RANDOM.normal(size=one.sum()), 0).astype(np.float32) for one in DURATIONS]
    same(strangers.average_by_duration, *zip(values, DURATIONS, strict=True), tolerance=1e-5)


@pytest.mark.parametrize("function", [strangers.ids, strangers.ids_unknown, strangers.ordinals])
def test_text_is_cleaned_and_becomes_numbers(function):
    same(function, *TEXTS)


def test_text_that_is_not_ascii_is_traced_where_patterns_mean_the_same():
    same(strangers.ids_unknown, *UNICODE)
    with pytest.raises(RefusedError, match=r"for text with other letters than ASCII.*strangers\.py:\d+\)"):
        same(strangers.ordinals, *UNICODE)
