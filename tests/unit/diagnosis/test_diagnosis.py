from __future__ import annotations

import numpy as np
import pytest

from xttsbench.analysis.attribution import PARTS
from xttsbench.analysis.disturbance import gate
from xttsbench.analysis.steps import measured
from xttsbench.diagnosis import Diagnosis, build_diagnosis
from xttsbench.diagnosis.bottleneck import CONFIDENT, Classified, samples_of, why_undecided
from xttsbench.diagnosis.verdict import verdict
from xttsbench.findings import find
from xttsbench.records.code import KerasCalls, ScriptRun
from xttsbench.records.pipeline import CallSite, Pipeline, PythonFunction
from xttsbench.records.readings import HostReadings, Readings
from xttsbench.records.trial import Devices, RoundMark

MACHINE = {"cpu": {"allowed_cpus": 2.0}}


def shares(found: Diagnosis) -> dict[str, float]:
    return {name: found.evidence.share(name) for name in PARTS}


def told(trials, environment=MACHINE, seed: int = 0) -> Diagnosis:
    """The evidence, after what must hold of any."""
    found = build_diagnosis(trials, environment, seed=seed)
    assert 0.0 <= found.probability <= 1.0
    assert found.evidence.wall_s == found.figures["wall_s"].value
    assert sum(found.evidence.parts.values()) == pytest.approx(found.evidence.wall_s)
    assert all(value >= 0 for name, value in found.evidence.parts.items() if name != "residual")
    assert (found.evidence.bottleneck == "inconclusive") == (found.why_undecided is not None)
    for figure in found.figures.values():
        told_of = figure.estimate()
        assert told_of.low <= told_of.estimate <= told_of.high
    return found


def test_input(build) -> None:
    found = told([build.ladder(wait=0.02, step=0.01)])
    assert found.evidence.bottleneck == "input"
    assert found.probability == 1.0
    assert shares(found)["input"] == pytest.approx(2 / 3, abs=0.02)
    assert found.input_wait_fraction.estimate == pytest.approx(2 / 3, abs=0.02)
    assert found.throughput_per_s.estimate == pytest.approx(8 / 0.03, rel=0.02)
    assert found.evidence.max_speedups["input"].estimate == pytest.approx(3, rel=0.05)
    assert found.accelerator_utilization is None


@pytest.mark.parametrize("trains", [True, False])
def test_behind_an_emulated_accelerator_a_script_that_trains_has_no_step_of_its_own(build, trains: bool) -> None:
    rng = np.random.default_rng(1)
    trial = build.trial(
        "script",
        build.segment("warm_up", step_s=[0.5]),
        build.segment(wait_s=build.noisy(0.001, 160, rng), step_s=build.noisy(0.040, 160, rng), emulated_s=0.030),
        anatomy=build.eager(),
        target_kind="script",
        script=ScriptRun(trains=trains, ended="stopped"),
    )
    spec = trial.spec.model_copy(update={"emulated_ms": (30.0,)})
    found = told([trial.model_copy(update={"spec": spec})])
    assert found.evidence.has_step is not trains
    assert found.evidence.facts.eager is not trains
    assert not trains or shares(found)["host"] == pytest.approx(10 / 41, abs=0.02)


def test_stalls_that_the_median_does_not_show_are_input_too(build) -> None:
    wait = np.full(160, 1e-4)
    wait[15::16] = 0.4
    trial = build.trial(
        "ladder",
        build.segment("warm_up", step_s=[0.1]),
        build.segment(wait_s=wait, step_s=build.noisy(0.01, 160, np.random.default_rng(1)), calls_s=0.01),
        build.segment("step_only", step_s=[0.01] * 50, calls_s=0.01),
        anatomy=build.compiled(),
    )
    found = told([trial])
    assert found.evidence.bottleneck == "input"
    assert found.figures["median"].value == pytest.approx(0.0101, rel=0.02)
    assert found.figures["wall_s"].value == pytest.approx(0.0351, rel=0.1)


def eager_run(build, **changes):
    given = build.segment("step_only", step_s=[0.05] * 40)
    graph = build.segment("graph", step_s=[0.01] * 40)
    mode = build.trial("graph", build.segment("warm_up", step_s=[0.3]), given, graph, number=1, **changes)
    return [build.ladder(step=0.05, anatomy=build.eager(), step_columns={"calls_s": 0.0}), mode]


