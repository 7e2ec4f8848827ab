"""Fixes written into sources of many layouts; the patched source is run to see the ops that it makes."""

from __future__ import annotations

import ast
import difflib
import subprocess
import sys
from collections.abc import Callable

import libcst as cst
import pytest

from tests.unit.fixes.fake_datasets import FILE, built, kinds, patch_of, pipeline_of
from xttsbench.fixes.patch import propose
from xttsbench.fixes.registry import SPECS
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import Pipeline

ONE_LINE = """import tensorflow as tf

def make():
    return tf.data.Dataset.range(9).map(f).map(lambda x: g(x, 2)).batch(4).prefetch(2)  # good
"""
IN_PARENTHESES = """import tensorflow as tf

def make():
    dataset = (
        tf.data.Dataset.range(9)
        .map(f)  # slow
        # and this one too
        .map(
            lambda x: g(x, 2),
        )
        .batch(4)
        .prefetch(2)  # enough
    )
    return dataset
"""
BACKSLASHES = """import tensorflow as tf

def make():
    dataset = tf.data.Dataset.range(9) \\
        .map(f) \\
        .map((lambda x: g(x, 2))) \\
        .batch(4) \\
        .prefetch(2)
    return dataset
"""
STATEMENTS = """from tensorflow import data

def make():
    ds = data.Dataset.range(9)
    ds = ds.map(f)  # slow
    ds = ds.map(g)
    ds = ds.batch(4)
    ds = ds.prefetch(2)
    return ds
"""
HANGING = """import tensorflow as tf

def make():
    ds = tf.data.Dataset.range(9).map(
        f,  # slow
    ).map(
        g
    ).batch(4).prefetch(
        buffer_size=2
    )
    return ds
"""
LAYOUTS = {"one line": ONE_LINE, "parentheses": IN_PARENTHESES, "backslashes": BACKSLASHES, "statements": STATEMENTS}
LAYOUTS["hanging"] = HANGING
NAMES = "f = g = None\n"
HEAD = f"{NAMES}import tensorflow as tf\n"


def returns(chain: str) -> str:
    """A module whose ``make`` returns a chain of calls on a range."""
    return f"{HEAD}def make():\n    return tf.data.Dataset.range(9){chain}\n"


@pytest.fixture(params=sorted(LAYOUTS))
def layout(request: pytest.FixtureRequest) -> str:
    return str(LAYOUTS[request.param]) + NAMES


def patched(text: str, *fixes: str) -> str:
    patch = patch_of(text, *fixes)
    assert patch.unpatched == {}
    return patch.files[FILE]


@pytest.mark.parametrize(
    ("fix", "expected"),
    [
        ("parallel-map", ["range", "map*", "map*", "batch", "prefetch"]),
        ("parallel-map:7", ["range", "map*", "map*", "batch", "prefetch"]),
        ("prefetch", ["range", "map", "map", "batch", "prefetch", "prefetch"]),
        ("prefetch:5", ["range", "map", "map", "batch", "prefetch", "prefetch"]),
        ("buffer:9", ["range", "map", "map", "batch", "prefetch"]),
        ("cache@MapDataset/_1", ["range", "map", "cache", "map", "batch", "prefetch"]),
        ("cache@BatchDatasetV2/_3", ["range", "map", "map", "batch", "cache", "prefetch"]),
        ("cache@MapDataset/_2", ["range", "map", "map", "cache", "batch", "prefetch"]),
        ("batch-first", ["range", "batch", "map", "map", "prefetch"]),
        ("thread-pool:16", ["range", "map", "map", "batch", "prefetch"]),
    ],
)
def test_every_fix_in_every_layout_makes_the_ops_that_it_names(layout: str, fix: str, expected: list[str]) -> None:
    assert kinds(layout) == ["range", "map", "map", "batch", "prefetch"]
    text = patched(layout, fix)
    assert kinds(text) == expected
    made = built(text)
    if fix == "buffer:9":
        assert made.ops[-1].buffer_size == 9
    if fix == "prefetch:5":
        assert [op.buffer_size for op in made.ops[-2:]] == [2, 5]
    if fix.startswith("parallel-map"):
        assert {op.parallelism for op in made.ops if "Map" in op.op} == {7 if ":" in fix else -1}
    if fix == "thread-pool:16":
        assert made.threads == 16
    if fix.startswith("cache"):
        file = next(op.filename for op in made.ops if op.op == "CacheDatasetV2")
        assert file == ("MapDataset-_2.cache" if "file" in fix else "")


