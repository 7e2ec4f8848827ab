from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.analysis.attribution import AVOIDABLE, PARTS, Means, StepFacts, attribute, verdicts

STEP = StepFacts(has_step=True)


def means(wait: float, step: float, *, gap: float = 0.0, **others: float) -> Means:
    """One estimate; ``others`` by field name without ``_s``."""
    fields = {"emulated": 0.0, "compile": 0.0, "outside": 0.0, **others}
    arrays = {f"{name}_s": np.array([value]) for name, value in fields.items()}
    return Means(wall_s=np.array([wait + step + gap]), wait_s=np.array([wait]), step_s=np.array([step]), **arrays)


def told(given_means: Means, facts: StepFacts) -> tuple[dict[str, float], str]:
    """The parts that are not nothing, and the verdict."""
    parts = attribute(given_means, facts)
    assert set(parts) == set(PARTS)
    assert all(part.shape == given_means.wall_s.shape for part in parts.values())
    verdict = str(verdicts(parts, given_means.wall_s)[0])
    return {name: pytest.approx(float(part[0])) for name, part in parts.items() if abs(part[0]) > 1e-12}, verdict


@pytest.mark.parametrize(
    ("given_means", "facts", "parts", "verdict"),
    [
        pytest.param(
            means(0.05, 0.02, gap=0.001),
            StepFacts(True, handoff_s=0.002),
            {"input": 0.048, "dispatch": 0.002, "compute": 0.02, "residual": 0.001},
            "input",
            id="input-beyond-the-hand-over",
        ),
        pytest.param(
            means(0.0002, 0.0003),
            StepFacts(True, handoff_s=0.0005),
            {"dispatch": 0.0002, "compute": 0.0003},
            "dispatch",
            id="a-step-so-short-that-the-hand-over-is-most-of-it",
        ),
        pytest.param(means(0.05, 0.0), StepFacts(False), {"input": 0.05}, "input", id="bare-dataset"),
        pytest.param(
            means(0.05, 0.001, gap=0.002),
            StepFacts(False, handoff_s=0.01),
            {"input": 0.05, "residual": 0.002},
            "input",
            id="bare-dataset-has-no-floor-and-no-step",
        ),
        pytest.param(
            means(0.03, 0.02, emulated=0.02),
            StepFacts(False),
            {"input": 0.03, "compute": 0.02},
            "input",
            id="dataset-with-an-emulated-accelerator",
        ),
        pytest.param(
            means(0.0007, 0.002, emulated=0.002),
            StepFacts(False, handoff_s=0.0001, handoff_after_pause_s=0.0006),
            {"input": 0.0001, "dispatch": 0.0001, "compute": 0.0025},
            "compute",
            id="waking-after-an-emulated-pause-is-not-the-input-s",
        ),
        pytest.param(
            means(0.001, 0.02, emulated=0.02),
            StepFacts(False),
            {"input": 0.001, "compute": 0.02},
            "compute",
            id="emulated-accelerator-that-is-the-limit",
        ),
        pytest.param(
            means(0.0, 0.1, compiled_gain=0.06),
            StepFacts(True, eager=True),
            {"dispatch": 0.06, "compute": 0.04},
            "dispatch",
            id="dispatch-is-what-compiling-saves",
        ),
        pytest.param(
            means(0.0, 0.1, compiled_gain=0.06),
            STEP,
            {"compute": 0.1},
            "compute",
            id="a-compiled-step-has-no-dispatch",
        ),
        pytest.param(
            means(0.0, 0.1, compiled_gain=0.06),
            StepFacts(True, eager=True, host_share=0.1),
            {"dispatch": 0.05, "host": 0.01, "compute": 0.04},
            "dispatch",
            id="what-compiling-saves-holds-the-host-work-too",
        ),
        pytest.param(
            means(0.0, 0.1),
            StepFacts(True, eager=True, dispatch_floor_s=0.03),
            {"dispatch": 0.03, "compute": 0.07},
            "dispatch",
            id="floor-where-compiling-was-not-measured",
        ),
        pytest.param(
            means(0.0, 0.1, compiled_gain=0.001),
            StepFacts(True, eager=True, dispatch_floor_s=0.03),
            {"dispatch": 0.001, "compute": 0.099},
            "compute",
            id="a-measured-gain-beats-the-floor",
        ),
        pytest.param(
            means(0.0, 0.1, compiled_gain=-0.02),
            StepFacts(True, eager=True),
            {"compute": 0.1},
            "compute",
            id="compiling-that-hurts-is-no-negative-dispatch",
        ),
        pytest.param(
            means(0.0, 0.1, emulated=0.07, compiled_gain=0.06),
            StepFacts(True, eager=True),
            {"dispatch": 0.03, "compute": 0.07},
            "dispatch",
            id="dispatch-does-not-eat-the-emulated-wait",
        ),
        pytest.param(
            means(0.0, 0.1, compile=0.06), STEP, {"compile": 0.06, "compute": 0.04}, "compile", id="compilation-recurs"
        ),
        pytest.param(
            means(0.0, 0.1, compile=0.02, compiled_gain=0.08),
            StepFacts(True, recompiles=True),
            {"compile": 0.08, "compute": 0.02},
            "compile",
            id="every-step-compiles-so-the-graph-tells-what-that-costs",
        ),
        pytest.param(
            means(0.0, 0.1, compile=0.02, compiled_gain=0.08, outside=0.02),
            StepFacts(True, recompiles=True, host_share=0.5),
            {"compile": 0.07, "host": 0.01, "compute": 0.02},
            "compile",
            id="but-not-the-host-work-that-the-graph-left-out",
        ),
        pytest.param(
            means(0.0, 0.1, compile=0.02, compiled_gain=0.001),
            StepFacts(True, recompiles=True),
            {"compile": 0.02, "compute": 0.08},
            "compile",
            id="the-clocks-are-the-least",
        ),
        pytest.param(
            means(0.0, 0.1, compile=0.02),
            StepFacts(True, recompiles=True),
            {"compile": 0.02, "compute": 0.08},
            "compile",
            id="the-clocks-where-there-is-no-graph",
        ),
        pytest.param(
            means(0.0, 0.1, outside=0.04),
            StepFacts(True, host_share=0.5),
            {"host": 0.02, "compute": 0.08},
            "host",
            id="host-is-a-share-of-what-is-outside-the-functions",
        ),
        pytest.param(
            means(0.0, 0.1, outside=0.04),
            StepFacts(True, eager=True, host_share=0.5, dispatch_floor_s=0.01),
            {"host": 0.05, "dispatch": 0.01, "compute": 0.04},
            "host",
            id="and-of-the-whole-of-an-eager-step",
        ),
        pytest.param(
            means(0.0, 0.1, outside=0.1, emulated=0.06),
            StepFacts(True, opaque=True, host_share=0.5),
            {"host": 0.02, "compute": 0.08},
            "host",
            id="an-opaque-step-without-its-emulated-wait",
        ),
        pytest.param(
            means(0.001, 0.1, outside=0.1),
            StepFacts(True, opaque=True),
            {"input": 0.001, "compute": 0.1},
            "compute",
            id="a-step-that-sleeps-is-compute",
        ),
        pytest.param(
            means(0.0, 0.1), StepFacts(True, transfer_s=0.03), {"transfer": 0.03, "compute": 0.07}, "transfer"
        ),
        pytest.param(
            means(0.0, 0.01),
            StepFacts(True, transfer_s=0.5),
            {"transfer": 0.01},
            "transfer",
            id="no-more-transfer-than-there-is-step",
        ),
        pytest.param(
            means(0.0, 0.1, alone=0.06),
            StepFacts(True, cores_busy=0.9),
            {"contention": 0.04, "compute": 0.06},
            "contention",
            id="slower-beside-the-input-on-busy-cores",
        ),
        pytest.param(
            means(0.0, 0.1, alone=0.06),
            StepFacts(True, cores_busy=0.5),
            {"compute": 0.1},
            "compute",
            id="slower-for-another-reason-on-idle-cores",
        ),
        pytest.param(
            means(0.0, 0.1, alone=0.06, cpu=0.09),
            StepFacts(True, cores_busy=0.95, allowed_cpus=2.0),
            {"compute": 0.1},
            "compute",
            id="neighbours-leave-too-little-of-cores-that-would-do-for-both",
        ),
        pytest.param(
            means(0.0, 0.1, alone=0.06, cpu=0.13),
            StepFacts(True, cores_busy=0.95, allowed_cpus=2.0),
            {"contention": 0.04, "compute": 0.06},
            "contention",
            id="both-want-more-than-the-cores-have",
        ),
        pytest.param(
            means(0.0, 0.1, alone=0.06, cpu=0.09),
            StepFacts(True, cores_busy=0.95, allowed_cpus=2.0, lost_share=0.4),
            {"contention": 0.04, "compute": 0.06},
            "contention",
            id="the-step-alone-would-be-shorter-without-what-others-took-of-it",
        ),
        pytest.param(
            means(0.0, 0.1, alone=0.06), STEP, {"compute": 0.1}, "compute", id="unknown-cores-are-no-contention"
        ),
        pytest.param(
            means(0.0, 0.1),
            StepFacts(True, cores_busy=1.0, holds_gil=True),
            {"compute": 0.1},
            "compute",
            id="no-contention-without-the-step-alone",
        ),
        pytest.param(
            means(0.0, 0.1, alone=0.06),
            StepFacts(True, cores_busy=0.1, holds_gil=True),
            {"contention": 0.04, "compute": 0.06},
            "contention",
            id="both-need-the-interpreter-lock",
        ),
        pytest.param(
            means(0.0, 0.1, alone=0.06, input_cpu=0.015),
            StepFacts(True, cores_busy=0.9),
            {"contention": 0.015, "compute": 0.085},
            "contention",
            id="the-input-cannot-cost-more-than-the-processor-time-it-takes",
        ),
        pytest.param(
            means(0.0, 0.1, alone=0.098),
            StepFacts(True, cores_busy=0.9),
            {"compute": 0.1},
            "compute",
            id="two-percent-slower-is-noise",
        ),
        pytest.param(
            means(0.03, 0.05, alone=0.05, input_alone=0.04),
            StepFacts(True, cores_busy=0.9),
            {"contention": 0.03, "compute": 0.05},
            "contention",
            id="a-wait-that-the-input-alone-would-not-cause",
        ),
        pytest.param(
            means(0.03, 0.05, alone=0.05, input_alone=0.07),
            StepFacts(True, cores_busy=0.9),
            {"input": 0.02, "contention": 0.01, "compute": 0.05},
            "input",
            id="only-the-wait-beyond-what-the-input-alone-causes",
        ),
        pytest.param(
            means(0.03, 0.05, alone=0.05, input_alone=0.04, input_cpu=0.01),
            StepFacts(True, cores_busy=0.9),
            {"input": 0.02, "contention": 0.01, "compute": 0.05},
            "input",
            id="an-input-that-sleeps-is-late-for-itself",
        ),
        pytest.param(
            means(0.03, 0.07, alone=0.07, input_alone=0.04),
            StepFacts(True, taken_share=0.35),
            {"compute": 0.1},
            "compute",
            id="a-wait-beyond-the-input-s-own-pace-is-the-neighbours",
        ),
        pytest.param(
            means(0.03, 0.07, alone=0.07, input_alone=0.04),
            StepFacts(True, taken_share=0.1),
            {"input": 0.02, "compute": 0.08},
            "input",
            id="but-no-more-of-it-than-they-took",
        ),
        pytest.param(
            means(0.03, 0.07, alone=0.07, input_alone=0.1),
            StepFacts(True, taken_share=0.35),
            {"input": 0.03, "compute": 0.07},
            "input",
            id="an-input-that-is-slower-than-the-step-is-late-for-itself",
        ),
        pytest.param(
            means(0.03, 0.05, alone=0.05, input_alone=0.04),
            StepFacts(True, cores_busy=0.2, holds_gil=True),
            {"input": 0.03, "compute": 0.05},
            "input",
            id="waits-are-the-input-s-on-idle-cores",
        ),
    ],
)
def test_each_part_by_hand(given_means: Means, facts: StepFacts, parts: dict[str, float], verdict: str) -> None:
    assert told(given_means, facts) == (parts, verdict)


