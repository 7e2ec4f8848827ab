"""A script run again: in turns, with a fix or without, its data read where it uses them, its writes off the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import why_nothing_is_kept
from xttsbench.execution.helper import Helper
from xttsbench.execution.limits import Limits
from xttsbench.execution.trial import LiveTrial, run_trial
from xttsbench.records.code import ScriptAgain, ScriptData
from xttsbench.records.pipeline import Elements
from xttsbench.records.trial import TrialRecord, TrialSpec, Turn
from xttsbench.samedata.judge import compare_timed, judge
from xttsbench.samedata.tolerance import same_training

SCRIPTS = Path(__file__).parents[4] / "targets" / "scripts"
LIMITS = Limits(60.0, 60.0)
PARALLEL = "parallel-map:8 + thread-pool:8"
"""On two cores a map alone runs two calls at a time; eight make a starved loop eight times as fast."""
redirects = pytest.mark.skipif(why_nothing_is_kept() is not None, reason="no namespaces are to be had here")


@pytest.fixture(scope="module")
def helper() -> Iterator[Helper]:
    with Helper(scripts=True, imports=("tensorflow",), print_to_stderr=True) as started:
        started.wait_ready()
        yield started


def spec(folder: Path, kind: str, script: str, *arguments: str, fix: str | None = None, **known: Any) -> TrialSpec:
    """A trial of a script; ``known`` changes what is known of it."""
    patched, turns = known.pop("patched", {}), known.pop("turns", False)
    fields: dict[str, Any] = {"data": ScriptData(kind=0), "redirected": False, "directory": str(folder / "run")}
    return TrialSpec(
        trial_id="t",
        kind=kind,
        target=str(SCRIPTS / script),
        arguments=arguments,
        script=ScriptAgain.model_validate(fields | known),
        fix=fix,
        patched=patched,
        turns=turns,
        hashed=turns,
        fill_caches=kind == "arm",
        epochs=2,
        source_limit=20,
        window_s=1.0,
    )


def in_turns(trial: TrialSpec, helper: Helper, batches: int = 12) -> tuple[TrialRecord, float]:
    """The record of two turns, and the seconds of a step in them."""
    live = LiveTrial(trial, helper)
    assert live.open(LIMITS), live.end().cause
    assert live.turn(Turn(round=-1, batches=2, discarded=0), 30.0) is not None
    took = [live.turn(Turn(round=number, batches=batches), 30.0) or 99.0 for number in range(2)]
    return live.end(), sum(took) / (2 * batches)


def starved(script: str, folder: Path) -> str:
    """A copy of a script whose input takes several times as long as its step: no neighbour makes them equal."""
    text = (SCRIPTS / script).read_text()
    assert "time.sleep(0.008)" in text
    copy = folder / script
    copy.write_text(text.replace("time.sleep(0.008)", "time.sleep(0.040)"))
    return str(copy)


@pytest.mark.measured
@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("custom_loop.py", ("2", "40")),
        ("fit.py", ("2", "40", "1")),
        pytest.param("in_function.py", ("once", "40"), marks=pytest.mark.slow),
        pytest.param("mirrored.py", ("fit",), marks=pytest.mark.slow),
        pytest.param("mirrored.py", ("python",), marks=pytest.mark.slow),
    ],
)
def test_a_loop_takes_turns_and_is_faster_with_the_fix(
    script: str, arguments: tuple[str, ...], helper: Helper, tmp_path: Path
) -> None:
    script = starved(script, tmp_path)
    original, slow_s = in_turns(spec(tmp_path, "arm", script, *arguments, turns=True), helper)
    fixed, fast_s = in_turns(spec(tmp_path, "arm", script, *arguments, fix=PARALLEL, turns=True), helper)
    for record in (original, fixed):
        assert (record.status, [mark.round for mark in record.rounds]) == ("ok", [0, 1])
        segment, start = record.segment("as_is"), record.segment("turn_start")
        assert segment is not None
        assert start is not None
        assert segment.columns["round"] == (0,) * 12 + (1,) * 12
        assert start.columns["round"] == (0, 1)
        assert record.setup_s is not None
        assert 0 < record.setup_s < record.duration_s
    assert original.contents is not None
    assert fixed.contents is not None
    same = compare_timed({0: [original.contents]}, {0: [fixed.contents]}, bits=True)
    assert same.same is True, same.sentence
    assert same.compared >= 24
    assert slow_s > 2 * fast_s


LATE = """import sys
import tensorflow as tf