@pytest.mark.parametrize("kind", sorted(SPECS))
def test_every_kind_of_fix_has_an_edit_or_words_for_the_hand(kind: str) -> None:
    numbered = SPECS[kind].form == "name:n"
    fix = f"{kind}:2" if numbered else f"{kind}@MapDataset/_1" if "cache" in kind else kind
    patch = patch_of(ONE_LINE + NAMES, fix)
    assert bool(patch.edits) != bool(patch.unpatched)
    assert "no edit of the source is known" not in str(patch.unpatched).lower()


def test_several_fixes_are_written_together(layout: str) -> None:
    fixes = ("parallel-map:3", "cache@MapDataset/_2", "batch-first", "prefetch:5", "thread-pool:8")
    made = built(patched(layout, *fixes))
    assert kinds(patched(layout, *fixes)) == ["range", "batch", "map*", "map*", "cache", "prefetch", "prefetch"]
    assert made.threads == 8
    assert made.ops[-1].buffer_size == 5


def test_comments_and_all_other_lines_stay(layout: str) -> None:
    text = patched(layout, "parallel-map", "prefetch")
    removed = [line[2:] for line in difflib.ndiff(layout.splitlines(), text.splitlines()) if line.startswith("- ")]
    assert all(
        "map(" in line or "prefetch(" in line or "lambda" in line or line.strip() in ("f,", "g", ")", "buffer_size=2")
        for line in removed
    )
    for comment in [line.partition("#")[2] for line in layout.splitlines() if "#" in line]:
        assert f"#{comment}" in text


def test_one_link_a_line_stays_one_link_a_line_and_keeps_its_comments() -> None:
    text = patched(IN_PARENTHESES + NAMES, "parallel-map", "prefetch", "cache@MapDataset/_1")
    assert "        .map(f, num_parallel_calls=tf.data.AUTOTUNE)  # slow\n        .cache()\n" in text
    assert "            lambda x: g(x, 2),\n            num_parallel_calls=tf.data.AUTOTUNE,\n        )\n" in text
    assert "        .prefetch(2)  # enough\n        .prefetch(tf.data.AUTOTUNE)\n    )\n" in text


def test_text_before_a_call_may_be_of_several_bytes() -> None:
    text = (
        NAMES
        + "import tensorflow as tf\ndef make():\n"
        + '    é = "ü→"; return tf.data.Dataset.range(len("naïve→")).map(f).batch(2)\n'
    )
    assert patched(text, "parallel-map:2") == text.replace(".map(f)", ".map(f, num_parallel_calls=2)")


def test_line_ends_of_the_file_are_kept() -> None:
    text = (IN_PARENTHESES + NAMES).replace("\n", "\r\n")
    done = patched(text, "prefetch", "thread-pool:4")
    assert "\n" not in done.replace("\r\n", "")
    assert kinds(done)[-2:] == ["prefetch", "prefetch"]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (".map(f, None)", ".map(f, tf.data.AUTOTUNE)"),
        (".map(f, num_parallel_calls=3 if f else None)", ".map(f, num_parallel_calls=tf.data.AUTOTUNE)"),
        (".map(map_func=f)", ".map(map_func=f, num_parallel_calls=tf.data.AUTOTUNE)"),
        (".map((lambda x, y=1: x))", ".map((lambda x, y=1: x), num_parallel_calls=tf.data.AUTOTUNE)"),
        (".map(f, None, False)", ".map(f, tf.data.AUTOTUNE, True)"),
        (".map(f, deterministic=False)", ".map(f, deterministic=True, num_parallel_calls=tf.data.AUTOTUNE)"),
        (".map(f, deterministic=True)", ".map(f, deterministic=True, num_parallel_calls=tf.data.AUTOTUNE)"),
        (".map(lambda x, y=2: g(x, y),)", ".map(lambda x, y=2: g(x, y), num_parallel_calls=tf.data.AUTOTUNE,)"),
    ],
)
def test_the_argument_is_added_or_replaced_and_the_order_kept(call: str, expected: str) -> None:
    text = returns(f"{call}.batch(2)")
    done = patched(text, "parallel-map")
    assert ast.dump(ast.parse(done)) == ast.dump(ast.parse(text.replace(call, expected)))


