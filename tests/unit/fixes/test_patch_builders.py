"""Builders as people write them: branches, options, methods, helpers and other modules between the calls of a chain."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.unit.fixes.fake_datasets import FOLDER, built, pipeline_of
from xttsbench.fixes.patch import propose
from xttsbench.records.fix import FixSet, Patch

HEAD = "import tensorflow as tf\nf = g = load = augment = None\nfrom types import SimpleNamespace\n"


@dataclass
class Builder:
    """A builder, and what becomes of it.

    Attributes:
        text: of the module with ``make``, behind :data:`HEAD`.
        fixes: in short; ``cache`` and ``cache-early`` stand for one behind the last and the first map.
        ops: of the patched ``make``.
        changed: lines of the patched text, as they stand there.
        others: other functions of the module, whose ops stay the same, or their ops.
        modules: that it imports: name -> text behind :data:`HEAD`.
    """

    text: str
    fixes: tuple[str, ...]
    ops: str
    changed: tuple[str, ...] = ()
    others: dict[str, str | None] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)


BUILDERS = {
    "a shuffle on demand, a fallback, options": Builder(
        """
def build(training=True, native=True, keep=False):
    indices = [1, 2]
    ds = tf.data.Dataset.range(9)
    if training and indices:
        size = max(len(indices), 4)
        ds = ds.shuffle(buffer_size=size)

    if native:
        try:
            dataset = ds.map(
                f,
                num_parallel_calls=2,
            )
        except ValueError:
            native = False
    if not native:
        # in Python
        dataset = ds.map(g)
    if keep:
        dataset = dataset.cache()
    dataset = dataset.filter(lambda x: x)
    if training:
        dataset = dataset.repeat()
    options = tf.data.Options()
    dataset = dataset.with_options(options)
    return dataset

def make():
    return build()

def validation():
    return build(training=False)

def fallback():
    return build(native=False)
""",
        ("cache",),
        "range map* cache shuffle filter repeat",
        (
            "            ).cache()",
            "            if training and indices:",
            "                dataset = dataset.shuffle(buffer_size=size)",
            "        if training and indices:",
            "            ds = ds.shuffle(buffer_size=size)",
        ),
        {"validation": "range map* cache filter", "fallback": None},
    ),
    "a statement that is only the branch": Builder(
        """
def make(training=True):
    ds = tf.data.Dataset.range(9)
    if training:
        ds = ds.shuffle(9)
    print("building", ds)
    ds = ds.map(load)
    return ds.batch(2)

def other():
    return make(False)
""",
        ("cache",),
        "range map cache shuffle batch",
        (
            '    print("building", ds)',
            "    ds = ds.map(load).cache()",
            "    if training:",
            "        ds = ds.shuffle(9)",
        ),
        {"other": "range map cache batch"},
    ),
    "a returned chain behind a branch": Builder(
        """
def make(training=True):
    ds = tf.data.Dataset.range(9)
    if not training:
        print("no shuffling")
    else:
        ds = ds.repeat(2)
        ds = ds.shuffle(9)
    return ds.map(load).batch(2)

def other():
    return make(False)
""",
        ("cache",),
        "range map cache repeat shuffle batch",
        (
            "    return ds.map(load).cache().apply(lambda ds: ds.repeat(2) if training else ds)"
            ".apply(lambda ds: ds.shuffle(9) if training else ds).batch(2)",
        ),
        {"other": "range map cache batch"},
    ),
    "an expression with a condition": Builder(
        """
def make(training=True):
    ds = tf.data.Dataset.range(9)
    ds = ds.shuffle(9) if training else ds
    n = 3
    ds = ds.map(load)
    return ds.batch(n)

def other():
    return make(False)
""",
        ("cache", "parallel-map:2"),
        "range map* cache shuffle batch",
        ("    ds = ds.map(load, num_parallel_calls=2).cache()", "    if training:", "        ds = ds.shuffle(9)"),
        {"other": "range map* cache batch"},
    ),
    "branches that come together behind a choice of orders": Builder(
        """
def build(shuffle=True, late=False, keep=None, each=True):
    dataset = tf.data.Dataset.range(9)
    size = 4
    if shuffle:
        dataset = dataset.shuffle(size)

    if not late:
        if keep:
            dataset = dataset.filter(keep)
        if each:
            dataset = dataset.map(load, num_parallel_calls=2)
    else:  # slower
        dataset = dataset.map(load)
        if keep:
            dataset = dataset.filter(keep)
    dataset = dataset.batch(2)
    return dataset.repeat(2).prefetch(1)

def make():
    return build()

def late():
    return build(late=True, keep=True)

def plain():
    return build(each=None)

