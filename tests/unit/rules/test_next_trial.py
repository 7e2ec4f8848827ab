from __future__ import annotations

import dataclasses

import pytest

from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction
from xttsbench.records.step_ops import StepOps
from xttsbench.rules.next_trial import IMPORT_S, MODES, Job, next_trial, skipped

JOB = Job(target="data.py:make", kwargs={"n": 1}, emulated_ms=(), steps=400, window_s=2.0, seed=3)
ALWAYS = 1e9
WAITING = {"wait": 0.03, "step": 0.03}
BOTH = ["fix parallel-map:32 + thread-pool:32", "fix parallel-map:32"]


def op(kind: str, **fields):
    return PipelineOp(name=f"{kind}/_1", op=kind, **fields)


PLAIN = Pipeline(ops=(op("RangeDataset"), op("BatchDatasetV2"), op("PrefetchDataset")))
SEQUENTIAL = Pipeline(ops=(op("RangeDataset"), op("MapDataset"), op("PrefetchDataset")))


def function(gil: str) -> PythonFunction:
    return PythonFunction(token="t", kind="numpy_function", name="f", gil=gil)


def parallel(calls: int, gil: str) -> Pipeline:
    ops = (op("RangeDataset"), op("ParallelMapDatasetV2", parallelism=calls))
    return Pipeline(ops=ops, python_functions=(function(gil),))


def names(spec) -> str:
    return spec.rung + (f" {spec.fix}" if spec.fix else "") + (f" b{spec.block}" if spec.block else "")


def climbed(build, first, *, pipeline=None, left_s: float = ALWAYS) -> list[str]:
    """The order of all trials where each one succeeds; the one that reads the pipeline finds ``pipeline``."""
    done = [first]
    while (spec := next_trial(JOB, done, left_s)) is not None:
        assert len(done) < 30, "it never ends"
        assert spec.trial_id.startswith(f"{len(done):03d}-{spec.rung}")
        found = {"pipeline": pipeline} if spec.rung == "pipeline" else {}
        done.append(build.trial(spec.rung, number=len(done)).model_copy(update={"spec": spec, **found}))
    assert skipped(done) == [] or left_s < ALWAYS
    return [names(trial.spec) for trial in done[1:]]


def test_the_first_trial_is_the_target_as_it_is() -> None:
    spec = next_trial(JOB, [], 0.0)
    assert spec is not None
    assert (spec.trial_id, spec.rung, spec.block, spec.reverse) == ("000-ladder", "ladder", 0, False)
    assert (spec.target, spec.kwargs, spec.steps, spec.window_s, spec.seed) == ("data.py:make", {"n": 1}, 400, 2.0, 3)


def test_a_compiled_step_that_computes(build) -> None:
    assert climbed(build, build.ladder(), pipeline=SEQUENTIAL) == [
        "input",
        "pipeline",
        "ladder b1",
        "input b1",
        "xla b1",
        "eager b1",
        "batch b1",
    ]


def test_precision_is_tried_where_keras_layers_compute(build) -> None:
    ops = StepOps(ops=9, keras_layers=True)
    assert "precision b1" in climbed(build, build.ladder(step_ops=ops))
    assert "precision b1" in climbed(build, build.ladder(target_kind="dataset+model"))
    assert "precision b1" not in climbed(build, build.ladder(step_ops=ops, wait=0.06, step=0.03))
    assert "precision b1" not in climbed(build, build.ladder())


def test_an_eager_step_is_compiled_before_anything_is_run_again(build) -> None:
    order = climbed(build, build.ladder(anatomy=build.eager()), pipeline=PLAIN)
    assert order == ["input", "pipeline", "graph", "ladder b1", "input b1", "xla b1"]


def test_so_is_a_step_that_compiles_every_time(build) -> None:
    order = climbed(build, build.ladder(step_columns={"traces": 1}), pipeline=PLAIN)
    assert order[:3] == ["input", "pipeline", "graph"]
    assert order.count("graph") + order.count("graph b1") == 1


def test_a_step_that_uses_xla_is_run_without_it(build) -> None:
    first = build.ladder(step_columns={"xla_compiles": [1] + [0] * 119})
    assert climbed(build, first)[-3:] == ["graph b1", "eager b1", "batch b1"]