rows = tf.data.Dataset.range(10_000).map(lambda x: tf.fill([4], tf.cast(x, tf.float32) + {late})).batch(2)
weight = tf.Variable(1.0)
step = tf.function(lambda x: weight.assign_add(tf.reduce_mean(x) * 1e-9))
if sys.argv[1] == "python":
    for batch in rows:
        with tf.GradientTape():
            step(batch)
elif sys.argv[1] == "graph":
    iterator = iter(rows)
    once = tf.function(lambda: step(next(iterator)))
    while True:
        with tf.GradientTape():
            once()
else:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=sys.argv[1] == "eagerly", steps_per_execution=int(sys.argv[2]))
    model.fit(rows.map(lambda x: (x, x[:, :1])), epochs=9, verbose=0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [("python",), ("graph",), ("fit", "1"), ("fit", "3"), ("eagerly", "1")])
def test_a_value_that_differs_late_in_the_timed_batches_is_seen(
    how: tuple[str, ...], helper: Helper, tmp_path: Path
) -> None:
    script, late = tmp_path / "train.py", tmp_path / "late.py"
    script.write_text(LATE.format(late="0.0"))
    late.write_text(LATE.format(late="tf.cast(x == 30, tf.float32)"))
    known = {"trains": how[0] != "graph", "turns": True}
    runs = [
        in_turns(spec(tmp_path, "arm", str(script), *how, patched=files, **known), helper)[0].contents
        for files in ({}, {}, {str(script): str(late)})
    ]
    assert all(one is not None and len(one.digests) > 16 for one in runs)
    original, again, changed = ([one] for one in runs)
    assert compare_timed({0: original}, {0: again}, bits=True).same is True
    found = compare_timed({0: original + again}, {0: changed}, bits=True)
    # Where a graph asks at three places in turn, each of them counts its own.
    number = 6 if how[-1] == "3" else 16
    assert (found.same, found.sentence.partition(" of")[0]) == (False, f"batch {number}")


@pytest.mark.slow
@pytest.mark.parametrize("script", [("in_function.py", "for", "60"), ("mirrored.py", "function")])
def test_a_loop_within_one_call_is_measured_in_one_stretch(
    script: tuple[str, ...], helper: Helper, tmp_path: Path
) -> None:
    path, arguments = starved(script[0], tmp_path), script[1:]
    records = [
        run_trial(spec(tmp_path, "arm", path, *arguments, fix=fix, in_graph=True), helper, LIMITS)
        for fix in (None, PARALLEL)
    ]
    steps = [record.segment("as_is") for record in records]
    slow, fast = (sum(one.columns["wall_ns"]) / one.steps for one in steps if one is not None)
    assert slow > 2 * fast


def elements(trial: TrialSpec, helper: Helper) -> Elements:
    record = run_trial(trial, helper, LIMITS)
    assert record.status == "ok", record.cause
    assert record.elements is not None, record.notes
    return record.elements


def test_the_data_that_a_script_trains_on_are_the_same_with_a_fix(helper: Helper, tmp_path: Path) -> None:
    run = [
        elements(spec(tmp_path, "elements", "fit.py", "2", "40", "1", fix=fix), helper)
        for fix in (None, None, PARALLEL)
    ]
    assert judge([*run[:2], run[0]], run[2]).equivalent is True
    assert len(run[0].losses) == 3
    assert run[0].losses == run[1].losses
    assert run[2].losses == ()  # nothing of the step was changed


TINY = """import sys
import numpy as np
import tensorflow as tf
from tensorflow import keras


class Counts(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        pass


keras.utils.set_random_seed(3)
x = np.random.default_rng(0).normal(size=[320, 8]).astype("float32")
model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=sys.argv[1] == "xla")
rows = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(320, seed=1).batch(4)
model.fit(rows, epochs=3, verbose=0, callbacks=[Counts()] if sys.argv[1] == "counts" else None)
"""


@pytest.mark.parametrize("fix", ["step:several:16", "step:no-xla", "gather + step:several:4"])
def test_a_model_in_fit_trains_the_same_with_several_steps_a_call_and_without_xla(
    fix: str, helper: Helper, tmp_path: Path
) -> None:
    script = tmp_path / "tiny.py"
    script.write_text(TINY)
    how = "xla" if "xla" in fix else "plain"
    run = [elements(spec(tmp_path, "elements", str(script), how, fix=one), helper) for one in (None, None, fix)]
    assert len(run[0].losses) == 3
    assert judge([*run[:2], run[0]], run[2]).equivalent is True
    assert run[2].losses == pytest.approx(run[0].losses[-1:] if "several" in fix else run[0].losses, rel=1e-5)
    original, again = (one.model_copy(update={"losses": one.losses[-len(run[2].losses) :]}) for one in run[:2])
    assert len(original.state) > 4
    assert same_training(original, again, run[2]).equivalent is True


