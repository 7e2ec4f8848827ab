"""A dataset written around the batches of a script's loop, and where that is refused with the line."""

from __future__ import annotations

import textwrap

import pytest

from xttsbench.fixes.patch import propose
from xttsbench.records.code import OwnBatches
from xttsbench.records.fix import FixSet, Patch
from xttsbench.records.pipeline import CallSite, Pipeline

PAIR = "(tf.TensorSpec((None, 3), tf.float32), tf.TensorSpec((None,), tf.int64))"
SPECS = "(tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None, 3), tf.float32))"


def patched(
    text: str,
    at: str,
    *,
    imports: str = "import tensorflow as tf",
    names: str = "x, y",
    kind: str | None = "arrays",
    signature: str | None = PAIR,
) -> Patch:
    """The patch of a script whose batches come at the line that contains ``at``."""
    text = f"{imports}\n" + textwrap.dedent(text)
    line = next(number for number, one in enumerate(text.splitlines(), start=1) if at in one)
    made = next((number for number, one in enumerate(text.splitlines(), start=1) if "def make" in one), None)
    own = OwnBatches(
        place=CallSite(file="/home/train.py", line=line),
        text=at,
        names=names,
        kind=kind,
        signature=signature,
        maker=CallSite(file="/home/train.py", line=made) if made else None,
    )
    return propose(FixSet.parse("dataset"), Pipeline(), lambda _: text, own=lambda _: True, own_batches=own)


def edited(*given: str, **options: str) -> list[str]:
    patch = patched(*given, **options)
    assert not patch.unpatched, patch.unpatched
    return patch.files["/home/train.py"].splitlines()[1:]


def test_a_loop_goes_over_a_dataset_that_is_made_once_before_the_epochs():
    assert edited("for epoch in range(3):\n    for x, y in Clips(files):\n        step(x, y)", "for x, y in Clips") == [
        f"batches = tf.data.Dataset.from_generator(lambda: Clips(files), output_signature={PAIR}).prefetch(2)",
        "for epoch in range(3):",
        "    for x, y in batches.as_numpy_iterator():",
        "        step(x, y)",
    ]


def test_a_script_that_imports_keras_alone_imports_tensorflow_right_before_the_loop():
    script = "if True:\n    for x, y in Clips():\n        model.train_on_batch(x, y)"
    assert edited(script, "for x, y in Clips", imports="import keras")[1:4] == [
        "    import tensorflow as tf",
        f"    batches = tf.data.Dataset.from_generator(lambda: Clips(), output_signature={PAIR}).prefetch(2)",
        "    for x, y in batches.as_numpy_iterator():",
    ]
    given = {"imports": "from keras import backend as tf"}
    assert "does not import TensorFlow" in patched(script, "for x, y in Clips", **given).unpatched["dataset"]


def test_the_file_s_own_name_of_tensorflow_and_comments_above_are_kept():
    text = (
        "import tensorflow\nbatches = 1\ndef main(data):\n    # The training\n"
        "    for i, (x, y) in enumerate(data):\n        step(x)"
    )
    assert edited(text, "for i, (x, y) in enumerate", kind="lists of tensors")[2:] == [
        "def main(data):",
        f"    batches_ahead = tf.data.Dataset.from_generator(lambda: map(tuple, data), output_signature={PAIR})"
        ".prefetch(2)",
        "    # The training",
        "    for i, (x, y) in enumerate(batches_ahead):",
        "        step(x)",
    ]


def test_an_iterator_is_asked_by_a_generator_in_the_order_of_the_names():
    text = "it = iter(data)\nfor n in range(3):\n    y, x = next(it)\n    step(x, y)"
    assert edited(text, "y, x = next(it)") == [
        "it = iter(data)",
        f"batches = tf.data.Dataset.from_generator(lambda: (next(it) for n in range(3)), output_signature={SPECS})"
        ".prefetch(2)",
        "batches_now = batches.as_numpy_iterator()",
        "for n in range(3):",
        "    y, x = next(batches_now)",
        "    step(x, y)",
    ]