def test_fixes_are_tried_only_where_the_step_waits(build) -> None:
    assert "fix parallel-map" in climbed(build, build.ladder(**WAITING), pipeline=SEQUENTIAL)
    assert not [t for t in climbed(build, build.ladder(), pipeline=SEQUENTIAL) if t.startswith("fix")]


@pytest.mark.parametrize(("wait", "tried"), [(0.0018, False), (0.0027, True)])
def test_seven_percent_of_waiting_is_the_bar(build, wait: float, tried: bool) -> None:
    order = climbed(build, build.ladder(wait=wait, step=0.03), pipeline=SEQUENTIAL)
    assert ("fix parallel-map" in order) is tried


@pytest.mark.parametrize(
    ("pipeline", "fixes"),
    [
        (None, []),
        (PLAIN, []),
        (SEQUENTIAL, ["fix parallel-map"]),
        (SEQUENTIAL.model_copy(update={"unserialisable": "a generator"}), []),
        # Calls that wait in turn for lack of threads: parallel as written, and a pool of one thread a core.
        (parallel(8, "blocks"), ["fix thread-pool:32"]),
        (parallel(64, "unknown"), ["fix thread-pool:64"]),
        (parallel(-1, "blocks"), ["fix thread-pool:32"]),
        (parallel(8, "holds"), []),
        (parallel(8, "blocks").model_copy(update={"threadpool_size": 16}), []),
        (Pipeline(ops=(op("MapDataset"),), python_functions=(function("blocks"),)), BOTH),
        (Pipeline(ops=(op("BatchDatasetV2"),), injects_prefetch=False), ["fix prefetch"]),
        (Pipeline(ops=(op("BatchDatasetV2"),), injects_prefetch=True), []),
        (Pipeline(ops=(op("PrefetchDataset"),), injects_prefetch=False), []),
        (
            Pipeline(ops=(op("PrefetchDataset"), op("MapDataset"), op("PrefetchDataset"))),
            ["fix parallel-map", "fix drop-prefetch b1"],
        ),
    ],
)
def test_fixes_are_those_that_could_help_the_pipeline(build, pipeline, fixes) -> None:
    order = climbed(build, build.ladder(**WAITING), pipeline=pipeline)
    assert [name for name in order if name.startswith("fix")] == fixes


def test_fixes_come_before_the_whole_again(build) -> None:
    order = climbed(build, build.ladder(**WAITING), pipeline=SEQUENTIAL)
    assert order.index("fix parallel-map") < order.index("ladder b1") < order.index("input b1")


def test_an_opaque_step_is_not_compiled(build) -> None:
    order = climbed(build, build.ladder(anatomy=build.opaque()), pipeline=PLAIN)
    assert order == ["input", "pipeline", "ladder b1", "input b1"]


def test_a_bare_dataset_is_its_own_input_and_its_fixes_are_tried(build) -> None:
    first = build.trial("ladder", build.segment(wait_s=[0.01] * 50), target_kind="dataset")
    assert climbed(build, first, pipeline=SEQUENTIAL) == ["pipeline", "fix parallel-map", "ladder b1"]
    emulated = first.model_copy(update={"spec": first.spec.model_copy(update={"emulated_ms": (5.0,)})})
    assert climbed(build, emulated, pipeline=SEQUENTIAL)[0] == "input"


@pytest.mark.parametrize("status", ["raised", "empty", "exited", "killed", "out_of_memory", "time_limit", "stalled"])
def test_nothing_is_wanted_after_a_first_trial_that_failed(build, status: str) -> None:
    done = [build.ladder(status=status)]
    assert next_trial(JOB, done, ALWAYS) is None
    assert skipped(done) == []


def test_a_later_trial_that_failed_is_not_tried_again(build) -> None:
    done = [build.ladder(), build.trial("input", number=1, status="raised")]
    spec = next_trial(JOB, done, ALWAYS)
    assert spec is not None
    assert spec.rung == "pipeline"


