"""Time of ops from a profile: each without what is inside it, and none twice; read from events made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.step.graph_ops import (
    ASKED,
    INT32,
    NO_KERNEL,
    PLACER,
    STRINGS,
    short_device,
    why,
)
from xttsbench.step.op_trace import Call, OpEvent, OpTrace, op_names, op_times, read_events

S = 10**12


def op(name, start, end, lane=0, kind="MatMul", **fields):
    return OpEvent(name, kind, "CPU:0", (1, lane), round(start * S), round(end * S), **fields)


def test_an_op_inside_another_is_counted_once():
    found = {time.name: time for time in op_times([op("outer", 0, 1.0), op("inner", 0.2, 0.5)], [])}
    assert found["outer"].time_s == pytest.approx(0.7)
    assert found["inner"].time_s == pytest.approx(0.3)


def test_threads_are_summed_and_calls_only_wait():
    events = [op("a", 0, 1), op("a", 0, 1, lane=1), op("call", 0, 3, lane=2, kind="StatefulPartitionedCall")]
    (found,) = op_times(events, [])
    assert (found.count, found.time_s) == (2, pytest.approx(2.0))


def test_an_op_belongs_to_the_call_that_it_ran_in():
    calls = [Call("first", 0, 2 * S), Call("second", 2 * S, 4 * S)]
    found = op_times([op("a", 0.5, 1), op("a", 2.5, 3)], calls)
    assert [time.function for time in found] == ["first", "second"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=30))
def test_times_on_one_thread_never_exceed_what_is_covered(spans):
    # Properly nested spans: each is cut to what contains it, as on a real thread.
    events = [OpEvent("x", "Mul", "CPU:0", (0, 0), start, start + length) for start, length in spans]
    nested, ends = [], []
    for event in sorted(events, key=lambda event: (event.start_ps, -event.end_ps)):
        while ends and ends[-1] <= event.start_ps:
            ends.pop()
        cut = event._replace(end_ps=min([event.end_ps, *ends]))
        nested.append(cut)
        ends.append(cut.end_ps)
    covered = len({tick for event in nested for tick in range(event.start_ps, event.end_ps)})
    assert sum(time.time_s for time in op_times(nested, [])) == pytest.approx(covered / S)


def event(name, start, duration, device=1, **args):
    return SimpleNamespace(
        name=name, timestamp_ps=start, duration_ps=duration, device_id=device, resource_id=7, args=args
    )


def test_events_of_host_gpu_and_xla():
    events = [
        event("MatMul", 5, 10, long_name="scope/MatMul_1:MatMul"),
        event("EagerExecute", 0, 100, is_func="1", eager_op="__inference_step_5"),
        event("EagerExecute", 0, 100, is_func="0", eager_op="MatMul"),
        event("dot.3", 7, 3, hlo_op="dot.3", hlo_module="m"),
        event("ampere_sgemm", 20, 30, device=2, tf_op="scope/MatMul_1:MatMul"),
        event("ThreadpoolListener::Record", 0, 0),
    ]
    ops, calls = read_events(events, {1: "/host:CPU", 2: "/device:GPU:0 NVIDIA"})
    assert [(one.name, one.op, one.device, one.instruction) for one in ops] == [
        ("scope/MatMul_1", "MatMul", "CPU:0", False),
        ("dot.3", "", "CPU:0", True),
        ("scope/MatMul_1", "MatMul", "GPU:0", False),
    ]
    assert calls == [Call("__inference_step_5", 0, 100)]


@pytest.mark.measured
@pytest.mark.parametrize(("runs_before", "least", "most"), [(1, 60, 60), (300, 0, 6)])
def test_of_cheap_ops_a_real_function_shows_the_first_runs(runs_before, least, most):
    """The second case is a limit of the profiler, held down here so that we learn when it goes away.

    A kernel that others hold up looks dear for once, and is seen.
    """

    @tf.function
    def step(batch):
        for number in range(20):
            batch = tf.tanh(batch + float(number))
        return batch

    batch = tf.ones([4])
    for _ in range(runs_before):  # after hundreds of runs the executor has learnt that these kernels are cheap
        step(batch)
    with OpTrace() as trace:
        for _ in range(3):
            step(batch)
    assert trace.reason is None
    counts = {time.name: time.count for time in trace.times()}
    assert least <= sum(count for name, count in counts.items() if name.startswith("Tanh")) <= most
    assert {call.function.startswith("__inference_step") for call in trace.calls} == {True}


def test_another_profiler_is_left_alone(tmp_path):
    tf.profiler.experimental.start(str(tmp_path))
    try:
        with OpTrace() as trace:
            tf.ones([2])
    finally:
        tf.profiler.experimental.stop()
    assert trace.reason is None or "profiler" in trace.reason
    assert trace.times() == [] or trace.reason is None


MODULE = """
HloModule a_inference_step, is_scheduled=true
%fused (param_0: f32[8]) -> f32[8] {
  %param_0 = f32[8]{0} parameter(0)
  ROOT %tanh.1 = f32[8]{0} tanh(%param_0), metadata={op_type="Tanh" op_name="Tanh"}
}
ENTRY %main {
  %arg0.1 = f32[8]{0} parameter(0), metadata={op_name="XLA_Args"}
  %MatMul_1.6 = f32[8,8]{1,0} dot(%a, %b), lhs={1}, metadata={op_type="MatMul" op_name="gradient_tape/matmul/MatMul_1" source_line=3}
  %copy.2 = f32[8]{0} copy(%arg0.1)
  ROOT %wrapped_tanh = f32[8]{0} fusion(%arg0.1), calls=%fused, metadata={op_type="Tanh" op_name="scope/Tanh"}
}
"""  # noqa: E501


def test_instructions_lead_to_ops() -> None:
    found = op_names(MODULE)
    assert found["MatMul_1.6"] == ("gradient_tape/matmul/MatMul_1", "MatMul")
    assert found["wrapped_tanh"] == ("scope/Tanh", "Tanh"), "a fusion is named after its root"
    assert found["tanh.1"] == ("Tanh", "Tanh")
    assert found["arg0.1"] == ("XLA_Args", "")


def test_what_has_no_metadata_is_left_out() -> None:
    assert "copy.2" not in op_names(MODULE)
    assert op_names("") == {}


BOTH = ("CPU", "GPU")


@pytest.mark.parametrize(
    ("device", "requested", "kernels", "dtypes", "reason"),
    [
        ("CPU:0", "/device:CPU:0", BOTH, (), ASKED),
        ("CPU:0", "/CPU:0", BOTH, (), ASKED),
        ("CPU:0", "/job:localhost/replica:0/task:0/device:CPU:0", BOTH, (), ASKED),
        ("CPU:0", "/GPU:0", ("CPU",), (), NO_KERNEL),
        ("CPU:0", "", ("CPU",), ("string",), NO_KERNEL),
        ("CPU:0", "", BOTH, ("string",), STRINGS),
        ("CPU:0", "", BOTH, ("int32",), INT32),
        ("CPU:0", "", BOTH, ("float32", "int32"), PLACER),
        ("CPU:0", "", (), (), PLACER),
        ("GPU:0", "", BOTH, (), PLACER),
        ("GPU:0", "/GPU:0", BOTH, (), ASKED),
    ],
)
def test_why_beside_a_gpu(device: str, requested: str, kernels: Sequence[str], dtypes: Sequence[str], reason: str):
    assert why(device, requested, kernels, dtypes) == reason


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ("/job:localhost/replica:0/task:0/device:GPU:1", "GPU:1"),
        ("/device:cpu:0", "CPU:0"),
        ("/GPU:0", "GPU:0"),
        ("GPU", "GPU:0"),
        ("", "CPU:0"),
    ],
)
def test_a_device_by_its_short_name(long: str, short: str) -> None:
    assert short_device(long) == short