def kept():
    return build(keep=True)

def ordered():
    return build(shuffle=False)
""",
        ("cache",),
        "range map* cache shuffle batch repeat prefetch",
        (
            "    if shuffle and not (not late and each):",
            "        dataset = dataset.shuffle(size)",
            "            dataset = dataset.map(load, num_parallel_calls=2).cache()",
            "            if shuffle:",
            "                dataset = dataset.shuffle(size)",
        ),
        {
            "late": None,
            "plain": None,
            "kept": "range filter map* cache shuffle batch repeat prefetch",
            "ordered": "range map* cache batch repeat prefetch",
        },
    ),
    "a way around the map": Builder(
        """
def build(native):
    ds = tf.data.Dataset.range(9)
    ds = ds.shuffle(9)
    if native == 1:
        ds = ds.map(load)
    elif native == 2 or native == 3:
        ds = ds.map(f).map(g)
    return ds.batch(2)

def make():
    return build(3)

def first():
    return build(1)

def none():
    return build(0)
""",
        ("cache",),
        "range map map cache shuffle batch",
        (
            "    if not (not (native == 1) and (native == 2 or native == 3)):",
            "        ds = ds.shuffle(9)",
            "        ds = ds.map(f).map(g).cache().shuffle(9)",
        ),
        {"first": None, "none": None},
    ),
    "a class with methods": Builder(
        """
class Loader:
    def __init__(self, batch, seed):
        self.batch, self.seed = batch, seed
        self.dataset = None

    def _read(self):
        return tf.data.Dataset.range(9)

    def _prepared(self, ds):
        ds = ds.map(load)
        return ds.map(f)

    def build(self):
        self.dataset = self._read()
        self.dataset = self.dataset.shuffle(100, seed=self.seed)
        size = self.batch
        self.dataset = self._prepared(self.dataset)
        self.dataset = self.dataset.batch(size)
        return self.dataset

def make():
    loader = Loader(4, 1)
    loader.build()
    return loader.dataset
""",
        ("cache", "prefetch"),
        "range map map cache shuffle batch prefetch",
        (
            "        self.dataset = self._prepared(self.dataset).cache().shuffle(100, seed=self.seed)",
            "        self.dataset = self.dataset.batch(size).prefetch(tf.data.AUTOTUNE)",
        ),
    ),
    "two modules and a configuration": Builder(
        """
import pipeline

def make():
    args = SimpleNamespace(batch=4, shuffle=100, cached=False)
    return pipeline.build(args)
""",
        ("cache", "parallel-map", "buffer:3"),
        "range map* cache shuffle batch prefetch",
        (
            "    ds = read(args)",
            "    ds = ds.map(load, num_parallel_calls=tf.data.AUTOTUNE).cache()",
            "    if args.shuffle and not args.cached:",
            "        ds = ds.shuffle(args.shuffle)",
            "        if args.shuffle:",
            "    return ds.prefetch(3)",
        ),
        modules={
            "pipeline": """
import reader

def read(args):
    return reader.start()

def build(args):
    ds = read(args)
    if args.shuffle:  # not when testing
        ds = ds.shuffle(args.shuffle)
    if args.cached:
        ds = ds.cache()
    ds = ds.map(load)
    ds = ds.batch(args.batch)
    return ds.prefetch(2)
""",
            "reader": "def start():\n    return tf.data.Dataset.range(9)\n",
        },
    ),
    "a batch behind statements": Builder(
        """
def make(batch=4, drop=True):
    ds = tf.data.Dataset.range(9)
    ds = ds.map(
        lambda x: f(x, 1),  # per element
    )
    ds = ds.map(g)
    options = tf.data.Options()
    if drop:
        batch = batch - 1
    ds = ds.batch(batch)
    return ds.with_options(options)
""",
        ("batch-first", "parallel-map"),
        "range batch map* map*",
        ("    ds = ds.batch(batch).map(",),
    ),
    "a batch in the caller": Builder(
        """
def prepared(ds, training):
    if training:
        ds = ds.map(augment)
    return ds.prefetch(1)

def make():
    ds = tf.data.Dataset.range(9)
    ds = ds.shuffle(3)
    ds = ds.map(f)
    ds = prepared(ds, True)
    return ds.batch(2)
""",
        ("cache-early", "prefetch:4"),
        "range map cache shuffle map prefetch batch prefetch",
        ("    ds = ds.map(f).cache()", "    ds = ds.shuffle(3)", "    return ds.batch(2).prefetch(4)"),
    ),
    "files that are shuffled as they are listed": Builder(
        """
