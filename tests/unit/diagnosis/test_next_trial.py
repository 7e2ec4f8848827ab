from __future__ import annotations

import dataclasses

import pytest

from tests.unit.evidence.made import make_evidence
from xttsbench.diagnosis import Diagnosis
from xttsbench.diagnosis.next_trial import MODES, next_trial, skipped
from xttsbench.planning import IMPORT_S, Job
from xttsbench.records.code import StepOps
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.records.trial import Look

JOB = Job(target="data.py:make", kwargs={"n": 1}, emulated_ms=(), steps=400, window_s=2.0, seed=3)
ALWAYS = 1e9
WAITING = {"wait": 0.03, "step": 0.03}


def diagnosed(bottleneck: str, probability: float, *, disturbed: bool = False) -> Diagnosis:
    return Diagnosis(make_evidence(bottleneck), probability=probability, disturbed=disturbed)


SURE = diagnosed("input", 0.99)
COMPUTE = diagnosed("compute", 0.99)


def op(kind: str, **fields):
    return PipelineOp(name=f"{kind}/_1", op=kind, **fields)


PLAIN = Pipeline(ops=(op("RangeDataset"), op("BatchDatasetV2"), op("PrefetchDataset")))
SEQUENTIAL = Pipeline(ops=(op("RangeDataset"), op("MapDataset"), op("PrefetchDataset")))


def names(spec) -> str:
    return spec.kind + (f" b{spec.block}" if spec.block else "")


def climbed(build, first, *, pipeline=None, left_s: float = ALWAYS, said: Diagnosis | None = SURE) -> list[str]:
    """The order of all trials where each one succeeds; the one that reads the pipeline finds ``pipeline``."""
    done = [first]
    while (spec := next_trial(JOB, done, left_s, said=said)) is not None:
        assert len(done) < 30, "it never ends"
        assert spec.trial_id.startswith(f"{len(done):03d}-{spec.kind}")
        found = {"pipeline": pipeline} if spec.kind == "pipeline" else {}
        done.append(build.trial(spec.kind, number=len(done)).model_copy(update={"spec": spec, **found}))
    assert skipped(done, said) == [] or left_s < ALWAYS
    return [names(trial.spec) for trial in done[1:]]


def test_the_first_trial_is_the_target_as_it_is() -> None:
    spec = next_trial(JOB, [], 0.0)
    assert spec is not None
    assert (spec.trial_id, spec.kind, spec.block) == ("000-ladder", "ladder", 0)
    assert (spec.target, spec.kwargs, spec.steps, spec.window_s, spec.seed) == ("data.py:make", {"n": 1}, 400, 2.0, 3)


def test_a_sure_verdict_takes_nothing_more_than_the_pipeline(build) -> None:
    assert climbed(build, build.ladder(), pipeline=SEQUENTIAL) == ["pipeline"]


def test_of_a_step_that_computes_what_could_make_it_faster_is_tried(build) -> None:
    assert climbed(build, build.ladder(), pipeline=SEQUENTIAL, said=COMPUTE) == ["pipeline", "xla", "batch"]


@pytest.mark.parametrize("said", [None, diagnosed("input", 0.7), diagnosed("input", 1.0, disturbed=True)])
def test_the_whole_again_where_the_verdict_is_open_or_was_disturbed(build, said: Diagnosis | None) -> None:
    assert climbed(build, build.ladder(), pipeline=SEQUENTIAL, said=said) == ["pipeline", "ladder b1", "ladder b2"]


@pytest.mark.parametrize("eager", [False, True])
def test_without_a_verdict_another_process_comes_before_the_costs_of_the_pipeline(build, eager: bool) -> None:
    first = build.ladder(anatomy=build.eager()) if eager else build.ladder()
    order = climbed(build, first, pipeline=SEQUENTIAL, said=diagnosed("inconclusive", 0.88))
    assert order == [*(["graph"] if eager else []), "ladder b1", "ladder b2", "pipeline b2"]


