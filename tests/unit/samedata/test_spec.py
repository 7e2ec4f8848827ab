"""Specs as TensorFlow prints them: what may differ, and what may not."""

from __future__ import annotations

import pytest

from xttsbench.samedata.spec import spec_difference

DENSE = "TensorSpec(shape=(None, 80), dtype=tf.float32, name=None)"
RAGGED = "RaggedTensorSpec(TensorShape([None, None]), tf.int32, 1, tf.int64)"


@pytest.mark.parametrize(
    ("original", "fixed"),
    [
        (DENSE, DENSE),
        (DENSE, DENSE.replace("None, 80", "4, 80")),
        (DENSE, DENSE.replace("(None, 80)", "<unknown>")),
        (DENSE, DENSE.replace("name=None", "name='mel'")),
        (f"({DENSE}, {RAGGED})", f"({DENSE}, {RAGGED.replace('None, None', '4, None')})"),
        (RAGGED, RAGGED.replace("TensorShape([None, None])", "TensorShape(None)")),
        ("TensorSpec(shape=(), dtype=tf.string, name=None)", "TensorSpec(shape=(),  dtype=tf.string)"),
    ],
)
def test_shapes_may_be_more_or_less_specific_and_names_mean_nothing(original: str, fixed: str) -> None:
    assert spec_difference(original, fixed) is None
    assert spec_difference(fixed, original) is None


@pytest.mark.parametrize(
    ("original", "fixed", "word"),
    [
        (DENSE, DENSE.replace("80", "40"), "another shape"),
        (DENSE, DENSE.replace("None, 80", "None, 80, 1"), "another shape"),
        (DENSE, DENSE.replace("float32", "float16"), "another kind"),
        (DENSE, f"({DENSE},)", "another kind"),
        (f"{{'a': {DENSE}}}", f"{{'b': {DENSE}}}", "another kind"),
        (RAGGED, RAGGED.replace("int32, 1", "int32, 2"), "another kind"),
    ],
)
def test_structure_dtypes_and_sizes_may_not(original: str, fixed: str, word: str) -> None:
    assert word in (spec_difference(original, fixed) or "")
    assert spec_difference(fixed, original) is not None
