"""A filter before the maps that it does not need: in one chain, over statements, and with other parameters."""

from __future__ import annotations

import re

import pytest

from tests.unit.fixes.fake_datasets import FILE, kinds, patch_of, pipeline_of
from xttsbench.fixes.patch import propose
from xttsbench.records.fix import FixSet, Patch


def filtered(body: str, reads: tuple[int, ...], *passes: dict[int, int]) -> tuple[str, Patch]:
    """A source, and its patch, where the filter reads and the maps pass these components."""
    head = "import tensorflow as tf\nf = load = wanted = None\ndef make():\n    ds = tf.data.Dataset.range(9)\n"
    text = f"{head}{body}    return ds\n"
    pipeline, left = pipeline_of(text), list(passes)
    ops = []
    for op in pipeline.ops:
        known = (
            {"passes": left.pop(0)} if op.op == "MapDataset" else {"reads": reads} if op.op == "FilterDataset" else {}
        )
        ops.append(op.model_copy(update=known))
    changed = pipeline.model_copy(update={"ops": tuple(ops)})
    return text, propose(FixSet.of(["filter-first"]), changed, lambda _: text, own=lambda _: True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "ds.map(lambda i: (i, f(i))).filter(lambda i, _: i % 4 == 0)",
            "ds.filter(lambda i: i % 4 == 0).map(lambda i: (i, f(i)))",
        ),
        (
            "ds.map(lambda a, b: (a, b, f(b))).filter(lambda *given: given[0] > 1)",
            "ds.filter(lambda *given: given[0] > 1).map(lambda a, b: (a, b, f(b)))",
        ),
        (
            "ds.map(lambda one: {**one, 'y': f(one)}).filter(lambda one: one['x'] > 0)",
            "ds.filter(lambda one: one['x'] > 0).map(lambda one: {**one, 'y': f(one)})",
        ),
    ],
)
def test_a_filter_moves_before_the_map_with_the_parameters_that_it_finds_there(before: str, after: str) -> None:
    text, patch = filtered(f"    ds = {before}.batch(2)  # last\n", (0,), {0: 0})
    assert patch.files[FILE] == text.replace(before, after)


def test_parameters_of_a_lambda_are_put_where_the_map_has_them() -> None:
    body = "    ds = ds.map(lambda a, b, c: (f(a), c)).filter(lambda _, label: label > 0)\n"
    text, patch = filtered(body, (1,), {1: 2})
    assert "ds.filter(lambda _, _1, label: label > 0).map(lambda a, b, c: (f(a), c))" in patch.files[FILE], text


def test_a_filter_moves_before_several_maps_and_over_statements() -> None:
    body = "    ds = ds.map(lambda i: (i, f(i)))  # slow\n    ds = ds.map(lambda i, x: (i, f(x)))\n"
    body += "    ds = ds.filter(lambda i, x: i > 2)\n"
    _, patch = filtered(body, (0,), {0: 0}, {0: 0})
    assert kinds(patch.files[FILE]) == ["range", "filter", "map", "map"]
    assert "ds = ds.filter(lambda i: i > 2)  # slow\n" in patch.files[FILE]


def test_it_stays_behind_the_map_whose_result_it_reads() -> None:
    body = "    ds = ds.map(lambda i: (i, f(i))).map(lambda i, x: (i, x)).filter(lambda i, x: x > 2)\n"
    _, patch = filtered(body, (1,), {0: 0}, {0: 0, 1: 1})
    assert kinds(patch.files[FILE]) == ["range", "map", "filter", "map"]


def test_links_on_lines_of_their_own_take_their_comments_along() -> None:
    body = "    ds = (\n        ds\n        .map(lambda i: (i, f(i)))  # loads\n"
    body += "        .filter(lambda i, _: i > 2)  # every third\n        .batch(2)\n    )\n"
    text, patch = filtered(body, (0,), {0: 0})
    lines = patch.files[FILE].splitlines()
    at = text.splitlines().index("        .map(lambda i: (i, f(i)))  # loads")
    assert lines[at : at + 2] == [
        "        .filter(lambda i: i > 2)  # every third",
        "        .map(lambda i: (i, f(i)))  # loads",
    ]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("    ds = ds.map(load).filter(wanted)\n", "not known from the source"),
        (
            "    mapped = ds.map(lambda i: (i, f(i)))\n    ds = mapped.filter(lambda i, _: i > 2)\n    print(mapped)\n",
            "something else",
        ),
        (
            "    ds = ds.map(lambda i: (i, f(i, k)))\n    k = 3\n    ds = ds.filter(lambda i, _: i > k)\n".replace(
                "    ds = ds.map", "    k = 2\n    ds = ds.map"
            ),
            "`k` gets its value",
        ),
        (
            "    ds = ds.map(lambda i: (i, f(i)))\n    if ds:\n        ds = ds.filter(lambda i, _: i > 2)\n",
            "`ds` is used for something else as well at line 6",
        ),
        (
            "    ds = ds.map(lambda i: (i, f(i))).filter(lambda i, x: x is not None and i > 2)\n",
            "more of its parameters",
        ),
    ],
)
def test_what_does_not_fit_is_left_to_the_user(body: str, why: str) -> None:
    _, patch = filtered(body, (0,), {0: 0})
    assert patch.edits == ()
    assert why in patch.unpatched["filter-first"]
    assert re.search(rf"before the \.map\(\.\.\.\) of {FILE}:[56]", patch.unpatched["filter-first"])


def test_a_filter_that_reads_what_the_map_makes_is_not_moved() -> None:
    _, patch = filtered("    ds = ds.map(lambda i: f(i)).filter(lambda i: i > 2)\n", (0,), {})
    assert "hands through" in patch.unpatched["filter-first"]