@pytest.mark.parametrize("call", ["map(*[f])", "map(f, **{})", "map(**{'map_func': f})"])
def test_arguments_from_elsewhere_are_left_alone_and_the_line_is_named(call: str) -> None:
    text = f"{HEAD}def make():\n    return (tf.data.Dataset.range(9)\n        .{call})\n"
    patch = patch_of(text, "parallel-map")
    assert patch.edits == ()
    assert patch.unpatched["parallel-map"].endswith(f"as an argument of .map(...) at {FILE}:5.")
    assert kinds(patched(text, "prefetch:2")) == ["range", "map", "prefetch"]


def test_an_order_that_the_options_give_up_is_kept() -> None:
    text = returns(".map(f)")
    kept = patch_of(text, "parallel-map:2", deterministic=False)
    assert ".map(f, num_parallel_calls=2, deterministic=True)" in kept.files[FILE]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("import tensorflow as tf", "tf.data.AUTOTUNE"),
        ("import tensorflow as tf\nAUTO = tf.data.AUTOTUNE", "AUTO"),
        ("import tensorflow as tf\nAUTO = tf.data.experimental.AUTOTUNE", "AUTO"),
        ("import tensorflow", "tensorflow.data.AUTOTUNE"),
        ("import tensorflow as tf\nfrom tensorflow import data as d", "d.AUTOTUNE"),
        ("import tensorflow as tf\nfrom tensorflow.data import AUTOTUNE as A", "A"),
        ("import tensorflow as tf\nfrom tensorflow.data import AUTOTUNE\nAUTOTUNE = 4", "tf.data.AUTOTUNE"),
        ("import tensorflow.compat.v2 as tf", "tf.data.AUTOTUNE"),
    ],
)
def test_autotune_is_spelt_as_the_file_spells_it(header: str, expected: str) -> None:
    start = "def start():\n    import tensorflow as t\n    return t.data.Dataset.range(9)\n"
    text = f"{NAMES}{header}\n{start}def make():\n    return start().map(f)\n"
    assert f".map(f, num_parallel_calls={expected})" in patched(text, "parallel-map")


def test_a_name_that_is_hidden_there_is_not_used() -> None:
    text = (
        f"{HEAD}def start():\n    return tf.data.Dataset.range(9)\n"
        "def finish(ds, tf):\n    return ds.map(f)\ndef make():\n    return finish(start(), 1)\n"
    )
    patch = patch_of(text, "parallel-map")
    assert patch.edits == ()
    assert "does not import TensorFlow" in patch.unpatched["parallel-map"]
    assert f"{FILE}:6" in patch.unpatched["parallel-map"]


def test_a_call_that_made_two_ops_is_edited_only_where_both_are_meant() -> None:
    text = (
        f"{HEAD}def stage(ds):\n    return ds.map(f).prefetch(2)\n"
        "def make():\n    return stage(stage(tf.data.Dataset.range(9)))\n"
    )
    assert kinds(patched(text, "parallel-map")) == ["range", "map*", "prefetch", "map*", "prefetch"]
    for fix in ("buffer:4", "prefetch", "cache@MapDataset/_1"):
        patch = patch_of(text, fix)
        assert patch.edits == ()
        assert "runs 2 times" in patch.unpatched[fix], fix


def test_a_call_in_a_loop_is_edited_once() -> None:
    text = (
        f"{HEAD}def make():\n    ds = tf.data.Dataset.range(9)\n"
        "    for _ in range(3):\n        ds = ds.map(f)\n    return ds\n"
    )
    assert kinds(patched(text, "parallel-map")) == ["range", "map*", "map*", "map*"]


def test_a_call_inside_the_function_of_another_one_is_not_the_outer_one() -> None:
    text = (
        f"{HEAD}def make():\n"
        "    return tf.data.Dataset.range(9).flat_map(lambda x: tf.data.Dataset.range(x).map(f)).map(f)\n"
    )
    assert patched(text, "parallel-map:2") == text.replace("map(f)).map(f)", "map(f)).map(f, num_parallel_calls=2)")


def test_branches_that_are_zipped() -> None:
    text = (
        f"{HEAD}def make():\n    a, b = tf.data.Dataset.range(9), tf.data.Dataset.range(9)\n"
        "    return tf.data.Dataset.zip((a.map(f), b.map(f)))\n"
    )
    done = patched(text, "parallel-map", "prefetch:1")
    assert kinds(done).count("map*") == 2
    assert "b.map(f, num_parallel_calls=tf.data.AUTOTUNE))).prefetch(1)" in done