def test_a_long_stall_every_hundred_batches_is_named_with_its_period(build) -> None:
    """Three rounds, of which none shows it, and one long stretch, in which it comes four times."""
    rng = np.random.default_rng(2)
    rounds = np.repeat([0, 1, 2, 3], [21, 21, 21, 400])
    wait = build.noisy(1e-4, len(rounds), rng)
    wait[63 + 50 :: 100] += 2.0
    step = build.noisy(0.03, len(rounds), rng, cv=0.1)
    trial = build.trial(
        "ladder",
        build.segment("warm_up", step_s=[0.1]),
        build.segment(wait_s=wait, step_s=step, calls_s=step, round=rounds, batch=np.arange(len(rounds))),
        anatomy=build.compiled(),
    )
    found = told([trial])
    assert found.bottleneck == "input"
    named = next(one for one in find(found.evidence) if one.rule == "oscillation")
    assert named.title.startswith("step times repeat every 100.0 steps; the input has the period")
    assert named.limiting


def test_dispatch_is_what_one_graph_saved(build) -> None:
    found = told(eager_run(build))
    assert found.evidence.bottleneck == "dispatch"
    assert shares(found)["dispatch"] == pytest.approx(0.8, abs=0.02)
    graph = found.evidence.modes["graph"]
    assert graph.speedup.estimate == pytest.approx(5.0, rel=0.01)
    assert graph.time_s.estimate == pytest.approx(0.01, rel=0.02)
    assert graph.compile_s == pytest.approx(0.3)
    assert found.evidence.given_mode == "eager"


def eager_in_turns(build, rng, *, gain: float, turns_differ: float, rounds: int = 4):
    """An eager step beside its graph, whose turns of three steps differ by so much, beside neighbours."""
    number = np.repeat(np.arange(rounds), 3)
    given, graph = (
        0.05 * share * np.exp(turns_differ * rng.standard_normal(rounds))[number] for share in (1.0, 1.0 - gain)
    )
    mode = build.trial(
        "graph",
        build.segment("step_only", step_s=given, round=number),
        build.segment("graph", step_s=graph, round=number),
        number=1,
    )
    # Its launches alone are 6 % of the step.
    anatomy = build.eager(eager_ops_per_step=150.0)
    return [
        beside_neighbours(build.ladder(step=0.05, anatomy=anatomy, step_columns={"calls_s": 0.0}), 0.8, own=0.9),
        mode,
    ]


def test_four_rounds_that_agree_by_luck_beside_neighbours_accuse_nobody(build) -> None:
    """Turns that differ by a third of their mean, of sides that are as fast: a few in a hundred look like launching."""
    rng = np.random.default_rng(5)
    said = [told(eager_in_turns(build, rng, gain=0.05, turns_differ=0.35)).evidence.bottleneck for _ in range(60)]
    assert said.count("dispatch") <= 3
    assert set(said) <= {"dispatch", "inconclusive", "compute"}


def test_launching_that_takes_half_of_the_step_is_named_beside_neighbours_too(build) -> None:
    rng = np.random.default_rng(6)
    said = [
        told(eager_in_turns(build, rng, gain=0.6, turns_differ=0.2, rounds=8)).evidence.bottleneck for _ in range(20)
    ]
    assert said.count("dispatch") >= 18
    one = told(eager_in_turns(build, rng, gain=0.05, turns_differ=0.01))
    assert one.evidence.bottleneck == "compute"


def test_beside_neighbours_it_takes_more_to_name_something_avoidable(build) -> None:
    found = Classified("dispatch", 0.9, "compute")
    series = [measured(build.ladder(), "as_is")]
    assert why_undecided([build.ladder()], series, found) is None
    assert "beside what others took of the processor" in why_undecided(
        [build.ladder()], series, found, taken_share=0.35
    )
    computes = Classified("compute", 0.7, "dispatch")
    assert why_undecided([build.ladder()], series, computes, taken_share=0.35) is None


