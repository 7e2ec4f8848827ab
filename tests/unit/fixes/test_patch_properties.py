"""Chains of any links in any layout: the edit means what an independent change of the syntax tree means."""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fixes.fake_datasets import FILE, built, patch_of
from xttsbench.records.pipeline import PipelineOp

_LINKS = ["map(f)", "map(lambda x, y=(1, 2): (x, y))", "map(g, deterministic=None,)", "batch(4)", "prefetch(8)"]
_LINKS += ["prefetch(buffer_size=2)", "repeat()", "shuffle(\n    9,  # inner\n)", "cache()", "map(\n    f,\n)"]
_PASSED = ("MapDataset", "PrefetchDataset", "ShuffleDatasetV3", "RepeatDataset")
"""Between a map and a shuffle or repeat that a cache behind the map comes before."""
_BREAKS = ["", "\n        ", "\n        # above\n        ", "  # beside\n        "]


@st.composite
def sources(draw: st.DrawFn) -> str:
    """A function that returns a chain of links, in parentheses or over statements."""
    links = draw(st.lists(st.sampled_from(_LINKS), min_size=1, max_size=7))
    head = "import tensorflow as tf\nf = g = None\ndef make():\n"
    if draw(st.booleans()):
        lines = "".join(f"    ds = ds.{link}{draw(st.sampled_from(['', '  # why']))}\n" for link in links)
        return f"{head}    ds = tf.data.Dataset.range(9)\n{lines}    return ds\n"
    body = "".join(draw(st.sampled_from(_BREAKS)) + f".{link}" for link in links)
    return f"{head}    ds = (tf.data.Dataset.range(9){body})\n    return ds\n"


def comments(text: str) -> list[str]:
    return [one.string for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.type == tokenize.COMMENT]


