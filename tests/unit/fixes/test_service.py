"""The fix ``service:n``: only where it is asked for, with what it would give, or the reason why it cannot be."""

from __future__ import annotations

import pytest

from tests.unit.fixes.fake_datasets import FILE, patch_of
from tests.unit.fixes.pipelines import BATCH, DECODE, ENVIRONMENT, PYTHON, RANGE, pipeline, python
from xttsbench.evidence import Evidence
from xttsbench.fixes.proposals import proposals
from xttsbench.fixes.service import candidates
from xttsbench.fixes.spec import Setting
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline

WAITS = DECODE | {"op": "MapDataset", "stateful": True, "cpu_s": 0.002}


def evidence(given: Pipeline, *asked: str, wall_s: float = 0.09) -> Evidence:
    return Evidence(
        kind="dataset",
        has_step=False,
        emulated=True,
        bottleneck="input",
        wall_s=wall_s,
        parts={"input": wall_s - 0.01, "compute": 0.01},
        pipeline=given,
        environment=ENVIRONMENT,
        asked=asked,
    )


def of(given: Pipeline, *asked: str, **fields: float):
    return {one.name: one for one in proposals(evidence(given, *asked, **fields))}


def test_it_is_proposed_only_where_it_was_asked_for() -> None:
    given = pipeline(RANGE, WAITS, BATCH)
    assert not any(name.startswith("service") for name in of(given))
    given = pipeline(RANGE, WAITS, BATCH | {"location": Location(file="data.py", line=7)})
    found = of(given, "service:2")["service:2"]
    assert (found.worth, found.why_not) == (True, None)
    assert found.places[0].line == 7


def test_two_workers_are_expected_to_give_a_waiting_input_twice_its_pace() -> None:
    (fix,) = candidates(Setting(pipeline(RANGE, WAITS, BATCH), 2, ENVIRONMENT, workers=2))
    assert fix.edit is not None
    (served,) = fix.edit(pipeline(RANGE, WAITS, BATCH)).ops
    assert served.parallelism == 2
    assert served.cost_s == pytest.approx(0.08, rel=0.1)


def test_workers_that_compute_share_the_processors_that_there_are() -> None:
    computes = pipeline(RANGE, DECODE | {"parallelism": 2}, BATCH)
    found = of(computes, "service:2", wall_s=0.045)["service:2"]
    assert found.predicted_speedup == pytest.approx(1.0, abs=0.1)
    assert found.worth  # it was asked for


def test_it_is_refused_with_the_line_that_keeps_the_pipeline_here() -> None:
    function = python("holds", location=Location(file="data.py", line=3))
    found = of(pipeline(RANGE, PYTHON, BATCH, python_functions=(function,)), "service:2")["service:2"]
    assert not found.worth
    assert "data.py:3" in (found.why_not or "")


def test_a_range_of_tiny_elements_is_refused_since_each_is_handed_out_by_itself() -> None:
    tiny = RANGE | {"elements_per_batch": 1000.0}
    cheap = DECODE | {"cost_s": 0.09, "elements_per_batch": 1000.0}
    found = of(pipeline(tiny, cheap, BATCH | {"batch_size": 1000}), "service:2")["service:2"]
    assert not found.worth
    assert "hands out the 1,000 elements" in (found.why_not or "")


def test_what_was_asked_for_and_does_not_apply_is_said() -> None:
    found = of(pipeline(RANGE, WAITS, BATCH), "cache@nothing")["cache@nothing"]
    assert (found.worth, found.why_not) == (False, "it was asked for, and would change nothing here")


PATCHED = """{imports}
import tensorflow as tf


def make():
    names = tf.data.Dataset.range(8)
    return names.map(lambda one: one).batch(2)
"""


@pytest.mark.parametrize(
    ("imports", "inserted"),
    [("import os", 0), ("import json, os", 0), ("import os.path", 0), ("import os as system", 1), ("import json", 1)],
)
def test_a_patch_imports_os_where_the_file_has_it_under_no_such_name(imports: str, inserted: int) -> None:
    patch = patch_of(PATCHED.format(imports=imports), "service:2")
    assert patch.unpatched == {}
    assert patch.files[FILE].count("    import os\n") == inserted
    assert 'os.environ["TF_DATA_SERVICE"]' in patch.files[FILE]


def test_a_file_with_another_os_is_not_patched() -> None:
    patch = patch_of(PATCHED.format(imports="import platform as os"), "service:2")
    assert "another os" in patch.unpatched["service:2"]