def test_a_data_set_that_keras_makes_anew_for_each_batch_is_host_work_and_not_to_be_repeated(build) -> None:
    as_is = build.segment("as_is", wait_s=[0.02] * 120, step_s=[0.03] * 120, epoch=list(range(120)), batch=[0] * 120)
    steps = (build.segment("warm_up", step_s=[0.1]), as_is)
    calls = KerasCalls(
        method="fit",
        place=CallSite(file="a.py", line=3),
        on_batch="model.train_on_batch(x, y)",
        calls=120,
        batches=119,
        time_s=6.0,
        function_s=3.0,
        span_s=6.1,
    )
    script = ScriptRun(keras_calls=(calls,))
    assert script.anew_share == pytest.approx(3.0 / 6.1)
    assert script.model_copy(update={"steps_per_call": 16}).anew_share == 0
    found = told([build.trial("script", *steps, script=script)])
    assert (found.why_undecided, found.evidence.bottleneck) == (None, "host")
    assert shares(found)["host"] == pytest.approx(3.0 / 6.1, abs=0.02), "all that looked like a wait, and some beside"
    many = build.segment("as_is", wait_s=[0.02] * 120, step_s=[0.03] * 120, epoch=[0] * 120, batch=list(range(120)))
    beside = build.trial("script", build.segment("warm_up", step_s=[0.1]), many, script=script)
    assert told([beside]).evidence.bottleneck == "input", "a loop of many batches makes none of those calls"
    on_gpu = build.trial(
        "script", *steps, script=script, devices=Devices(inter_op_threads=2, intra_op_threads=2, gpus=("GPU:0",))
    )
    assert "fit() is called anew for each batch" in told([on_gpu]).why_undecided
    assert ".repeat()" in told([build.trial("script", *steps)]).why_undecided


def test_what_xla_gains_beyond_the_graph_is_no_launch_overhead(build) -> None:
    given, xla = build.segment("step_only", step_s=[0.05] * 40), build.segment("xla", step_s=[0.002] * 40)
    through_xla = build.trial("xla", build.segment("warm_up", step_s=[2.0]), given, xla, number=2)
    found = told([*eager_run(build), through_xla])
    assert found.evidence.parts["dispatch"] == pytest.approx(0.04, rel=0.02)  # 50 ms op by op, 10 ms as one graph
    without_graph = told([eager_run(build)[0], through_xla])
    assert without_graph.evidence.parts["dispatch"] == pytest.approx(100 * 2e-5 + 2e-5, rel=0.1)  # the launches alone


def test_a_step_that_was_never_alone_makes_the_figures_wider(build) -> None:
    widths = []
    for idle in (True, False):
        marks = (RoundMark(round=0, start_ns=0, end_ns=1, input_idle=idle),)
        figure = told([build.ladder(alone=0.02, rounds=marks)]).figures["wall_s"].estimate()
        widths.append(figure.high - figure.low)
    assert widths[1] > 1.3 * widths[0]


def test_dispatch_where_the_graph_failed_is_at_least_the_launching(build) -> None:
    ladder = build.ladder(step=0.01, anatomy=build.eager(eager_ops_per_step=200.0), step_columns={"calls_s": 0.0})
    failed = build.trial("graph", number=1, status="raised", cause="it prints")
    found = told([ladder, failed])
    assert found.evidence.bottleneck == "dispatch"
    assert found.evidence.parts["dispatch"] == pytest.approx(200 * 2e-5 + 2e-5, rel=0.01)
    assert (found.evidence.modes["graph"].status, found.evidence.modes["graph"].speedup) == ("raised", None)


def test_compile_recurs(build) -> None:
    traces = (np.arange(120) % 10 == 5).astype(int)
    rng = np.random.default_rng(0)
    step = build.noisy(0.02, 120, rng) + 0.2 * traces
    found = told([build.ladder(step=0.02, step_columns={"step_s": step, "calls_s": step, "traces": traces})])
    assert found.evidence.bottleneck == "compile"
    assert shares(found)["compile"] == pytest.approx(0.5, abs=0.03)