APART = "import tensorflow as tf\ndef make():\n    ds = tf.data.Dataset.range(9)\n"
IN_LINES = "    ds = (\n        ds\n        .unbatch()\n        .batch(4)  # a few\n    )\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    ds = ds.unbatch().batch(4, True).take(1)  # last\n", "    ds = ds.rebatch(4, True).take(1)  # last\n"),
        ("    ds = ds.unbatch()  # rows\n    ds = ds.batch(4)\n", "    # rows\n    ds = ds.rebatch(4)\n"),
        (IN_LINES, "    ds = (\n        ds\n        .rebatch(4)  # a few\n    )\n"),
    ],
)
def test_an_unbatch_and_its_batch_become_a_rebatch(before: str, after: str) -> None:
    patch = patch_of(f"{APART}{before}    return ds\n", "rebatch")
    assert patch.unpatched == {}
    assert patch.files[FILE] == f"{APART}{after}    return ds\n"
    assert kinds(patch.files[FILE])[:2] == ["range", "rebatch"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("    ds = ds.batch(4)\n", "No .batch(...) comes directly behind an .unbatch()."),
        ("    ds = ds.unbatch().map(f).batch(4)\n", "No .batch(...) comes directly behind an .unbatch()."),
        ("    ds = ds.unbatch().batch(4, num_parallel_calls=2)\n", ".rebatch(...) takes no num_parallel_calls"),
        ("    ds = ds.unbatch().batch(4, True, 2)\n", ".rebatch(...) takes no num_parallel_calls"),
        ("    rows = ds.unbatch()\n    ds = rows.batch(4)\n    print(rows)\n", "something else"),
    ],
)
def test_an_unbatch_that_cannot_go_is_left_to_the_user(body: str, why: str) -> None:
    patch = patch_of(f"f = None\n{APART}{body}    return ds\n", "rebatch")
    assert patch.edits == ()
    assert why in patch.unpatched["rebatch"]


def behind_the_cache(body: str) -> tuple[str, Patch]:
    """A source, and its patch with a cache behind its last map."""
    head = "import tensorflow as tf\nload = scale = None\ndef make():\n"
    text = f"{head}{body}    return ds\n"
    pipeline = pipeline_of(text)
    last = [op.name for op in pipeline.ops if "MapDataset" in op.op][-1]
    return text, propose(FixSet.of([f"cache@{last}"]), pipeline, lambda _: text, own=lambda _: True)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "    ds = tf.data.Dataset.range(9).shuffle(9).map(load).batch(2)  # last\n",
            "    ds = tf.data.Dataset.range(9).map(load).cache().shuffle(9).batch(2)  # last\n",
        ),
        (
            "    ds = tf.data.Dataset.range(9).repeat().shuffle(9).map(load).map(scale).batch(2)\n",
            "    ds = tf.data.Dataset.range(9).map(load).map(scale).cache().repeat().shuffle(9).batch(2)\n",
        ),
        (
            "    ds = tf.data.Dataset.range(9).shuffle(9).map(load).repeat().map(scale)\n",
            "    ds = tf.data.Dataset.range(9).map(load).map(scale).cache().shuffle(9).repeat()\n",
        ),
        (
            "    ds = tf.data.Dataset.range(9)\n    ds = ds.shuffle(9)  # files\n    ds = ds.map(load)\n",
            "    ds = tf.data.Dataset.range(9)\n    ds = ds.map(load).cache()  # files\n    ds = ds.shuffle(9)\n",
        ),
        (
            "    ds = (\n        tf.data.Dataset.range(9)\n        .shuffle(9)  # files\n        .map(load)  # slow\n"
            "        .batch(2)\n    )\n",
            "    ds = (\n        tf.data.Dataset.range(9)\n        .map(load)  # slow\n        .cache()\n"
            "        .shuffle(9)  # files\n        .batch(2)\n    )\n",
        ),
        (
            "    ds = (\n        tf.data.Dataset.range(9).shuffle(9)\n        .map(load)  # slow\n"
            "        .batch(2)\n    )\n",
            "    ds = (\n        tf.data.Dataset.range(9).map(load).cache()\n        .shuffle(9)  # slow\n"
            "        .batch(2)\n    )\n",
        ),
    ],
)
def test_a_shuffle_and_a_repeat_come_behind_the_cache(body: str, expected: str) -> None:
    text, patch = behind_the_cache(body)
    assert patch.unpatched == {}
    assert patch.files[FILE] == text.replace(body, expected)
    ops = kinds(patch.files[FILE])
    assert ops.index("map") < ops.index("cache") < min(ops.index(one) for one in ops if one in ("shuffle", "repeat"))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "    files = tf.data.Dataset.range(9).shuffle(9)\n    n = len(files.ops)\n    ds = files.map(load)\n",
            "`files` is used for something else as well at line 5",
        ),
        (
            "    n = 9\n    ds = tf.data.Dataset.range(9).shuffle(n)\n    n = 4\n    ds = ds.map(load)\n",
            "`n` gets its value between lines 5 and 7",
        ),
        (
            "    ds = tf.data.Dataset.range(9)\n    for f in (load, scale): ds = ds.shuffle(9).map(f)\n",
            "A call makes several ops that would change places",
        ),
    ],
)
def test_what_cannot_be_moved_is_told_with_the_places(body: str, why: str) -> None:
    _, patch = behind_the_cache(body)
    assert patch.files == {}
    (said,) = patch.unpatched.values()
    assert why in said
    assert re.search(rf", and what is done by shuffle at {FILE}:[45]( and shuffle at {FILE}:5)? behind that\.$", said)
