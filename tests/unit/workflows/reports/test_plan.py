"""The report of a plan from hand-made trials: what it says, and that every number has a range or a reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.throughput.test_calibration import costs
from tests.unit.workflows.conftest import ENVIRONMENT, plan
from tests.unit.workflows.reports.test_diagnose import nulls
from xttsbench.errors import InvalidInputError
from xttsbench.probes.environment import environment
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.records.plan import Accelerator
from xttsbench.records.report import Report
from xttsbench.records.scale import MachineType, Prices, ScaleRequest, Workers, WorkersRate
from xttsbench.records.trial import Batches
from xttsbench.reporting import page
from xttsbench.reporting.console import render
from xttsbench.reporting.document import View
from xttsbench.reporting.sections.report import report_document
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.plan import Request, prices_of
from xttsbench.workflows.plan import plan as planning
from xttsbench.workflows.reports.plan import assembled_plan
from xttsbench.workflows.runs import rebuild

EMULATED = Accelerator(kind="emulated", label="emulated accelerator, 5 ms a step", step_times_ms=(5.0,))
PRICES = Prices(
    currency="EUR",
    trainer_per_hour=3.0,
    machines=(
        MachineType(name="small", cores=2, price_per_hour=0.1),
        MachineType(name="large", cores=16, price_per_hour=0.9),
    ),
)


def planned(build, *, prices: Prices | None = None, served: bool = True, step: bool = True, **asked) -> Recorded:
    """A batch of 1 MB takes 20 ms of one core, the step 5 ms; two cores make one in 10 ms."""
    batches = Batches(cached=4, bytes=4_000_000, shapes=("(8, 9)",))
    pipeline = Pipeline(
        ops=(
            PipelineOp(name="Range/_1", op="RangeDataset", cardinality=-1),
            PipelineOp(
                name="Map/_2", op="ParallelMapDatasetV2", inputs=("Range/_1",), parallelism=-1, cost_s=0.02, cpu_s=0.02
            ),
        ),
        cpus=2,
    )
    about = {"target_kind": "dataset", "batches": batches}
    main = build.ladder(wait=0.005, step=0.005, steps=260, emulated_ms=(5.0,), alone=0.005, **about)
    if not step:
        main = build.trial("ladder", build.segment(wait_s=[0.01] * 90, cpu_s=0.02), **about)
    alone = build.trial("pipeline", build.segment("input_only", wait_s=[0.01] * 90, cpu_s=0.02), number=1)
    trials = [main, alone, build.trial("pipeline", number=2, pipeline=pipeline)]
    both = [one.model_copy(update={"compressed": way}) for way in (False, True) for one in costs(0.02)]
    cost = {"service": tuple(both)} if served else {"status": "raised", "cause": "the dataset is empty"}
    trials.append(build.trial("service", number=3, **cost))
    request = ScaleRequest(run="reports/a", prices=prices, **asked)
    return Recorded(Path(), plan(kind="plan", scale=request, accelerator=EMULATED), ENVIRONMENT, tuple(trials))


@pytest.fixture
def report(build) -> Report:
    return assembled_plan(planned(build, prices=PRICES))


def test_workers_are_planned_until_the_step_sets_the_pace(report) -> None:
    scale = report.scale
    knee = next(one for one in scale.knees if (one.gbit_s, one.accelerator, one.replicas) == (10.0, 1.0, 1))
    assert knee.limited_by == "step"
    assert knee.workers.low <= 2 <= knee.workers.high  # 2 cores make a batch in 10.4 ms, and the step takes 5
    slow = next(one for one in scale.knees if one.gbit_s == 1.0)
    assert slow.limited_by == "network"  # 8 ms for a batch of 1 MB
    assert slow.utilization.estimate == pytest.approx(5 / 8.5, rel=0.1)
    here = next(cell for cell in scale.cells if not cell.workers and cell.cores == 2)
    assert here.throughput_per_s.estimate == pytest.approx(scale.measured_per_s.estimate)
    assert not here.extrapolated


def test_throughput_has_a_range_and_what_lies_beyond_four_workers_is_extrapolated(report) -> None:
    for cell in report.scale.cells:
        assert cell.throughput_per_s.low < cell.throughput_per_s.estimate < cell.throughput_per_s.high
        assert cell.extrapolated or cell.workers <= 4
    assert {cell.workers for cell in report.scale.cells} >= {0, 1, 2, 3, 4, 256}


def test_the_cheapest_layout_is_by_the_prices_of_the_file(report) -> None:
    first = report.scale.choices[0]
    assert (first.machine, first.accelerator) == ("small", 1.0)
    assert first.price_per_hour == pytest.approx(3.0 + 0.1 * first.workers)
    assert first.utilization.low >= 0.9
    assert "EUR an hour" in report.verdict.summary


def test_without_prices_the_smallest_layout_has_none(build) -> None:
    report = assembled_plan(planned(build))
    assert all(choice.price_per_hour is None for choice in report.scale.choices)
    assert "an hour" not in report.verdict.summary


def test_a_machine_without_a_price_is_not_the_cheapest(build) -> None:
    free = MachineType(name="unknown", cores=64)
    prices = PRICES.model_copy(update={"machines": (*PRICES.machines, free)})
    assert assembled_plan(planned(build, prices=prices)).scale.choices[0].machine == "small"


def test_of_a_bare_dataset_no_accelerator_is_said_to_be_busy(build) -> None:
    report = assembled_plan(planned(build, step=False))
    assert report.scale.choices == ()
    assert "accelerator" not in report.verdict.summary


def test_every_null_has_its_reason_and_the_report_survives_json(report) -> None:
    assert nulls(report) - set(report.unmeasured) == set()
    text = report.model_dump_json()
    assert Report.model_validate_json(text) == report
    assert json.loads(text)["scale"]["cells"][0]["gbit_s"] == {"missing": "without workers nothing is sent"}


def test_without_the_costs_nothing_is_planned_and_it_says_why(build) -> None:
    report = assembled_plan(planned(build, served=False))
    assert report.scale is None
    assert "the dataset is empty" in report.verdict.summary


def test_the_dispatcher_limits_where_each_sample_is_a_split(build) -> None:
    run = planned(build)
    pipeline = run.trials[2].pipeline
    batch = PipelineOp(name="Batch/_3", op="BatchDatasetV2", inputs=("Map/_2",), batch_size=64, cost_s=0.0)
    many = run.trials[2].model_copy(update={"pipeline": pipeline.model_copy(update={"ops": (*pipeline.ops, batch)})})
    found = assembled_plan(Recorded(Path(), run.plan, ENVIRONMENT, (*run.trials[:2], many, run.trials[3])))
    assert found.scale.knees[1].limited_by == "dispatcher"
    assert found.scale.needs["splits"].estimate == 64


def test_screen_page_and_plot_have_the_knees(build, tmp_path) -> None:
    run = planned(build, prices=PRICES)
    build.run_directory(tmp_path, run.plan, run.environment, run.trials)
    outcome = rebuild(tmp_path)
    assert (outcome.exit_code, outcome.warnings) == (0, ())
    assert (tmp_path / "plots" / "scale.png").stat().st_size > 10_000
    html = (tmp_path / "report.html").read_text()
    assert "Where more input workers stop helping" in html
    assert page.render_page(page.page_document(outcome.report), {}).startswith("<!")
    document = report_document(outcome.report, "reports/p")
    screen = render(document, width=100, color=False, view=View.SUMMARY)
    assert "then limited by" in screen
    assert len(screen.splitlines()) <= 25


def test_the_file_of_prices_of_the_page_can_be_read(tmp_path) -> None:
    text = Path(__file__).parents[4].joinpath("docs/scale.md").read_text("utf-8")
    file = tmp_path / "machines.yaml"
    file.write_text(text.partition("```yaml\n")[2].partition("```")[0], "utf-8")
    assert [machine.name for machine in prices_of(file).machines] == ["small", "large"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("machines: [{name: a, cores: -1}]", "machines.0.cores: Input should be greater than 0, received -1"),
        ("machines: []", "machines"),
        ("- 1", "holds list"),
        ("machines: [{name: a, cores: 1, price: 2}]", "machines.0.price: no such key"),
    ],
)
def test_a_file_of_prices_that_is_none_is_refused_with_the_place(tmp_path, text: str, said: str) -> None:
    file = tmp_path / "machines.yaml"
    file.write_text(text, "utf-8")
    with pytest.raises(InvalidInputError, match=said):
        prices_of(file)


def test_the_newest_diagnosis_is_taken_and_another_kind_refused(build, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="No run under"):
        planning(Request())
    directory = tmp_path / "reports" / "20260101T000000Z-diagnose-make"
    directory.mkdir(parents=True)
    build.run_directory(directory, plan(kind="sweep"), ENVIRONMENT, ())
    with pytest.raises(InvalidInputError, match="is a run of sweep"):
        planning(Request())


def test_an_earlier_plan_is_asked_again_without_measuring(build, tmp_path, monkeypatch) -> None:
    run = planned(build)
    for name in ("first", "third"):
        (tmp_path / name).mkdir()
    build.run_directory(tmp_path / "first", run.plan, run.environment, run.trials)
    with pytest.raises(InvalidInputError, match="another machine"):
        planning(Request(run=tmp_path / "first", out=tmp_path / "second"))
    here = environment(tmp_path) | {"cpu": ENVIRONMENT["cpu"]}
    monkeypatch.setattr("xttsbench.workflows.runs.read_machine", lambda _: here)
    build.run_directory(tmp_path / "third", run.plan, here, run.trials)
    outcome = planning(Request(run=tmp_path / "third", out=tmp_path / "fourth", cores=0.25, latencies_s=(0.0, 0.02)))
    assert outcome.exit_code == 0
    assert {(cell.cores, cell.latency_s) for cell in outcome.report.scale.cells if cell.workers == 1} == {
        (0.25, 0.0),
        (0.25, 0.02),
    }


def with_workers(build, *, step: bool = True, **changed) -> Recorded:
    """The same, with a trial in which one worker gave 10 batches a second, and two gave 19."""
    run = planned(build, step=step)
    stretches = [WorkersRate(workers=w, batches=b, wall_s=4.0) for w, b in ((1, 40), (2, 76), (2, 77), (1, 41))]
    trial = build.trial("workers", number=4, workers=tuple(stretches), **changed)
    spec = trial.spec.model_copy(update={"workers": Workers(most=2, cores=0.25)})
    return replace(run, trials=(*run.trials, trial.model_copy(update={"spec": spec})))


def test_what_workers_here_gave_stands_beside_what_was_planned(build) -> None:
    report = assembled_plan(with_workers(build))
    proof = report.scale.proof
    assert [(one.workers, one.measured_per_s.estimate) for one in proof.rates] == [(1, 10.125), (2, 19.125)]
    for one in proof.rates:
        assert one.measured_per_s.low < one.measured_per_s.estimate < one.measured_per_s.high
        assert one.predicted_per_s.estimate == pytest.approx(one.workers * 0.25 / 0.0205, rel=0.05)  # cores / 20 ms
    assert proof.needed.low <= 21 <= proof.needed.high  # 200 steps a second over 9.8 of a worker
    assert nulls(report) - set(report.unmeasured) == set()
    assert "2 input workers of 0.25 cores gave 19.1 /s" in report.verdict.summary
    text = render(report_document(report, "reports/p"), width=100, color=False, view=View.SUMMARY)
    assert "The input on workers of this machine" in text


def test_workers_that_give_little_more_are_not_extrapolated(build) -> None:
    run = with_workers(build)
    same = [one.model_copy(update={"batches": 40}) for one in run.trials[-1].workers]
    last = run.trials[-1].model_copy(update={"workers": tuple(same)})
    report = assembled_plan(replace(run, trials=(*run.trials[:-1], last)))
    assert report.scale.proof.needed is None
    assert "too little more" in report.unmeasured["scale.proof.needed"]


def test_a_number_of_workers_that_was_measured_once_is_left_out(build) -> None:
    run = with_workers(build)
    for kept, left in ((3, [2]), (1, None)):  # an interrupted trial
        last = run.trials[-1].model_copy(update={"workers": run.trials[-1].workers[-kept:]})
        proof = assembled_plan(replace(run, trials=(*run.trials[:-1], last))).scale.proof
        assert (proof and [one.workers for one in proof.rates]) == left


def test_without_a_step_no_number_of_workers_is_needed(build) -> None:
    report = assembled_plan(with_workers(build, step=False))
    assert report.scale.proof.needed is None
    assert report.unmeasured["scale.proof.needed"] == "the target has no step"


def test_workers_that_were_not_measured_have_their_reason(build) -> None:
    assert assembled_plan(planned(build)).unmeasured["scale.proof"] == "was not asked for: --measure 3"
    run = with_workers(build, status="raised", cause="nothing can leave")
    failed = run.trials[-1].model_copy(update={"workers": ()})
    report = assembled_plan(replace(run, trials=(*run.trials[:-1], failed)))
    assert report.scale.proof is None
    assert report.unmeasured["scale.proof"] == "nothing can leave"
    assert "The input was not run on workers of this machine: nothing can leave." in report.verdict.summary
