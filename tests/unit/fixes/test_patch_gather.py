"""Batches of rows of arrays gathered by index, written into sources of many layouts, or refused with the line."""

from __future__ import annotations

import pytest

from tests.unit.fixes.fake_datasets import FILE, kinds, patch_of, pipeline_of
from xttsbench.fixes.patch import propose
from xttsbench.records.fix import FixSet

HEAD = "import tensorflow as tf\nX = y = [1, 2]\nn = 2\nf = None\n"


def made(*lines: str) -> str:
    return f"{HEAD}def make():\n" + "".join(f"    {line}\n" for line in lines)


ONE_LINE = made("return tf.data.Dataset.from_tensor_slices((X, y)).shuffle(n).batch(4).prefetch(2)  # good")
IN_PARENTHESES = made(
    "dataset = (",
    "    tf.data.Dataset.from_tensor_slices(",
    "        (X, y),  # in memory",
    "    )",
    "    .shuffle(n)  # all of it",
    "    .batch(4)  # rows",
    "    .prefetch(2)",
    ")",
    "return dataset",
)
STATEMENTS = made(
    "ds = tf.data.Dataset.from_tensor_slices(tensors=(X, y))",
    "if n:",
    "    ds = ds.shuffle(n)  # sometimes",
    "ds = ds.batch(4)",
    "ds = ds.prefetch(2)",
    "return ds",
)
IN_A_LOOP = made(
    "for ds in [tf.data.Dataset.from_tensor_slices(X).shuffle(n).batch(4).prefetch(2)][:1]:", "    return ds"
)


@pytest.mark.parametrize("text", [ONE_LINE, IN_PARENTHESES, STATEMENTS, IN_A_LOOP])
def test_the_slices_become_a_range_and_the_batch_is_gathered_in_every_layout(text: str) -> None:
    assert kinds(text) == ["tensorslice", "shuffle", "batch", "prefetch"]
    patch = patch_of(text, "gather")
    assert patch.unpatched == {}
    assert kinds(patch.files[FILE]) == ["range", "shuffle", "batch", "map", "prefetch"]
    own = ("from_tensor_slices", "batch(4)", "(X, y),")
    lines = [line.strip() for line in text.splitlines() if not any(one in line for one in own)]
    assert {line for line in lines if line != ")"} <= {line.strip() for line in patch.files[FILE].splitlines()}


def test_the_text_that_is_written() -> None:
    lines = patch_of(ONE_LINE, "gather").files[FILE].splitlines()
    assert lines[-2:] == [
        "    arrays = tf.data.Dataset.from_tensors((X, y)).get_single_element()",
        "    return tf.data.Dataset.range(len(tf.nest.flatten(arrays)[0])).shuffle(n).batch(4)"
        ".map(lambda rows: tf.nest.map_structure(lambda array: tf.gather(array, rows), arrays)).prefetch(2)  # good",
    ]


def test_a_link_a_line_stays_one() -> None:
    lines = patch_of(IN_PARENTHESES, "gather").files[FILE].splitlines()
    at = lines.index("        .batch(4)  # rows")
    assert lines[at + 1].startswith("        .map(lambda rows: ")


def test_beside_other_fixes() -> None:
    text = made("return tf.data.Dataset.from_tensor_slices(X).map(f).batch(4)")
    patch = patch_of(STATEMENTS, "gather", "buffer:5")
    assert patch.unpatched == {}
    assert kinds(patch.files[FILE]) == ["range", "shuffle", "batch", "map", "prefetch"]
    assert "No .batch(...) puts slices" in patch_of(text, "gather").unpatched["gather"]


def test_a_name_that_the_file_does_not_have() -> None:
    text = f"{ONE_LINE}arrays = 3\n"
    assert "whole_arrays = tf.data" in patch_of(text, "gather").files[FILE]
    taken = f"{text}whole_arrays = gathered_arrays = 3\n"
    assert "are all in use" in patch_of(taken, "gather").unpatched["gather"]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (
            [
                "ds = tf.data.Dataset.from_tensor_slices(X)",
                "train = ds.take(1).batch(4)",
                "val = ds.skip(1).map(f)",
                "return train",
            ],
            "line 8 uses the slices otherwise",
        ),
        (
            ["ds = tf.data.Dataset.from_tensor_slices(X)", "if not n:", "    ds = ds.map(f)", "return ds.batch(4)"],
            "line 8 uses the slices otherwise",
        ),
        (["ds = tf.data.Dataset.from_tensor_slices(X)", "print(ds)", "return ds.batch(4)"], "line 7 uses"),
        (["return (lambda: tf.data.Dataset.from_tensor_slices(X).batch(4))()"], "alone"),
        (["return tf.data.Dataset.from_tensor_slices(X).batch(4) if n else None"], "no statement can be written"),
        (["return n and tf.data.Dataset.from_tensor_slices(X).batch(4)"], "no statement can be written"),
        (["return [tf.data.Dataset.from_tensor_slices(X).batch(4) for _ in [1]][0]"], "no statement can be written"),
        (["if n: return tf.data.Dataset.from_tensor_slices(X).batch(4)"], "no statement can be written"),
        (["return tf.data.Dataset.list_files('*', shuffle=False).batch(4)"], "does not call from_tensor_slices"),
    ],
)
def test_what_cannot_be_written_is_refused_with_its_line(lines: list[str], why: str) -> None:
    patch = patch_of(made(*lines), "gather")
    assert patch.edits == ()
    assert why in patch.unpatched["gather"].lower()


def test_slices_that_a_function_hands_to_another_are_left_to_the_hand() -> None:
    text = (
        f"{HEAD}def rows():\n    return tf.data.Dataset.from_tensor_slices(X)\n\n\n"
        "def make():\n    return rows().shuffle(n).batch(4)\n"
    )
    why = patch_of(text, "gather").unpatched["gather"]
    assert "in different functions" in why
    assert f"in place of the slices of {FILE}:6, and behind the batch of {FILE}:10 .map(" in why


def test_a_second_dataset_of_the_same_slices_in_a_helper_is_seen() -> None:
    """What another pipeline reads must stay slices, also where it hands them on as this one does."""
    text = made(
        "ds = tf.data.Dataset.from_tensor_slices(X)",
        "val = ds.skip(1).batch(9)",
        "return ds.take(1).batch(4)",
    )
    patch = patch_of(text, "gather")
    assert "Line 7 uses the slices otherwise" in patch.unpatched["gather"]


def test_the_module_that_has_no_tensorflow_under_a_name() -> None:
    named = ONE_LINE.replace("import tensorflow as tf\n", "").replace("tf.data", "data")
    text = f"from tensorflow import data\n{named}"
    pipeline = pipeline_of(text)
    patch = propose(FixSet.of(["gather"]), pipeline, lambda _: text, own=lambda file: file == FILE)
    assert "does not import TensorFlow" in patch.unpatched["gather"]