def test_no_more_processes_once_the_verdict_is_sure(build) -> None:
    done = [build.ladder(), build.trial("pipeline", number=1), build.ladder(block=1, number=2)]
    open_still = next_trial(JOB, done, ALWAYS, said=diagnosed("input", 0.7))
    assert (open_still.kind, open_still.block) == ("ladder", 2)  # type: ignore[union-attr]
    assert next_trial(JOB, done, ALWAYS, said=SURE) is None


def test_precision_is_tried_where_keras_layers_compute(build) -> None:
    ops = StepOps(ops=9, keras_layers=True)
    assert "precision" in climbed(build, build.ladder(step_ops=ops), said=COMPUTE)
    assert "precision" in climbed(build, build.ladder(target_kind="dataset+model"), said=COMPUTE)
    assert "precision" not in climbed(build, build.ladder(step_ops=ops, wait=0.06, step=0.03), said=COMPUTE)
    assert "precision" not in climbed(build, build.ladder(), said=COMPUTE)
    assert "precision" not in climbed(build, build.ladder(step_ops=ops), said=SURE)


def test_an_eager_step_is_compiled_before_anything_is_run_again(build) -> None:
    order = climbed(build, build.ladder(anatomy=build.eager()), pipeline=PLAIN, said=diagnosed("dispatch", 0.8))
    assert order == ["pipeline", "graph", "ladder b1", "ladder b2"]
    assert climbed(build, build.ladder(anatomy=build.eager()), said=COMPUTE)[-2:] == ["graph", "xla"]


def test_so_is_a_step_that_compiles_every_time(build) -> None:
    order = climbed(build, build.ladder(step_columns={"traces": 1}), pipeline=PLAIN)
    assert order == ["pipeline", "graph"]


def test_a_step_that_uses_xla_is_run_without_it(build) -> None:
    first = build.ladder(step_columns={"xla_compiles": [1] + [0] * 119})
    assert climbed(build, first, said=COMPUTE)[-2:] == ["graph", "batch"]


def test_fixes_are_no_part_of_the_isolation(build) -> None:
    """They are verified afterwards, beside the original in turns."""
    first = build.trial("ladder", build.segment(wait_s=[0.01] * 50), target_kind="dataset")
    for waits in (first, build.ladder(**WAITING)):
        assert climbed(build, waits, pipeline=SEQUENTIAL) == ["pipeline"]


def test_an_opaque_step_is_not_compiled(build) -> None:
    assert climbed(build, build.ladder(anatomy=build.opaque()), pipeline=PLAIN, said=COMPUTE) == ["pipeline"]


@pytest.mark.parametrize("status", ["raised", "empty", "exited", "killed", "out_of_memory", "time_limit", "stalled"])
def test_nothing_is_wanted_after_a_first_trial_that_failed(build, status: str) -> None:
    done = [build.ladder(status=status)]
    assert next_trial(JOB, done, ALWAYS) is None
    assert skipped(done) == []


def test_a_later_trial_that_failed_is_not_tried_again(build) -> None:
    done = [build.ladder(), build.trial("pipeline", number=1, status="raised")]
    assert next_trial(JOB, done, ALWAYS, said=SURE) is None


def test_a_profile_is_taken_once(build) -> None:
    job = Job(**(JOB.__dict__ | {"profile_dir": "profile"}))
    assert next_trial(job, [], ALWAYS).profile_dir == "profile"  # type: ignore[union-attr]
    later = next_trial(job, [build.ladder(), build.trial("pipeline")], ALWAYS)
    assert later is not None
    assert (later.kind, later.profile_dir) == ("ladder", None)


def test_what_does_not_fit_into_the_time_left_is_skipped_for_what_does(build) -> None:
    # The pipeline takes 0.5 s of set-up, half a window of 2 s and 1.5 s around it; another ladder 10 s and an import.
    first = build.ladder()
    assert next_trial(JOB, [first], 2.9) is None
    assert next_trial(JOB, [first], 3.1).kind == "pipeline"  # type: ignore[union-attr]
    done, computes = [first, build.trial("pipeline")], diagnosed("compute", 0.8)
    assert next_trial(JOB, done, 10.0 + IMPORT_S + 0.1, said=computes).kind == "ladder"  # type: ignore[union-attr]
    assert next_trial(JOB, done, 10.0 + IMPORT_S - 0.1, said=computes).kind == "xla"  # type: ignore[union-attr]