def test_the_second_block_runs_in_the_other_order_and_takes_the_rest_along(build) -> None:
    done = [build.ladder(), build.trial("input"), build.trial("pipeline")]
    second = next_trial(JOB, done, ALWAYS)
    assert second is not None
    assert (second.rung, second.block, second.reverse) == ("ladder", 1, True)
    done += [build.ladder(block=1), build.trial("input", block=1)]
    later = next_trial(JOB, done, ALWAYS)
    assert later is not None
    assert (later.rung, later.block) == ("xla", 1)


def test_a_profile_is_taken_once(build) -> None:
    job = Job(**(JOB.__dict__ | {"profile_dir": "profile"}))
    assert next_trial(job, [], ALWAYS).profile_dir == "profile"  # type: ignore[union-attr]
    later = next_trial(job, [build.ladder(), build.trial("input"), build.trial("pipeline")], ALWAYS)
    assert later is not None
    assert (later.rung, later.profile_dir) == ("ladder", None)


def test_what_does_not_fit_into_the_time_left_is_skipped_for_what_does(build) -> None:
    # The input alone takes 0.5 s of set-up, half a window of 2 s and 1.5 s around it; another ladder 10 s and an
    # import.
    first = build.ladder()
    assert next_trial(JOB, [first], 2.9) is None
    assert next_trial(JOB, [first], 3.1).rung == "input"  # type: ignore[union-attr]
    done = [first, build.trial("input"), build.trial("pipeline")]
    assert next_trial(JOB, done, 10.0 + IMPORT_S + 0.1).rung == "ladder"  # type: ignore[union-attr]
    assert next_trial(JOB, done, 10.0 + IMPORT_S - 0.1).rung in ("xla", "eager")  # type: ignore[union-attr]


def test_no_helper_is_started_for_less_than_a_whole_ladder(build) -> None:
    done = [build.ladder(anatomy=build.opaque()), build.trial("input"), build.trial("pipeline")]
    assert next_trial(JOB, done, 10.0 + IMPORT_S - 0.1) is None
    assert skipped(done) == ["ladder (block 1)", "input (block 1)"]


def test_what_was_wanted_and_did_not_run_is_named(build) -> None:
    done = [build.ladder(**WAITING), build.trial("pipeline", pipeline=SEQUENTIAL)]
    again = ["ladder (block 1)", "input (block 1)"]
    assert skipped(done) == ["input", "fix parallel-map", *again, "xla", "eager", "batch"]
    assert skipped([]) == []


def test_a_fix_s_name_makes_no_odd_trial_id(build) -> None:
    pipeline = Pipeline(ops=(op("ParallelMapDatasetV2", parallelism=8),), python_functions=(function("blocks"),))
    done = [build.ladder(**WAITING), build.trial("input"), build.trial("pipeline", pipeline=pipeline)]
    spec = next_trial(JOB, done, ALWAYS)
    assert spec is not None
    assert (spec.fix, spec.trial_id) == ("thread-pool:32", "003-fix-thread-pool-32")


def test_of_some_rungs_alone_the_others_are_left_out(build) -> None:
    done = [build.ladder(step=0.03)]
    found = []
    while (spec := next_trial(JOB, done, ALWAYS, only=MODES)) is not None:
        found.append(spec.rung)
        done.append(build.trial(spec.rung, number=len(done)))
    assert found == ["xla", "eager"]


def test_a_script_is_run_once_and_again_only_where_that_is_allowed(build) -> None:
    once = Job(
        target="train.py", kwargs={}, emulated_ms=(), steps=400, window_s=9.0, seed=0, script=True, arguments=("-v",)
    )
    first = next_trial(once, [], 0.0)
    assert first is not None
    assert (first.rung, first.block, first.arguments, first.window_s) == ("script", 0, ("-v",), 9.0)
    done = build.trial("script", number=0).model_copy(update={"spec": first, "duration_s": 30.0})
    assert next_trial(once, [done], ALWAYS) is None
    assert skipped([done]) == []
    twice = dataclasses.replace(once, repeat=True)
    again = next_trial(twice, [done], 31.0)
    assert again is not None
    assert (again.rung, again.block) == ("script", 1)
    assert next_trial(twice, [done], 29.0) is None
    assert next_trial(twice, [done, done], ALWAYS) is None
    assert next_trial(twice, [done.model_copy(update={"status": "raised"})], ALWAYS) is None