def test_what_a_loop_over_numbers_computes_is_computed_by_a_generator_over_them():
    text = "for epoch in range(2):\n    for n in range(3):\n        x = X[n:n + 3]\n        step(x)"
    assert edited(text, "x = X[n:n + 3]", names="x", signature="tf.TensorSpec((None, 3), tf.float32)") == [
        "batches = tf.data.Dataset.from_generator(lambda: (X[n:n + 3] for n in range(3)), "
        "output_signature=tf.TensorSpec((None, 3), tf.float32)).prefetch(2)",
        "for epoch in range(2):",
        "    batches_now = batches.as_numpy_iterator()",
        "    for n in range(3):",
        "        x = next(batches_now)",
        "        step(x)",
    ]
    assert edited("for n in range(3):\n    step(*make(n))", "make(n)", names="batch", kind="tensors")[1:] == [
        "batches_now = iter(batches)",
        "for n in range(3):",
        "    step(*next(batches_now))",
    ]


def test_an_iterator_that_only_a_while_loop_asks_goes_into_the_dataset_itself():
    text = "it, n = make(), 0\nwhile True:\n    while n < 3:\n        x, y = next(it)\n        n += 1\n    break"
    assert edited(text, "x, y = next(it)") == [
        "it, n = make(), 0",
        f"batches = tf.data.Dataset.from_generator(lambda: it, output_signature={PAIR}).prefetch(2)",
        "batches_now = batches.as_numpy_iterator()",
        "while True:",
        "    while n < 3:",
        "        x, y = next(batches_now)",
        "        n += 1",
        "    break",
    ]


@pytest.mark.parametrize(
    ("text", "at", "why"),
    [
        ("for x, y in data:\n    step(x)\n    if bad(y):\n        break", "for x, y in", "left at /home/train.py:5"),
        ("def f():\n    for x, y in data:\n        return step(x)", "for x, y in", "may be left at /home/train.py:4"),
        ("for x, y in data:\n    data = step(x)", "for x, y in", "name data, which makes the batches, is changed"),
        ("try:\n    for x, y in data:\n        step(x)\nexcept ValueError:\n    pass", "for x, y in", "train.py:5: it"),
        ("it = iter(data)\nfor n in range(3):\n    x, z = next(it)", "x, z = next(it)", "ot all that is set"),
        ("it = iter(data)\nfor n in range(3):\n    x, y = next(it)\n    it = z", "x, y = next(it)", "name it, which"),
        ("kept = []\ndef make():\n    x = kept[-1:]\n    yield x\nfor x, y in make():\n    kept.append(step(x))",
         "for x, y in",
         "name kept, which makes the batches, is changed in the loop at /home/train.py:7"),
        ("while ready:\n    step(*next(it))", "next(it)", "in no loop over numbers"),
        ("it = iter(data)\nwhile ready:\n    x, y = next(it)\nprint(next(it))", "x, y = next(it)", "in no loop over"),
        ("it = iter(data)\ndef f():\n    while ready:\n        x, y = next(it)", "x, y = next(it)", "in no loop over"),
        ("kept = []\ndef make():\n    yield kept[0], 1\nit = make()\nwhile ready:\n    x, y = next(it)\n    "
         "kept.reverse()", "x, y = next(it)", "name kept, which makes the batches, is changed"),
        ("while ready:\n    x, y = q.get()\n    step(x)", "x, y = q.get()", "in no loop over numbers"),
        ("for n in range(3):\n    x, y = make(n, a)\n    a = step(x)", "x, y = make(n, a)", "name a, which"),
        ("for n in range(3):\n    x, y = make(n)\n    if x:\n        break", "x, y = make(n)",
         "left at /home/train.py:5"),
    ],
)  # fmt: skip
def test_what_would_be_lost_or_found_ahead_is_refused_with_its_line(text, at, why):
    patch = patched(text, at)
    assert not patch.files
    assert why in patch.unpatched["dataset"]


def test_batches_of_several_kinds_are_left_alone():
    assert "not all arrays" in patched("for x in data:\n    step(x)", "for x in", kind=None).unpatched["dataset"]
    assert "not all arrays" in patched("for x in data:\n    step(x)", "for x in", signature=None).unpatched["dataset"]


def test_a_loop_within_a_loop_may_be_left():
    text = "for x, y in data:\n    for z in x:\n        break\n    step(x)"
    assert "batches.as_numpy_iterator()" in "\n".join(edited(text, "for x, y in"))
