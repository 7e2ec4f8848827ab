from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

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


CASES = """
input beyond the hand over: wait=50 step=20 gap=1 | handoff_s=2 | input=48 dispatch=2 compute=20 residual=1 | input
a step so short that the hand over is most of it:
wait=0.2 step=0.3 | handoff_s=0.5 | dispatch=0.2 compute=0.3 | dispatch
an input that is slower than handing over its batches sets the pace:
wait=0.13 step=0.02 alone=0.02 input_alone=0.15 | handoff_s=0.07 | input=0.13 compute=0.02 | input
an input that does nothing but hand over:
wait=0.07 step=0.02 alone=0.02 input_alone=0.07 | handoff_s=0.07 | dispatch=0.07 compute=0.02 | dispatch
an input that does not overlap with the step:
wait=0.13 step=0.1 alone=0.1 input_alone=0.13 | handoff_s=0.07 | input=0.06 dispatch=0.07 compute=0.1 | dispatch
bare dataset: wait=50 step=0 | bare | input=50 | input
bare dataset has no floor and no step: wait=50 step=1 gap=2 | bare handoff_s=10 | input=50 residual=2 | input
dataset with an emulated accelerator: wait=30 step=20 emulated=20 | bare | input=30 compute=20 | input
waking after an emulated pause is not the input's:
wait=0.7 step=2 emulated=2 | bare handoff_s=0.1 handoff_after_pause_s=0.6 | input=0.1 dispatch=0.1 compute=2.5 | compute
emulated accelerator that is the limit: wait=1 step=20 emulated=20 | bare | input=1 compute=20 | compute
dispatch is what compiling saves: step=100 compiled_gain=60 | eager | dispatch=60 compute=40 | dispatch
a compiled step has no dispatch: step=100 compiled_gain=60 | - | compute=100 | compute
what compiling saves holds the host work too:
step=100 compiled_gain=60 | eager host_share=0.1 | dispatch=50 host=10 compute=40 | dispatch
floor where compiling was not measured: step=100 | eager dispatch_floor_s=30 | dispatch=30 compute=70 | dispatch
a measured gain beats the floor:
step=100 compiled_gain=1 | eager dispatch_floor_s=30 | dispatch=1 compute=99 | compute
compiling that hurts is no negative dispatch: step=100 compiled_gain=-20 | eager | compute=100 | compute
dispatch does not eat the emulated wait:
step=100 emulated=70 compiled_gain=60 | eager | dispatch=30 compute=70 | dispatch
what Keras makes anew in each call looks like a wait and like launches:
wait=40 step=60 compiled_gain=40 | eager anew_share=0.6 | input=10 dispatch=10 host=60 compute=20 | host
what Keras makes anew and looks like computing:
wait=10 step=90 | anew_share=0.9 | host=90 compute=10 | host
what Keras makes anew is no wait of an emulated accelerator:
wait=10 step=90 emulated=60 | anew_share=0.9 | host=40 compute=60 | host
what Keras makes anew is host work that was seen already:
step=100 outside=70 | host_share=1 anew_share=0.5 | host=70 compute=30 | host
compilation recurs: step=100 compile=60 | - | compile=60 compute=40 | compile
every step compiles so the graph tells what that costs:
step=100 compile=20 compiled_gain=80 | recompiles | compile=80 compute=20 | compile
but not the host work that the graph left out:
step=100 compile=20 compiled_gain=80 outside=20 | recompiles host_share=0.5 | compile=70 host=10 compute=20 | compile
the clocks are the least: step=100 compile=20 compiled_gain=1 | recompiles | compile=20 compute=80 | compile
the clocks where there is no graph: step=100 compile=20 | recompiles | compile=20 compute=80 | compile
host is a share of what is outside the functions: step=100 outside=40 | host_share=0.5 | host=20 compute=80 | host
and of the whole of an eager step:
step=100 outside=40 | eager host_share=0.5 dispatch_floor_s=10 | host=50 dispatch=10 compute=40 | host
an opaque step without its emulated wait:
step=100 outside=100 emulated=60 | opaque host_share=0.5 | host=20 compute=80 | host
a step that sleeps is compute: wait=1 step=100 outside=100 | opaque | input=1 compute=100 | compute
copies to the device: step=100 | transfer_s=30 | transfer=30 compute=70 | transfer
no more transfer than there is step: step=10 | transfer_s=500 | transfer=10 | transfer
slower beside the input on busy cores: step=100 alone=60 | cores_busy=0.9 | contention=40 compute=60 | contention
slower for another reason on idle cores: step=100 alone=60 | cores_busy=0.5 | compute=100 | compute
neighbours leave too little of cores that would do for both:
step=100 alone=60 cpu=90 | cores_busy=0.95 allowed_cpus=2 | compute=100 | compute
both want more than the cores have:
step=100 alone=60 cpu=130 | cores_busy=0.95 allowed_cpus=2 | contention=40 compute=60 | contention
the step alone would be shorter without what others took of it:
step=100 alone=60 cpu=90 | cores_busy=0.95 allowed_cpus=2 lost_share=0.4 | contention=40 compute=60 | contention
unknown cores are no contention: step=100 alone=60 | - | compute=100 | compute
no contention without the step alone: step=100 | cores_busy=1 holds_gil | compute=100 | compute
both need the interpreter lock: step=100 alone=60 | cores_busy=0.1 holds_gil | contention=40 compute=60 | contention
the input cannot cost more than the processor time it takes:
step=100 alone=60 input_cpu=15 | cores_busy=0.9 | contention=15 compute=85 | contention
two percent slower is noise: step=100 alone=98 | cores_busy=0.9 | compute=100 | compute
a wait that the input alone would not cause:
wait=30 step=50 alone=50 input_alone=40 | cores_busy=0.9 | contention=30 compute=50 | contention
only the wait beyond what the input alone causes:
wait=30 step=50 alone=50 input_alone=70 | cores_busy=0.9 | input=20 contention=10 compute=50 | input
an input that sleeps is late for itself:
wait=30 step=50 alone=50 input_alone=40 input_cpu=10 | cores_busy=0.9 | input=20 contention=10 compute=50 | input
a wait beyond the input's own pace is the neighbours:
wait=30 step=70 alone=70 input_alone=40 | taken_share=0.35 | compute=100 | compute
but no more of it than they took:
wait=30 step=70 alone=70 input_alone=40 | taken_share=0.1 | input=20 compute=80 | input
an input that is slower than the step is late for itself:
wait=30 step=70 alone=70 input_alone=100 | taken_share=0.35 | input=30 compute=70 | input
waits are the input's on idle cores:
wait=30 step=50 alone=50 input_alone=40 | cores_busy=0.2 holds_gil | input=30 compute=50 | input
"""
"""What a case shows: means | facts | the parts that are not nothing | the verdict; in ms, no wait unless given."""


def numbers(text: str) -> dict[str, Any]:
    """``wait=50 eager`` as keyword arguments; a fact that is a time or a mean in seconds."""
    pairs = [pair.split("=") for pair in text.split() if pair != "-"]
    shares = {field.name for field in fields(StepFacts) if not field.name.endswith("_s")}
    return {name: float(value[0]) / (1 if name in shares else 1e3) if value else True for name, *value in pairs}


def case(text: str):
    """One entry of the table."""
    name, row = text.split(":")
    given, facts, parts, verdict = (cell.strip() for cell in row.split("|"))
    known = numbers(facts)
    step = StepFacts(not known.pop("bare", False), **known)
    return pytest.param(
        means(**{"wait": 0.0} | numbers(given)), step, numbers(parts), verdict, id=name.replace(" ", "-")
    )


@pytest.mark.parametrize(
    ("given_means", "facts", "parts", "verdict"),
    [case(text) for text in re.sub(r":\n", ":", CASES).split("\n") if text],
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
        anew_share=st.just(0.0) | shares,
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