def test_compile_in_every_step_is_told_by_the_graph(build) -> None:
    columns = {"traces": 1, "trace_s": 0.01, "step_s": [0.05] * 120, "calls_s": 0.05}
    given = build.segment("step_only", step_s=[0.05] * 40, traces=1, trace_s=0.01, calls_s=0.05)
    graph = build.trial("graph", given, build.segment("graph", step_s=[0.005] * 40), number=1)
    found = told([build.ladder(step=0.05, step_columns=columns), graph])
    assert found.evidence.bottleneck == "compile"
    assert shares(found)["compile"] == pytest.approx(0.9, abs=0.02)


def test_host(build) -> None:
    anatomy = build.compiled(kinds={"function": 0.4, "io": 0.6})
    found = told([build.ladder(step=0.05, anatomy=anatomy, step_columns={"calls_s": 0.02})])
    assert found.evidence.bottleneck == "host"
    assert shares(found)["host"] == pytest.approx(0.6, abs=0.02)


def contending(build, *, cpu_s: float, input_cpu_s: float = 0.03):
    ladder = build.ladder(step=0.03, alone=0.015, step_columns={"cpu_s": cpu_s})
    alone = build.trial("pipeline", build.segment("input_only", wait_s=[0.012] * 60, cpu_s=input_cpu_s), number=1)
    return [ladder, alone]


def test_contention(build) -> None:
    found = told(contending(build, cpu_s=0.058))
    assert found.evidence.bottleneck == "contention"
    assert shares(found)["contention"] == pytest.approx(0.5, abs=0.02)
    assert found.evidence.input_alone_s.estimate == pytest.approx(0.012)


def test_no_contention_on_idle_cores_or_beside_an_input_that_needs_no_processor(build) -> None:
    assert told(contending(build, cpu_s=0.03)).evidence.bottleneck == "compute"
    assert told(contending(build, cpu_s=0.058, input_cpu_s=0.001)).evidence.bottleneck == "compute"


def test_a_machine_two_percent_larger_turns_no_sure_contention_into_sure_computing(build) -> None:
    trials = contending(build, cpu_s=0.058)
    sure = []
    for cpus in np.arange(2.0, 3.001, 0.05):
        found = told(trials, {"cpu": {"allowed_cpus": float(cpus)}})
        sure.append(1 - found.probability if found.evidence.bottleneck == "compute" else found.probability)
    assert sure[0] > 0.99
    assert sure[-1] < 0.01
    assert (np.diff(sure) < 0.02).all()
    assert np.abs(np.diff(sure)).max() < 0.3


def test_a_step_that_is_slower_beside_its_input_on_idle_cores_is_said_to_be(build) -> None:
    found = told(contending(build, cpu_s=0.03))
    assert found.evidence.bottleneck == "compute"
    assert found.evidence.slower_beside_input.estimate == pytest.approx(0.5, abs=0.02)
    assert "beside its input it is slower by 50% of its time than alone, cause not known" in verdict(found).summary
    assert told(contending(build, cpu_s=0.058)).evidence.slower_beside_input is None
    assert told([build.ladder(step=0.03, alone=0.028)]).evidence.slower_beside_input is None


def test_a_step_that_is_slower_while_it_would_wait_for_its_input_anyway_loses_nothing(build) -> None:
    ladder = build.ladder(step=0.03, alone=0.015, step_columns={"cpu_s": 0.03})
    alone = build.trial("pipeline", build.segment("input_only", wait_s=[0.0295] * 60, cpu_s=0.01), number=1)
    assert told([ladder, alone]).evidence.slower_beside_input is None


def test_only_the_threads_behind_the_input_compete_and_not_the_one_that_waits_for_it(build) -> None:
    ladder, alone = contending(build, cpu_s=0.058)
    segment = build.segment("input_only", wait_s=[0.012] * 60, cpu_s=0.03, main_cpu_s=0.026)
    found = told([ladder, alone.model_copy(update={"segments": (segment,)})])
    assert found.evidence.input_cpu_s.estimate == pytest.approx(0.004)
    assert found.evidence.parts["contention"] == pytest.approx(0.004, abs=2e-4)


