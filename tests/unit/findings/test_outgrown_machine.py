from __future__ import annotations

import pytest

from tests.unit.findings.made import only, op, silent
from xttsbench.findings.processors import outgrown_machine
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, PythonFunction

ENVIRONMENT = {"cpu": {"allowed_cpus": 2.0}}
SOURCE = op("Range/_1", "RangeDataset", cost_s=0.0, cardinality=1000)
DECODE = op("Map/_2", "MapDataset", "Range/_1", cost_s=0.09, location=Location(file="data.py", line=7))
PYTHON = op("Map/_3", "MapDataset", "Map/_2", cost_s=0.01, python_functions=("t",))
LOAD = PythonFunction(token="t", kind="py_function", name="load", location=Location(file="data.py", line=3))


def full(evidence, build, bottleneck: str, cpu_s: float | None, pipeline: Pipeline):
    """Steps of 0.1 s on two processors."""
    cpu = None if cpu_s is None else build.estimate(cpu_s)
    return evidence(bottleneck, wall_s=0.1, input_cpu_s=cpu, pipeline=pipeline, environment=ENVIRONMENT)


def test_it_says_what_of_the_input_could_run_elsewhere(evidence, build) -> None:
    pipeline = Pipeline(ops=(SOURCE, DECODE, PYTHON), python_functions=(LOAD,))
    found = only(outgrown_machine, full(evidence, build, "input", 0.19, pipeline))
    assert found.title == "the input uses all processors of this machine: 90% of its work can run on others"
    assert (found.limiting, found.location.line) == (True, 7)
    assert found.evidence["after"] == "Map/_2"
    assert found.evidence["sharding"] == "DYNAMIC, DATA"
    assert "--try service:2" in found.remedy
    assert "data.py:3: it calls the Python py_function load" in found.remedy


def test_it_names_the_line_that_keeps_all_of_it(evidence, build) -> None:
    ops = (SOURCE, PYTHON.model_copy(update={"inputs": ("Range/_1",)}))
    pipeline = Pipeline(ops=ops, python_functions=(LOAD,))
    found = only(outgrown_machine, full(evidence, build, "input", 0.19, pipeline))
    assert found.title == "the input uses all processors of this machine, and nothing of it can run elsewhere yet"
    assert found.location.line == 3


@pytest.mark.parametrize(("bottleneck", "cpu_s"), [("input", 0.1), ("compute", 0.2), ("input", None)])
def test_it_is_silent_where_more_machines_would_not_help(evidence, build, bottleneck: str, cpu_s: float | None) -> None:
    assert silent(outgrown_machine, full(evidence, build, bottleneck, cpu_s, Pipeline(ops=(SOURCE, DECODE))))