def test_all_parts_at_once() -> None:
    # 20 ms wait (1 of hand-over), 100 ms step: 10 compile; of the other 90, alone 70 -> 20 contention; host half of 60
    # outside; eager with a floor of 5; 8 to copy; the rest computes.
    facts = StepFacts(
        True,
        eager=True,
        host_share=1 / 3,
        dispatch_floor_s=0.005,
        handoff_s=0.001,
        transfer_s=0.008,
        cores_busy=0.95,
    )
    given_means = means(0.02, 0.1, gap=0.003, compile=0.01, alone=0.07, input_alone=0.085, input_cpu=0.05)
    parts, verdict = told(given_means, facts)
    assert parts == {
        "input": 0.015,
        "contention": 0.024,
        "compile": 0.01,
        "host": 0.03,
        "dispatch": 0.006,
        "transfer": 0.008,
        "compute": 0.027,
        "residual": 0.003,
    }
    assert verdict == "host"


@pytest.mark.parametrize(("loss", "verdict"), [(0.1, "input"), (0.0999, "compute"), (0.0, "compute")])
def test_a_tenth_of_the_step_is_a_bottleneck(loss: float, verdict: str) -> None:
    parts = {name: np.zeros(1) for name in PARTS} | {"input": np.array([loss]), "compute": np.array([1 - loss])}
    assert verdicts(parts, np.ones(1)).tolist() == [verdict]