def make(pattern="*"):
    files = tf.data.Dataset.list_files(pattern, seed=3)
    print("found", files)
    ds = files.map(load)
    ds = ds.map(lambda x: g(
        x,
        2,
    ))
    return ds.batch(4)
""",
        ("cache", "parallel-map"),
        "tensorslice map* map* cache shuffle batch",
        (
            "    files = tf.data.Dataset.list_files(pattern, seed=3, shuffle=False)",
            "    ), num_parallel_calls=tf.data.AUTOTUNE).cache()"
            ".apply(lambda ds: ds.shuffle(ds.cardinality(), seed=3))",
        ),
    ),
    "files that are listed elsewhere where there are none": Builder(
        """
def make(folder="a"):
    try:
        ds = tf.data.Dataset.list_files(folder + "/*")
    except ValueError:
        ds = tf.data.Dataset.list_files("b/*")
    ds = ds.map(load)
    return ds.batch(2)
""",
        ("cache",),
        "tensorslice map cache shuffle batch",
        (
            '        ds = tf.data.Dataset.list_files(folder + "/*", shuffle=False)',
            '        ds = tf.data.Dataset.list_files("b/*", shuffle=False)',
            "    ds = ds.map(load).cache().apply(lambda ds: ds.shuffle(ds.cardinality()))",
        ),
    ),
    "a function that shuffles": Builder(
        """
def shuffled(ds, n):
    return ds.shuffle(n)

def make(training=True):
    ds = tf.data.Dataset.range(9)
    n = 3
    if training:
        ds = shuffled(ds, 2 * n)
    ds = ds.map(load)
    return ds.batch(4)

def other():
    return make(False)
""",
        ("cache",),
        "range map cache shuffle batch",
        ("    if training:", "        ds = shuffled(ds, 2 * n)"),
        {"other": "range map cache batch"},
    ),
    "ops made in a loop": Builder(
        """
def make():
    ds = tf.data.Dataset.range(9)
    for one in (f, g):
        ds = ds.map(one)
    for n in (1, 2):
        ds = ds.prefetch(n)
    return ds.batch(2)
""",
        ("parallel-map", "prefetch:2"),
        "range map* map* prefetch prefetch batch prefetch",
    ),
    "several ops of one line": Builder(
        """
def make():
    a, b = (tf.data.Dataset.range(n).map(f).batch(2) for n in (3, 9))
    return tf.data.Dataset.zip((a, b)).map(g).unbatch().batch(2).prefetch(1)
""",
        ("parallel-map", "buffer:3"),
        "range map* batch range map* batch zip map* unbatch batch prefetch",
    ),
}


def patched(case: Builder) -> tuple[Patch, dict[str, str]]:
    modules = {name: HEAD + text for name, text in case.modules.items()}
    text = HEAD + case.text
    pipeline = pipeline_of(text, **modules)
    maps = [op.name for op in pipeline.ops if "MapDataset" in op.op]
    named = {"cache": f"cache@{maps[-1]}", "cache-early": f"cache@{maps[0]}"}
    texts = {f"{FOLDER}{name}.py": body for name, body in {"train": text, **modules}.items()}
    fixes = FixSet.of([named.get(one, one) for one in case.fixes])
    return propose(fixes, pipeline, texts.__getitem__, own=texts.__contains__), texts


def ops_of(texts: dict[str, str], name: str) -> str:
    short = {"ParallelMapDatasetV2": "map*", "ParallelBatchDataset": "batch*"}
    modules = {file.removeprefix(FOLDER).removesuffix(".py"): text for file, text in texts.items()}
    made = built(modules.pop("train"), name, **modules)
    return " ".join(short.get(op.op, op.op.partition("Dataset")[0].lower()) for op in made.ops)


@pytest.mark.parametrize("name", BUILDERS)
def test_the_patch_follows_the_data_through_the_builder(name: str) -> None:
    case = BUILDERS[name]
    patch, texts = patched(case)
    assert patch.unpatched == {}
    after = texts | patch.files
    assert ops_of(after, "make") == case.ops
    lines = [line for text in patch.files.values() for line in text.splitlines()]
    for line in case.changed:
        assert line in lines, "\n".join(lines)
    for other, ops in case.others.items():
        assert ops_of(after, other) == (ops or ops_of(texts, other))


SHARED = """
import tensorflow as tf
f = g = None

def build(n, training):
    ds = tf.data.Dataset.range(n)
    ds = ds.map(f)
    if training:
        ds = ds.map(g)
    return ds

def build_all():
    return build(9, True).batch(4), build(3, False).batch(4)

def make():
    train, validation = build_all()
    return train
