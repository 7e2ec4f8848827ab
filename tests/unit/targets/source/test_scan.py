"""What the scan sees in a module's text, and what it must not see there."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.records.code import SourceFact
from xttsbench.targets.source.scan import scan_loaded, scan_text

OPTIONS = {
    "deterministic": None,
    "autotune": {"enabled": None, "ram_budget": None, "cpu_budget": None},
    "experimental_deterministic": None,
    "experimental_threading": None,
    "experimental_optimization": {"inject_prefetch": None, "map_parallelization": None},
    "threading": {"private_threadpool_size": None},
}


def scan(text: str, **settings: object) -> list[SourceFact]:
    given = {"options": OPTIONS, "is_main": True} | settings
    return scan_text(
        "data.py", "import os\nimport numpy as np\nimport tensorflow as tf\n" + textwrap.dedent(text), **given
    )


def kinds(text: str, **settings: object) -> list[tuple[str, int]]:
    """Kinds with their lines, the three imports not counted."""
    return [(fact.kind, fact.line - 3) for fact in scan(text, **settings)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n = min(8, tf.data.AUTOTUNE)", "always AUTOTUNE and 8 bounds nothing"),
        ("n = max(os.cpu_count(), tf.data.experimental.AUTOTUNE)", "always os.cpu_count() and nothing is tuned"),
        ("n = min([4, tf.data.AUTOTUNE])", "bounds nothing"),
        ("n = tf.data.AUTOTUNE // 2", "AUTOTUNE is -1: tf.data.AUTOTUNE // 2 is no number of calls"),
        ("n = np.maximum(2, tf.data.AUTOTUNE)", "nothing is tuned"),
        ("AUTOTUNE = tf.data.AUTOTUNE\nn = min(4, AUTOTUNE)", "bounds nothing"),
        ("A = tf.data.AUTOTUNE\nB = A\ndef f(ds, n):\n    return ds.prefetch(max(n, B))", "always n"),
        ("from tensorflow.data import AUTOTUNE as AUTO\nn = min(4, AUTO)", "bounds nothing"),
        ("from tensorflow import data\nn = min(4, data.AUTOTUNE)", "bounds nothing"),
        ("from settings import AUTOTUNE\nn = min(4, AUTOTUNE)", "bounds nothing"),
        (
            "class A:\n    def a(self):\n        self.n = tf.data.AUTOTUNE\n    def b(self): return min(self.n, 3)",
            "bounds",
        ),
        ("def f(n=tf.data.AUTOTUNE):\n    return min(n, 8)", "may be AUTOTUNE"),
        ("def f(fast):\n    n = tf.data.AUTOTUNE if fast else 4\n    return min(n, 8)", "may be AUTOTUNE"),
        ("n = tf.data.AUTOTUNE\nn //= 2", "n // 2 is no number of calls"),
    ],
)
def test_arithmetic_with_autotune(text: str, says: str) -> None:
    (fact,) = scan(text)
    assert fact.kind == "autotune-arithmetic"
    assert says in fact.detail


@pytest.mark.parametrize(
    "text",
    [
        "n = tf.data.AUTOTUNE if True else 4",
        "n = min(8, 4)",
        "# n = min(8, tf.data.AUTOTUNE)",
        "text = 'min(8, tf.data.AUTOTUNE)'",
        "print('%d calls' % tf.data.AUTOTUNE)",
        "calls = [tf.data.AUTOTUNE] * 3",
        "def f(n=tf.data.AUTOTUNE):\n    if n != tf.data.AUTOTUNE:\n        n = min(n, 8)\n    return n",
        "def f(n=tf.data.AUTOTUNE):\n    return min(n, 8) if n > 0 else n",
        "def f(n, tune):\n    return min(n, 8)\nf(tf.data.AUTOTUNE, 1)",
        "n = 5\nm = min(n, 3)\nn = tf.data.AUTOTUNE",
        "def min(a, b):\n    return a\nAUTO = 3\nn = min(AUTO, 4)",
    ],
)
def test_autotune_without_arithmetic(text: str) -> None:
    assert scan(text) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("o.experimental_optimization.map_vectorization.enabled = True", "map_vectorization is not in"),
        ("o.experimental_optimization.autotune = True", "it is options.autotune.enabled now"),
        ("o.autotune_everything = True", "options.autotune_everything is not in"),
        ("o.experimental_threading.private_threadpool_size = 4", "the old name of options.threading"),
        ("o.autotune.cpu_budget = 1", "does not bound how many calls run at once"),
        ("setattr(o, 'map_vectorization', True)", "is not in this TensorFlow"),
        ("p = o.experimental_optimization\np.hoist_random_uniform = True", "optimization.hoist_random_uniform is not"),
    ],
)
def test_options_that_are_gone(text: str, says: str) -> None:
    (fact,) = scan(f"o = tf.data.Options()\n{text}\nds = ds.with_options(o)")
    assert fact.kind == "dead-option"
    assert says in fact.detail


@pytest.mark.parametrize(
    "around",
    [
        "try:\n    {}\nexcept AttributeError:\n    pass",
        "if hasattr(o.experimental_optimization, 'autotune'):\n    {}",
        "import contextlib\nwith contextlib.suppress(AttributeError):\n    {}",
    ],
)
def test_what_hides_a_dead_option_does_not_hide_it_here(around: str) -> None:
    setting = around.format("o.experimental_optimization.autotune = True")
    (fact,) = scan(f"o = tf.data.Options()\n{setting}\nds = ds.with_options(o)")
    assert fact.kind == "dead-option"


@pytest.mark.parametrize(
    "text",
    [
        "o = tf.data.Options()\no.deterministic = False\nds = ds.with_options(o)",
        "o = tf.data.Options()\no.experimental_optimization.inject_prefetch = False\nreturned = (ds, o)",
        "o = parser.parse_args()\no.map_vectorization = True",
        "class O: pass\no = O()\no.autotune.nothing = 1",
    ],
)
def test_options_that_are_there(text: str) -> None:
    assert scan(text) == []


def test_where_a_pool_gets_its_size() -> None:
    assert kinds("def f(o: tf.data.Options):\n    o.threading.private_threadpool_size = 4") == [("pool-size", 2)]
    text = "o = tf.data.Options()\nt = o.threading\nt.private_threadpool_size = 4\nds = ds.with_options(o)"
    assert kinds(text, options=None) == [("pool-size", 3)]
    assert kinds("o = parser.parse_args()\no.threading.private_threadpool_size = 4") == []


def test_no_option_is_judged_without_tensorflow() -> None:
    assert scan("o = tf.data.Options()\no.nothing = 1\nds = ds.with_options(o)", options=None) == []


def test_options_that_reach_nothing() -> None:
    text = "def f(ds):\n    o = tf.data.Options()\n    o.deterministic = False\n    return ds"
    assert kinds(text) == [("option-never-applied", 2)]
    assert kinds(text.replace("return ds", "return ds.with_options(o)")) == []
    assert kinds(text.replace("return ds", "return make(ds, options=o)")) == []
    assert kinds(text.replace("return ds", "g = lambda: o\n    return g")) == []
    module = "o = tf.data.Options()\no.deterministic = False"
    assert kinds(module) == [("option-never-applied", 1)]
    assert kinds(module, is_main=False) == [], "another module may import it"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ds = tf.data.Dataset.range(4)\nds.prefetch(2)", 2),
        ("def f(train_ds):\n    train_ds.shuffle(100)\n    return train_ds", 2),
        ("loader.with_options(o)", 1),
        ("class A:\n    def f(self):\n        self.dataset.cache()", 3),
        ("x = tf.data.Dataset.range(4).map(g)\nx.batch(4).prefetch(1)", 2),
        ("def rows():\n    return tf.data.Dataset.range(4)\nx = rows().batch(2)\nx.prefetch(2)", 4),
    ],
)
def test_a_result_that_is_thrown_away(text: str, line: int) -> None:
    assert kinds(text) == [("option-never-applied", line)]


@pytest.mark.parametrize(
    "text",
    [
        "pool.map(f, [1, 2])",
        "import random\nrandom.shuffle(names)",
        "ds = ds.prefetch(2)",
        "queue.batch(4)",
        "dataset = MyDataset()\ndataset.shuffle()",
        "for x in ds.take(1): pass",
        "rng = np.random.default_rng()\nrng.shuffle(names)",
    ],
)
def test_results_that_may_be_thrown_away(text: str) -> None:
    assert scan(text) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("os.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'", 1),
        ("os.environ.setdefault('OMP_NUM_THREADS', '1')", 1),
        ("def f():\n    os.putenv('TF_ENABLE_ONEDNN_OPTS', '0')", 2),
        ("os.environ.update({'TF_USE_LEGACY_KERAS': '1'})", 1),
        ("os.environ.update(OMP_NUM_THREADS='1')", 1),
        ("NAME = 'OMP_NUM_THREADS'\nos.environ[NAME] = '1'", 2),
        ("x = tf.constant(1)\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'", 2),
        ("def f():\n    ds = tf.data.Dataset.range(3)\n    os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private'", 3),
    ],
)
def test_variables_that_come_too_late(text: str, line: int) -> None:
    assert kinds(text) == [("late-environment", line)]


@pytest.mark.parametrize(
    "text",
    [
        "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\nx = tf.constant(1)",
        "os.environ['MY_SETTING'] = '1'",
        "level = os.environ['TF_ENABLE_ONEDNN_OPTS']",
        "def f():\n    return tf.constant(1)\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'",
        "if a:\n    tf.constant(1)\nelse:\n    os.environ['CUDA_VISIBLE_DEVICES'] = '1'",
    ],
)
def test_variables_in_time(text: str) -> None:
    assert scan(text) == []


def test_a_variable_set_before_the_import_that_a_helper_had_done_already() -> None:
    text = "import os\nos.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'\nos.environ['TF_CPP_MIN_LOG_LEVEL'] = '2'\n"
    text += "import tensorflow"
    assert scan_text("a.py", text) == []
    (fact,) = scan_text("a.py", text, imported_before=True)
    assert (fact.kind, fact.line) == ("own-environment", 2)
    launcher = "import os\ndef main():\n    os.environ['OMP_NUM_THREADS'] = '1'\n    import tensorflow"
    assert scan_text("a.py", launcher) == []
    types = "import os\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tensorflow\n"
    assert scan_text("a.py", types + "os.environ['OMP_NUM_THREADS'] = '1'") == []


def test_threads_after_an_op() -> None:
    late = "x = tf.constant(1)\ntf.config.threading.set_intra_op_parallelism_threads(4)"
    (fact,) = scan(late)
    assert fact.kind == "late-threads"
    assert "(4 wanted)" in fact.detail
    assert "caught" not in fact.detail
    hidden = "x = tf.constant(1)\ntry:\n    tf.config.threading.set_inter_op_parallelism_threads(4)\n"
    hidden += "except RuntimeError: pass"
    assert "caught" in scan(hidden)[0].detail
    assert scan("tf.config.threading.set_intra_op_parallelism_threads(4)\nx = tf.constant(1)") == []


GROWTH = "tf.config.experimental.set_memory_growth(gpu, True)"
LIMIT = "tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=1024)])"


def test_growth_beside_a_limit() -> None:
    (after,) = scan(f"{LIMIT}\n{GROWTH}")
    assert (after.kind, after.line) == ("growth-with-limit", 5)
    assert "ValueError" in after.detail
    (before,) = scan(f"{GROWTH}\n{LIMIT}")
    assert "all of it at once" in before.detail
    assert scan(f"if limit:\n    {LIMIT}\nelse:\n    {GROWTH}") == []
    assert scan(f"def f():\n    if limit:\n        {LIMIT}\n        return\n    {GROWTH}") == []
    assert scan(f"{GROWTH.replace('True', 'False')}\n{LIMIT}") == []
    assert scan(f"{GROWTH}\n{LIMIT.replace('memory_limit=1024', '')}") == []


CLIPS = """
class Clips(keras.utils.PyDataset):
    def __init__(self, files, **given):
        super().__init__(**given)
    def on_epoch_begin(self):
        self.order = shuffled(self.files)