@pytest.mark.parametrize("name", AVOIDABLE)
def test_the_largest_avoidable_part_wins_even_over_more_compute(name: str) -> None:
    parts = {part: np.full(2, 0.11) for part in AVOIDABLE} | {"compute": np.full(2, 0.5), "residual": np.full(2, 0.9)}
    assert verdicts(parts | {name: np.array([0.12, 0.01])}, np.ones(2))[0] == name
    assert verdicts(parts | {name: np.array([0.12, 0.01])}, np.ones(2))[1] != name


def test_the_residual_and_compute_are_never_a_bottleneck_that_could_be_avoided() -> None:
    parts = {name: np.zeros(1) for name in PARTS} | {"residual": np.array([0.9])}
    assert verdicts(parts, np.ones(1)).tolist() == ["compute"]


shares = st.floats(0, 1)
seconds = st.floats(0, 2)
maybe = st.none() | seconds


@given(
    wait=seconds,
    step=seconds,
    gap=st.floats(-0.1, 0.1),
    emulated=shares,
    compiling=shares,
    outside=shares,
    alone=maybe,
    gain=st.none() | st.floats(-1, 2),
    input_alone=maybe,
    input_cpu=maybe,
    cpu=maybe,
    facts=st.builds(
        StepFacts,
        has_step=st.just(True),
        eager=st.booleans(),
        opaque=st.booleans(),
        recompiles=st.booleans(),
        host_share=shares,
        dispatch_floor_s=seconds,
        handoff_s=seconds,
        transfer_s=seconds,
        cores_busy=st.none() | st.floats(0, 1.5),
        allowed_cpus=st.none() | st.floats(0.5, 64),
        lost_share=st.floats(0, 0.9),
        taken_share=shares,
        holds_gil=st.booleans(),
    ),
)
def test_parts_are_never_negative_and_add_up_to_the_wall_time(
    wait, step, gap, emulated, compiling, outside, alone, gain, input_alone, input_cpu, cpu, facts
) -> None:
    # Emulated wait, compilation and time outside functions are disjoint pieces of the step.
    emulated_s = step * emulated
    compile_s = (step - emulated_s) * compiling
    outside_s = (step - emulated_s - compile_s) * outside
    optional = {"alone": alone, "compiled_gain": gain, "input_alone": input_alone, "input_cpu": input_cpu, "cpu": cpu}
    given_means = means(
        wait,
        step,
        gap=gap,
        emulated=emulated_s,
        compile=compile_s,
        outside=outside_s,
        **{name: value for name, value in optional.items() if value is not None},
    )
    parts = {name: float(part[0]) for name, part in attribute(given_means, facts).items()}
    assert all(parts[name] >= -1e-12 for name in PARTS if name != "residual"), parts
    assert sum(parts.values()) == pytest.approx(wait + step + gap, abs=1e-9)
    assert parts["residual"] == pytest.approx(gap, abs=1e-9)
    # An input that sets the pace is also charged with what slows the step down while the next batch is not ready yet.
    paces = alone is not None and input_alone is not None and input_alone > alone
    assert parts["input"] <= wait + (max(step - alone, 0.0) if paces else 0.0) + 1e-12
    # Nothing avoidable is taken out of the emulated wait, but what a compiled graph or a copy was measured to cost.
    if not facts.recompiles and facts.transfer_s == 0:
        assert parts["compute"] >= emulated_s - 1e-9
    if not facts.eager:
        assert parts["dispatch"] <= min(wait, facts.handoff_s) + 1e-12


