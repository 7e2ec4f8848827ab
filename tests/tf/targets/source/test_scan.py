"""The scan against the options of the TensorFlow that is installed, and on a target as the worker loads it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from xttsbench.targets.load import load_target
from xttsbench.targets.source.options import known_options
from xttsbench.targets.source.scan import module_file, scan_loaded, scan_text
from xttsbench.targets.spec import parse_target

TARGETS = Path(__file__).parents[3] / "targets" / "machine.py"


def kinds(name: str) -> list[str]:
    target = parse_target(f"{TARGETS}:{name}")
    load_target(target, {})
    return sorted(fact.kind for fact in scan_loaded(target.folder, module_file(target), entry=name))


def test_every_option_that_can_be_set_is_known() -> None:
    known = known_options(tf.data.Options())
    options = tf.data.Options()
    options.autotune.enabled = True
    options.threading.private_threadpool_size = 2
    options.experimental_optimization.inject_prefetch = False
    options.experimental_distribute.num_devices = 1
    options.deterministic = False
    assert known["autotune"].keys() >= {"enabled", "cpu_budget", "ram_budget"}
    assert known["threading"].keys() >= {"private_threadpool_size", "max_intra_op_parallelism"}
    assert "inject_prefetch" in known["experimental_optimization"]
    assert known["deterministic"] is None


@pytest.mark.parametrize("path", ["experimental_optimization.map_vectorization", "experimental_numa_aware", "nothing"])
def test_an_option_is_dead_where_setting_it_raises(path: str) -> None:
    text = f"import tensorflow as tf\no = tf.data.Options()\no.{path} = True\nds = ds.with_options(o)"
    (fact,) = scan_text("a.py", text, options=known_options(tf.data.Options()))
    assert fact.kind == "dead-option"
    holder: object = tf.data.Options()
    *parents, last = path.split(".")
    for name in parents:
        holder = getattr(holder, name)
    with pytest.raises(AttributeError):
        setattr(holder, last, True)


def test_targets_with_and_without_faults() -> None:
    own = "late-environment"
    assert kinds("settings_in_vain") == [
        "autotune-arithmetic",
        "dead-option",
        own,
        "option-never-applied",
        "option-never-applied",
    ]
    assert kinds("settings_that_hold") == [own], "of the module itself"
    assert kinds("cuts_headers") == ["fixed-npy-header", own]


def test_autotune_arithmetic_does_what_the_fact_says() -> None:
    assert min(8, tf.data.AUTOTUNE) == tf.data.AUTOTUNE
    assert max(8, tf.data.AUTOTUNE) == 8
    assert tf.data.AUTOTUNE // 2 == tf.data.AUTOTUNE
