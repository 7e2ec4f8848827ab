from __future__ import annotations

import numpy as np
import pytest

from xttsbench.analysis.disturbance import Gate
from xttsbench.analysis.steps import steps_of
from xttsbench.evidence import given_mode, is_eager, is_opaque, step_facts
from xttsbench.records.pipeline import Pipeline, PythonFunction
from xttsbench.records.readings import HostReadings, Readings

MACHINE = {"cpu": {"allowed_cpus": 2.0}}


def facts_of(build, trials, *, anatomy=None, pipeline=None, environment=MACHINE, **changes):
    series = [steps_of(trial.segment("as_is")) for trial in trials]
    given = {"has_step": True, "judged": Gate(frozenset(), frozenset())} | changes
    return step_facts(trials, series, anatomy, pipeline, environment, **given)


@pytest.mark.parametrize(
    ("ops", "calls", "eager"), [(0, 1, False), (9, 0, False), (10, 0, True), (0, 10, True), (6, 5, True)]
)
def test_many_launches_from_python_are_eager(build, ops: float, calls: float, eager: bool) -> None:
    assert is_eager(build.compiled(eager_ops_per_step=ops, function_calls_per_step=calls)) is eager
    assert not is_eager(None)


@pytest.mark.parametrize(
    ("changes", "opaque"),
    [
        ({"kinds": {"python": 1.0}}, True),
        ({"kinds": {"python": 0.81, "tensorflow": 0.19}}, True),
        ({"kinds": {"python": 0.8, "tensorflow": 0.2}}, False),
        ({"kinds": {"python": 0.8, "function": 0.1, "tensorflow": 0.1}}, False),
        ({"kinds": {"python": 1.0}, "function_calls_per_step": 1.0}, False),
        ({"kinds": {"python": 1.0}, "eager_ops_per_step": 50.0}, False),
        ({"kinds": {}}, True),
    ],
)
def test_a_step_without_functions_and_with_little_tensorflow_is_opaque(build, changes, opaque: bool) -> None:
    assert is_opaque(build.opaque(**changes)) is opaque
    assert not is_opaque(None)


def test_the_host_s_share_of_an_eager_step_is_that_of_the_whole(build) -> None:
    anatomy = build.eager(kinds={"tensorflow": 0.6, "python": 0.25, "io": 0.1, "sync": 0.05})
    found = facts_of(build, [build.ladder()], anatomy=anatomy)
    assert (found.eager, found.opaque) == (True, False)
    assert found.host_share == pytest.approx(0.35)
    assert found.dispatch_floor_s == pytest.approx(100 * 2e-5)


@pytest.mark.parametrize(
    ("kinds", "samples", "share"),
    [
        ({"function": 0.5, "python": 0.3, "tensorflow": 0.2}, 100, 0.6),
        ({"function": 0.5, "io": 0.5}, 100, 1.0),
        ({"function": 1.0}, 100, 1.0),  # nothing sampled outside: what is outside can only be the host's
        ({"function": 0.5, "python": 0.1, "tensorflow": 0.4}, 19, 1.0),  # too few samples to tell
        ({"function": 0.5, "tensorflow": 0.5}, 100, 0.0),
    ],
)
def test_the_host_s_share_of_a_compiled_step_is_that_of_what_is_outside(build, kinds, samples, share) -> None:
    found = facts_of(build, [build.ladder()], anatomy=build.compiled(kinds=kinds, samples=samples))
    assert found.host_share == pytest.approx(share)
    assert not found.eager


def test_an_opaque_step_that_is_steady_has_no_host_share_and_one_that_stalls_has(build) -> None:
    rng = np.random.default_rng(2)
    calm = build.noisy(0.01, 200, rng, cv=0.01)
    stalls = calm + 0.1 * (np.arange(200) % 20 == 0)
    steady, stalling = (
        facts_of(build, [build.trial("ladder", build.segment(step_s=step))], anatomy=build.opaque())
        for step in (calm, stalls)
    )
    assert steady.opaque
    assert steady.host_share == 0.0
    assert stalling.host_share == pytest.approx(0.1 / 20 / (0.01 + 0.1 / 20), rel=0.05)


def test_without_an_anatomy_nothing_is_claimed(build) -> None:
    found = facts_of(build, [build.ladder()])
    assert (found.eager, found.opaque, found.host_share, found.dispatch_floor_s) == (False, False, 0.0, 0.0)


def test_a_step_that_compiles_nearly_every_time_recompiles(build) -> None:
    def compiling(share: float):
        traces = (np.arange(100) < 100 * share).astype(int)
        return facts_of(build, [build.ladder(steps=100, step_columns={"traces": traces})])

    assert compiling(0.95).recompiles
    assert not compiling(0.8).recompiles


def test_hand_over_and_transfer_are_means_over_the_trials_that_have_them(build) -> None:
    trials = [build.ladder(handoff_s=1e-5, transfer_s=2e-3), build.ladder(handoff_s=3e-5), build.ladder(handoff_s=None)]
    found = facts_of(build, trials)
    assert found.handoff_s == pytest.approx(2e-5)
    assert found.handoff_after_pause_s == 0.0  # measured in none
    assert found.transfer_s == pytest.approx(2e-3)