"""


def test_a_dataset_of_keras_that_is_set_when_its_workers_read() -> None:
    (fact,) = scan(f"{CLIPS}\nmodel.fit(Clips(files, workers=4))")
    assert (fact.kind, fact.text) == ("early-workers", "def on_epoch_begin(self):")
    assert "its 4 workers" in fact.detail
    (own,) = scan(CLIPS.replace("**given)\n    def", "workers=2)\n    def"))
    assert "its 2 workers" in own.detail
    assert scan(f"{CLIPS}\nmodel.fit(Clips(files))\nmodel.fit(Clips(files, workers=1))") == []
    assert scan(f"{CLIPS.replace('on_epoch_begin', 'on_epoch_end')}\nmodel.fit(Clips(files, workers=4))") == []
    assert scan(f"{CLIPS.replace('keras.utils.PyDataset', 'Base')}\nmodel.fit(Clips(files, workers=4))") == []


READ = "def f(path):\n    raw = tf.io.read_file(path)\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (READ + "    return tf.io.decode_raw(tf.strings.substr(raw, 128, -1), tf.float32)", 3),
        ("H = 128\n" + READ + "    return tf.io.decode_raw(tf.strings.substr(raw, H, -1), tf.float32)", 4),
        (READ + "    return tf.io.decode_raw(tf.strings.substr(raw, pos=80, len=-1), tf.float32)", 3),
        ("def f(path):\n    raw = open(path, 'rb').read()\n    return np.frombuffer(raw[128:], np.float32)", 3),
        ("P = 'a.npy'\nx = np.memmap(P, np.float32, 'r', 128)", 2),
        ("P = 'a.npy'\nx = np.frombuffer(b, np.float32, offset=128)", 2),
        ("P = 'a.npy'\nwith open(P, 'rb') as f:\n    f.seek(128)\n    x = np.fromfile(f)", 3),
    ],
)
def test_a_header_of_one_length(text: str, line: int) -> None:
    assert kinds(text) == [("fixed-npy-header", line)]


def test_text_of_no_dimension_that_is_sliced() -> None:
    (fact,) = scan(READ + "    return raw[10:]")
    assert "has no dimension to slice" in fact.detail


@pytest.mark.parametrize(
    "text",
    [
        "def f(mel):\n    return mel[128:]",
        "P = 'a.npy'\ndef f(mel):\n    return mel[128:]",
        READ + "    return tf.io.decode_raw(tf.strings.substr(raw, 44, -1), tf.int16)",
        "def f(text):\n    return tf.strings.substr(text, 128, -1)",
        "def f(path):\n    raw = open(path).read()\n    return raw[128:]",
        "def f(path):\n    x = np.load('a.npy')\n    return x[128:]",
        READ + "    x = tf.io.decode_raw(raw, tf.float32)\n    return x[128:]",
    ],
)
def test_cuts_that_are_no_header(text: str) -> None:
    assert scan(text) == []


@given(st.text(max_size=200))
def test_any_text_is_borne(text: str) -> None:
    assert isinstance(scan_text("x.py", text, options=OPTIONS), list)


@pytest.mark.parametrize("text", ["def (", "\0", "x = " + "(" * 300 + ")" * 300])
def test_what_is_not_python_has_no_fact(text: str) -> None:
    assert scan_text("x.py", text) == []


def test_only_the_users_own_loaded_modules_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = "import tensorflow as tf\nn = min(8, tf.data.AUTOTUNE)\n"
    library = tmp_path / "env" / "lib" / "site-packages"
    library.mkdir(parents=True)
    outside = tmp_path.parent / f"{tmp_path.name}_outside.py"
    places = {
        "own_helper": tmp_path / "own_helper.py",
        "lib": library / "lib.py",
        "outside": outside,
        "broken": tmp_path / "broken.py",
        "huge": tmp_path / "huge.py",
    }
    for name, path in places.items():
        path.write_text({"broken": "def (", "huge": bad + "#" * (1 << 20)}.get(name, bad), encoding="utf-8")
        module = type(sys)(name)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, name, module)
    main = tmp_path / "main.py"
    main.write_text(bad, encoding="utf-8")
    (tmp_path / "not_loaded.py").write_text(bad, encoding="utf-8")
    found = scan_loaded(str(tmp_path), str(main))
    assert sorted(Path(fact.file).name for fact in found) == ["main.py", "own_helper.py"]
    assert {fact.text for fact in found} == {"n = min(8, tf.data.AUTOTUNE)"}


REACH = """
import tensorflow as tf
CALLS = min(1, tf.data.AUTOTUNE)
def helper():
    return min(2, tf.data.AUTOTUNE)
def make():
    return Loader().load(helper())
def other():
    return min(3, tf.data.AUTOTUNE)
class Loader:
    def load(self, n):
        return min(4, tf.data.AUTOTUNE)
class Unused:
    n = min(5, tf.data.AUTOTUNE)
@register
def registered():
    return min(6, tf.data.AUTOTUNE)
if __name__ == "__main__":
    other()
"""


def test_only_what_the_target_can_come_to_is_told(tmp_path: Path) -> None:
    main = tmp_path / "main.py"
    main.write_text(REACH, encoding="utf-8")

    def numbers(entry: str | None) -> list[str]:
        return [fact.text.partition("min(")[2][0] for fact in scan_loaded(str(tmp_path), str(main), entry=entry)]

    assert numbers("make") == ["1", "2", "4", "6"]
    assert numbers("other") == ["1", "3", "6"]
    assert numbers("Unused.n") == ["1", "5", "6"]
    assert numbers(None) == ["1", "2", "3", "4", "5", "6"]
    assert numbers("made_at_run_time") == ["1", "2", "3", "4", "5", "6"]
