"""Costs from the calls of Python functions, where an op has no other."""

from __future__ import annotations

import pytest

from xttsbench.pipeline.cost.python_costs import with_python_costs
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction


def filled(op="MapDataset", calls=4.0, **fields):
    function = PythonFunction(
        token="pyfunc_1", kind="numpy_function", name="f", call_time_s=0.010, call_cpu_s=0.002, calls_per_batch=calls
    )
    pipeline = Pipeline(
        ops=(PipelineOp(name="m", op=op, python_functions=("pyfunc_1",), **fields), PipelineOp(name="b", op="Batch")),
        python_functions=(function,),
    )
    return with_python_costs(pipeline).ops


def test_an_op_without_figures_gets_those_of_its_calls_and_others_stay():
    mapped, batch = filled()
    assert (mapped.cost_s, mapped.cpu_s) == (pytest.approx(0.040), pytest.approx(0.008))
    assert batch.cost_s is None
    assert batch.cpu_s is None


def test_a_measured_cost_stays_and_processor_time_is_at_least_that_of_the_calls():
    assert filled(cost_s=0.050, cpu_s=0.020)[0].cpu_s == 0.020
    assert filled(cost_s=0.050, cpu_s=0.001)[0].cpu_s == pytest.approx(0.008)
    assert filled(cost_s=0.050, cpu_s=0.001)[0].cost_s == 0.050


def test_a_map_calls_once_per_element_though_buffers_made_it_call_more():
    assert filled(calls=9.0, elements_per_batch=4.0)[0].cpu_s == pytest.approx(0.008)
    assert filled("FlatMapDataset", calls=9.0, elements_per_batch=4.0)[0].cpu_s == pytest.approx(0.018)


def test_calls_that_were_not_counted_say_nothing():
    assert filled(calls=None)[0].cost_s is None