def test_another_file_and_a_library_are_left_alone() -> None:
    text = ONE_LINE + NAMES
    patch = propose(FixSet.of(["parallel-map"]), pipeline_of(text), lambda _: text, own=lambda _: False)
    assert patch.edits == ()
    assert "belongs to a library" in patch.unpatched["parallel-map"]

    def missing(_file: str) -> str:
        raise FileNotFoundError

    patch = propose(FixSet.of(["prefetch"]), pipeline_of(text), missing, own=lambda _: True)
    assert "could not be read" in patch.unpatched["prefetch"]
    assert patch.diff == ""


@pytest.mark.parametrize(
    "fix",
    [
        "processes:4",
        "parallel-interleave",
        "nonsense",
        "prefetch:many",
    ],
)
def test_what_cannot_be_written_is_said(fix: str) -> None:
    patch = patch_of(ONE_LINE + NAMES, fix)
    assert patch.edits == ()
    assert patch.files == {}
    assert len(patch.unpatched[fix]) > 20


def test_flat_map_is_left_to_the_saved_plan() -> None:
    text = returns(".flat_map(f)")
    assert "apply the saved plan" in patch_of(text, "parallel-interleave").unpatched["parallel-interleave"]


def test_caches_that_the_new_one_replaces_are_taken_out() -> None:
    text = returns(".cache().map(f).cache('x').map(f).repeat()")
    done = patched(text, "cache@MapDataset/_4")
    assert kinds(done) == ["range", "map", "cache", "map", "cache", "repeat"]
    assert ".map(f).cache('x').map(f).cache()" in done  # what is kept on disk stays


def test_the_pool_goes_into_options_that_are_applied_already() -> None:
    text = (
        f"{HEAD}def make():\n    options = tf.data.Options()\n"
        "    ds = tf.data.Dataset.range(9).map(f)\n    ds = ds.with_options(options)\n    return ds\n"
    )
    done = patched(text, "thread-pool:5", "prefetch:1")
    assert "    options.threading.private_threadpool_size = 5\n    ds = ds.with_options(options)\n" in done
    assert built(done).threads == 5
    other = done.replace("= 5", "= 3")
    assert built(patched(other, "thread-pool:6")).threads == 6


def test_the_pool_of_a_dataset_that_is_looped_over() -> None:
    text = (
        f"{HEAD}def make():\n    keep = []\n    options = 3\n"
        "    for one in [tf.data.Dataset.range(9).map(f)]:\n        keep.append(one)\n    return keep[options - 3]\n"
    )
    done = patched(text, "thread-pool:5")
    assert "    dataset_options = tf.data.Options()\n    dataset_options.threading.private_thread" in done
    assert built(done).threads == 5


def test_there_is_no_place_for_options_before_a_part_of_a_line() -> None:
    text = f"{HEAD}def make(): return tf.data.Dataset.range(9).map(f)\n"
    patch = patch_of(text, "thread-pool:5")
    assert patch.edits == ()
    assert "options.threading.private_threadpool_size = 5" in patch.unpatched["thread-pool:5"]


def test_an_op_that_another_call_makes_is_left_to_the_saved_plan() -> None:
    text = returns(".map(f)")
    renamed = text.replace(".map(f)", ".unbatch()")
    patch = propose(FixSet.of(["parallel-map"]), pipeline_of(text), lambda _: renamed, own=lambda _: True)
    assert patch.unpatched["parallel-map"].endswith(
        "does not come from a call of .map(...) there; apply the saved plan."
    )


def test_a_cache_is_not_advised_behind_a_line_that_makes_more_than_is_kept() -> None:
    text = returns(".map(f).shuffle(9).batch(2)")
    renamed = text.replace(".map(f)", ".unbatch()")
    patch = propose(FixSet.of(["cache@MapDataset/_1"]), pipeline_of(text), lambda _: renamed, own=lambda _: True)
    said = "that line makes more behind it (shuffle, batch), so no .cache() can stand there; apply the saved plan."
    assert patch.unpatched["cache@MapDataset/_1"].endswith(said)