def test_a_callback_that_would_miss_batches_is_told_with_its_line(helper: Helper, tmp_path: Path) -> None:
    script = tmp_path / "tiny.py"
    script.write_text(TINY)
    found = elements(spec(tmp_path, "elements", str(script), "counts", fix="step:several:16"), helper)
    assert found.objections == ("on_train_batch_end() at tiny.py:8 would be called for the last batch of a call alone",)
    assert elements(spec(tmp_path, "elements", str(script), "counts", fix="step:no-xla"), helper).objections == ()


def test_batches_of_a_call_with_several_steps_are_not_compared_by_numbers_that_they_do_not_have(
    helper: Helper, tmp_path: Path
) -> None:
    script = tmp_path / "tiny.py"
    script.write_text(TINY)
    given = [spec(tmp_path, "arm", str(script), "plain", fix=fix, turns=True) for fix in (None, "step:several:4")]
    original, fixed = (in_turns(one, helper, 40)[0].contents for one in given)
    assert original is not None
    assert fixed is not None
    assert original.digests
    assert compare_timed({0: [original, original]}, {0: [fixed]}, bits=True).same is None


@pytest.mark.measured
def test_several_steps_a_call_are_faster_where_a_step_is_short(helper: Helper, tmp_path: Path) -> None:
    script = tmp_path / "tiny.py"
    script.write_text(TINY)
    given = [spec(tmp_path, "arm", str(script), "plain", fix=fix, turns=True) for fix in (None, "step:several:16")]
    (_, slow_s), (fixed, fast_s) = (in_turns(one, helper, 160) for one in given)
    assert fixed.status == "ok"
    assert slow_s > 1.2 * fast_s


@pytest.mark.slow
@redirects
def test_a_compiled_step_trains_the_same_and_one_that_does_not_is_told(helper: Helper, tmp_path: Path) -> None:
    source = (SCRIPTS / "writes.py").read_text()
    line = source[: source.index("def train_step")].count("\n") + 1
    step = f"train_step ({SCRIPTS / 'writes.py'}:{line})"
    compiled, wrong = tmp_path / "compiled.py", tmp_path / "wrong.py"
    text = source.replace("    def train_step", "    @tf.function\n    def train_step")
    compiled.write_text(text)
    wrong.write_text(text.replace("0.05 * gradient", "0.06 * gradient"))

    def trained(patched: Path | None) -> Elements:
        files = {} if patched is None else {str(SCRIPTS / "writes.py"): str(patched)}
        fix = None if patched is None else "step:graph"
        known = {"step": step, "redirected": True, "patched": files}
        return elements(spec(tmp_path, "elements", "writes.py", str(tmp_path / "out"), fix=fix, **known), helper)

    original, again = trained(None), trained(None)
    assert (len(original.losses), len(original.state)) == (3, 12)
    assert same_training(original, again, trained(compiled)).equivalent is True
    found = same_training(original, again, trained(wrong))
    assert found.equivalent is False, found.sentence


@redirects
def test_what_a_script_writes_while_it_runs_again_is_not_on_the_disk(helper: Helper, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    record = run_trial(
        spec(tmp_path, "arm", "writes.py", str(folder), "1", redirected=True, trains=True, turns=False), helper, LIMITS
    )
    assert record.status == "ok", record.cause
    assert not folder.exists()


def test_a_script_that_ends_before_it_trains_is_told(helper: Helper, tmp_path: Path) -> None:
    record = run_trial(spec(tmp_path, "elements", "plain.py", "exit", "0", data=ScriptData(kind=7)), helper, LIMITS)
    assert (record.status, record.elements) == ("empty", None)
    assert "before it used the dataset" in (record.cause or "")


def test_a_fix_that_does_not_apply_costs_its_trial_and_says_why(helper: Helper, tmp_path: Path) -> None:
    record = run_trial(spec(tmp_path, "elements", "fit.py", "1", "9", "1", fix="cache@nowhere"), helper, LIMITS)
    assert record.status == "raised"
    assert "cache@nowhere" in (record.cause or "")