def test_contention_is_told_on_matched_batches(build) -> None:
    """Batches of very different length: the step alone ran on the long ones only, and is no slower for that."""
    rng = np.random.default_rng(3)
    lengths = rng.uniform(0.01, 0.05, 120)
    beside = build.segment(
        step_s=1.2 * lengths, wait_s=1e-4, calls_s=1.2 * lengths, cpu_s=2.3 * lengths, batch=np.arange(120)
    )
    long = np.flatnonzero(lengths > 0.03)
    alone = build.segment("step_only", step_s=lengths[long], calls_s=lengths[long], batch=long)
    inputs = build.segment("input_only", wait_s=[0.012] * 60, cpu_s=0.03)
    warm_up = build.segment("warm_up", step_s=[0.1])
    one = build.trial("ladder", warm_up, beside, alone, inputs, anatomy=build.compiled())
    found = told([one])
    assert shares(found)["contention"] == pytest.approx(1 - 1 / 1.2, abs=0.01)
    other = told(
        [
            one.model_copy(
                update={
                    "segments": (
                        warm_up,
                        beside,
                        build.segment("step_only", step_s=lengths[long], calls_s=lengths[long], batch=-1),
                        inputs,
                    )
                }
            )
        ]
    )
    assert shares(other)["contention"] < 0.005  # on other batches nothing is seen of it


def test_the_contention_of_a_process_is_its_own(build) -> None:
    """One process is half as fast as the other as a whole, beside its input and alone: that is no contention."""

    def process(pace: float, number: int):
        step = build.noisy(0.03 * pace, 80, np.random.default_rng(number))
        columns = {"calls_s": step, "cpu_s": 2 * step, "batch": np.arange(80)}
        return build.trial(
            "ladder",
            build.segment("warm_up", step_s=[0.1]),
            build.segment(step_s=step, wait_s=1e-4, **columns),
            build.segment("step_only", step_s=step[:40], calls_s=step[:40], batch=np.arange(40)),
            build.segment("input_only", wait_s=[0.012] * 60, cpu_s=0.03),
            number=number,
            block=number,
            anatomy=build.compiled(),
        )

    slow_without_its_own = process(2.0, 1)
    found = told([process(1.0, 0), slow_without_its_own])
    assert shares(found)["contention"] < 0.005
    assert found.evidence.bottleneck == "compute"


def beside_neighbours(trial, foreign: float, *, own: float, waited: float = 0.0):
    """The same trial on two cores of which neighbours took that many, by the readings beside it."""
    steps = trial.segment("as_is").columns
    last = max(segment.columns["start_ns"][-1] + segment.columns["wall_ns"][-1] for segment in trial.segments)
    times = np.linspace(steps["start_ns"][0], last, 50).astype(np.int64)
    elapsed = (times - times[0]) / 1e9
    host = HostReadings(
        t_ns=tuple(times.tolist()),
        allowed_cpus=2,
        cpu_s=tuple(own * elapsed),
        machine_busy_s=tuple((own + foreign) * elapsed),
        machine_steal_s=tuple(0.0 * elapsed),
        machine_idle_s=tuple((2 - own - foreign) * elapsed),
        run_delay_s=tuple(waited * elapsed),
    )
    return trial.model_copy(update={"readings": Readings(host=host)})


def test_an_opaque_step_that_neighbours_hold_up_is_no_host_work(build) -> None:
    step = build.noisy(0.01, 200, np.random.default_rng(2), cv=0.01) + 0.1 * (np.arange(200) % 20 == 0)
    trial = build.ladder(anatomy=build.opaque(), step_columns={"step_s": step, "calls_s": 0.0, "cpu_s": 0.0}, steps=200)
    assert told([trial]).evidence.bottleneck == "host"
    assert told([beside_neighbours(trial, 1.0, own=0.0)]).evidence.bottleneck == "compute"


def test_contention_that_neighbours_may_hide_is_not_called_computing(build) -> None:
    """Beside its input the step is as slow as alone, since others take what the input leaves; both want two cores."""
    trial = build.ladder(step=0.06, step_columns={"cpu_s": 0.06})
    trial = trial.model_copy(
        update={"segments": (*trial.segments, build.segment("input_only", wait_s=[0.02] * 60, cpu_s=0.02))}
    )
    quiet = told([trial])
    assert quiet.evidence.bottleneck == "compute"
    hidden = told([beside_neighbours(trial, 1.0, own=0.9, waited=1.0)])
    assert hidden.evidence.bottleneck == "inconclusive"
    assert "others used 50% of the processor, which hides" in hidden.why_undecided
    others = [segment for segment in trial.segments if segment.name != "input_only"]
    light = build.segment("input_only", wait_s=[0.02] * 60, cpu_s=0.002)
    spare = trial.model_copy(update={"segments": (*others, light)})
    assert told([beside_neighbours(spare, 1.0, own=0.9, waited=1.0)]).evidence.bottleneck == "compute"