def test_resamples_are_told_apart_one_by_one() -> None:
    def of(*values: float) -> np.ndarray:
        return np.array(values)

    two = Means(of(0.03, 0.03), of(0.02, 0.001), of(0.01, 0.029), of(0, 0), of(0, 0), of(0, 0))
    assert verdicts(attribute(two, STEP), two.wall_s).tolist() == ["input", "compute"]


def test_a_step_slowed_down_by_an_input_that_sets_the_pace_is_not_contention() -> None:
    """The input alone takes 24 ms, the step 3: beside each other the step takes 17, and the wait shrinks by as much."""
    means = Means(
        wall_s=np.array([0.025]),
        wait_s=np.array([0.008]),
        step_s=np.array([0.017]),
        emulated_s=np.array([0.0]),
        compile_s=np.array([0.0]),
        outside_s=np.array([0.0]),
        alone_s=np.array([0.003]),
        input_alone_s=np.array([0.024]),
        input_cpu_s=np.array([0.024]),
    )
    parts = attribute(means, StepFacts(has_step=True, holds_gil=True, cores_busy=0.6))
    assert parts["contention"][0] == pytest.approx(0.001)
    assert parts["input"][0] == pytest.approx(0.008 + 0.014 - 0.001)
    assert sum(part[0] for part in parts.values()) == pytest.approx(0.025)