class Parallel(ast.NodeTransformer):
    """Every call of ``map`` given ``num_parallel_calls=3``."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "map":
            node.keywords.append(ast.keyword("num_parallel_calls", ast.Constant(3)))
        return node


@settings(max_examples=50, deadline=None)
@given(sources())
def test_parallel_maps_differ_by_one_argument_each(text: str) -> None:
    patch = patch_of(text, "parallel-map:3")
    if "map" not in text:
        assert patch.files == {}
        return
    assert patch.unpatched == {}
    assert ast.dump(ast.parse(patch.files[FILE])) == ast.dump(Parallel().visit(ast.parse(text)))
    assert comments(patch.files[FILE]) == comments(text)


@settings(max_examples=50, deadline=None)
@given(sources(), st.data())
def test_caches_prefetches_and_pools_come_where_they_belong(text: str, data: st.DataObject) -> None:
    made = built(text).ops
    op = data.draw(st.sampled_from(made))
    patch = patch_of(text, f"cache@{op.name}", "prefetch:3", "thread-pool:4")
    assert patch.unpatched == {}
    at = made.index(op)
    first = at  # of those that a shuffle or a repeat may pass, back from a map
    while "MapDataset" in op.op and made[first - 1].op in _PASSED:
        first -= 1
    moved = [one for one in made[first:at] if one.op in ("ShuffleDatasetV3", "RepeatDataset")]
    stay = [one for one in made[: at + 1] if one not in moved]
    repeats = [number for number, one in enumerate(stay) if one.op == "RepeatDataset"]
    serves_no_more = stay[max(repeats, default=0) : -1]  # before a repeat a cache serves its later passes
    kept = [one.op for one in stay if one.op != "CacheDatasetV2" or one not in serves_no_more]
    behind = [one.op for one in (*moved, *made[at + 1 :])]
    expected = [*kept, "CacheDatasetV2", *behind, "PrefetchDataset"]
    after = built(patch.files[FILE])
    assert [one.op for one in after.ops] == expected
    assert after.threads == 4
    said = comments(patch.files[FILE])
    assert said == comments(text) or (moved and sorted(said) == sorted(comments(text)))


@settings(max_examples=50, deadline=None)
@given(sources())
def test_a_batch_comes_before_the_maps_in_front_of_it(text: str) -> None:
    before = [op.op.partition("Dataset")[0] for op in built(text).ops]
    patch = patch_of(text, "batch-first")
    at = next((n for n, op in enumerate(before) if op == "Batch" and before[n - 1] == "Map"), None)
    if at is None:
        assert patch.files == {}
        return
    assert patch.unpatched == {}
    first = at
    while before[first - 1] == "Map":
        first -= 1
    after = [op.op.partition("Dataset")[0] for op in built(patch.files[FILE]).ops]
    assert after == [*before[:first], "Batch", *before[first:at], *before[at + 1 :]]
    assert sorted(comments(patch.files[FILE])) == sorted(comments(text))


_BETWEEN = ["", "n = 2", "options = tf.data.Options()", "print(ds)", "if n > 1:\n        n = n - 1", "ds = ds"]
_ON_THE_WAY = ["ds = ds.shuffle({k})", "ds = ds.repeat(k)", "if flag:\n        ds = ds.shuffle(k)", "ds = ds.map(f)"]
_ON_THE_WAY += [
    "ds = ds.shuffle(9) if flag else ds",
    "if not flag:\n        k = 3\n    else:\n        ds = ds.repeat(k)",
]
_ON_THE_WAY += ["if flag and k:\n        k = k + 1\n        ds = ds.shuffle(k)", "ds = (\n        ds.map(f)\n    )"]
_ON_THE_WAY += ["if other:\n        ds = ds.take(k)", "ds = ds.with_options(tf.data.Options())"]


@st.composite
def builders(draw: st.DrawFn) -> str:
    """A function of two flags with statements between its calls, which ends in a map and a batch."""
    lines = draw(st.lists(st.sampled_from([*_BETWEEN, *_ON_THE_WAY]), max_size=8))
    body = "".join(f"    {line}\n" for line in lines if line).replace("{k}", "k")
    end = draw(st.sampled_from(["    ds = ds.map(f)\n    return ds.batch(2)\n", "    return ds.map(f).batch(2)\n"]))
    head = (
        "import tensorflow as tf\nf = g = None\ndef build(flag, other, n=4, k=5):\n    ds = tf.data.Dataset.range(9)\n"
    )
    return f"{head}{body}{end}def make():\n    return build(True, False)\n"


@settings(max_examples=50, deadline=None)
@given(builders())
def test_a_cache_goes_behind_the_last_map_whatever_stands_between(text: str) -> None:
    made = built(text).ops
    at = max(number for number, one in enumerate(made) if one.op == "MapDataset")
    patch = patch_of(text, f"cache@{made[at].name}")
    if patch.unpatched:
        (why,) = patch.unpatched.values()
        assert re.search(rf"(gets its value|is used for something else) .*write .*{FILE}:\d+", why), why
        return
    for flag, other in itertools.product((True, False), repeat=2):
        before, after = (
            built(one.replace("build(True, False)", f"build({flag}, {other})")).ops for one in (text, patch.files[FILE])
        )
        kept, cached = [short(one) for one in before], [short(one) for one in after]
        assert cached.count("Cache") == 1
        without = [one for one in cached if one != "Cache"]
        if other:  # with other settings than those that ran, each op comes once, and those that keep elements in order
            assert sorted(without) == sorted(kept)
            continue
        last = max(number for number, one in enumerate(kept) if one == "Map")
        first = last
        while kept[first - 1] in ("Map", "Shuffle", "Repeat"):
            first -= 1
        moved = [one for one in kept[first:last] if one != "Map"]
        maps = [one for one in kept[first : last + 1] if one == "Map"]
        assert cached == [*kept[:first], *maps, "Cache", *moved, *kept[last + 1 :]]


def short(op: PipelineOp) -> str:
    return op.op.partition("Dataset")[0]


_FIXES = [
    "parallel-map",
    "parallel-map:2",
    "prefetch:3",
    "buffer:5",
    "thread-pool:4",
]
_FIXES += ["cache@RangeDataset/_0", "cache@MapDataset/_1", "batch-first"]


@settings(max_examples=50, deadline=None)
@given(sources(), st.lists(st.sampled_from(_FIXES), min_size=1, max_size=5, unique=True))
def test_any_fixes_together_give_a_source_that_runs_or_a_reason(text: str, fixes: list[str]) -> None:
    patch = patch_of(text, *fixes)
    assert {edit.fix for edit in patch.edits} | set(patch.unpatched) == set(fixes)
    assert bool(patch.diff) == bool(patch.files) == bool(patch.edits)
    for edit in patch.edits:
        assert edit.before in text
    if patch.files:
        assert sorted(comments(patch.files[FILE])) == sorted(comments(text))
        made = [op.op for op in built(patch.files[FILE]).ops]
        if "parallel-map" in fixes and "parallel-map" not in patch.unpatched:
            assert "MapDataset" not in made