def test_compute(build) -> None:
    found = told([build.ladder(step=0.03)])
    assert found.evidence.bottleneck == "compute"
    assert found.probability == 1.0
    assert shares(found)["compute"] > 0.95


def test_a_step_that_sleeps_is_compute(build) -> None:
    found = told([build.ladder(step=0.03, anatomy=build.opaque(), step_columns={"calls_s": 0.0, "cpu_s": 0.0})])
    assert found.evidence.bottleneck == "compute"
    assert found.evidence.given_mode == "opaque"


def test_transfer(build) -> None:
    found = told([build.ladder(step=0.03, transfer_s=0.012)])
    assert found.evidence.bottleneck == "transfer"
    assert shares(found)["transfer"] == pytest.approx(0.4, abs=0.01)


def test_a_bare_dataset_is_always_input(build) -> None:
    segment = build.segment(wait_s=build.noisy(0.004, 100, np.random.default_rng(0)))
    found = told([build.trial("ladder", segment, target_kind="dataset")])
    assert (found.evidence.bottleneck, found.probability) == ("input", 1.0)
    assert (found.evidence.has_step, found.evidence.kind) == (False, "dataset")
    assert "alone_s" not in found.figures


@pytest.mark.parametrize(("wait", "bottleneck"), [(0.001, "compute"), (0.02, "input")])
def test_a_bare_dataset_before_an_emulated_accelerator_is_judged(build, wait: float, bottleneck: str) -> None:
    rng = np.random.default_rng(0)
    segment = build.segment(wait_s=build.noisy(wait, 100, rng), step_s=0.0201, emulated_s=0.02)
    found = told([build.trial("ladder", segment, target_kind="dataset", emulated_ms=(20.0,))])
    assert found.evidence.bottleneck == bottleneck
    assert found.accelerator_utilization.estimate == pytest.approx(0.02 / (wait + 0.0201), rel=0.02)


def test_no_interval_holds_what_an_emulated_device_makes_impossible(build) -> None:
    step_s = np.full(24, 0.0022)
    step_s[-3:] = 0.012  # one stretch unlike the others, so that intervals are wide
    segment = build.segment(wait_s=np.full(24, 0.0002), step_s=step_s, emulated_s=0.002)
    alone = build.segment("step_only", step_s=step_s, emulated_s=0.002)
    warm_up = build.segment("warm_up", step_s=[0.1])
    found = told([build.trial("ladder", warm_up, segment, alone, emulated_ms=(2.0,))])
    for name in ("wall_s", "step_s", "alone_s"):
        assert 0.002 <= found.figures[name].estimate().low < found.figures[name].value, name
    assert found.accelerator_utilization.high <= 1.0
    assert found.figures["p95"].estimate().low >= found.figures["median"].estimate().low >= 0.002


def test_no_quantile_may_be_nothing_and_the_95th_percentile_no_less_than_the_median(build) -> None:
    step_s = np.full(160, 0.01)
    step_s[10::60] = 0.5  # in few stretches, and none in most of them
    warm_up = build.segment("warm_up", step_s=[0.1])
    figures = told([build.trial("ladder", warm_up, build.segment(wait_s=np.full(160, 1e-4), step_s=step_s))]).figures
    assert figures["p95"].estimate().low >= figures["median"].estimate().low > 0.005


def test_no_mean_is_less_than_half_of_the_median(build) -> None:
    step_s = np.full(160, 0.01)
    step_s[148:] = 0.5  # in the last stretch
    warm_up = build.segment("warm_up", step_s=[0.1])
    figures = told([build.trial("ladder", warm_up, build.segment(wait_s=np.full(160, 1e-4), step_s=step_s))]).figures
    assert figures["wall_s"].estimate().low >= 0.5 * figures["median"].estimate().low > 0.002