"""


def test_who_else_runs_a_changed_line_is_said_with_the_place() -> None:
    pipeline = pipeline_of(SHARED)
    read = {f"{FOLDER}train.py": SHARED}
    patch = propose(FixSet.of(["parallel-map"]), pipeline, read.__getitem__, own=read.__contains__)
    assert patch.unpatched == {}
    assert patch.also == (f"{FOLDER}train.py:13 calls build(...) as well, and what it makes changes with it",)
    alone = propose(FixSet.of(["prefetch:2"]), pipeline, read.__getitem__, own=read.__contains__)
    assert alone.unpatched == {}
    assert ops_of(alone.files, "make") == "range map map batch prefetch"
    assert alone.also == ()


REFUSED = {
    "a loop of its own": (
        "    for n in (1,):\n        ds = ds.shuffle(n)\n    m = 2\n    ds = ds.map(f)\n",
        ".shuffle(...) of line 7 is in a `for` of line 6 by itself",
    ),
    "a map that runs several times": (
        "    ds = ds.shuffle(2)\n    k = 1\n    for h in (f,):\n        ds = ds.map(h)\n",
        ".map(...) of line 9 runs several times, in line 8",
    ),
    "a condition that may change": (
        "    if flags.pop():\n        ds = ds.shuffle(2)\n    ds = ds.map(f)\n",
        "the condition of line 6 calls flags.pop(...)",
    ),
    "a condition that is set anew": (
        "    on = True\n    if on:\n        ds = ds.shuffle(2)\n    on = False\n    ds = ds.map(f)\n",
        "`on` gets its value between lines 8 and 10",
    ),
    "a setting that is set anew": (
        "    if cfg.on:\n        ds = ds.shuffle(cfg.n)\n    cfg.n = 2\n    ds = ds.map(f)\n",
        "`cfg.n` gets its value at line 8",
    ),
    "another reader before it": (
        "    ds = ds.shuffle(2)\n    few = ds.take(1)\n    ds = ds.map(f)\n",
        "`ds` is used for something else as well at line 7",
    ),
    "another reader in the branch of the map": (
        "    ds = ds.shuffle(2)\n    if cfg.on:\n        few = ds.take(1)\n        ds = ds.map(f)\n",
        "`ds` is used for something else as well at line 8",
    ),
    "another name behind the branch of the map": (
        "    ds = ds.shuffle(2)\n    o = ds\n    if cfg.on:\n        ds = ds.map(f)\n    if cfg.n == 3:\n"
        "        ds = o\n",
        "used for something else",
    ),
    "a way out before the branch of the map": (
        "    ds = ds.shuffle(2)\n    if cfg.n > 2:\n        return ds\n    if cfg.on:\n        ds = ds.map(f)\n",
        "`ds` is used for something else as well at line 11",
    ),
    "a branch whose condition is set anew": (
        "    on = True\n    ds = ds.shuffle(2)\n    on = cfg.on\n    if on:\n        ds = ds.map(f)\n",
        "`on` gets its value between lines 7 and 9",
    ),
    "a branch in a loop": (
        "    for k in range(1):\n        ds = ds.shuffle(2)\n        if cfg.on:\n            ds = ds.map(f)\n",
        "is used for something else",
    ),
    "other files in another order": (
        "    try:\n        ds = tf.data.Dataset.list_files('a')\n    except ValueError:\n"
        "        ds = tf.data.Dataset.list_files('b', shuffle=False)\n    ds = ds.map(f)\n",
        ".list_files(...) of line 7 is in a `try` of line 6 by itself",
    ),
    "a list of data sets": (
        "    every = [ds.shuffle(2)]\n    k = 2\n    ds = every[0].map(f)\n",
        "the data cannot be followed from line 6 on",
    ),
    "data that are unpacked": (
        "    ds, k = ds.shuffle(2), 2\n    print(k)\n    ds = ds.map(f)\n",
        "the data cannot be followed from line 6 on",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused_with_the_line(name: str) -> None:
    body, why = REFUSED[name]
    text = "import tensorflow as tf\nf = None\nfrom types import SimpleNamespace as N\n"
    text += "def make(flags=[1, 1], cfg=N(on=1, n=2)):\n"
    text += f"    ds = tf.data.Dataset.range(9)\n{body}    return ds.batch(2)\n"
    pipeline = pipeline_of(text)
    last = [op.name for op in pipeline.ops if "MapDataset" in op.op][-1]
    patch = propose(FixSet.of([f"cache@{last}"]), pipeline, lambda _: text, own=lambda _: True)
    assert patch.edits == ()
    (said,) = patch.unpatched.values()
    assert why in said[0].lower() + said[1:] or why in said
    assert f"{FOLDER}train.py:" in said