PLACES = {
    "a method": "class P:\n    def build(self):\n        self.ds = tf.data.Dataset.range(9)\n"
    "        size = 2; self.ds = self.ds.map(f)\n        return self.ds.batch(size)\n"
    "def make():\n    return P().build()\n",
    "a function of its own": "def prepared(ds):\n    return ds.map(f)\n"
    "def make():\n    return prepared(tf.data.Dataset.range(9)).batch(2)\n",
    "a lambda": "add = lambda ds, n=2: ds.map(f).batch(n)\ndef make():\n    return add(tf.data.Dataset.range(9))\n",
    "an argument": "def same(ds):\n    return ds\n"
    "def make():\n    return same(tf.data.Dataset.range(9).map(f).batch(2))\n",
    "a condition": "def make():\n"
    "    if (ds := tf.data.Dataset.range(9).map(f)) is not None:\n        return ds.batch(2)\n",
    "a guarded import": "try:\n    import tensorflow as tf\nexcept ImportError:\n    tf = None\n"
    "def make():\n    return tf.data.Dataset.range(9).map(f).batch(2)\n",
}


@pytest.mark.parametrize("where", sorted(PLACES))
def test_calls_are_found_wherever_they_are(where: str) -> None:
    text = f"{NAMES}{'' if 'import' in where else 'import tensorflow as tf'}\n{PLACES[where]}"
    fixes = ("parallel-map", "cache@MapDataset/_1", "prefetch", "thread-pool:3")
    done = patched(text, *fixes)
    assert kinds(done) == ["range", "map*", "cache", "batch", "prefetch"]
    assert built(done).threads == 3


def test_of_two_calls_on_one_line_the_one_that_ran_is_meant() -> None:
    text = (
        f"{HEAD}def make(fast=True):\n    ds = tf.data.Dataset.range(9)\n"
        "    return ds.map(f).batch(2) if fast else ds.map(g).batch(4)\n"
    )
    assert patched(text, "parallel-map:3", "prefetch:1") == text.replace(
        "ds.map(f).batch(2) if", "ds.map(f, num_parallel_calls=3).batch(2).prefetch(1) if"
    )
    pipeline = pipeline_of(text)
    unknown = tuple(op.model_copy(update={"calls": ()}) for op in pipeline.ops)
    patch = propose(FixSet.of(["parallel-map", "prefetch"]), Pipeline(ops=unknown), lambda _: text, own=lambda _: True)
    assert patch.edits == ()  # where Python did not tell which ran
    assert all("does not come from a call" in why for why in patch.unpatched.values())


def test_two_fixes_of_one_argument_are_not_both_written() -> None:
    patch = patch_of(ONE_LINE + NAMES, "buffer:3", "buffer:4")
    assert [edit.fix for edit in patch.edits] == ["buffer:3"]
    assert "another fix" in patch.unpatched["buffer:4"]


def test_edit_and_diff_show_what_changes() -> None:
    text = ONE_LINE + "f = g = None"  # without a last line end
    patch = patch_of(text, "prefetch:3")
    (edit,) = patch.edits
    assert (edit.file, edit.line, edit.fix) == (FILE, 4, "prefetch:3")
    assert edit.before == ONE_LINE.splitlines()[3]
    assert edit.after == edit.before.replace(".prefetch(2)", ".prefetch(2).prefetch(3)")
    assert patch.diff.startswith("--- a/home/user/train.py\n+++ b/home/user/train.py\n@@ ")
    assert patch.diff.endswith(" f = g = None\n\\ No newline at end of file\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: "# -*- coding: utf-8 -*-\n" + text,
        lambda text: text.replace("    ", "\t"),
        lambda text: text.replace("\n\n", "\n\x0c\n  \n"),
        lambda text: text.rstrip("\n"),
        lambda text: text.replace("    dataset = (", "    name = 'it\\'s' r\"\\d\"; dataset = (  # \u00fc"),
    ],
)
def test_all_else_stays_byte_for_byte(change: Callable[[str], str]) -> None:
    before, after = ".prefetch(2)  # enough", ".prefetch(9)  # enough"
    text = change(NAMES + IN_PARENTHESES)
    made = Pipeline(ops=tuple(built(text.removeprefix("\ufeff")).ops))
    patch = propose(FixSet.of(["buffer:9"]), made, lambda _: text, own=lambda _: True)
    assert patch.unpatched == {}
    assert patch.files[FILE] == text.replace(before, after)


def test_a_text_is_taken_apart_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"# read once\n{ONE_LINE}{NAMES}"
    patch_of(text, "prefetch:3")
    monkeypatch.setattr(cst, "parse_module", None)
    assert patch_of(text, "parallel-map", "thread-pool:2").unpatched == {}


def test_the_command_line_starts_without_what_reads_source_and_what_computes_statistics() -> None:
    code = "import sys, xttsbench.cli, xttsbench.workflows.optimize; print({'libcst', 'scipy'} & {*sys.modules})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
