from __future__ import annotations

import pytest

from tests.unit.findings.made import only, silent
from xttsbench.findings.own_batches import between_fits, no_dataset
from xttsbench.records.base import Location
from xttsbench.records.code import OwnBatches, ScriptRun
from xttsbench.records.pipeline import CallSite, Pipeline, PipelineOp

LOOP, MAKER = CallSite(file="/home/user/train.py", line=40), CallSite(file="/home/user/loader.py", line=12)
SIGNATURE = "(tf.TensorSpec((None, 3), tf.float32), tf.TensorSpec((None,), tf.int64))"


def own(text: str = "for x, y in Clips(files)", **fields: object) -> ScriptRun:
    """A script that makes its batches itself."""
    known = {"maker": MAKER, "maker_name": "Clips.__next__", "signature": SIGNATURE}
    return ScriptRun(own_batches=OwnBatches(place=LOOP, text=text, names="x, y", **(known | fields)))


def test_what_makes_the_batches_is_named_and_the_dataset_written_out(evidence) -> None:
    made = evidence("input", script=own(), parts={"input": 0.06, "compute": 0.04})
    found = only(no_dataset, made)
    assert (found.limiting, found.severity) == (True, "critical")
    assert (found.location.file, found.location.line) == ("/home/user/train.py", 40), "the line to edit"
    assert found.title.startswith("Clips.__next__() (loader.py:12) makes each batch")
    assert found.evidence["wait_share"] == pytest.approx(0.6)
    assert found.predicted_speedup.estimate == pytest.approx(100 / 60.7), "the batch of 60 ms sets the pace"
    dataset = f"from_generator(lambda: Clips(files), output_signature={SIGNATURE}).prefetch(2)`"
    assert dataset in found.remedy
    assert "`for x, y in batches:` in place of line 40" in found.remedy


def test_the_numbers_of_batches_stay_outside_of_the_dataset(evidence) -> None:
    script = own("for i, (x, y) in enumerate(Clips(files))")
    found = only(no_dataset, evidence("input", script=script, parts={"input": 0.06, "compute": 0.04}))
    assert "from_generator(lambda: Clips(files), " in found.remedy
    assert "`for i, (x, y) in enumerate(batches):`" in found.remedy


def test_statements_become_a_generator(evidence) -> None:
    script = own("x, y = ready.get()", maker=None, maker_name=None)
    found = only(no_dataset, evidence("input", script=script, parts={"input": 0.02, "compute": 0.08}))
    assert found.severity == "warning"
    assert found.title.startswith("`x, y = ready.get()` (train.py:40) makes each batch")
    assert "move `x, y = ready.get()`" in found.remedy
    assert "`x, y = next(batches)` in it" in found.remedy


def test_a_queue_that_is_filled_too_slowly_has_its_batches_made_several_at_once(evidence) -> None:
    script = own("x, y = ready.get()", elsewhere=True, maker_name="fill")
    found = only(no_dataset, evidence("input", script=script, parts={"input": 0.07, "compute": 0.03}))
    assert found.title == (
        "`x, y = ready.get()` (train.py:40) waits: fill() (loader.py:12) fills its queue more slowly than the steps "
        "empty it"
    )
    assert "Make 4 batches at once" in found.remedy, "100 ms for a batch, 30 ms for a step"
    assert "tf.numpy_function(make, [number], (tf.float32, tf.int64)), num_parallel_calls=4)" in found.remedy
    assert found.predicted_speedup is None
    assert silent(no_dataset, evidence("compute", script=script, parts={"input": 0.001, "compute": 0.099}))


def test_a_batch_that_is_made_sooner_than_handed_over_stays_where_it_is(evidence) -> None:
    made = evidence("input", script=own(), wall_s=0.003, parts={"input": 0.0009, "compute": 0.0021})
    found = only(no_dataset, made)
    assert (found.limiting, found.predicted_speedup) == (True, None)
    assert "A batch takes 0.9 ms" in found.remedy
    assert "from_generator" not in found.remedy
    assert "from_tensor_slices" in found.remedy


def test_a_step_that_does_not_wait_is_no_reason_to_change_anything(evidence) -> None:
    found = only(no_dataset, evidence("compute", script=own(), parts={"input": 0.001, "compute": 0.099}))
    assert (found.limiting, found.severity, found.predicted_speedup) == (False, "info", None)


def test_a_script_with_a_dataset_is_none_of_it(evidence) -> None:
    assert silent(no_dataset, evidence("input", script=ScriptRun()))
    assert silent(no_dataset, evidence("input"))


DATASET = Pipeline(ops=(PipelineOp(name="a", op="TensorSliceDataset", location=Location(file="train.py", line=9)),))


def fitted(between_s: float, **fields) -> ScriptRun:
    return ScriptRun(
        **{"iterations": ("fit",), "datasets": 24, "steps_seen": 200, "between_fits_s": between_s} | fields
    )


@pytest.mark.parametrize(("between_s", "severity"), [(60.0, "critical"), (10.0, "warning"), (8.0, None)])
def test_what_is_made_between_calls_of_fit_is_told(evidence, between_s: float, severity: str | None) -> None:
    found = list(
        between_fits(evidence("compute", script=fitted(between_s), wall_s=0.1, pipeline=DATASET))
    )  # 20 s of steps
    assert [one.severity for one in found] == ([severity] if severity else [])
    for one in found:
        assert one.evidence["share"] == pytest.approx(between_s / (between_s + 20.0))
        assert (one.limiting, one.location.line) == (False, 9)
        assert "from_generator(pieces" in one.remedy


def test_a_few_calls_of_fit_or_another_loop_are_no_pieces(evidence) -> None:
    for fields in ({"datasets": 3}, {"iterations": ("next()",)}):
        assert silent(between_fits, evidence("compute", script=fitted(60.0, **fields), wall_s=0.1, pipeline=DATASET))
    assert silent(between_fits, evidence("compute", script=fitted(60.0), wall_s=0.1)), "arrays, which Keras cuts itself"