def test_too_few_steps_are_inconclusive(build) -> None:
    found = told([build.ladder(wait=0.05, step=0.01, steps=1)])
    assert found.why_undecided == "only 1 step(s) were measured after the warm-up"
    assert told([build.ladder(wait=0.05, step=0.01, steps=2)]).evidence.bottleneck == "input"


def test_processes_that_disagree_are_inconclusive_however_many_steps(build) -> None:
    trials = [build.ladder(wait=0.05, step=0.01), build.ladder(wait=1e-4, step=0.01, block=1, number=1)]
    found = told(trials)
    assert found.evidence.bottleneck == "inconclusive"
    assert "fresh processes of the same target disagree (input 100%, compute 100%)" in found.why_undecided
    assert not found.evidence.limits("input")


def test_processes_that_agree_are_not(build) -> None:
    found = told([build.ladder(wait=w, step=0.01, block=b, number=b) for b, w in enumerate((0.05, 0.03))])
    assert found.evidence.bottleneck == "input"
    assert found.figures["wall_s"].value == pytest.approx(0.05, rel=0.05)  # each process weighs as much as its steps
    wall = found.figures["wall_s"].estimate()
    assert wall.low < 0.042
    assert wall.high > 0.058


def test_a_loss_at_the_threshold_in_noisy_steps_is_inconclusive(build) -> None:
    wait = np.random.default_rng(0).exponential(1.0, 19)  # too few for a cut
    wait *= 0.1005 / 0.8995 * 0.09 / wait.mean()  # 10.05 % of the step
    trial = build.trial(
        "ladder",
        build.segment("warm_up", step_s=[0.1]),
        build.segment(wait_s=wait, step_s=0.09, calls_s=0.09),
        anatomy=build.compiled(),
    )
    found = told([trial])
    assert found.probability < CONFIDENT
    assert "has a probability of" in found.why_undecided
    first, _, second = found.why_undecided.partition(" only, ")
    assert {first.split()[0], second.split()[0]} == {"compute", "input"}
    assert not found.at_threshold
    assert not found.sure


def at_share(build, share: float, **fields) -> Diagnosis:
    """A step that waits for so much of its time."""
    return told([build.ladder(wait=0.03 * share / (1 - share), step=0.03, **fields)])


def test_a_loss_whose_interval_lies_about_the_threshold_is_said_to_and_settles_the_matter(build) -> None:
    found = at_share(build, 0.1)
    assert found.at_threshold
    assert found.sure
    assert found.probability < 0.95
    assert found.loss_share.low < 0.1 < found.loss_share.high
    said = verdict(found)
    assert (said.bottleneck, said.at_threshold) == (found.bottleneck, True)
    assert said.summary == "At the threshold: input 10% (9% to 10%) of the step, worth at most 1.12 times."


@pytest.mark.parametrize("share", [0.05, 0.08, 0.12, 0.2])
def test_a_loss_that_lies_to_one_side_of_the_threshold_is_not_at_it(build, share: float) -> None:
    found = at_share(build, share)
    assert found.bottleneck == ("input" if share > 0.1 else "compute")
    assert (found.sure, found.at_threshold) == (True, False)


def test_a_trial_that_ended_early_is_undecided_at_the_threshold_too(build) -> None:
    found = at_share(build, 0.1, status="killed", cause="killed by SIGKILL")
    assert (found.bottleneck, found.at_threshold, found.sure) == ("inconclusive", False, False)


def test_processes_that_lie_to_either_side_of_the_threshold_do_not_disagree(build) -> None:
    waits = (0.03 * share / (1 - share) for share in (0.094, 0.094, 0.106, 0.106))
    found = told([build.ladder(wait=wait, number=number, block=number) for number, wait in enumerate(waits)])
    assert found.at_threshold
    assert found.why_undecided is None


def test_a_first_trial_that_ended_early_is_inconclusive_with_its_cause(build) -> None:
    found = told([build.ladder(wait=0.05, step=0.01, status="killed", cause="killed by SIGKILL")])
    assert found.why_undecided == "the trial ended early (killed by SIGKILL)"
    assert found.figures["wall_s"].value == pytest.approx(0.06, rel=0.02)