def test_no_helper_is_started_for_less_than_a_whole_ladder(build) -> None:
    done = [build.ladder(anatomy=build.opaque()), build.trial("pipeline")]
    assert next_trial(JOB, done, 10.0 + IMPORT_S - 0.1) is None
    assert skipped(done) == ["ladder (repeat 1)"]


def test_what_was_wanted_and_did_not_run_is_named(build) -> None:
    done = [build.ladder(**WAITING), build.trial("pipeline", pipeline=SEQUENTIAL)]
    assert skipped(done, SURE) == []
    assert skipped(done, COMPUTE) == ["xla", "batch"]
    assert skipped([]) == []


@pytest.mark.parametrize(
    ("only", "status", "wanted"),
    [
        (MODES, "ok", [("xla", "eager")]),
        (("eager",), "ok", [("eager", None)]),
        # Where one of the two ends the process of both, each gets one of its own.
        (MODES, "raised", [("xla", "eager"), ("xla", None), ("eager", None)]),
    ],
)
def test_modes_that_are_asked_for_share_a_process(build, only, status, wanted) -> None:
    done = [build.ladder(step=0.03)]
    found = []
    while (spec := next_trial(JOB, done, ALWAYS, only=only)) is not None:
        found.append((spec.kind, spec.also))
        done.append(build.trial(spec.kind, number=len(done)).model_copy(update={"spec": spec, "status": status}))
    assert found == wanted


def test_a_script_is_run_once_and_again_only_where_that_is_allowed(build) -> None:
    once = Job(
        target="train.py", kwargs={}, emulated_ms=(), steps=400, window_s=9.0, seed=0, script=True, arguments=("-v",)
    )
    first = next_trial(once, [], 0.0)
    assert first is not None
    assert (first.kind, first.block, first.arguments, first.window_s) == ("script", 0, ("-v",), 9.0)
    done = build.trial("script", number=0).model_copy(update={"spec": first, "duration_s": 30.0})
    assert next_trial(once, [done], ALWAYS) is None
    assert skipped([done]) == []
    twice = dataclasses.replace(once, repeat=True)
    again = next_trial(twice, [done], 31.0)
    assert again is not None
    assert (again.kind, again.block) == ("script", 1)
    assert next_trial(twice, [done], 29.0) is None
    assert next_trial(twice, [done, done], ALWAYS) is None
    assert next_trial(twice, [done.model_copy(update={"status": "raised"})], ALWAYS) is None


@pytest.mark.parametrize(
    ("input_s", "epoch", "skip"), [(0.01, 0, 130), (0.02, 0, 0), (0.01, [0] * 60 + [1] * 60, 0)], ids=str
)
def test_a_repeat_starts_where_no_process_has_measured_if_that_is_soon_reached(build, input_s, epoch, skip) -> None:
    """Batches 10 to 129 were measured: passing over 130 takes 1.3 s or 2.6 s; where the data began anew, no use."""
    first = build.ladder(step_columns={"batch": range(10, 130), "epoch": epoch})
    inputs = build.segment("input_only", wait_s=[input_s] * 20)
    first = first.model_copy(update={"segments": (*first.segments, inputs)})
    wanted = next_trial(JOB, [first], ALWAYS, only=("ladder",), said=diagnosed("input", 0.6))
    assert (wanted.kind, wanted.block, wanted.skip) == ("ladder", 1, skip)


@pytest.mark.parametrize(
    ("final", "bottleneck", "again"), [(True, "input", False), (False, "input", True), (True, "host", True)]
)
def test_what_disturbs_the_stretch_behind_a_final_verdict_asks_for_no_repeat(build, final, bottleneck, again):
    look = Look(after_s=9.0, bottleneck=bottleneck, probability=1.0, final=final)
    first = build.ladder(**WAITING).model_copy(update={"looks": (look,)})
    wanted = skipped([first], diagnosed("input", 0.99, disturbed=True))
    assert ("ladder (repeat 1)" in wanted) is again
