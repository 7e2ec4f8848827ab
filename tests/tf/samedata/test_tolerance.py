"""The comparison of two batches: what counts as the same, and a sentence that says where they differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.samedata.tolerance import difference, loss_difference


def batch(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made = {
        "id": np.asarray([7, 42, 3], np.int32),
        "mel": rng.normal(-5, 2, (3, 10, 4)).astype(np.float32),
        "mel_length": np.asarray([10, 8, 9], np.int32),
    }
    return {**made, **changes}


def changed(key: str, place: tuple[int, ...], value: float) -> dict[str, Any]:
    made = batch()
    made[key][place] = value
    return made


def test_equal_batches_do_not_differ_in_whichever_form_they_come() -> None:
    tensors = {key: tf.constant(value) for key, value in batch().items()}
    assert difference(batch(), tensors) is None
    assert difference((batch(), [1.0, tf.constant("a")]), (tensors, [1.0, np.asarray(b"a", object)])) is None


def test_floats_within_the_tolerance_are_the_same() -> None:
    other = batch()
    other["mel"] = other["mel"] + np.float32(0.9e-4)
    assert difference(batch(), other) is None
    assert difference(batch(), other, tolerance=1e-5) is not None


def test_a_perturbed_mel_is_named_by_row_clip_frame_and_values() -> None:
    other = changed("mel", (1, 6, 2), -3.0)
    other["mel"][0, 0, 0] += 0.01  # differs as well, by less
    value = batch()["mel"][1, 6, 2]
    assert difference(batch(), other, batch=5) == (
        f"batch 5, mel: row 1 (clip 42), frame 6, band 2: {float(value):.8g} against -3; "
        "2 of 120 values are more than 0.0001 apart"
    )


def test_other_clips_are_told_before_what_follows_from_them() -> None:
    other = changed("mel", (1, 6, 2), -3.0)
    other["id"][2] = 4
    assert difference(batch(), other) == "batch 0, id: row 2 (clip 3): 3 against 4"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (changed("mel_length", (1,), 7), "batch 0, mel_length: row 1 (clip 42): 8 against 7"),
        (batch(mel=batch()["mel"][:, :9]), "batch 0, mel: shape [3, 10, 4] against [3, 9, 4]"),
        (batch(mel=batch()["mel"].astype(np.float64)), "batch 0, mel: dtype float32 against float64"),
        (batch(id=np.asarray([7, 42, 3])), "batch 0, id: dtype int32 against int64"),
        ({"id": batch()["id"], "mel": batch()["mel"]}, "batch 0: the key mel_length is missing from the second"),
        (batch(text=np.zeros(3)), "batch 0: the key text is missing from the first"),
        (tuple(batch().values()), "batch 0: the key id is missing from the second"),
    ],
)
def test_what_else_can_differ(other: Any, message: str) -> None:
    assert difference(batch(), other) == message


def test_nan_equals_nan_in_the_same_place_only() -> None:
    first, second = changed("mel", (0, 1, 1), np.nan), changed("mel", (0, 1, 1), np.nan)
    first["mel"][0, 2, 2] = second["mel"][0, 2, 2] = -np.inf
    assert difference(first, second) is None
    assert "row 0 (clip 7), frame 1, band 1: nan against" in str(difference(first, changed("mel", (0, 2, 2), -np.inf)))
    second["mel"][0, 2, 2] = np.inf
    assert "frame 2, band 2: -inf against inf; 1 of 120" in str(difference(first, second))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (np.asarray(["a", "b"], object), np.asarray(["a", "c"], object), "batch 0, value: row 1: b against c"),
        (tf.constant([True, False]), tf.constant([True, True]), "batch 0, value: row 1: False against True"),
        (2.0, 2.5, "batch 0, value: 2 against 2.5; 1 of 1 values are more than 0.0001 apart"),
        (
            tf.constant([1.0, 2.0], tf.bfloat16),
            tf.constant([1.0, 3.0], tf.bfloat16),
            "batch 0, value: row 1: 2 against 3; 1 of 2 values are more than 0.0001 apart",
        ),
        (tf.ragged.constant([[1, 2], [3]]), tf.ragged.constant([[1], [2, 3]]), "batch 0, [part 1]: row 1: 2 against 1"),
        (
            {"image": np.zeros((1, 2, 2, 3), np.float32)},
            {"image": np.ones((1, 2, 2, 3), np.float32)},
            "batch 0, image: row 0, frame 0, index [0, 0]: 0 against 1; 12 of 12 values are more than 0.0001 apart",
        ),
        (1 + 1j, 1 - 1j, "batch 0, value: (1+1j) against (1-1j); 1 of 1 values are more than 0.0001 apart"),
        ([1, 2], [1, 2, 3], "batch 0: the key [2] is missing from the first"),
    ],
)
def test_any_structure_and_dtype(first: Any, second: Any, message: str) -> None:
    assert difference(first, second) == message


def test_losses_within_the_tolerance_are_the_same() -> None:
    assert loss_difference([2.0, -1.0, 0.0], [2.0002, -1.0, 0.0], 1e-3) == (pytest.approx(1e-4, rel=1e-3), None)
    assert loss_difference([float("nan")], [float("nan")], 1e-9) == (0.0, None)


def test_the_first_step_whose_losses_differ_is_named_with_both() -> None:
    apart, where = loss_difference([3.0, 2.0, 1.0], [3.0, 2.2, 2.0], 1e-3)
    assert apart == pytest.approx(0.5)
    assert where == "step 1: the loss is 2.2, and the baseline's 2; 0.091 apart relative to them, and 0.001 is allowed"


@pytest.mark.parametrize("other", [float("nan"), float("inf"), -1.0])
def test_a_loss_that_is_no_number_is_as_far_apart_as_can_be(other: float) -> None:
    apart, where = loss_difference([1.0], [other], 0.05)
    assert apart == 2.0
    assert where is not None