def test_nothing_measured_has_a_reason_and_no_number(build) -> None:
    found = build_diagnosis([build.trial("ladder", status="raised", cause="ValueError: no")], MACHINE)
    assert (found.evidence.bottleneck, found.probability, found.figures) == ("inconclusive", 0.0, {})
    assert found.why_undecided == "ValueError: no"
    assert found.evidence.wall_s is None
    assert build_diagnosis([], MACHINE).why_undecided == "no step ended"


def test_the_same_seed_gives_the_identical_result(build) -> None:
    trials = [*eager_run(build), build.ladder(step=0.05, anatomy=build.eager(), block=1, number=2)]
    first, again, other = (told(trials, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(first.figures["p95"].resamples, again.figures["p95"].resamples)
    assert first.evidence.max_speedups == again.evidence.max_speedups
    assert first.evidence.modes == again.evidence.modes
    assert first.probability == again.probability
    assert not np.array_equal(first.figures["wall_s"].resamples, other.figures["wall_s"].resamples)
    assert first.evidence.parts == other.evidence.parts


def test_host_work_that_a_trace_leaves_out_is_no_gain_of_the_mode(build) -> None:
    # 50 ms as given, of which 30 are spent saving; through XLA the rest takes 20 as well.
    anatomy = build.compiled(kinds={"function": 0.4, "io": 0.6})
    given = build.segment("step_only", step_s=[0.05] * 40, calls_s=0.02)
    xla = build.trial("xla", given, build.segment("xla", step_s=[0.02] * 40, calls_s=0.02), number=1)
    found = told([build.ladder(step=0.05, anatomy=anatomy, step_columns={"calls_s": 0.02}), xla])
    assert found.evidence.modes["xla"].speedup.estimate == pytest.approx(1.0, abs=0.01)


def test_the_pipeline_that_one_trial_read_is_known_to_all(build) -> None:
    pipeline = Pipeline(python_functions=(PythonFunction(token="t", kind="generator", name="f", gil="holds"),))
    found = told([build.ladder(), build.trial("pipeline", pipeline=pipeline, number=1)])
    assert found.evidence.pipeline == pipeline
    assert found.evidence.facts.holds_gil


def test_missing_oscillation_has_reasons(build) -> None:
    found = told([build.ladder(steps=30)])
    missing = [name for name, value in found.evidence.oscillation if value is None]
    assert missing
    assert {f"oscillation.{name}" for name in missing} <= set(found.unmeasured)


def test_a_mode_is_compared_turn_by_turn(build) -> None:
    """Neighbours come and go between the rounds, and slow both sides of one alike: 1.2 times stays visible (E8)."""
    rng = np.random.default_rng(0)
    slow = np.repeat(rng.uniform(1.0, 2.0, 8), 4)
    rounds = np.repeat(range(8), 4)
    given = build.segment(
        "step_only", step_s=(step_s := build.noisy(0.06, 32, rng) * slow), calls_s=step_s, round=rounds
    )
    xla = build.segment("xla", step_s=build.noisy(0.05, 32, rng) * slow, round=rounds)
    found = told([build.ladder(step=0.06), build.trial("xla", given, xla, number=1)]).evidence.modes["xla"]
    assert found.speedup.estimate == pytest.approx(1.2, rel=0.03)
    assert 1.1 < found.speedup.low < found.speedup.high < 1.3
    # What it would take then is as uncertain as what it takes now, and the gain besides (E10).
    assert found.time_s.high / found.time_s.low > 1.05 * found.speedup.high / found.speedup.low


@pytest.mark.parametrize(("starts", "alike"), [((0, 0), True), ((0, 40), True), ((0, 90), False)])
def test_processes_that_measured_the_same_batches_are_one_sample_of_the_data(build, starts, alike) -> None:
    trials = [
        build.ladder(block=block, number=block, step_columns={"batch": range(start, start + 120)})
        for block, start in enumerate(starts)
    ]
    alone = build.segment("input_only", wait_s=[0.01] * 20)
    trials = [trial.model_copy(update={"segments": (*trial.segments, alone)}) for trial in trials]
    as_is = {trial.spec.trial_id: measured(trial, "as_is") for trial in trials}
    beside, _, inputs = samples_of(trials, as_is, gate(trials))
    for group in (beside, inputs):
        first, second = (one.data for one in group.values())
        assert (first == second) == alike