@pytest.mark.parametrize(
    ("gil", "holds"), [("holds", True), ("blocks", False), ("releases", False), ("unknown", False)]
)
def test_a_python_function_that_holds_the_lock(build, gil: str, holds: bool) -> None:
    pipeline = Pipeline(python_functions=(PythonFunction(token="t", kind="py_function", name="f", gil=gil),))
    assert facts_of(build, [build.ladder()], pipeline=pipeline).holds_gil is holds


def test_cores_busy_is_the_process_s_own_share_of_those_it_may_use(build) -> None:
    segment = build.segment(step_s=[0.1] * 10, cpu_s=0.15)
    assert facts_of(build, [build.trial("ladder", segment)]).cores_busy == pytest.approx(0.75)
    four = {"cpu": {"allowed_cpus": 4}}
    assert facts_of(build, [build.trial("ladder", segment)], environment=four).cores_busy == pytest.approx(0.375)


def test_of_what_others_left_and_their_own_use_does_not_count(build) -> None:
    """A neighbour on one of two cores leaves one; stolen time leaves less, and neither is work of the target."""
    times = tuple(10**9 + offset * 10**8 for offset in range(11))
    elapsed = np.linspace(0, 1, 11)

    def busy(own: float, foreign: float, steal: float) -> float | None:
        segment = build.segment(step_s=[0.1] * 10, cpu_s=own / 10)
        host = HostReadings(
            t_ns=times,
            allowed_cpus=2,
            cpu_s=tuple(own * elapsed),
            machine_busy_s=tuple((own + foreign) * elapsed),
            machine_steal_s=tuple(steal * elapsed),
            machine_idle_s=tuple((2 - own - foreign - steal) * elapsed),
        )
        return facts_of(build, [build.trial("ladder", segment, readings=Readings(host=host))]).cores_busy

    assert busy(0.4, 0.0, 0.0) == pytest.approx(0.2)
    assert busy(0.4, 1.2, 0.0) == pytest.approx(0.5)
    assert busy(0.4, 0.0, 1.2) == pytest.approx(0.5)
    assert busy(1.0, 1.0, 0.0) == pytest.approx(1.0)


def test_one_saturated_process_of_two_does_not_stand_for_both(build) -> None:
    calm, full = (build.trial("ladder", build.segment(step_s=[0.1] * 10, cpu_s=cpu_s)) for cpu_s in (0.02, 0.2))
    assert facts_of(build, [calm, full]).cores_busy == pytest.approx(0.55)


def test_what_children_use_is_the_target_s_own(build) -> None:
    segment = build.segment(step_s=[0.1] * 10, cpu_s=0.01)
    times = tuple(10**9 + offset * 10**8 for offset in range(11))
    host = HostReadings(t_ns=times, allowed_cpus=2, cpu_s=tuple(1.8 * np.linspace(0, 1, 11)))
    trial = build.trial("ladder", segment, readings=Readings(host=host))
    assert facts_of(build, [trial]).cores_busy == pytest.approx(0.9)


@pytest.mark.parametrize("environment", [{}, {"cpu": None}, {"cpu": {"allowed_cpus": None}}, {"cpu": {}}])
def test_how_busy_is_not_known_where_the_cores_are_not(build, environment) -> None:
    assert facts_of(build, [build.ladder()], environment=environment).cores_busy is None


def test_how_the_step_runs_as_given(build) -> None:
    plain, with_xla = build.ladder(), build.ladder(step_columns={"xla_compiles": 1})

    def mode(trial, anatomy=None, **changes):
        return given_mode([trial], facts_of(build, [trial], anatomy=anatomy, **changes))

    assert mode(plain, has_step=False) == "none"
    assert mode(plain, build.opaque()) == "opaque"
    assert mode(plain, build.eager()) == "eager"
    assert mode(plain, build.compiled()) == "graph"
    assert mode(with_xla, build.compiled()) == "xla"


def test_what_others_took_of_the_step_alone_is_taken_out_of_what_the_cores_can_give(build) -> None:
    times = tuple(10**9 + offset * 10**8 for offset in range(11))
    elapsed = np.linspace(0, 1, 11)

    def lost(own: float, foreign: float, waited: float, steal: float = 0.0) -> float:
        host = HostReadings(
            t_ns=times,
            allowed_cpus=2,
            cpu_s=tuple(own * elapsed),
            machine_busy_s=tuple((own + foreign) * elapsed),
            machine_steal_s=tuple(steal * elapsed),
            machine_idle_s=tuple((2 - own - foreign - steal) * elapsed),
            run_delay_s=tuple(waited * elapsed),
        )
        alone = build.segment("step_only", step_s=[0.1] * 10)
        trial = build.trial("ladder", build.segment(step_s=[0.1] * 10), alone, readings=Readings(host=host))
        return facts_of(build, [trial]).lost_share

    assert lost(own=1.0, foreign=0.0, waited=0.5) == 0.0  # its own threads waited for one another
    assert lost(own=1.0, foreign=0.9, waited=1.0) == pytest.approx(0.5)
    assert lost(own=1.0, foreign=0.0, waited=0.0, steal=1.0) == pytest.approx(0.5)
    assert lost(own=1.0, foreign=0.9, waited=0.0) == 0.0  # a neighbour on the core that it does not need
